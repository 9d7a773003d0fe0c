//! What can be seen from outside: log lines on standard error and a registry of metrics.

mod logs;
mod metrics;
mod seldom;

pub use self::logs::{BadFilter, LogFlags, LogFormat, install};
pub use self::metrics::Metrics;
pub use self::seldom::Seldom;
