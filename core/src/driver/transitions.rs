//! What commits mean to sessions: edges are told which leases are over, and each transition is logged
//! once, by the core that committed it.
//!
//! A commit whose outcome was lost is told by the tail: what was sent and is seen there has happened.

use std::collections::{BTreeMap, VecDeque};

use presence_model::change::{Change, Committed, Transition, TransitionKind};
use presence_model::id::{Roster, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::LinkDown;
use presence_model::position::Position;
use presence_model::reason::RemovalReason;
use presence_model::time::StoreTime;

use super::{Driver, Effect, TransitionLine};
use crate::limits::COMMITS_IN_DOUBT_MAX;
use crate::store::NotApplied;

/// Transitions of the commit under way in each roster, and of those whose outcome was lost.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    sent: BTreeMap<Roster, Sent>,
    in_doubt: VecDeque<(Roster, UserId, Transition)>,
}

#[derive(Debug, Default)]
struct Sent {
    transitions: Vec<(UserId, Transition)>,
    seen: Vec<TransitionLine>,
}

impl Transitions {
    /// These changes were sent as one commit.
    pub(super) fn sent(&mut self, roster: &Roster, changes: &[Change]) {
        let of = |change: &Change| {
            let user = change.user.clone();
            change.transitions.iter().map(move |t| (user.clone(), t.clone())).collect::<Vec<_>>()
        };
        let transitions = changes.iter().flat_map(of).collect();
        self.sent.insert(roster.clone(), Sent { transitions, seen: Vec::new() });
    }

    /// It is known what became of a transition; whether that was in doubt.
    fn settle(&mut self, roster: &Roster, user: &UserId, transition: &Transition) -> bool {
        let before = self.in_doubt.len();
        self.in_doubt.retain(|(r, u, t)| !(r == roster && u == user && t == transition));
        self.in_doubt.len() < before
    }

    /// The commit under way was not carried out.
    pub(super) fn forget(&mut self, roster: &Roster) {
        self.sent.remove(roster);
    }
}

impl Driver {
    /// The commit under way was applied, except for these users; these leases had run out.
    pub(super) fn log_applied(
        &mut self,
        roster: &Roster,
        refused: &BTreeMap<UserId, NotApplied>,
        deadlines: &BTreeMap<LeaseId, StoreTime>,
        (position, at): (Position, StoreTime),
    ) {
        let Some(sent) = self.transitions.sent.remove(roster) else { return };
        for (user, transition) in sent.transitions {
            if !refused.contains_key(&user) {
                let roster = roster.clone();
                self.transitions.settle(&roster, &user, &transition);
                let deadline = deadlines.get(&transition.lease.plain_name());
                let overdue =
                    deadline.filter(|_| transition.kind.ending().is_some()).map(|end| at.since(*end));
                self.log(TransitionLine { roster, user, transition, position, at, overdue });
            }
        }
    }

    /// The outcome of the commit under way was lost: what the tail has told already is logged, the rest
    /// waits for the tail.
    pub(super) fn log_in_doubt(&mut self, roster: &Roster) {
        let Some(sent) = self.transitions.sent.remove(roster) else { return };
        let unseen = |(user, transition): &(UserId, Transition)| {
            !sent.seen.iter().any(|line| line.user == *user && line.transition == *transition)
        };
        let doubted = sent.transitions.into_iter().filter(unseen);
        let in_doubt = &mut self.transitions.in_doubt;
        in_doubt.extend(doubted.map(|(user, transition)| (roster.clone(), user, transition)));
        let excess = in_doubt.len().saturating_sub(COMMITS_IN_DOUBT_MAX);
        in_doubt.drain(..excess);
        for line in sent.seen {
            self.log(line);
        }
    }

    fn log(&mut self, line: TransitionLine) {
        self.out.push(Effect::Transition(Box::new(line)));
    }

    /// A commit came by, of whichever core.
    pub(super) fn on_transitions(&mut self, commit: &Committed) {
        for (user, transition) in &commit.transitions {
            self.tell_ended(transition);
            self.note_evicted(&commit.roster, user, transition, commit.at);
            self.match_in_doubt(commit, user, transition);
        }
    }

    /// The edge of a lease that is over by no wish of its own is told so. Of one that ran out in silence
    /// it hears "unknown" when it renews, and brings the session back if that is still there.
    fn tell_ended(&mut self, transition: &Transition) {
        let TransitionKind::Ended(ending) = transition.kind else { return };
        let reason = ending.reason;
        match reason {
            RemovalReason::Superseded
            | RemovalReason::Evicted
            | RemovalReason::TokenExpired
            | RemovalReason::TokenRevoked => {
                if let Some((link, _)) = self.links.of_edge(transition.edge) {
                    self.tell(link, LinkDown::EndLease { lease: transition.lease, reason });
                }
            }
            RemovalReason::Left
            | RemovalReason::ConnectionLost
            | RemovalReason::LeaseExpired
            | RemovalReason::EdgeLost
            | RemovalReason::RegionLost => {}
        }
    }

    fn match_in_doubt(&mut self, commit: &Committed, user: &UserId, transition: &Transition) {
        let same = |(u, t): &(UserId, Transition)| u == user && t == transition;
        let line = || TransitionLine {
            roster: commit.roster.clone(),
            user: user.clone(),
            transition: transition.clone(),
            position: Position { epoch: commit.delta.epoch, revision: commit.delta.to },
            at: commit.at,
            overdue: None,
        };
        let doubted = self.transitions.settle(&commit.roster, user, transition);
        match self.transitions.sent.get_mut(&commit.roster) {
            // Tried again, and the answer is still to come: it is logged with that.
            Some(sent) if sent.transitions.iter().any(same) => sent.seen.push(line()),
            Some(_) | None if doubted => self.log(line()),
            Some(_) | None => {}
        }
    }
}
