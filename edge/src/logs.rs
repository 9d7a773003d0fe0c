//! What tests of this crate read of the log.

use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

/// Lines that this thread logs until it is dropped.
pub(crate) struct Lines {
    written: Written,
    _collecting: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn collect() -> Self {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        Self { written, _collecting: tracing::subscriber::set_default(subscriber) }
    }

    /// How many have this text.
    pub(crate) fn with(&self, text: &str) -> usize {
        let written = self.written.0.lock().unwrap();
        String::from_utf8_lossy(&written).lines().filter(|line| line.contains(text)).count()
    }
}
