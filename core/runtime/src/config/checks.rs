//! Rules over several settings, and over what they name: told together with those of single values.

use std::fmt::Display;
use std::net::SocketAddr;

use presence_model::timing::{Timings, TimingsGiven};

use super::loader::Loader;
use super::mistake::{Mistake, Mistakes};
use super::render::without_user;
use crate::exposure::Exposed;
use crate::telemetry::LogFlags;
use crate::tokens::{KeySet, KeySource};

/// Whether two listeners cannot both have their address; port 0 is another one each time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (here, there) = (one.ip().to_canonical(), other.ip().to_canonical());
    let same_host = here == there || here.is_unspecified() || there.is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_host
}

/// Collects what is wrong with a configuration, beside the mistakes of single values that it begins with.
/// A value that is one of those has its default here, so that nothing is told of it twice.
#[derive(Debug)]
pub struct Checks<'l, 'a> {
    loader: &'l Loader<'a>,
    mistakes: Vec<Mistake>,
}

impl<'l, 'a> Checks<'l, 'a> {
    /// Begins with what [`Loader::read`] found.
    #[must_use]
    pub fn new(loader: &'l Loader<'a>, mistakes: Vec<Mistake>) -> Self {
        Self { loader, mistakes }
    }

    /// The timers in force, if they keep their rules; `defaults` stand for what is not given.
    pub fn timings(&mut self, given: TimingsGiven, defaults: TimingsGiven) -> Option<Timings> {
        self.timings_of_classes(given, defaults, &[]).map(|(timings, _)| timings)
    }

    /// Whether something is wrong with a setting whose path begins so.
    pub(super) fn has_mistakes_under(&self, path: &str) -> bool {
        self.mistakes.iter().any(|mistake| mistake.path.starts_with(path))
    }

    /// Whether something is wrong with this setting.
    pub(super) fn has_mistake_at(&self, path: &str) -> bool {
        self.mistakes.iter().any(|mistake| mistake.path == path)
    }

    pub(super) fn found_in(&self, path: &str) -> Option<String> {
        self.loader.found_in(path)
    }

    pub(super) fn push(&mut self, mistake: Mistake) {
        self.mistakes.push(mistake);
    }

    /// A value that is read by a rule of its own.
    pub fn value<T, E: Display>(&mut self, path: &str, given: &str, read: Result<T, E>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(rule) => {
                self.wrong(path, format!("{given:?}"), rule.to_string());
                None
            }
        }
    }

    /// That a listener is not exposed.
    pub fn exposure<T>(&mut self, path: &str, judged: Result<T, Exposed>) -> Option<T> {
        judged
            .inspect_err(|exposed| self.wrong(path, format!("\"{}\"", exposed.address), exposed.to_string()))
            .ok()
    }

    /// That no two listeners want one address. One that is a mistake already wants none.
    pub fn listeners(&mut self, listeners: &[(&str, SocketAddr)]) {
        for (place, (path, address)) in listeners.iter().enumerate() {
            let others = listeners[..place].iter().filter(|(_, other)| overlap(*address, *other));
            let mut others = others.map(|(other, _)| *other).filter(|other| !self.has_mistake_at(other));
            if let Some(other) = others.next().filter(|_| !self.has_mistake_at(path)) {
                let rule =
                    format!("{other} listens there as well: each listener needs an address of its own");
                self.wrong(path, format!("\"{address}\""), rule);
            }
        }
    }

    /// Where the keys that verify tokens are: files that are there, and good; addresses that may be asked.
    pub fn keys(&mut self, path: &str, sources: &[String], insecure: bool) -> Option<Vec<KeySource>> {
        if sources.is_empty() {
            // Who cannot be read has not said that there is none.
            if !self.mistakes.iter().any(|mistake| mistake.path == path || mistake.path == "--config") {
                let rule = "give the keys that verify tokens; `presence keys DIR` makes a pair".to_owned();
                self.wrong(path, "(not set)".to_owned(), rule);
            }
            return None;
        }
        let read = sources.iter().map(|text| self.key_source(path, text, insecure)).collect::<Vec<_>>();
        read.into_iter().collect()
    }

    fn key_source(&mut self, path: &str, text: &str, insecure: bool) -> Option<KeySource> {
        let wrong = match KeySource::parse(text, insecure) {
            Ok(KeySource::File(file)) => match KeySet::read(&file) {
                Ok(_) => return Some(KeySource::File(file)),
                Err(error) => error.to_string(),
            },
            Ok(url) => return Some(url),
            Err(bad) => bad.to_string(),
        };
        self.wrong(path, format!("{:?}", without_user(text)), wrong);
        None
    }

    /// That what to log can be read.
    pub fn logs(&mut self, flags: &LogFlags) {
        if let Err(bad) = flags.filter() {
            let rule = format!("is not a log filter ({})", bad.cause);
            let example = Some("--log info,presence_core=debug".to_owned());
            let value = format!("{:?}", bad.filter);
            self.mistakes.push(Mistake { path: "--log".to_owned(), value, rule, example, found_in: None });
        }
    }

    /// Something else that does not hold.
    pub fn wrong(&mut self, path: &str, value: String, rule: String) {
        let example = self.loader.example(path);
        let found_in = self.loader.found_in(path);
        self.mistakes.push(Mistake { path: path.to_owned(), value, rule, example, found_in });
    }

    /// All of them; none if there are none.
    #[must_use]
    pub fn mistakes(self) -> Option<Mistakes> {
        Mistakes::of(self.mistakes)
    }
}
