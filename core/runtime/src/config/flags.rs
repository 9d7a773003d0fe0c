//! The flags every binary with a configuration has.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::loader::Loader;
use super::{Setting, render};

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

/// What the flags ask for instead of running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Write this to standard output and exit well.
    Text(String),
    /// Run.
    Nothing,
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

    /// What to show instead of running, once the configuration has been loaded and found good.
    #[must_use]
    pub fn shown<T: Serialize>(&self, settings: &[Setting], config: &T) -> Shown {
        if self.print_config {
            Shown::Text(render(settings, config))
        } else if self.check {
            Shown::Text("the configuration is good\n".to_owned())
        } else {
            Shown::Nothing
        }
    }
}
