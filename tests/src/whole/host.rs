//! A machine that runs something: a runtime of its own, whose time goes as the world lets it.
//!
//! Ending it drops everything at once, as the end of a process does. While it is paused nothing in it runs;
//! then its clock jumps, as after SIGCONT.

use std::net::IpAddr;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// A machine, and what runs on it while it does.
pub(super) struct Host<T> {
    pub(super) name: String,
    pub(super) address: IpAddr,
    /// How fast its clock goes, in millionths more than the world's.
    drift: i64,
    life: Option<Life<T>>,
    paused: bool,
    lives: u64,
}

struct Life<T> {
    runtime: Runtime,
    tenant: T,
    born: u64,
    lived: u64,
    thawed: bool,
}

impl<T> Host<T> {
    pub(super) fn new(name: String, address: IpAddr, drift: i64) -> Self {
        Self { name, address, drift, life: None, paused: false, lives: 0 }
    }

    /// Starts a process that becomes what `begin` makes; it must not wait for anything.
    pub(super) fn start(&mut self, now: u64, begin: impl AsyncFnOnce() -> T) {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without threads or sockets");
        let tenant = runtime.block_on(begin());
        self.lives += 1;
        self.paused = false;
        self.life = Some(Life { runtime, tenant, born: now, lived: 0, thawed: false });
    }

    /// Lets it live until then.
    pub(super) fn run_to(&mut self, now: u64) {
        let Some(life) = self.life.as_mut().filter(|_| !self.paused) else { return };
        let age = i64::try_from(now - life.born).expect("a night is short");
        let target = u64::try_from(age + age * self.drift / 1_000_000).expect("clocks go forward");
        let step = Duration::from_millis(target.saturating_sub(life.lived));
        let thawed = std::mem::take(&mut life.thawed);
        life.runtime.block_on(async {
            if thawed {
                tokio::time::advance(step).await;
            } else {
                tokio::time::sleep(step).await;
            }
        });
        life.lived = life.lived.max(target);
    }

    /// What runs on it.
    pub(super) fn tenant(&self) -> Option<&T> {
        self.life.as_ref().map(|life| &life.tenant)
    }

    /// How often something was started on it.
    pub(super) fn lives(&self) -> u64 {
        self.lives
    }

    pub(super) fn is_running(&self) -> bool {
        self.life.is_some() && !self.paused
    }

    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Goes on, if it is the same process still.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.paused)
            && let Some(life) = &mut self.life
        {
            life.thawed = true;
        }
    }

    /// Ends the process, and all it held.
    pub(super) fn kill(&mut self) {
        self.life = None;
        self.paused = false;
    }

    /// Ends it in good order; what it had begun to end must be over by now.
    pub(super) fn finish<R>(&mut self, end: impl AsyncFnOnce(T) -> R) -> Option<R> {
        let Life { runtime, tenant, .. } = self.life.take()?;
        Some(runtime.block_on(end(tenant)))
    }
}
