//! Links of edges: one an edge incarnation, the highest number wins; beats both ways; how one ended.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::id::{EdgeName, Incarnation, LinkNumber, RegionId};
use presence_model::lease::{EdgeMark, LeaseId};
use presence_model::link::{Hello, LinkDown, LinkRefusal, LinkUp, RequestId, Welcome};
use presence_model::time::Mono;

use super::doorstep::Shown;
use super::{CloseReason, Driver, Effect, LinkEnd, LinkKey, Verb, Verified};
use crate::limits::BREAKS_APART;

/// Beats that may be missed before a link is given up.
const BEATS_MISSED_MAX: u32 = 3;
/// A link whose last beat is older than this many beats when it breaks may have been partitioned.
const BEATS_FRESH: u32 = 2;

#[derive(Debug)]
struct Link {
    hello: Hello,
    /// On the leases that are granted through it.
    mark: EdgeMark,
    /// When the edge said anything last: evidence of its life.
    heard: Mono,
    /// From when its silence counts: not while this process slept.
    silent_from: Mono,
    sequence: u64,
    next_beat: Mono,
    welcomed: bool,
    moving: bool,
    leaving: bool,
    /// Told that it is to go.
    sent_away: bool,
    /// When it was told to renew all last.
    renewed_all: Option<Mono>,
}

/// The open links.
#[derive(Debug, Default)]
pub(super) struct Links {
    open: BTreeMap<LinkKey, Link>,
    by_edge: BTreeMap<Incarnation, LinkKey>,
    breaks: Vec<(Mono, Incarnation, LinkNumber)>,
}

/// What other parts need to know of the edge behind a link.
#[derive(Debug, Clone)]
pub(super) struct LinkedEdge {
    pub(super) name: EdgeName,
    pub(super) incarnation: Incarnation,
    pub(super) region: RegionId,
}

impl Links {
    /// Who is behind a link, if it is open.
    pub(super) fn edge(&self, key: LinkKey) -> Option<LinkedEdge> {
        self.open.get(&key).map(|link| LinkedEdge {
            name: link.hello.edge.clone(),
            incarnation: link.hello.incarnation,
            region: link.hello.region.clone(),
        })
    }

    /// Which of these leases were granted through the edge behind a link, then which were not; of a link that is
    /// closed all are its own, as nobody is left to be told.
    pub(super) fn own(&self, key: LinkKey, leases: Vec<LeaseId>) -> (Vec<LeaseId>, Vec<LeaseId>) {
        let Some(link) = self.open.get(&key) else { return (leases, Vec::new()) };
        leases.into_iter().partition(|lease| lease.bears(link.mark))
    }

    /// Whether a link is open.
    pub(super) fn is_open(&self, key: LinkKey) -> bool {
        self.open.contains_key(&key)
    }

    /// The link of an edge here, with its number.
    pub(super) fn of_edge(&self, edge: Incarnation) -> Option<(LinkKey, LinkNumber)> {
        let key = *self.by_edge.get(&edge)?;
        self.open.get(&key).map(|link| (key, link.hello.link))
    }

    /// All open links.
    pub(super) fn keys(&self) -> Vec<LinkKey> {
        self.open.keys().copied().collect()
    }

    /// All edges linked here.
    pub(super) fn edges(&self) -> Vec<Incarnation> {
        self.by_edge.keys().copied().collect()
    }

    /// When a beat is due next.
    pub(super) fn due(&self) -> Option<Mono> {
        self.open.values().map(|link| link.next_beat).min()
    }

    /// An edge is to be told that it is to go; false: it was, on this link.
    pub(super) fn send_away(&mut self, key: LinkKey) -> bool {
        self.open.get_mut(&key).is_some_and(|link| !std::mem::replace(&mut link.sent_away, true))
    }

    /// This process did not run: the silence of that time is its own.
    pub(super) fn forgive(&mut self, now: Mono) {
        for link in self.open.values_mut() {
            link.silent_from = now;
        }
    }

    fn remove(&mut self, key: LinkKey) -> Option<Link> {
        let link = self.open.remove(&key)?;
        if self.by_edge.get(&link.hello.incarnation) == Some(&key) {
            self.by_edge.remove(&link.hello.incarnation);
        }
        Some(link)
    }
}

