//! The sweep's turn as the script takes and answers it.

use presence_model::hold::HoldCause;
use presence_model::member::{Due, DueCause};
use presence_model::time::{StoreTime, millis};

use super::Inner;
use super::arguments::Arguments;
use super::leases::note;
use super::owner::Owner;
use super::reader::{Reader, epoch_text, number, unexpected};
use super::script::TURN;
use crate::store::{Command, DueLease, HoldState, Outcome, StoreFault, TurnOutcome};

impl Inner {
    /// Any other command than a turn is a defect of the caller.
    pub(super) async fn turn(&self, command: Command) -> Result<Outcome, StoreFault> {
        let Command::Turn { shard, holder, finished, kept, smallest_ttl, takeover, stepped, known, portion } =
            command
        else {
            return Err(unexpected("a command that is no turn"));
        };
        self.check_shard(shard)?;
        let mut arguments = Arguments::default();
        arguments.hex(holder);
        arguments.text(&finished.map(|turn| turn.to_string()).unwrap_or_default());
        arguments.number(millis(kept));
        arguments.number(millis(smallest_ttl));
        arguments.number(millis(takeover));
        arguments.text(if stepped { "1" } else { "0" });
        arguments.text(&known.map(epoch_text).unwrap_or_default());
        arguments.hex(self.random());
        arguments.number(portion as u64);
        arguments.retention(&self.retention);
        let answer = self.write(&TURN, &self.keys.shard(shard), arguments).await?;
        let mut reader = Reader::new(answer)?;
        let (mine, turn, now, epoch) = (reader.flag()?, reader.number()?, reader.time()?, reader.epoch()?);
        let hold = hold(&mut reader)?;
        let (new_hold, swept) = (reader.flag()?, Some(reader.time()?));
        if hold.is_some_and(|hold| new_hold && hold.cause == HoldCause::StoreChanged) {
            self.epochs.notify_one();
        }
        self.note_place(shard, epoch, reader.number()?);
        let mut due = Vec::new();
        while !reader.is_done() {
            due.push(due_lease(&mut reader)?);
        }
        Ok(Outcome::Turn(TurnOutcome { mine, turn, now, epoch, hold, new_hold, swept, due }))
    }
}

/// Start and cause of a hold, two empty texts if there is none.
pub(super) fn hold(reader: &mut Reader) -> Result<Option<HoldState>, StoreFault> {
    let (since, cause) = (reader.text()?, reader.text()?);
    if since.is_empty() {
        return Ok(None);
    }
    let cause = match cause.as_str() {
        "store_changed" => HoldCause::StoreChanged,
        "clock_step" => HoldCause::ClockStep,
        "sweep_gap" => HoldCause::SweepGap,
        other => return Err(unexpected(other)),
    };
    Ok(Some(HoldState { since: StoreTime(number(&since)?), cause }))
}

fn due_lease(reader: &mut Reader) -> Result<DueLease, StoreFault> {
    let (lease, clock, deadline) = (reader.lease()?, reader.text()?, reader.time()?);
    let shortened = note(&reader.text()?)?;
    let (roster, user, session) = Owner::parse(&reader.bytes()?)?;
    let cause = match clock.as_str() {
        "token" => DueCause::TokenEnd,
        _ => DueCause::Deadline { deadline, shortened },
    };
    Ok(DueLease { roster, user, session, due: Due { lease, cause } })
}
