//! The flags every binary with a configuration has.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::Setting;
use super::loader::Loader;

/// Flags about the configuration itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct ConfigFlags {
    /// The configuration file, TOML
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show the configuration in force, secrets hidden, and exit
    #[arg(long)]
    pub print_config: bool,
    /// Check the configuration and exit
    #[arg(long)]
    pub check: bool,
}

impl ConfigFlags {
    /// A loader of the file that was given and of the environment, to which a binary adds its flags.
    #[must_use]
    pub fn loader<'a>(
        &self,
        settings: &'a [Setting],
        prefix: &'static str,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Loader<'a> {
        Loader::new(settings, prefix).file(self.config.as_deref()).environment(environment)
    }
}
