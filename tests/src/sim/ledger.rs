//! What is true of leases and members, kept at the store's port in true time: who was granted what, who was
//! heard when, until when that carries. An account of its own, not the store's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use presence_model::id::{ConnectionId, Generation, Incarnation, SessionId};
use presence_model::lease::LeaseId;
use presence_model::reason::RemovalReason;
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};

/// A room and a user, by number.
pub(super) type Who = (usize, usize);

/// A lease.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) who: Who,
    pub(super) session: SessionId,
    pub(super) generation: Generation,
    pub(super) connection: ConnectionId,
    pub(super) edge: Incarnation,
    /// When a core received the last renewal that was accepted, or it was granted.
    pub(super) accepted: Mono,
    /// Until when it carries.
    pub(super) until: Mono,
    /// Its edge gave its transport up.
    pub(super) in_grace: bool,
    /// Its edge was taken for lost, and has not renewed since.
    pub(super) lost: bool,
    pub(super) token_ends: StoreTime,
    pub(super) rests_on: TokenRef,
}

/// A lease that the store forgot: whoever had it must not suffer from that for a ttl.
#[derive(Debug, Clone)]
struct Phantom {
    session: SessionId,
    connection: ConnectionId,
    until: Mono,
}

/// How a session ended last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) session: SessionId,
    pub(super) reason: RemovalReason,
    pub(super) at: Mono,
}

/// What is true of a member.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    leases: BTreeSet<LeaseId>,
    phantoms: Vec<Phantom>,
    /// Whether a lease carries the member, one that the store forgot included.
    pub(super) present: bool,
    /// Since when that is so.
    pub(super) since: Mono,
    /// Whether the store has a record, and since when that is so.
    pub(super) stored: bool,
    pub(super) stored_since: Mono,
    /// When a commit touched it last.
    pub(super) touched: Mono,
    /// When the last session that the store knew of ended for another reason than silence, while others were
    /// forgotten by it.
    pub(super) all_known_ended: Mono,
    /// Whether all that is missing is a token in force.
    pub(super) token_over: bool,
    pub(super) ended: Option<Ended>,
    /// Since when the member is said to be there may differ from what it was before then: data was lost.
    pub(super) since_in_doubt: Mono,
}

/// All leases and members.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) leases: BTreeMap<LeaseId, Held>,
    pub(super) members: BTreeMap<Who, Truth>,
    /// The newest attempt of each session.
    pub(super) attempts: BTreeMap<(Who, SessionId), (Generation, ConnectionId)>,
    /// The attempt of each session that ended last, and why.
    pub(super) over: BTreeMap<(Who, SessionId), (Generation, RemovalReason)>,
    /// Sessions that were put out, when, and until when they must not come back.
    pub(super) barred: BTreeMap<(Who, SessionId), (Mono, Mono)>,
    /// When the store lost data last.
    pub(super) lost_data: Option<Mono>,
    /// When a replica took over last.
    pub(super) failed_over: Option<Mono>,
}

impl Ledger {
    pub(super) fn truth(&self, who: Who) -> Option<&Truth> {
        self.members.get(&who)
    }

    /// The leases of a member that carry it now.
    pub(super) fn carrying(&self, who: Who, now: Mono) -> impl Iterator<Item = (LeaseId, &Held)> {
        let leases = self.members.get(&who).into_iter().flat_map(|truth| &truth.leases);
        leases
            .filter_map(move |lease| Some((*lease, self.leases.get(lease)?)))
            .filter(move |(_, held)| now < held.until)
    }

    /// The lease of a session over a connection, if it has one.
    pub(super) fn of_connection(&self, who: Who, connection: ConnectionId) -> Option<(LeaseId, &Held)> {
        let leases = self.members.get(&who)?.leases.iter();
        leases
            .filter_map(|lease| Some((*lease, self.leases.get(lease)?)))
            .filter(|(_, held)| held.connection == connection)
            .max_by_key(|(_, held)| held.accepted)
    }

    pub(super) fn grant(&mut self, lease: LeaseId, held: Held) {
        let truth = self.members.entry(held.who).or_default();
        truth.leases.insert(lease);
        truth.phantoms.retain(|phantom| phantom.session != held.session);
        self.attempts.insert((held.who, held.session.clone()), (held.generation, held.connection));
        self.leases.insert(lease, held);
    }

    pub(super) fn remove(&mut self, lease: LeaseId) -> Option<Held> {
        let held = self.leases.remove(&lease.plain_name())?;
        if let Some(truth) = self.members.get_mut(&held.who) {
            truth.leases.remove(&lease.plain_name());
        }
        Some(held)
    }