impl Driver {
    /// An edge says hello.
    pub(super) fn on_link_opened(&mut self, key: LinkKey, hello: Hello) {
        if self.draining {
            return self.close_link(key, CloseReason::Draining);
        }
        if !self.serves(&hello.region) {
            return self.close_link(key, CloseReason::Region);
        }
        if let Some((older, number)) = self.links.of_edge(hello.incarnation) {
            // A run of an edge has one name: whoever comes with another is not that edge.
            if self.links.edge(older).is_some_and(|edge| edge.name != hello.edge) {
                return self.close_link(key, CloseReason::Foreign);
            }
            if number >= hello.link {
                return self.close_link(key, CloseReason::StaleLink);
            }
            self.end_link(older, CloseReason::Superseded);
        }
        if self.links.open.values().any(|link| link.hello.edge == hello.edge) {
            self.out.push(Effect::Namesake(hello.edge.clone()));
        }
        self.links.by_edge.insert(hello.incarnation, key);
        self.register(hello.incarnation, hello.edge.clone(), hello.link);
        let link = Link {
            mark: EdgeMark::of(&hello.edge),
            hello,
            heard: self.now,
            silent_from: self.now,
            sequence: 0,
            next_beat: self.now + self.settings.timings.link_beat,
            welcomed: false,
            moving: false,
            leaving: false,
            sent_away: false,
            renewed_all: None,
        };
        self.links.open.insert(key, link);
        self.welcome_waiting();
    }

    /// Welcomes links that came before the store's clock was known.
    pub(super) fn welcome_waiting(&mut self) {
        let Some(store_time) = self.clock.latest(self.now) else { return };
        let timings = self.settings.timings;
        let waiting: Vec<LinkKey> =
            self.links.open.iter().filter(|(_, link)| !link.welcomed).map(|(key, _)| *key).collect();
        for key in waiting {
            let Some(link) = self.links.open.get_mut(&key) else { continue };
            link.welcomed = true;
            let welcome = Welcome {
                heartbeat: timings.heartbeat,
                lease_ttl: timings.lease_ttl,
                grace: timings.grace,
                heartbeat_min: timings.heartbeat_min,
                link_beat: timings.link_beat,
                edge_lost: timings.edge_lost,
                store_time,
                core: self.settings.name.clone(),
                release: env!("CARGO_PKG_VERSION").into(),
            };
            self.out.push(Effect::Link(key, LinkDown::Welcome(welcome)));
            self.tell_revoked(key, store_time);
        }
    }

    /// An edge says something. What comes over a link that is closed already has no one to answer to.
    pub(super) fn on_link_up(&mut self, key: LinkKey, message: LinkUp, verified: Verified) {
        let Some(link) = self.links.open.get_mut(&key) else { return };
        link.heard = self.now;
        link.silent_from = self.now;
        match message {
            LinkUp::Beat { sequence } => link.sequence = sequence,
            LinkUp::Bye { moving } => {
                link.moving = moving;
                link.leaving = !moving;
            }
            LinkUp::Join(join) => self.on_shown(key, Shown::Join(join), verified),
            LinkUp::Renew { batch, leases } => self.on_renew(key, batch, leases),
            LinkUp::Release { request, leases, reason, hint, unanswered } => {
                self.on_release(key, request, (leases, reason, hint), unanswered);
            }
            update @ LinkUp::Update { request, token: Some(_), .. } => {
                self.on_shown(key, Shown::Update(request, update), verified);
            }
            update @ LinkUp::Update { .. } => self.on_update(key, update, verified),
            LinkUp::Leave { request, lease, room, user, reason } => {
                self.on_leave(key, request, (lease, reason), (room, user));
            }
        }
    }

    /// A link ended.
    pub(super) fn on_link_closed(&mut self, key: LinkKey, end: LinkEnd) {
        let Some(link) = self.links.remove(key) else { return };
        self.renewals.forget_link(key);
        let (edge, number) = (link.hello.incarnation, link.hello.link);
        if link.leaving {
            return self.wish_gone(edge, number);
        }
        match end {
            LinkEnd::Broken if !link.moving && !self.draining => self.on_break(&link),
            LinkEnd::Broken | LinkEnd::Silent | LinkEnd::Ours => self.unregister(edge),
        }
    }

    /// The far side ended it without goodbye: a dead process looks like this, unless several do at once.
    fn on_break(&mut self, link: &Link) {
        let (edge, number) = (link.hello.incarnation, link.hello.link);
        self.links.breaks.retain(|(at, ..)| self.now.since(*at) < BREAKS_APART);
        let others = self.links.breaks.iter().filter(|(_, other, _)| *other != edge).count();
        self.links.breaks.push((self.now, edge, number));
        if others > 0 {
            for (_, other, number) in self.links.breaks.clone() {
                self.take_break_back(other, number);
            }
        } else if self.now.since(link.heard) <= self.settings.timings.link_beat * BEATS_FRESH {
            self.wish_broken(edge, number);
        } else {
            self.unregister(edge);
        }
    }

