//! What can be seen from outside: log lines on standard error and a registry of metrics.

mod logs;
mod metrics;

pub use self::logs::{BadFilter, LogFlags, LogFormat, install};
pub use self::metrics::Metrics;
