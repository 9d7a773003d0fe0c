//! A configuration file that changes under a running process: some of its settings take effect at once, and of the
//! others it is told that they do not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Mistakes;
use crate::clock::Clock;
use crate::limits::CONFIG_BYTES_MAX;
use crate::reload::{Files, Reload, Shown, Unread};
use crate::shutdown::Shutdown;

/// Takes what may change over from a configuration.
///
/// `apply` loads the whole configuration anew, puts what may change in force, and returns the configuration as
/// [`render`](super::render) shows it.
pub struct LiveSettings<F> {
    apply: F,
    live: Vec<&'static str>,
    /// What the process runs by.
    in_force: BTreeSet<String>,
    waiting: Vec<String>,
}

impl<F> LiveSettings<F> {
    /// `live`: the settings that `apply` puts in force, none of a table; `rendered`: what the process was started with.
    pub fn new(live: &[&'static str], rendered: &str, apply: F) -> Self {
        Self { apply, live: live.to_vec(), in_force: lines(rendered), waiting: Vec::new() }
    }

    /// Settings that are another now, and wait for a restart.
    fn waiting(&self, rendered: &str) -> Vec<String> {
        let now = lines(rendered);
        let changed = now.symmetric_difference(&self.in_force).map(|line| name(line).to_owned());
        let changed: BTreeSet<String> = changed.filter(|name| !self.live.contains(&name.as_str())).collect();
        changed.into_iter().collect()
    }
}

impl<F> LiveSettings<F>
where
    F: FnMut() -> Result<String, Mistakes> + Send + 'static,
{
    /// Follows the file that was given, if it can be read again, until `shutdown`: what is none, such as a pipe, was read
    /// once.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn follow(
        self,
        file: Option<&Path>,
        (clock, shutdown): (&Clock, &Shutdown),
    ) -> Result<(), String> {
        let Some(file) = file.filter(|file| file.is_file()) else { return Ok(()) };
        let files = Files::open(vec![file.to_owned()], |_| Ok(self)).await?;
        shutdown.spawn("settings", files.follow(clock.clone(), shutdown.token()));
        Ok(())
    }
}

/// Each value with its whole path, as `class` and other tables have settings of the same name.
fn lines(rendered: &str) -> BTreeSet<String> {
    let (mut table, mut entries) = (String::new(), 0);
    let mut lines = BTreeSet::new();
    for line in rendered.lines() {
        if line.starts_with("[[") {
            entries += 1;
            table = format!("{}.{entries}.", line.trim_matches(['[', ']']));
        } else if line.starts_with('[') {
            table = format!("{}.", line.trim_matches(['[', ']']));
        } else if !line.is_empty() {
            lines.insert(format!("{table}{line}"));
        }
    }
    lines
}

fn name(line: &str) -> &str {
    line.split_once(" = ").map_or(line, |(name, _)| name)
}

impl<F> Reload for LiveSettings<F>
where
    F: FnMut() -> Result<String, Mistakes> + Send + 'static,
{
    type Fault = String;

    const WHAT: &'static str = "settings";
    const BYTES_MAX: u64 = CONFIG_BYTES_MAX;

    fn unread(path: &Path, unread: Unread) -> String {
        format!("{}: {unread}", path.display())
    }

    fn take(&mut self, _: &[Vec<u8>]) -> Result<(), String> {
        let rendered = (self.apply)().map_err(|mistakes| mistakes.to_string().replace('\n', "; "))?;
        self.waiting = self.waiting(&rendered);
        Ok(())
    }

    fn announce(&self, paths: &[PathBuf]) {
        let (paths, live) = (Shown(paths), self.live.join(", "));
        tracing::info!(%paths, %live, "the configuration is followed: these settings take effect without a restart");
        if !self.waiting.is_empty() {
            let waiting = self.waiting.join(", ");
            tracing::warn!(%paths, %waiting, "these settings have changed, and wait for a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "limit = 1\nname = \"a\"\n\n[timing]\ngrace = \"1s\"\n\n[[class]]\nname = \"x\"\n";

    #[test]
    fn what_waits_for_a_restart_is_named_and_what_takes_effect_is_not() {
        let settings = |rendered: &str| LiveSettings::new(&["limit"], BEFORE, ()).waiting(rendered);
        assert_eq!(settings(BEFORE), Vec::<String>::new());
        assert_eq!(settings(&BEFORE.replace("limit = 1", "limit = 2")), Vec::<String>::new());
        assert_eq!(settings(&BEFORE.replace("\"1s\"", "\"2s\"")), ["timing.grace"]);
        assert_eq!(settings(&BEFORE.replace("\"a\"", "\"b\"")), ["name"], "not that of the class");
        assert_eq!(settings(&BEFORE.replace("\"x\"", "\"y\"")), ["class.1.name"]);
    }

    #[test]
    fn bad_settings_are_told_in_one_line_and_waiting_ones_as_long_as_they_wait() {
        let mut files = vec![Ok(BEFORE.replace("\"a\"", "\"b\"")), Err(()), Ok(BEFORE.to_owned())];
        let mistake = |path: &str| super::super::Mistake {
            path: path.into(),
            value: "0".into(),
            rule: "must be above zero".into(),
            example: None,
            found_in: None,
        };
        let apply = move || match files.remove(0) {
            Ok(rendered) => Ok(rendered),
            Err(()) => Err(Mistakes::from(mistake("a")).and(mistake("b").into())),
        };
        let mut settings = LiveSettings::new(&["limit"], BEFORE, apply);
        settings.take(&[]).unwrap();
        assert_eq!(settings.waiting, ["name"]);
        assert_eq!(settings.take(&[]).unwrap_err(), "a = 0: must be above zero; b = 0: must be above zero");
        settings.take(&[]).unwrap();
        assert_eq!(settings.waiting, Vec::<String>::new());
    }
}
