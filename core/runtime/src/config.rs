//! Configuration: one TOML file, the environment, then flags; all mistakes at once.
//!
//! A binary declares its keys once, as a table of [`Setting`]s with rule and example, beside the struct
//! they end in. [`Loader`] merges the three sources and holds every value against the table, so that one
//! run tells all that is wrong, unknown keys included.

mod checks;
mod classes;
mod flags;
mod follow;
mod kind;
mod loader;
mod mistake;
mod render;
mod timing;
mod tls;

pub use self::checks::Checks;
pub use self::classes::{CLASS_SETTINGS, ClassSettings};
pub use self::flags::ConfigFlags;
pub use self::follow::LiveSettings;
pub use self::kind::Kind;
pub use self::loader::Loader;
pub use self::mistake::{Mistake, Mistakes};
pub use self::render::render;
pub use self::timing::{TIMING_SETTINGS, TimingFlags, TimingSettings};
pub use self::tls::{CORE_TLS_SETTINGS, CoreTlsTable, TLS_SETTINGS, TlsFlags, TlsTable};

/// One key of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Dotted path in the file: `store.url`; of an entry of a list of tables: `class[].name`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// A value that holds, as it stands in the file: `"memory"`.
    pub example: &'static str,
    /// Whether its value is never shown.
    pub secret: bool,
}

impl Setting {
    /// A key that may be shown.
    #[must_use]
    pub const fn new(path: &'static str, kind: Kind, example: &'static str) -> Self {
        Self { path, kind, example, secret: false }
    }

    /// The same, never shown: a URL that may carry a password.
    #[must_use]
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }
}

#[cfg(test)]
mod tests;