    pub(super) fn ended(
        &mut self,
        who: Who,
        (session, generation): (&SessionId, Generation),
        reason: RemovalReason,
        now: Mono,
    ) {
        self.over.insert((who, session.clone()), (generation, reason));
        let truth = self.members.entry(who).or_default();
        truth.ended = Some(Ended { session: session.clone(), reason, at: now });
    }

    /// The store removes a member for what was said of its sessions: of those it forgot it cannot know.
    pub(super) fn removed(&mut self, who: Who, now: Mono) {
        let Some(truth) = self.members.get_mut(&who).filter(|truth| !truth.phantoms.is_empty()) else {
            return;
        };
        if !truth.leases.iter().any(|lease| self.leases.get(lease).is_some_and(|held| now < held.until)) {
            truth.all_known_ended = now;
        }
    }

    /// Sessions that the store forgot: their connections.
    pub(super) fn forgotten(&self, who: Who) -> Vec<ConnectionId> {
        let truth = self.members.get(&who);
        truth.map_or_else(Vec::new, |truth| truth.phantoms.iter().map(|phantom| phantom.connection).collect())
    }

    /// A clock that steps by less than is seen brings the end of a hold nearer, and with it that of what the store forgot.
    pub(super) fn hasten_forgotten(&mut self, by: Duration) {
        for phantom in self.members.values_mut().flat_map(|truth| &mut truth.phantoms) {
            phantom.until = Mono(phantom.until.0.saturating_sub(by));
        }
    }

    /// Nobody can bring back what the store forgot of this connection.
    pub(super) fn waive_connection(&mut self, who: Who, connection: ConnectionId) {
        if let Some(truth) = self.members.get_mut(&who) {
            truth.phantoms.retain(|phantom| phantom.connection != connection);
        }
    }

    /// The session is given up by its own tab: what the store forgot of it is nobody's any more.
    pub(super) fn waive(&mut self, who: Who, session: &SessionId) {
        if let Some(truth) = self.members.get_mut(&who) {
            truth.phantoms.retain(|phantom| phantom.session != *session);
        }
    }

    /// The store has only these leases now in these rooms. What is known of those that are gone lives on for
    /// a ttl; those that came back carry as long.
    pub(super) fn data_lost(
        &mut self,
        rooms: &[usize],
        stored: BTreeMap<LeaseId, Held>,
        ttl: Duration,
        now: Mono,
    ) {
        self.lost_data = Some(now);
        self.attempts.retain(|(who, _), _| !rooms.contains(&who.0));
        self.over.retain(|(who, _), _| !rooms.contains(&who.0));
        for (_, truth) in self.members.iter_mut().filter(|(who, _)| rooms.contains(&who.0)) {
            truth.leases.clear();
            truth.since_in_doubt = now + ttl * 2;
            truth.ended = None;
        }
        let concerned = self.leases.iter().filter(|(_, held)| rooms.contains(&held.who.0));
        let before: BTreeMap<LeaseId, Held> = concerned.map(|(lease, held)| (*lease, held.clone())).collect();
        self.leases.retain(|_, held| !rooms.contains(&held.who.0));
        for (lease, held) in &before {
            if !stored.contains_key(lease)
                && now < held.until
                && let Some(truth) = self.members.get_mut(&held.who)
            {
                let phantom = Phantom {
                    session: held.session.clone(),
                    connection: held.connection,
                    until: held.until.max(now + ttl),
                };
                truth.phantoms.push(phantom);
            }
        }
        for (lease, mut held) in stored {
            if let Some(known) = before.get(&lease) {
                held.accepted = known.accepted;
            }
            self.grant(lease, held);
        }
    }

    /// Looks at all members.
    pub(super) fn look(&mut self, now: Mono, store_now: StoreTime) {
        let leases = &self.leases;
        for truth in self.members.values_mut() {
            truth.phantoms.retain(|phantom| now < phantom.until);
            let mut token_over = false;
            let carries = |lease: &LeaseId| {
                leases.get(lease).is_some_and(|held| {
                    let lives = now < held.until;
                    token_over |= lives && store_now >= held.token_ends;
                    lives && store_now < held.token_ends
                })
            };
            let carried = truth.leases.iter().map(carries).fold(false, |any, one| any | one);
            let present = carried || !truth.phantoms.is_empty();
            truth.token_over = token_over && !present;
            if truth.present != present {
                (truth.present, truth.since) = (present, now);
            }
        }
    }

    /// What the store says.
    pub(super) fn stored(&mut self, who: Who, stored: bool, now: Mono) {
        let truth = self.members.entry(who).or_default();
        truth.touched = now;
        if truth.stored != stored {
            (truth.stored, truth.stored_since) = (stored, now);
        }
    }
}