    /// Beats are due, and links that missed theirs are given up.
    pub(super) fn beat_links(&mut self) {
        let Some(store_time) = self.clock.latest(self.now) else { return self.put_beats_off() };
        let beat = self.settings.timings.link_beat;
        let store_reachable = self.ops.reachable(self.now);
        let mut silent = Vec::new();
        for (key, link) in self.links.open.iter_mut().filter(|(_, link)| link.next_beat <= self.now) {
            if self.now.since(link.silent_from) > beat * BEATS_MISSED_MAX {
                silent.push(*key);
                continue;
            }
            link.next_beat = self.now + beat;
            let down = LinkDown::Beat { sequence: link.sequence, store_time, store_reachable };
            self.out.push(Effect::Link(*key, down));
        }
        for key in silent {
            self.end_link(key, CloseReason::Silent);
        }
    }

    fn put_beats_off(&mut self) {
        let next = self.now + self.settings.timings.link_beat;
        for link in self.links.open.values_mut() {
            link.next_beat = link.next_beat.max(next);
        }
    }

    /// Ends a link by our own decision: nothing about its edge follows from that.
    pub(super) fn end_link(&mut self, key: LinkKey, reason: CloseReason) {
        if let Some(link) = self.links.remove(key) {
            self.renewals.forget_link(key);
            self.unregister(link.hello.incarnation);
        }
        self.close_link(key, reason);
    }

    fn close_link(&mut self, key: LinkKey, reason: CloseReason) {
        self.out.push(Effect::CloseLink(key, reason));
    }

    /// Tells the edge to renew all, at most once in the span in which it does so.
    ///
    /// # Errors
    /// Not yet, but then.
    pub(super) fn renew_all(&mut self, edge: Incarnation) -> Result<(), Mono> {
        let within = self.settings.timings.renew_all_within;
        let Some((key, _)) = self.links.of_edge(edge) else { return Ok(()) };
        let Some(link) = self.links.open.get_mut(&key) else { return Ok(()) };
        if let Some(again) = link.renewed_all.map(|at| at + within).filter(|again| *again > self.now) {
            return Err(again);
        }
        link.renewed_all = Some(self.now);
        self.out.push(Effect::Link(key, LinkDown::RenewAll { within }));
        Ok(())
    }

    /// Answers a release, update or leave.
    pub(super) fn answer_done(
        &mut self,
        key: LinkKey,
        request: RequestId,
        outcome: Result<Option<presence_model::time::StoreTime>, LinkRefusal>,
    ) {
        self.tell(key, LinkDown::Done { request, outcome });
    }

    /// Leaves to an edge what is its own of the leases it names, and tells it of the others.
    pub(super) fn own_leases(&mut self, key: LinkKey, verb: Verb, leases: Vec<LeaseId>) -> Vec<LeaseId> {
        let (own, foreign) = self.links.own(key, leases);
        if !foreign.is_empty() {
            self.note_foreign(key, verb, foreign.len());
            self.tell(key, LinkDown::Foreign { leases: foreign });
        }
        own
    }

    /// Whether a lease that an edge names is its own. If not, what it wanted is refused.
    pub(super) fn is_own(&mut self, key: LinkKey, verb: Verb, lease: LeaseId) -> bool {
        let is_own = self.links.own(key, vec![lease]).1.is_empty();
        if !is_own {
            self.note_foreign(key, verb, 1);
        }
        is_own
    }

    /// An edge wanted something of leases that were granted through another one.
    pub(super) fn note_foreign(&mut self, key: LinkKey, verb: Verb, leases: usize) {
        if let Some(edge) = self.links.edge(key) {
            self.out.push(Effect::Foreign { edge: edge.name, verb, leases });
        }
    }

    /// Tells an edge, if its link is still open.
    pub(super) fn tell(&mut self, key: LinkKey, down: LinkDown) {
        if self.links.is_open(key) {
            self.out.push(Effect::Link(key, down));
        }
    }

    /// A refusal for now, with a jittered hint.
    pub(super) fn unavailable(&mut self) -> LinkRefusal {
        LinkRefusal::Unavailable { retry_after: self.retry_after() }
    }

    /// When to try again: spread, so that refused arrivals do not come back together.
    pub(super) fn retry_after(&mut self) -> Duration {
        use rand::Rng as _;
        let base = crate::limits::RETRY_AFTER;
        base + base.mul_f64(2.0 * f64::from(self.rng.next_u32()) / f64::from(u32::MAX))
    }
}
