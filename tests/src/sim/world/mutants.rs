//! Where deliberate faults are made: on the ways between machines, and between cores and the store.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use presence_core::store::memory::Tampering;
use presence_core::store::{Command, Commit, Outcome, StoreFault};
use presence_edge::protocol::Payload;
use presence_model::change::{Change, TransitionKind};
use presence_model::cursor::{Cursor, Entry};
use presence_model::hold::HoldCause;
use presence_model::id::{Generation, LinkNumber, RegionId, RoomId};
use presence_model::lease::{LeaseId, Shard};
use presence_model::link::{LinkDown, LinkRefusal, LinkUp, RequestId};
use presence_model::position::{Epoch, Revision};
use presence_model::reason::{LeaveReason, ReleaseReason, RemovalReason};
use presence_model::record::LeaseState;
use presence_model::refusal::Refusal;
use presence_model::replica::Freshness;
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::WatchDown;
use serde_json::Value;

use super::World;
use crate::sim::ledger::Ledger;
use crate::sim::mutant::Mutant;
use crate::sim::names::Names;
use crate::sim::nodes::Peer;

/// Renewals of a batch that a storm leaves.
const STORM_LEAVES: usize = 4;
/// Of so many deltas one is left out.
const SKIPS_ONE_OF: u64 = 5;
/// By so much tokens end early.
const TOKEN_EARLY: Duration = Duration::from_secs(20);

/// What a deliberate fault remembers.
#[derive(Debug, Default)]
pub(super) struct Spoiled {
    counted: u64,
    /// The epoch that watchers were told of a room first.
    epochs: BTreeMap<String, Epoch>,
    /// At which revision a room was empty last.
    empty_at: BTreeMap<usize, u64>,
    /// Who started the hold of a shard.
    holders: BTreeMap<Shard, u64>,
}

impl World {
    pub(super) fn is_mutant(&self, mutant: Mutant) -> bool {
        self.plan.mutant == Some(mutant)
    }

    /// Alters what a core asks of the store; an answer if it is not carried out at all.
    pub(super) fn spoil_command(&mut self, command: &mut Command) -> Option<Outcome> {
        let mutant = self.plan.mutant?;
        match (mutant, command) {
            (
                Mutant::DropsGuards
                | Mutant::ForgetsHolds
                | Mutant::HoldIsNotStored
                | Mutant::NoHoldAfterLoss,
                Command::Commit(commit),
            ) => commit.changes.iter_mut().for_each(|change| change.guards.clear()),
            (Mutant::ReadsNoTombstones, Command::Commit(commit)) => {
                commit.changes.iter_mut().for_each(|change| change.expect_tombstones.clear());
            }
            (Mutant::CountsTabs, Command::Commit(commit)) => count_tabs(commit),
            (Mutant::EndsTokensEarly, Command::Commit(commit)) => {
                end_tokens(commit, |ends| ends.before(TOKEN_EARLY));
            }
            (Mutant::ForgetsTokenEnds, Command::Commit(commit)) => {
                end_tokens(commit, |_| StoreTime(u64::MAX / 2));
            }
            (Mutant::ExplainsWrongly, Command::Commit(commit)) => explain_wrongly(commit),
            (Mutant::SweepIsFinishedNow, Command::Turn { smallest_ttl, .. }) => {
                *smallest_ttl = Duration::from_secs(400);
            }
            (Mutant::TellsNoStep, Command::Turn { stepped, .. }) => *stepped = false,
            (Mutant::LosesWithoutNumber, Command::Lose { link, broken_since, .. }) => {
                (*link, *broken_since) = (LinkNumber(u64::MAX / 2), StoreTime(u64::MAX / 2));
            }
            (Mutant::LateEndOfALinkWins, Command::Unlink { link, .. }) => *link = LinkNumber(u64::MAX / 2),
            (Mutant::RenewsForTwo, Command::Renew { leases, .. }) => {
                leases.iter_mut().for_each(|(lease, deadline)| *deadline = *deadline + lease.ttl());
            }
            (Mutant::RenewsForHalf, Command::Renew { leases, .. }) => {
                leases.iter_mut().for_each(|(lease, deadline)| *deadline = deadline.before(lease.ttl() / 2));
            }
            (Mutant::RenewalsRevive, Command::Renew { leases, .. }) => self.revive(leases),
            (Mutant::ForgetsRevocations, Command::Revoke { .. }) => return Some(Outcome::Done),
            (Mutant::LosesRevocations, Command::Revoke { .. }) if self.ledger.lost_data.is_some() => {
                return Some(Outcome::Done);
            }
            (Mutant::RevokesDoorsOnly, Command::Rooms { .. }) => {
                return Some(Outcome::Rooms { rooms: Vec::new() });
            }
            (Mutant::RevokesDoorsOnly, Command::RoomsOf { .. }) => {
                let now = self.store.time(self.wires.now);
                return Some(Outcome::RoomsOf { now, rooms: Vec::new(), more: false });
            }
            (Mutant::AcknowledgesUnwritten, Command::Renew { .. }) => {
                return Some(Outcome::Renewed { now: None, unknown: Vec::new() });
            }
            _ => {}
        }
        None
    }

