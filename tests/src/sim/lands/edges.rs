//! An edge of each region, as these nights need one: it beats, renews, says again what was not answered, and links
//! elsewhere when its core is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::{Input, LinkEnd, LinkKey};
use presence_model::claim::{Action, Claims};
use presence_model::id::{EdgeName, Incarnation, LinkNumber};
use presence_model::lease::LeaseId;
use presence_model::link::{BatchId, Hello, LinkDown, LinkRefusal, LinkUp, RequestId, Token};
use presence_model::record::TokenRef;
use presence_model::time::{Mono, StoreTime};
use rand::Rng as _;

use super::{Event, Lands};
use crate::sim::agenda::Pipe;
use crate::sim::chance::{Purpose, chance};
use crate::sim::faults::Death;
use crate::sim::network::Node;

/// A link without a word for so many beats is given up.
const SILENT_BEATS: u32 = 3;
/// Between two attempts to link.
const AGAIN_AFTER: Duration = Duration::from_millis(400);
/// What was refused for now is said again then.
const SAY_AGAIN_AFTER: Duration = Duration::from_millis(600);

/// An edge.
pub(super) struct Edge {
    name: EdgeName,
    incarnation: Incarnation,
    link: Option<LinkKey>,
    links: u64,
    /// Whether the link was welcomed.
    stands: bool,
    heard: Mono,
    beats: u64,
    requests: u64,
    renew_at: Mono,
    /// Leases by whose they are.
    pub(super) leases: BTreeMap<LeaseId, usize>,
    /// What is said again on the next link unless it is answered.
    waits: BTreeMap<RequestId, (usize, LinkUp)>,
}

/// A link of an edge to the place and run of a core.
pub(super) struct Link {
    land: usize,
    place: usize,
    pub(super) run: u64,
    up: Pipe,
    down: Pipe,
    open_here: bool,
    open_there: bool,
}

impl Edge {
    pub(super) fn new(seed: u64, land: usize) -> Self {
        Self {
            name: EdgeName::new(format!("edge{land}")).expect("a name"),
            incarnation: Incarnation(chance(seed, Purpose::Edge, land as u64).next_u64()),
            link: None,
            links: 0,
            stands: false,
            heard: Mono::default(),
            beats: 0,
            requests: 0,
            renew_at: Mono::default(),
            leases: BTreeMap::new(),
            waits: BTreeMap::new(),
        }
    }
}

/// The token of a person: it carries a number.
pub(super) fn token(person: usize) -> Token {
    Token(format!("p{person}").into())
}

impl Lands {
    pub(super) fn dial_link(&mut self, land: usize) {
        if self.edges[land].link.is_some() {
            return;
        }
        let Some((place, run)) = self.some_core(land) else {
            return self.after(AGAIN_AFTER, Event::DialLink(land));
        };
        let key = LinkKey(self.key());
        let (up, down) = (Pipe::default(), Pipe::default());
        self.links.insert(key, Link { land, place, run, up, down, open_here: true, open_there: false });
        let now = self.now;
        let edge = &mut self.edges[land];
        edge.links += 1;
        (edge.link, edge.stands, edge.heard) = (Some(key), false, now);
        let hello = Hello {
            edge: edge.name.clone(),
            incarnation: edge.incarnation,
            link: LinkNumber(edge.links),
            region: self.regions[land].clone(),
            release: "sim".into(),
        };
        self.send_link_up(key, Event::LinkOpening(key, Box::new(hello)));
    }

    fn send_link_up(&mut self, key: LinkKey, event: Event) {
        let Some(link) = self.links.get(&key) else { return };
        let (mut pipe, way) = (link.up, (Node::Edge(link.land), Node::Core(link.place)));
        let at = self.arrival(&mut pipe, way);
        self.agenda.plan(at, event);
        self.links.entry(key).and_modify(|link| link.up = pipe);
    }

    fn send_link_down(&mut self, key: LinkKey, event: Event) {
        let Some(link) = self.links.get(&key) else { return };
        let (mut pipe, way) = (link.down, (Node::Core(link.place), Node::Edge(link.land)));
        let at = self.arrival(&mut pipe, way);
        self.agenda.plan(at, event);
        self.links.entry(key).and_modify(|link| link.down = pipe);
    }

    pub(super) fn tell_edge(&mut self, key: LinkKey, down: LinkDown) {
        self.send_link_down(key, Event::LinkDown(key, Box::new(down)));
    }

    pub(super) fn close_link_at_core(&mut self, key: LinkKey) {
        self.links.entry(key).and_modify(|link| link.open_there = false);
        self.send_link_down(key, Event::LinkGoneAtEdge(key));
    }

    pub(super) fn link_opening(&mut self, key: LinkKey, hello: Hello) {
        let Some(run) = self.links.get(&key).map(|link| link.run) else { return };
        if self.place_of(run).is_none() {
            return self.send_link_down(key, Event::LinkGoneAtEdge(key));
        }
        self.links.entry(key).and_modify(|link| link.open_there = true);
        self.feed(run, Input::LinkOpened(key, hello));
    }

    pub(super) fn link_up(&mut self, key: LinkKey, up: LinkUp) {
        let Some(run) = self.links.get(&key).filter(|link| link.open_there).map(|link| link.run) else {
            return;
        };
        let claims = if let LinkUp::Join(join) = &up { Some(Ok(self.claims(&join.token))) } else { None };
        self.feed(run, Input::Link(key, up, claims));
    }

