//! Owned tasks and a bounded end.
//!
//! One [`Shutdown`] a process part (a core, an edge). Every task is spawned through it, so that the end
//! can wait for all of them, and none dies unnoticed.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;

/// The root of a part's life: a token that ends it, and the tasks that must have ended. Cheap to clone.
#[derive(Clone)]
pub struct Shutdown {
    token: CancellationToken,
    tasks: TaskTracker,
    panicked: Arc<AtomicUsize>,
}

/// What a hangup (SIGHUP) means to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// The terminal it is shown on is gone: it ends as at SIGTERM, unless hangups were ignored when it was
    /// started (`nohup`).
    Ends,
    /// Somebody wants it to read its files again, as other servers do at this signal: it goes on, and says
    /// what it does instead.
    Told,
}

/// The end came, but not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfinished {
    /// Tasks were still running when the time was over; they are left behind.
    #[error("{tasks} tasks had not ended in time")]
    Late {
        /// How many.
        tasks: usize,
    },
    /// Tasks ended by a panic, which is logged where it happened.
    #[error("{tasks} tasks ended by a panic")]
    Panicked {
        /// How many.
        tasks: usize,
    },
}

impl Shutdown {
    /// A part that lives.
    #[must_use]
    pub fn new() -> Self {
        Self::under(CancellationToken::new())
    }

    /// A part that ends with another one at the latest (`dev` holds a core and an edge).
    #[must_use]
    pub fn child(&self) -> Self {
        Self::under(self.token.child_token())
    }

    fn under(token: CancellationToken) -> Self {
        Self { token, tasks: TaskTracker::new(), panicked: Arc::default() }
    }

    /// Cancelled when the end begins.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Begins the end. Idempotent.
    pub fn begin(&self) {
        self.token.cancel();
    }

    /// Spawns a task the part cannot live without: if it panics, the end begins.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let this = self.clone();
        self.tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a task panicked; this process part ends");
                this.panicked.fetch_add(1, Ordering::Relaxed);
                this.begin();
            }
        });
    }

    /// Spawns a task that serves one connection or request: if it panics, only that is lost.
    ///
    /// Dropping what the task owns must undo what it registered.
    pub fn spawn_one_of_many(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let panicked = Arc::clone(&self.panicked);
        // Combined, since an async block would hold the task twice, for each of many.
        self.tasks.spawn(AssertUnwindSafe(task).catch_unwind().map(move |ended| {
            if ended.is_err() {
                tracing::error!(task = name, "a task panicked; its connection is lost");
                panicked.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    /// How many tasks run.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Waits, once the end has begun, until all tasks have ended or `within` has passed.
    ///
    /// # Errors
    /// [`Unfinished`]: tasks are left, or some had panicked.
    pub async fn finished(&self, clock: &Clock, within: Duration) -> Result<(), Unfinished> {
        self.token.cancelled().await;
        self.tasks.close();
        tokio::select! {
            biased;
            () = self.tasks.wait() => {}
            () = clock.sleep(within) => return Err(Unfinished::Late { tasks: self.tasks.len() }),
        }
        match self.panicked.load(Ordering::Relaxed) {
            0 => Ok(()),
            tasks => Err(Unfinished::Panicked { tasks }),
        }
    }

    /// Begins the end at SIGTERM or SIGINT; a second signal exits the process at once. A hangup does what
    /// `hangup` says. For `main` only.
    ///
    /// # Errors
    /// The signal handlers cannot be installed.
    pub fn end_on_signals(&self, hangup: Hangup) -> std::io::Result<()> {
        let mut signals = Signals::heard(hangup)?;
        let token = self.token.clone();
        // Not one of the owned tasks: it must outlive them, to hear the second signal while they end.
        tokio::spawn(async move {
            let first = signals.next().await;
            tracing::info!(signal = first, "ending; a second signal exits at once");
            token.cancel();
            let second = signals.next().await;
            tracing::warn!(signal = second, "exiting at once");
            std::process::exit(128 + second);
        });
        Ok(())
    }
}

/// The signals that are heard.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// None: the process was started to ignore it.
    hangup: Option<(Signal, Hangup)>,
}

impl Signals {
    fn heard(hangup: Hangup) -> std::io::Result<Self> {
        let ignored =
            std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status));
        let hangup = match hangup {
            Hangup::Ends if ignored => None,
            Hangup::Ends | Hangup::Told => Some((signal(SignalKind::hangup())?, hangup)),
        };
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup })
    }

    /// The next one that ends the process.
    async fn next(&mut self) -> i32 {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some((signal, meaning)) => {
                        signal.recv().await;
                        *meaning
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = self.terminate.recv() => return SignalKind::terminate().as_raw_value(),
                _ = self.interrupt.recv() => return SignalKind::interrupt().as_raw_value(),
                meaning = hangup => match meaning {
                    Hangup::Ends => return SignalKind::hangup().as_raw_value(),
                    Hangup::Told => tracing::info!(
                        "a hangup changes nothing here: files of keys and certificates are followed by \
                         themselves, other settings take a restart"
                    ),
                },
            }
        }
    }
}