    /// Alters what the store carries out, of which the account has what was asked.
    pub(super) fn spoil_release(&self, command: &mut Command) {
        if self.is_mutant(Mutant::GivesNoGrace)
            && let Command::Release { grace, .. } = command
        {
            *grace = Duration::ZERO;
        }
    }

    /// What was given up carries again, under its own name.
    fn revive(&mut self, leases: &[(LeaseId, StoreTime)]) {
        let now = self.now();
        let time = self.store.time(now);
        for (lease, deadline) in leases {
            let command = Command::Leases { shard: lease.shard(), leases: vec![*lease] };
            let known = self.store.peek(command, now);
            if let Some(Outcome::Leases { leases: known, .. }) = known
                && known.first().is_some_and(|known| matches!(known.state, LeaseState::Grace { .. }))
            {
                self.store.store.tamper(Tampering::LoseLease(*lease), time);
                self.store.store.tamper(Tampering::Stray(*lease, *deadline), time);
            }
        }
    }

    /// Alters what the store answers.
    pub(super) fn spoil_outcome(&mut self, run: u64, outcome: &mut Result<Outcome, StoreFault>) {
        let Some(mutant) = self.plan.mutant else { return };
        match (mutant, outcome) {
            (Mutant::ForgetsHolds, Ok(Outcome::Turn(turn))) => turn.hold = None,
            (Mutant::NoHoldAfterLoss, Ok(Outcome::Turn(turn))) => {
                turn.hold = turn.hold.filter(|hold| hold.cause != HoldCause::StoreChanged);
            }
            (Mutant::HoldIsNotStored, Ok(Outcome::Turn(turn))) => {
                // Of which shard it is does not matter: cores start holds of all of them alike.
                let holder = self.spoiled.holders.entry(Shard(0)).or_insert(run);
                if turn.new_hold {
                    *holder = run;
                }
                if *holder != run {
                    turn.hold = None;
                }
            }
            (Mutant::ExtendsOnUnknown, Ok(Outcome::Renewed { unknown, .. })) => unknown.clear(),
            (Mutant::IgnoresGenerations, Ok(Outcome::Members { members, .. })) => {
                let records = members.iter_mut().filter_map(|member| member.record.as_mut());
                for session in records.flat_map(|record| &mut record.sessions) {
                    session.generation = Generation(0);
                }
                members.iter_mut().flat_map(|member| member.tombstones.values_mut()).for_each(|tombstone| {
                    tombstone.generation = Generation(0);
                });
            }
            (Mutant::ReadsNoTombstones, Ok(Outcome::Members { members, .. })) => {
                members.iter_mut().for_each(|member| member.tombstones.clear());
            }
            _ => {}
        }
    }

    /// Alters what a core had decided before it stood still.
    pub(super) fn spoil_held_back(&self, slept: Duration, command: &mut Command) {
        if self.is_mutant(Mutant::DatesAfterThePause)
            && let Command::Renew { leases, .. } = command
        {
            leases.iter_mut().for_each(|(_, deadline)| *deadline = *deadline + slept);
        }
    }

