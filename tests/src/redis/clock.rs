//! A wall clock of servers that steps while they run.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tempfile::NamedTempFile;

/// What is loaded before the C library; see `clock.c`.
const LIBRARY: &str = concat!(env!("OUT_DIR"), "/clock.so");

/// The wall clock of one or more servers, as an offset to the machine's. Monotonic clocks are left alone.
#[derive(Debug, Clone)]
pub struct FakeClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: NamedTempFile,
    offset_ms: Mutex<i64>,
}

impl FakeClock {
    /// A clock that is right for now.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn new() -> anyhow::Result<Self> {
        let clock = Self(Arc::new(Inner { file: NamedTempFile::new()?, offset_ms: Mutex::new(0) }));
        clock.step(0)?;
        Ok(clock)
    }

    /// Steps forward or back; servers see it with their next look.
    ///
    /// # Errors
    /// When nothing can be written.
    pub fn step(&self, by_ms: i64) -> anyhow::Result<()> {
        let mut offset_ms = self.0.offset_ms.lock().expect("nobody panics with this lock");
        *offset_ms += by_ms;
        let file: &File = self.0.file.as_file();
        Ok(file.write_all_at(&offset_ms.to_ne_bytes(), 0)?)
    }

    /// Gives this clock to a process that is about to start.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", LIBRARY).env("PRESENCE_TEST_CLOCK", self.0.file.path());
    }
}
