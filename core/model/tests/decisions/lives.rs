//! Random lives of a few users: what can happen, to whom, and whether its outcome is told.

use std::time::Duration;

use presence_model::id::{ConnectionId, Generation, UserId};
use presence_model::link::RequestId;
use presence_model::member::Join;
use presence_model::profile::Status;
use presence_model::time::StoreTime;
use proptest::prelude::*;

use crate::build::{NEVER, edge, join, profile, session, token, user};

/// What becomes of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Committed and told.
    Told,
    /// Committed, but the outcome is lost: it is decided again.
    Lost,
    /// Committed later, if it still can be.
    Delayed,
}

/// One of the leases ever granted, or joins ever tried.
pub(crate) type Pick = prop::sample::Index;

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Pass(Duration),
    Hold(bool),
    Join(UserId, Box<NewJoin>, Fate),
    LateJoin { pick: Pick, rejoin: Option<u64>, fate: Fate },
    Abandon { pick: Pick, generation: bool, fate: Fate },
    Update { pick: Pick, status: Option<Status>, state: Option<&'static str>, token: Option<u64>, fate: Fate },
    Leave(Pick, Fate),
    Release(Pick),
    Renew(Pick),
    Lose(u64),
    Vanish(Pick),
    Sweep(Fate),
    Audit,
    Evict(UserId, Option<usize>, Fate),
    CommitDelayed(Pick),
}

/// A join, before it is known when.
#[derive(Debug, Clone)]
pub(crate) struct NewJoin {
    session: usize,
    generation: Option<u64>,
    connection: u64,
    edge: u64,
    status: Status,
    state: &'static str,
    token: Option<u64>,
    rejoin: Option<u64>,
}

impl NewJoin {
    /// The join of that number: it names its lease and its request.
    pub(crate) fn at(&self, now: StoreTime, number: u64) -> Join {
        Join {
            session: session(self.session),
            generation: self.generation.map(Generation),
            connection: ConnectionId(self.connection),
            edge: edge(self.edge),
            profile: profile(self.status, self.state),
            token: token(self.token.map_or(NEVER, |ms| now + Duration::from_millis(ms))),
            rejoin: self.rejoin.map(|ms| now.before(Duration::from_millis(ms))),
            request: RequestId(number),
            ..join(number)
        }
    }
}

fn someone() -> impl Strategy<Value = UserId> {
    prop::sample::select(vec![user("ann"), user("ben")])
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(vec![Status::Away, Status::Available, Status::Busy])
}

fn state() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["{}", "{\"at\":1}", "{\"at\":2}"])
}

fn fate() -> impl Strategy<Value = Fate> {
    prop::sample::select(vec![Fate::Told, Fate::Told, Fate::Lost, Fate::Delayed])
}

fn token_ms() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.2, prop::sample::select(vec![0u64, 20_011, 70_003]))
}

fn new_join() -> impl Strategy<Value = Box<NewJoin>> {
    let numbers = (0usize..3, prop::option::weighted(0.8, 1u64..6), 1u64..5, 1u64..3);
    let rejoin = prop::option::weighted(0.15, 0u64..200_000);
    (numbers, status(), state(), token_ms(), rejoin).prop_map(|(numbers, status, state, token, rejoin)| {
        let (session, generation, connection, edge) = numbers;
        Box::new(NewJoin { session, generation, connection, edge, status, state, token, rejoin })
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let pick = any::<Pick>;
    let update = (
        pick(),
        prop::option::of(status()),
        prop::option::of(state()),
        prop::option::weighted(0.3, prop::sample::select(vec![0u64, 20_011, 70_003])),
        fate(),
    );
    let late = (pick(), prop::option::of(0u64..200_000), fate());
    let evict = (someone(), prop::option::of(0usize..3), fate());
    prop_oneof![
        6 => (1u64..16_000).prop_map(|ms| Event::Pass(Duration::from_millis(ms))),
        1 => any::<bool>().prop_map(Event::Hold),
        8 => (someone(), new_join(), fate()).prop_map(|(user, join, fate)| Event::Join(user, join, fate)),
        3 => late.prop_map(|(pick, rejoin, fate)| Event::LateJoin { pick, rejoin, fate }),
        2 => (pick(), any::<bool>(), fate())
            .prop_map(|(pick, generation, fate)| Event::Abandon { pick, generation, fate }),
        4 => update.prop_map(|(pick, status, state, token, fate)| {
            Event::Update { pick, status, state, token, fate }
        }),
        2 => (pick(), fate()).prop_map(|(pick, fate)| Event::Leave(pick, fate)),
        3 => pick().prop_map(Event::Release),
        3 => pick().prop_map(Event::Renew),
        2 => (1u64..3).prop_map(Event::Lose),
        1 => pick().prop_map(Event::Vanish),
        5 => fate().prop_map(Event::Sweep),
        1 => Just(Event::Audit),
        1 => evict.prop_map(|(user, session, fate)| Event::Evict(user, session, fate)),
        3 => pick().prop_map(Event::CommitDelayed),
    ]
}