    /// Alters what an edge says; what it says instead.
    pub(super) fn spoil_link_up(&mut self, up: LinkUp) -> Vec<LinkUp> {
        match (self.plan.mutant, up) {
            (Some(Mutant::ForgetsSince), LinkUp::Join(mut join)) => {
                join.rejoin = None;
                vec![LinkUp::Join(join)]
            }
            (
                Some(Mutant::DrainSaysGoodbye),
                LinkUp::Release { request, leases, reason: ReleaseReason::Drain, .. },
            ) => {
                let leave = |lease: LeaseId| {
                    let (room, user) = self.ledger.leases.get(&lease.plain_name())?.who;
                    let (room, user) = (self.names.rooms[room].clone(), self.names.users[user].clone());
                    Some(LinkUp::Leave { request, lease, room, user, reason: LeaveReason::Goodbye })
                };
                leases.into_iter().filter_map(leave).collect()
            }
            (Some(Mutant::GoodbyesAreLost), LinkUp::Leave { .. })
            | (Some(Mutant::ReleasesAreLost), LinkUp::Release { .. }) => Vec::new(),
            (Some(Mutant::StormsCutBatches), LinkUp::Renew { batch, mut leases }) => {
                leases.truncate(STORM_LEAVES);
                vec![LinkUp::Renew { batch, leases }]
            }
            (_, up) => vec![up],
        }
    }

    /// An edge that goes gives up what it holds.
    pub(super) fn spoil_drain(&mut self, place: usize) {
        let Some(edge) = self.edges[place].process.as_ref() else { return };
        if !self.is_mutant(Mutant::DrainGivesAllUp) {
            return;
        }
        let incarnation = edge.incarnation;
        let held = self.ledger.leases.iter().filter(|(_, held)| held.edge == incarnation && !held.in_grace);
        let leases: Vec<LeaseId> = held.map(|(lease, _)| *lease).collect();
        self.send_link_up(
            place,
            LinkUp::Release {
                request: RequestId(u64::MAX),
                leases,
                reason: ReleaseReason::Drain,
                hint: Duration::ZERO,
                unanswered: Vec::new(),
            },
        );
    }

    /// Alters what a core says to an edge.
    pub(super) fn spoil_link_down(&self, down: &mut LinkDown) {
        if self.is_mutant(Mutant::StormsRefuseForGood)
            && let LinkDown::Joined { outcome, .. } = down
            && matches!(outcome, Err(LinkRefusal::Unavailable { .. }))
        {
            *outcome = Err(LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::Evicted }));
        }
        if let LinkDown::Revoked { revocations } = down {
            if self.is_mutant(Mutant::RevokesDoorsOnly) {
                revocations.clear();
            } else if self.is_mutant(Mutant::RevokesMore) {
                let key = self.key_id();
                revocations.iter_mut().for_each(|(what, _)| *what = Revocation::Key(key.as_str().into()));
            }
        }
    }

    /// Alters what a core tells a watcher.
    pub(super) fn spoil_watch(&mut self, peer: Peer, events: &mut Vec<WatchDown>) {
        let Some(mutant) = self.plan.mutant else { return };
        if mutant == Mutant::SkipsDeltas && matches!(peer, Peer::Desk(_)) {
            let counted = &mut self.spoiled.counted;
            events.retain(|event| {
                let is_delta = matches!(event, WatchDown::Region { event: RegionEvent::Delta(_), .. });
                *counted += u64::from(is_delta);
                !is_delta || !counted.is_multiple_of(SKIPS_ONE_OF)
            });
        }
        for event in events {
            let WatchDown::Region { room, event, .. } = event else { continue };
            match (mutant, event) {
                (Mutant::EpochIsNotRaised, RegionEvent::Page(page)) => {
                    let first = self.spoiled.epochs.entry(room.to_string()).or_insert(page.position.epoch);
                    page.position.epoch = *first;
                }
                (Mutant::EpochIsNotRaised, RegionEvent::Delta(delta)) => {
                    let first = self.spoiled.epochs.entry(room.to_string()).or_insert(delta.epoch);
                    delta.epoch = *first;
                }
                (Mutant::PositionsRepeat, RegionEvent::Page(page)) => {
                    let from = empty_at(
                        &mut self.spoiled,
                        (&self.ledger, &self.names),
                        room,
                        page.position.revision,
                    );
                    page.position.revision.0 -= from;
                }
                (Mutant::PositionsRepeat, RegionEvent::Delta(delta)) => {
                    let from = empty_at(&mut self.spoiled, (&self.ledger, &self.names), room, delta.to);
                    delta.from.0 = delta.from.0.saturating_sub(from);
                    delta.to.0 -= from;
                }
                (Mutant::LiveWhileHeld | Mutant::NeverStale, RegionEvent::Page(page)) => {
                    page.freshness = told_as(mutant, page.freshness);
                }
                (Mutant::LiveWhileHeld | Mutant::NeverStale, RegionEvent::Freshness(freshness)) => {
                    *freshness = told_as(mutant, *freshness);
                }
                _ => {}
            }
        }
    }

    /// Alters what an edge sends to a page.
    pub(super) fn spoil_frames(&self, tab: usize, payloads: Vec<Payload>) -> Vec<Payload> {
        let Some(mutant) = self.plan.mutant else { return payloads };
        if mutant == Mutant::SlowMissFrames && self.tabs[tab].deaf_until > self.wires.now {
            return Vec::new();
        }
        let alters = [Mutant::ConflationCancels, Mutant::CursorWhileUnconfirmed, Mutant::CursorSaysNothing];
        if !alters.contains(&mutant) {
            return payloads;
        }
        payloads.into_iter().map(|payload| spoil_frame(mutant, payload)).collect()
    }
}

