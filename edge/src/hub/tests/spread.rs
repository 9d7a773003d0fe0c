//! Scenario 31: 50,000 sessions start within one second. Their heartbeats drift apart, so that no second has to
//! carry many more renewals than another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use presence_model::claim::Action;
use presence_model::id::{ConnectionId, EdgeName, Incarnation};
use presence_model::lease::LeaseId;
use presence_model::link::{LinkDown, LinkUp, RequestId, Welcome};
use presence_model::time::Mono;
use presence_model::timing::Timings;

use super::world::{STORE_START_MS, claims, core_address, grant, join_text, lease, region, room, timings};
use crate::hub::{ConnKey, Effect, Hub, HubSettings, Input};
use crate::protocol::{Encoding, json};
use presence_model::time::StoreTime;

const SESSIONS: u64 = 50_000;
const EDGES: u64 = 4;
const START: Duration = Duration::from_secs(1);
/// From a ttl on, for so long: a few heartbeats.
const WATCHED: Duration = Duration::from_secs(60);
/// Of a second, as a part of the mean.
const PEAK_MAX: f64 = 2.0;
/// Of a client: it answers pings.
const ROUND_TRIP: Duration = Duration::from_millis(30);

/// One edge whose core grants and acknowledges everything at once, and whose clients do nothing but answer.
struct Edge {
    hub: Hub,
    now: Mono,
    timings: Timings,
    last_lease: u64,
    accepted: Option<ConnKey>,
    /// Pongs under way.
    pongs: BinaryHeap<Reverse<(Mono, ConnKey)>>,
    /// Renewed leases by second.
    renewed: Vec<u64>,
}

impl Edge {
    fn start(number: u64) -> Self {
        let timings = timings();
        let hub = Hub::new(HubSettings {
            edge: EdgeName::new(format!("edge-{number}")).unwrap(),
            incarnation: Incarnation(number),
            region: region(),
            timings,
            cores: vec![core_address("a")],
            list_members: 5_000,
            seed: number,
        });
        let (now, pongs) = (Mono::from_millis(60_000), BinaryHeap::new());
        let mut edge = Self { hub, now, timings, last_lease: 0, accepted: None, pongs, renewed: Vec::new() };
        edge.give(Input::Tick);
        edge.give(Input::LinkUp);
        let t = timings;
        edge.give(Input::Link(LinkDown::Welcome(Welcome {
            heartbeat: t.heartbeat,
            lease_ttl: t.lease_ttl,
            grace: t.grace,
            heartbeat_min: t.heartbeat_min,
            link_beat: t.link_beat,
            edge_lost: t.edge_lost,
            store_time: edge.store_time(),
            core: "core-1".into(),
            release: "0".into(),
        })));
        edge.give(Input::WatchUp);
        edge
    }

    fn store_time(&self) -> StoreTime {
        StoreTime(STORE_START_MS) + self.now.0
    }

    fn give(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.hub.handle(input, self.now, &mut effects);
            for effect in effects {
                inputs.extend(self.carry_out(effect));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Accepted(_, key) => self.accepted = Some(key),
            Effect::Send(key, _) => return Some(Input::Written(key)),
            Effect::Ping(key) => self.pongs.push(Reverse((self.now + ROUND_TRIP, key))),
            Effect::Link(LinkUp::Join(join)) => return Some(self.grant(join.request)),
            Effect::Link(LinkUp::Renew { batch, leases }) => {
                let second = usize::try_from(self.now.0.as_secs()).unwrap();
                self.renewed.resize(self.renewed.len().max(second + 1), 0);
                self.renewed[second] += leases.len() as u64;
                return Some(Input::Link(LinkDown::Renewed { batch, unknown: Vec::new() }));
            }
            Effect::Link(LinkUp::Beat { sequence, .. }) => {
                let store_time = self.store_time();
                return Some(Input::Link(LinkDown::Beat { sequence, store_time, store_reachable: true }));
            }
            Effect::Close(_, code, why) => panic!("closed with {code:?}: {why}"),
            Effect::Link(_)
            | Effect::OpenLink(..)
            | Effect::DropLink
            | Effect::OpenWatch
            | Effect::Watch(_)
            | Effect::DropWatch
            | Effect::Go
            | Effect::TokenRefused(..)
            | Effect::Drained => {}
        }
        None
    }

    fn grant(&mut self, request: RequestId) -> Input {
        self.last_lease += 1;
        let lease: LeaseId = lease(self.last_lease);
        let ends = self.store_time() + Duration::from_secs(3_600);
        Input::Link(LinkDown::Joined { request, outcome: Ok(grant(lease, ends)) })
    }

    fn join(&mut self, number: u64) {
        self.give(Input::Accept(ConnectionId(number), Encoding::Json));
        let key = self.accepted.take().unwrap();
        let name = format!("room-{}", number / 10);
        let message = json::parse(&join_text(&format!("user-{number}"), &name, Some(1), ",\"watch\":false"));
        let ends = self.store_time() + Duration::from_secs(3_600);
        let claims = claims(&format!("user-{number}"), &room(&name), Action::Join, ends);
        self.give(Input::Message(key, message.unwrap(), Some(Ok(claims))));
    }

    fn pass(&mut self, until: Mono) {
        loop {
            let pong = self.pongs.peek().map(|Reverse((at, _))| *at);
            let due = self.hub.poll_timeout().into_iter().chain(pong).min().filter(|due| *due <= until);
            let Some(due) = due else { break };
            self.now = self.now.max(due);
            while let Some(Reverse((at, key))) = self.pongs.peek().copied()
                && at <= self.now
            {
                self.pongs.pop();
                self.give(Input::Heard(key));
            }
            self.give(Input::Tick);
        }
        self.now = until;
    }
}

#[test]
fn scenario_31_sessions_that_start_in_one_second_do_not_renew_in_one() {
    let mut seconds = Vec::new();
    for number in 0..EDGES {
        let mut edge = Edge::start(number);
        let begin = edge.now;
        let each = SESSIONS / EDGES;
        for session in 0..each {
            edge.pass(begin + START.mul_f64(session as f64 / each as f64));
            edge.join(session);
        }
        let from = begin + START + edge.timings.lease_ttl;
        edge.pass(from + WATCHED + START);
        let from = usize::try_from(from.0.as_secs()).unwrap();
        let watched = &edge.renewed[from..from + usize::try_from(WATCHED.as_secs()).unwrap()];
        seconds.resize(watched.len(), 0);
        for (sum, renewed) in seconds.iter_mut().zip(watched) {
            *sum += renewed;
        }
    }
    let mean = seconds.iter().sum::<u64>() as f64 / seconds.len() as f64;
    let most = *seconds.iter().max().unwrap() as f64;
    println!(
        "{SESSIONS} sessions that started within {START:?}: {mean:.0} renewals a second after a ttl, {most:.0} at most \
         ({:.2} times as many)",
        most / mean
    );
    let heartbeats = WATCHED.as_secs_f64() / timings().heartbeat.as_secs_f64();
    let each = seconds.iter().sum::<u64>() as f64 / SESSIONS as f64;
    assert!((heartbeats * 0.9..=heartbeats * 1.1).contains(&each), "each renews once a heartbeat: {each}");
    assert!(most <= mean * PEAK_MAX, "{seconds:?}");
}
