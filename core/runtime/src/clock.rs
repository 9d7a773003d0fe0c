//! The only place that reads a clock.
//!
//! Machines get a [`Mono`] as an argument; whoever calls them reads it here. The wall clock is for log
//! lines and for issuing tokens: nothing about life is decided by it, that is the store's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use presence_model::time::{Mono, millis};
use tokio::sync::watch;
use tokio::time::Instant;

/// A source of monotonic time, cheap to clone; all clones agree.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The timer of tokio, so that a paused runtime drives this clock as well.
    System {
        start: Instant,
    },
    Manual(Arc<Manual>),
}

#[derive(Debug)]
struct Manual {
    now: watch::Sender<Mono>,
    wall_start_ms: AtomicU64,
}

impl Clock {
    /// The machine's clock; its [`Mono`] starts at zero now.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that stands until the other half moves it.
    #[must_use]
    pub fn manual() -> (Self, ManualClock) {
        let manual = Arc::new(Manual {
            now: watch::Sender::new(Mono::default()),
            wall_start_ms: AtomicU64::new(1_790_000_000_000),
        });
        (Self(Source::Manual(Arc::clone(&manual))), ManualClock(manual))
    }

    /// Time since the start of this clock. Never goes back.
    #[must_use]
    pub fn now(&self) -> Mono {
        match &self.0 {
            Source::System { start } => Mono(start.elapsed()),
            Source::Manual(manual) => *manual.now.borrow(),
        }
    }

    /// Milliseconds since 1970 by the machine: for log lines and the end of issued tokens, not for decisions.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => {
                #[expect(clippy::disallowed_methods, reason = "this is the one place")]
                let now = SystemTime::now();
                millis(now.duration_since(UNIX_EPOCH).unwrap_or_default())
            }
            Source::Manual(manual) => {
                manual.wall_start_ms.load(Ordering::Relaxed) + millis(manual.now.borrow().0)
            }
        }
    }

    /// Returns once [`Self::now`] is `at` or later; at once if it is. Cancel-safe.
    pub async fn sleep_until(&self, at: Mono) {
        match &self.0 {
            Source::System { start } => match start.checked_add(at.0) {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            },
            Source::Manual(manual) => {
                let reached = manual.now.subscribe().wait_for(|now| *now >= at).await.is_ok();
                debug_assert!(reached, "this clock holds the sender");
            }
        }
    }

    /// Returns after `span`. Cancel-safe.
    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Returns at `at`, or never if there is none: for `poll_timeout` of a machine. Cancel-safe.
    pub async fn sleep_until_some(&self, at: Option<Mono>) {
        match at {
            Some(at) => self.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// The hand that moves a manual clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Manual>);

impl ManualClock {
    /// Lets `span` pass and wakes the sleepers that are due.
    pub fn advance(&self, span: Duration) {
        self.0.now.send_modify(|now| *now = *now + span);
    }

    /// Steps the wall clock, and only that, to read `wall_ms` now.
    pub fn set_wall_ms(&self, wall_ms: u64) {
        let passed = millis(self.0.now.borrow().0);
        self.0.wall_start_ms.store(wall_ms.saturating_sub(passed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_sleepers_when_their_time_has_come() {
        let (clock, hand) = Clock::manual();
        let mut sleeper = Box::pin(clock.sleep(Duration::from_secs(5)));
        assert!(sleeper.as_mut().now_or_never().is_none());
        hand.advance(Duration::from_millis(4_999));
        assert!(sleeper.as_mut().now_or_never().is_none());
        hand.advance(Duration::from_millis(1));
        assert!(sleeper.as_mut().now_or_never().is_some());
        assert_eq!(clock.now(), Mono::from_millis(5_000));
        assert!(clock.sleep_until(Mono::from_millis(1)).now_or_never().is_some(), "the past is now");
    }

    #[test]
    fn the_wall_clock_steps_without_touching_the_monotonic_one() {
        let (clock, hand) = Clock::manual();
        hand.advance(Duration::from_secs(1));
        let before = clock.wall_ms();
        hand.set_wall_ms(before - 60_000);
        assert_eq!(clock.wall_ms(), before - 60_000);
        hand.advance(Duration::from_secs(2));
        assert_eq!(clock.wall_ms(), before - 58_000);
        assert_eq!(clock.now(), Mono::from_millis(3_000));
    }

    #[tokio::test]
    async fn the_system_clock_passes_by_itself() {
        let clock = Clock::system();
        let before = clock.now();
        clock.sleep(Duration::from_millis(3)).await;
        assert!(clock.clone().now().since(before) >= Duration::from_millis(3));
        assert!(clock.sleep_until_some(None).now_or_never().is_none());
        assert!(clock.sleep_until(Mono(Duration::MAX)).now_or_never().is_none());
    }

    #[test]
    fn the_wall_clock_is_past_the_year_this_was_written() {
        assert!(Clock::system().wall_ms() > 1_735_689_600_000);
    }
}