/// The revision at which a room was empty last, up to this one.
fn empty_at(spoiled: &mut Spoiled, (ledger, names): (&Ledger, &Names), room: &RoomId, told: Revision) -> u64 {
    let Some(room) = names.room(room.as_str()) else { return 0 };
    let somebody = ledger.members.iter().any(|((of, _), truth)| *of == room && truth.stored);
    if !somebody {
        spoiled.empty_at.insert(room, told.0);
    }
    spoiled.empty_at.get(&room).copied().unwrap_or(0).min(told.0)
}

fn told_as(mutant: Mutant, freshness: Freshness) -> Freshness {
    match (mutant, freshness) {
        (Mutant::LiveWhileHeld, Freshness::Held { .. }) | (Mutant::NeverStale, Freshness::Stale { .. }) => {
            Freshness::Live
        }
        (_, freshness) => freshness,
    }
}

fn spoil_frame(mutant: Mutant, payload: Payload) -> Payload {
    let mut frame: Value = serde_json::from_slice(&payload).expect("the edge writes JSON");
    if mutant == Mutant::ConflationCancels {
        let came = frame["upserts"].as_array().is_some_and(|upserts| !upserts.is_empty());
        if frame["t"] == "delta" && came {
            frame["removals"] = Value::Array(Vec::new());
        }
    } else if let Some(cursor) = frame["cursor"].as_str().and_then(|cursor| Cursor::decode(cursor).ok()) {
        let spoil = |(region, entry): (&RegionId, Entry)| match entry {
            Entry::Seen(at) if mutant == Mutant::CursorWhileUnconfirmed => {
                Some((region.clone(), Entry::Equal(at)))
            }
            Entry::Seen(_) => None,
            Entry::Equal(_) => Some((region.clone(), entry)),
        };
        frame["cursor"] = Value::String(cursor.iter().filter_map(spoil).collect::<Cursor>().encode());
    }
    Bytes::from(frame.to_string())
}

fn count_tabs(commit: &mut Commit) {
    for change in &mut commit.changes {
        let ended = change.transitions.iter().find_map(|transition| transition.kind.ending().copied());
        let joins = change.transitions.iter().any(|transition| transition.kind == TransitionKind::Joined);
        if let (Some(ending), Some(record), false) = (ended, &change.record, joins) {
            change.revokes.extend(record.sessions.iter().map(|session| session.lease));
            (change.record, change.removal) = (None, Some(ending));
        }
    }
}

fn end_tokens(commit: &mut Commit, spoil: impl Fn(StoreTime) -> StoreTime) {
    for change in &mut commit.changes {
        change.grants.iter_mut().for_each(|grant| grant.token_ends = spoil(grant.token_ends));
        change.token_ends.iter_mut().for_each(|(_, ends)| *ends = spoil(*ends));
    }
}

fn explain_wrongly(commit: &mut Commit) {
    let spoil = |change: &mut Change| {
        change.tombstones.iter_mut().for_each(|(_, tombstone)| tombstone.reason = RemovalReason::Left);
    };
    commit.changes.iter_mut().for_each(spoil);
}