    fn claims(&self, token: &Token) -> Claims {
        let number: usize = token.0.strip_prefix('p').and_then(|number| number.parse().ok()).unwrap_or(0);
        let person = &self.people[number];
        Claims {
            user: person.user.clone(),
            room: self.rooms[person.room].clone(),
            action: Action::Join,
            not_before: None,
            token: TokenRef { ends: StoreTime(u64::MAX / 4), key_id: "k".into(), token_id: token.0.clone() },
        }
    }

    pub(super) fn link_gone_at_core(&mut self, key: LinkKey, end: LinkEnd) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let run = link.run;
        if std::mem::take(&mut link.open_there) {
            self.feed(run, Input::LinkClosed(key, end));
        }
    }

    pub(super) fn link_gone_at_edge(&mut self, key: LinkKey) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let land = link.land;
        if std::mem::take(&mut link.open_here) && self.edges[land].link == Some(key) {
            self.edges[land].link = None;
            self.after(AGAIN_AFTER, Event::DialLink(land));
        }
    }

    pub(super) fn end_links_of(&mut self, run: u64, death: Death) {
        let keys: Vec<LinkKey> =
            self.links.iter().filter(|(_, link)| link.run == run).map(|(key, _)| *key).collect();
        for key in keys {
            let Some(link) = self.links.get_mut(&key) else { continue };
            if std::mem::take(&mut link.open_there) && death == Death::Process {
                self.send_link_down(key, Event::LinkGoneAtEdge(key));
            }
        }
    }

    pub(super) fn beat(&mut self, land: usize) {
        self.after(self.timings.link_beat, Event::Beat(land));
        let (now, heartbeat) = (self.now, self.timings.heartbeat);
        let edge = &mut self.edges[land];
        let Some(key) = edge.link else { return };
        if now.since(edge.heard) > self.timings.link_beat * SILENT_BEATS {
            edge.link = None;
            self.links.entry(key).and_modify(|link| link.open_here = false);
            self.send_link_up(key, Event::LinkGoneAtCore(key, LinkEnd::Silent));
            return self.after(AGAIN_AFTER, Event::DialLink(land));
        }
        if !edge.stands {
            return;
        }
        edge.beats += 1;
        let sequence = edge.beats;
        let renews = (edge.renew_at <= now).then(|| edge.leases.keys().copied().collect::<Vec<LeaseId>>());
        if renews.is_some() {
            edge.renew_at = now + heartbeat;
        }
        self.say_once(land, LinkUp::Beat { sequence });
        if let Some(leases) = renews.filter(|leases| !leases.is_empty()) {
            self.say_once(land, LinkUp::Renew { batch: BatchId(sequence), leases });
        }
    }

    /// Says something, if there is a link.
    pub(super) fn say_once(&mut self, land: usize, up: LinkUp) {
        if let Some(key) = self.edges[land].link.filter(|_| self.edges[land].stands) {
            self.send_link_up(key, Event::LinkUp(key, Box::new(up)));
        }
    }

    /// Says something until it is answered.
    pub(super) fn say(
        &mut self,
        land: usize,
        person: usize,
        up: impl FnOnce(RequestId) -> LinkUp,
    ) -> RequestId {
        let edge = &mut self.edges[land];
        edge.requests += 1;
        let request = RequestId(edge.requests);
        let up = up(request);
        edge.waits.insert(request, (person, up.clone()));
        self.say_once(land, up);
        request
    }

    pub(super) fn link_down(&mut self, key: LinkKey, down: LinkDown) {
        let Some(land) = self.links.get(&key).filter(|link| link.open_here).map(|link| link.land) else {
            return;
        };
        if self.edges[land].link != Some(key) {
            return;
        }
        self.edges[land].heard = self.now;
        match down {
            LinkDown::Welcome(_) => self.stand(land),
            LinkDown::Joined { request, outcome } => match outcome {
                Err(LinkRefusal::Unavailable { .. }) => self.say_again(land, request),
                outcome => {
                    if let Some((person, _)) = self.edges[land].waits.remove(&request) {
                        self.answered_join(person, (land, request), outcome.ok());
                    }
                }
            },
            LinkDown::Done { request, outcome } => match outcome {
                Err(LinkRefusal::Unavailable { .. }) => self.say_again(land, request),
                _ => {
                    self.edges[land].waits.remove(&request);
                }
            },
            LinkDown::Renewed { unknown, .. } => {
                for lease in unknown {
                    if let Some(person) = self.edges[land].leases.remove(&lease) {
                        self.over(person, (land, lease));
                    }
                }
            }
            LinkDown::RenewAll { .. } => self.edges[land].renew_at = self.now,
            LinkDown::EndLease { lease, .. } => {
                if let Some(person) = self.edges[land].leases.remove(&lease) {
                    self.over(person, (land, lease));
                }
            }
            LinkDown::Beat { .. }
            | LinkDown::Foreign { .. }
            | LinkDown::Revoked { .. }
            | LinkDown::Drain
            | LinkDown::DrainEdge => {}
        }
    }

    /// A link is welcome: everything is renewed, and said again.
    fn stand(&mut self, land: usize) {
        let now = self.now;
        let edge = &mut self.edges[land];
        (edge.stands, edge.renew_at) = (true, now);
        let waits: Vec<LinkUp> = edge.waits.values().map(|(_, up)| up.clone()).collect();
        for up in waits {
            self.say_once(land, up);
        }
    }

    fn say_again(&mut self, land: usize, request: RequestId) {
        if let Some((_, up)) = self.edges[land].waits.get(&request) {
            let up = Box::new(up.clone());
            self.after(SAY_AGAIN_AFTER, Event::Delayed(land, up));
        }
    }
}
