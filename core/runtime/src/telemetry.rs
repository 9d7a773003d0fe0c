//! What can be seen from outside: log lines on standard error and a registry of metrics.

mod logs;
mod metrics;
mod rationed;
mod seldom;

pub use self::logs::{BadFilter, LogFlags, LogFormat, install};
pub use self::metrics::Metrics;
pub use self::rationed::Rationed;
pub use self::seldom::Seldom;
