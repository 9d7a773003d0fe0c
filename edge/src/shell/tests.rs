use std::sync::Arc;

use presence_model::id::{ConnectionId, EdgeName, Incarnation, RegionId};
use presence_model::timing::{Timings, TimingsGiven};
use presence_runtime::clock::ManualClock;
use presence_runtime::network::Network;
use presence_runtime::telemetry::Metrics;
use presence_runtime::tokens::{GeneratedKeys, KeySet};

use super::*;
use crate::connection::{Inbox, Mailbox};
use crate::hub::HubSettings;
use crate::logs::Lines;
use crate::protocol::Encoding;

struct Stage {
    running: Running,
    inbox: Inbox,
    hand: ManualClock,
}

impl Stage {
    /// A hub's task that knows no core.
    fn new() -> Self {
        let (clock, hand) = Clock::manual();
        let (inbox, reports) = Inbox::pair();
        let (links, events) = Links::new(Network::tcp(), clock.clone(), Shutdown::new());
        let keys = GeneratedKeys::from_seed([7; 32]);
        let task = HubTask {
            hub: Hub::new(HubSettings {
                edge: EdgeName::new("edge-1").unwrap(),
                incarnation: Incarnation(1),
                region: RegionId::new("local").unwrap(),
                timings: Timings::derive(TimingsGiven::default()).unwrap(),
                cores: Vec::new(),
                list_members: 5,
                seed: 7,
            }),
            reports,
            links,
            events,
            clock,
            metrics: EdgeMetrics::new(&Metrics::new()).0,
            verifier: Verifier::new(KeySet::parse(keys.jwks().as_bytes()).unwrap()),
            readiness: Readiness::new(),
            shutdown: Shutdown::new(),
            linked: watch::Sender::new(false),
        };
        Self { running: Running::new(task), inbox, hand }
    }

    /// This many connections say that they are there.
    fn arrive(&self, connections: usize) -> Vec<Arc<Mailbox>> {
        let arrive = |id| {
            let mailbox = Arc::new(Mailbox::new(ConnectionId(id), None));
            self.inbox.put(&mailbox, What::Accepted(Encoding::Json));
            mailbox
        };
        (0..connections as u64).map(arrive).collect()
    }

    fn connections(&self) -> usize {
        usize::try_from(self.running.task.hub.counts().connections).unwrap()
    }
}

#[tokio::test]
async fn so_much_is_handled_before_the_other_kind_gets_its_turn() {
    // One is what ends the wait.
    for (arrive, after_a_turn) in
        [(TURN_MAX, TURN_MAX), (TURN_MAX + 1, TURN_MAX + 1), (TURN_MAX + 2, TURN_MAX + 1)]
    {
        let mut stage = Stage::new();
        let _mailboxes = stage.arrive(arrive);
        stage.running.turn(&mut None).await;
        assert_eq!(stage.connections(), after_a_turn);
        while stage.connections() < arrive {
            stage.running.turn(&mut None).await;
        }
    }
}

#[tokio::test]
async fn how_far_a_drain_is_is_told_now_and_then() {
    let mut stage = Stage::new();
    let _mailboxes = stage.arrive(3);
    stage.running.turn(&mut None).await;
    stage.running.handle(Input::Drain);
    let lines = Lines::collect();
    let told_at = |ms: u64, stage: &mut Stage| {
        stage.hand.advance(Duration::from_millis(ms));
        stage.running.publish();
        lines.with("draining")
    };
    assert_eq!(told_at(0, &mut stage), 1);
    let every = u64::try_from(DRAIN_TOLD_EVERY.as_millis()).unwrap();
    assert_eq!(told_at(every - 1, &mut stage), 1);
    assert_eq!(told_at(1, &mut stage), 2);
    assert_eq!(told_at(1, &mut stage), 2);
}