/// Whether a process of this status (`/proc/…/status`) ignores hangups: the first bit of the mask.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begun = self.token.is_cancelled();
        f.debug_struct("Shutdown").field("begun", &begun).field("tasks", &self.tasks.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_waits_for_every_task() {
        let (clock, _hand) = Clock::manual();
        let shutdown = Shutdown::new();
        let (token, (sender, receiver)) = (shutdown.token(), tokio::sync::oneshot::channel());
        shutdown.spawn("test", async move {
            token.cancelled().await;
            sender.send(()).unwrap();
        });
        assert_eq!(shutdown.tasks(), 1);
        assert!(shutdown.finished(&clock, Duration::from_secs(1)).now_or_never().is_none(), "not begun");
        shutdown.begin();
        assert_eq!(shutdown.finished(&clock, Duration::from_secs(1)).await, Ok(()));
        receiver.await.unwrap();
    }

    #[tokio::test]
    async fn the_end_is_bounded() {
        let (clock, hand) = Clock::manual();
        let shutdown = Shutdown::new();
        shutdown.spawn("test", std::future::pending());
        shutdown.begin();
        let mut end = Box::pin(shutdown.finished(&clock, Duration::from_secs(1)));
        assert!(end.as_mut().now_or_never().is_none());
        hand.advance(Duration::from_secs(1));
        assert_eq!(end.await, Err(Unfinished::Late { tasks: 1 }));
    }

    #[tokio::test]
    async fn a_panic_ends_the_part_unless_it_is_one_of_many() {
        let (clock, _hand) = Clock::manual();
        let shutdown = Shutdown::new();
        shutdown.spawn_one_of_many("connection", async { panic!("on purpose") });
        while shutdown.tasks() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!shutdown.token().is_cancelled());
        shutdown.spawn("driver", async { panic!("on purpose") });
        let end = shutdown.finished(&clock, Duration::from_secs(1)).await;
        assert_eq!(end, Err(Unfinished::Panicked { tasks: 2 }));
    }

    #[test]
    fn ignored_hangups_are_read_from_the_mask() {
        let status = |mask: &str| format!("Name:\tpresence\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(ignores_hangup(&status("0000000000000001")) && ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")) && !ignores_hangup(&status("")));
        assert!(!ignores_hangup(""));
    }

    #[tokio::test]
    async fn a_child_ends_with_its_parent_and_not_the_reverse() {
        let (parent, other) = (Shutdown::new(), Shutdown::new());
        let (child, alone) = (parent.child(), other.child());
        alone.begin();
        assert!(!other.token().is_cancelled());
        parent.begin();
        assert!(child.token().is_cancelled());
    }
}
