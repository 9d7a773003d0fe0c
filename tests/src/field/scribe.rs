//! What the store committed, read off its history while things happen, and when the machine itself stood still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use presence_core::store::redis::{RedisSettings, RedisStore, Topology};
use presence_core::store::{Command, HistoryOutcome, LeaseStore as _, Outcome};
use presence_model::change::Committed;
use presence_model::id::Roster;
use presence_model::position::Position;
use presence_model::time::{StoreTime, millis};
use presence_runtime::clock::Clock;

use crate::cast::{Recorder, shown};
use crate::history::{Gone, Members, Place, What};

/// Between two looks: what is committed within it may be lost with the data, and is then known to nobody.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Commits that are read at once, and members: more than there are.
const PAGE: usize = 1_000;
/// Both clocks are read in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// Between two beats of the pulse.
const PULSE_EVERY: Duration = Duration::from_millis(50);
/// A beat that is late by more shows that nobody ran in time.
pub(super) const PULSE_LATE: Duration = Duration::from_millis(350);

/// Reads the commits of one room as they happen.
pub(super) struct Scribe {
    store: RedisStore,
    roster: Roster,
    recorder: Recorder,
    /// The store's clock when that of the recorder was nought: both are this machine's.
    began: StoreTime,
    /// Up to where commits are written down.
    at: Option<Position>,
}

impl Scribe {
    /// One who asks that server, past all that may happen on the way to it.
    pub(super) async fn new(
        server: String,
        roster: Roster,
        (recorder, clock): (Recorder, &Clock),
    ) -> anyhow::Result<Self> {
        let settings = RedisSettings::new(Topology::Standalone { server }, rand::random());
        let store = RedisStore::connect(settings).await?;
        let began = StoreTime(clock.wall_ms() - millis(recorder.now()));
        Ok(Self { store, roster, recorder, began, at: None })
    }

    /// Reads on and on.
    pub(super) async fn read(mut self) {
        loop {
            match self.at {
                None => self.begin().await,
                Some(after) => self.read_on(after).await,
            }
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// All that is there, in an epoch of which nothing is known yet.
    async fn begin(&mut self) {
        let load = Command::Load { roster: self.roster.clone(), after: None, count: PAGE };
        let Ok(Outcome::Page { now, position, members, .. }) = self.store.execute(load).await else { return };
        let members: Members = members.iter().map(|(member, _)| shown(member)).collect();
        let users: Vec<&String> = members.keys().collect();
        self.recorder.line("store", format_args!("begins {position} with {users:?}"));
        self.recorder.event_at(self.time(now), What::Roster { position, members: Arc::new(members) });
        self.at = Some(position);
    }

    async fn read_on(&mut self, after: Position) {
        let history = Command::History { roster: self.roster.clone(), after, count: PAGE };
        match self.store.execute(history).await {
            Ok(Outcome::History(HistoryOutcome::Commits(commits))) => {
                commits.iter().for_each(|commit| self.write_down(commit));
            }
            Ok(Outcome::History(
                HistoryOutcome::Compacted { position } | HistoryOutcome::Ahead { position },
            )) => {
                // A store that lost its tail is asked again once it has another epoch: nothing is true before.
                if position.epoch > after.epoch {
                    self.begin().await;
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn write_down(&mut self, commit: &Committed) {
        let delta = &commit.delta;
        let position = Position { epoch: delta.epoch, revision: delta.to };
        for (user, transition) in &commit.transitions {
            let (kind, session) = (&transition.kind, &transition.session);
            let generation = transition.generation;
            self.recorder.line("store", format_args!("{position} {user} {session}/{generation} {kind:?}"));
        }
        let removals = delta.removals.iter().map(|removal| Gone {
            user: removal.user.as_str().to_owned(),
            reason: removal.ending.reason,
            silent_for: removal.ending.silent_for,
            renewed_at: None,
        });
        let what = What::Commit {
            position,
            from: delta.from,
            upserts: delta.upserts.iter().map(shown).collect(),
            removals: removals.collect(),
        };
        self.recorder.event_at(self.time(commit.at), what);
        self.at = Some(position);
    }

    /// Not after anybody could see it.
    fn time(&self, at: StoreTime) -> Duration {
        at.since(self.began).saturating_sub(ROUNDING)
    }
}

/// Notes when the machine did not run what was due; ends when dropped.
pub(super) struct Pulse {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub(super) fn start(recorder: Recorder) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let mut last = recorder.now();
            while !end.load(Ordering::Relaxed) {
                std::thread::sleep(PULSE_EVERY);
                let now = recorder.now();
                if now - last > PULSE_EVERY + PULSE_LATE {
                    recorder.line("machine", format_args!("stood still for {:?}", now - last));
                    recorder.event_at(last, What::Trouble { place: Place::Machine, begins: true });
                    recorder.event(What::Trouble { place: Place::Machine, begins: false });
                }
                last = now;
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has no result, and a panic was printed.
            let _ = thread.join();
        }
    }
}
