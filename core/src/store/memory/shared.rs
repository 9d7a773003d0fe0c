//! The memory store behind the port, and what happens on the way to a store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_model::lease::Shard;
use presence_model::time::{StoreTime, millis};
use presence_runtime::clock::Clock;
use tokio::sync::Notify;

use super::{MemorySettings, MemoryStore, Tampering, Upheaval};
use crate::store::{Command, LeaseStore, Outcome, StoreFault, TailId};

/// What happens to commands and answers on their way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weather {
    /// Nothing reaches the store; the reason.
    pub unavailable: Option<String>,
    /// The store takes no writes.
    pub read_only: bool,
    /// The store has no memory left for what is written.
    pub full: bool,
    /// Each command takes so long to arrive.
    pub delay: Duration,
    /// Of so many of the next writes the answer is lost: they are carried out.
    pub lose_answers: usize,
    /// So many of the next writes are lost themselves: nobody can tell that from a lost answer.
    pub lose_commands: usize,
}

/// A memory store that many share, on a clock that only goes forward unless it is stepped.
#[derive(Clone)]
pub struct SharedMemoryStore {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Something was written, or the weather changed: waiting tails look again.
    moved: Notify,
    clock: Clock,
    start_ms: u64,
    shards: u16,
}

struct State {
    store: MemoryStore,
    weather: Weather,
    skew_ms: i64,
}

impl SharedMemoryStore {
    /// A store without data, on that clock.
    #[must_use]
    pub fn new(settings: MemorySettings, clock: Clock) -> Self {
        // From here on by the monotonic clock, so that whoever sets the machine's clock ends nobody.
        let start_ms = clock.wall_ms().saturating_sub(millis(clock.now().0));
        let store = MemoryStore::new(settings, StoreTime(clock.wall_ms()));
        let shards = store.shards();
        let state = Mutex::new(State { store, weather: Weather::default(), skew_ms: 0 });
        Self { inner: Arc::new(Inner { state, moved: Notify::new(), clock, start_ms, shards }) }
    }

    /// The store's clock.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        let skew_ms = self.inner.lock().skew_ms;
        self.inner.now(skew_ms)
    }

    /// Lets something happen to the data.
    pub fn suffer(&self, upheaval: Upheaval) {
        let mut state = self.inner.lock();
        let now = self.inner.now(state.skew_ms);
        state.store.suffer(upheaval, now);
        drop(state);
        self.inner.moved.notify_waiters();
    }

    /// Lets a hand from outside do something.
    pub fn tamper(&self, tampering: Tampering) {
        let mut state = self.inner.lock();
        let now = self.inner.now(state.skew_ms);
        state.store.tamper(tampering, now);
    }

    /// Steps the store's clock, forward or back.
    pub fn step_clock(&self, by_ms: i64) {
        let mut state = self.inner.lock();
        state.skew_ms = state.skew_ms.saturating_add(by_ms);
    }

    /// Changes what happens on the way.
    pub fn set_weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.inner.lock().weather);
        self.inner.moved.notify_waiters();
    }
}

impl LeaseStore for SharedMemoryStore {
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<Outcome, StoreFault>> {
        let inner = Arc::clone(&self.inner);
        async move {
            let delay = inner.lock().weather.delay;
            if !delay.is_zero() {
                inner.clock.sleep(delay).await;
            }
            if let Command::Tail { after, wait } = command {
                inner.tail(after, wait).await
            } else {
                inner.apply(command)
            }
        }
        .boxed()
    }

    fn shards(&self) -> u16 {
        self.inner.shards
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with this lock")
    }

    fn now(&self, skew_ms: i64) -> StoreTime {
        let true_ms = self.start_ms.saturating_add(millis(self.clock.now().0));
        StoreTime(true_ms.saturating_add_signed(skew_ms))
    }

    fn apply(&self, command: Command) -> Result<Outcome, StoreFault> {
        let is_write = command.is_write();
        let mut state = self.lock();
        if let Some(reason) = &state.weather.unavailable {
            return Err(StoreFault::Unavailable(reason.clone()));
        }
        if is_write && state.weather.read_only {
            return Err(StoreFault::ReadOnly);
        }
        if is_write && state.weather.full {
            return Err(StoreFault::Unavailable("no memory is left".to_owned()));
        }
        if is_write && take_one(&mut state.weather.lose_commands) {
            return Err(StoreFault::Unknown);
        }
        let now = self.now(state.skew_ms);
        let outcome = state.store.apply(command, now);
        let is_lost = is_write && take_one(&mut state.weather.lose_answers);
        drop(state);
        if is_write {
            self.moved.notify_waiters();
        }
        if is_lost { Err(StoreFault::Unknown) } else { outcome }
    }

    async fn tail(&self, after: BTreeMap<Shard, TailId>, wait: Duration) -> Result<Outcome, StoreFault> {
        let over = self.clock.sleep(wait);
        tokio::pin!(over);
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            // Listening starts before looking, so that nothing falls in between.
            moved.as_mut().enable();
            if self.tail_has_answer(&after) {
                return self.apply(Command::Tail { after, wait });
            }
            tokio::select! {
                biased;
                () = &mut moved => {}
                () = &mut over => return self.apply(Command::Tail { after, wait }),
            }
        }
    }

    fn tail_has_answer(&self, after: &BTreeMap<Shard, TailId>) -> bool {
        let state = self.lock();
        state.weather.unavailable.is_some() || state.store.tail_speaks(after)
    }
}

fn take_one(count: &mut usize) -> bool {
    let is_any = *count > 0;
    *count = count.saturating_sub(1);
    is_any
}
