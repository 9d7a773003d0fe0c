//! Room classes as the `class` list of a file.

use std::time::Duration;

use presence_model::class::{
    Class, ClassGiven, ClassName, Classes, Misplaced, RoomPattern, RoomTimings, misplaced,
};
use presence_model::limits::CLASSES_MAX;
use presence_model::timing::{Origin, TimingMistake, Timings, TimingsGiven};
use serde::{Deserialize, Serialize};

use super::checks::Checks;
use super::loader::entry;
use super::timing::{SPAN, TIMING_SETTINGS, line};
use super::{Kind, Setting};

/// The list, as a table of a file has it.
const LIST: &str = "class";

/// The settings of the `class` list, to be joined to those of a binary.
pub const CLASS_SETTINGS: [Setting; 5] = [
    Setting::new("class[].name", Kind::Text, "\"trading\""),
    Setting::new("class[].match", Kind::Text, "\"trading:*\""),
    Setting::new("class[].heartbeat", SPAN, "\"5s\""),
    Setting::new("class[].lease_ttl", SPAN, "\"15s\""),
    Setting::new("class[].grace", SPAN, "\"4s\""),
];

/// One room class; what is absent is as in the `timing` table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassSettings {
    /// Its name.
    pub name: String,
    /// Its rooms: `*` stands for any number of characters; the first class that matches counts.
    #[serde(rename = "match")]
    pub pattern: String,
    /// How often a session is to be heard.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Duration>,
    /// How long one renewal carries.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub lease_ttl: Option<Duration>,
    /// How long a lost transport may take to come back.
    #[serde(with = "humantime_serde", skip_serializing_if = "Option::is_none")]
    pub grace: Option<Duration>,
}

impl ClassSettings {
    /// The classes in force, as `--print-config` shows them.
    #[must_use]
    pub fn in_force(classes: &Classes) -> Vec<Self> {
        let shown = |Class { name, pattern, timings }: &Class| {
            let RoomTimings { heartbeat, lease_ttl, grace } = *timings;
            let (name, pattern) = (name.as_str().to_owned(), pattern.as_str().to_owned());
            let (heartbeat, lease_ttl, grace) = (Some(heartbeat), Some(lease_ttl), Some(grace));
            Self { name, pattern, heartbeat, lease_ttl, grace }
        };
        classes.iter().map(shown).collect()
    }
}

/// Whether a rule is over a timer that is a mistake already, or over what follows from one.
fn rests_on(mistake: &TimingMistake, bad: &[&str], classes: &[ClassGiven]) -> bool {
    let class = classes.iter().find(|class| Some(&class.name) == mistake.class.as_ref());
    let of_class = |setting: &str| class.is_some_and(|class| gives(class, setting));
    let is_bad = |setting: &str| match setting.strip_prefix("timing.") {
        Some(usual) => bad.contains(&usual),
        None => bad.contains(&setting) && !of_class(setting),
    };
    let from_bad = match mistake.origin {
        Origin::DerivedFrom(setting) => is_bad(setting),
        Origin::Given | Origin::Default => false,
    };
    from_bad || is_bad(mistake.setting) || mistake.over.iter().any(|setting| is_bad(setting))
}

fn gives(class: &ClassGiven, setting: &str) -> bool {
    match setting {
        "heartbeat" => class.heartbeat.is_some(),
        "lease_ttl" => class.lease_ttl.is_some(),
        "grace" => class.grace.is_some(),
        _ => false,
    }
}

impl Checks<'_, '_> {
    /// The timers in force, of the default class and all others, if they keep their rules; `defaults` stand
    /// for what the default class does not give. A class that has a mistake of its own is left out of them, and
    /// of a timer that is one only the rules are judged that it has no part in: what follows from its default
    /// would be none of the operator's.
    pub fn timings_of_classes(
        &mut self,
        given: TimingsGiven,
        defaults: TimingsGiven,
        classes: &[ClassSettings],
    ) -> Option<(Timings, Classes)> {
        let good = self.classes(classes);
        let is_bad = |setting: &str| self.has_mistake_at(&format!("timing.{setting}"));
        let bad: Vec<&str> = TIMING_SETTINGS
            .iter()
            .filter_map(|setting| setting.path.strip_prefix("timing."))
            .filter(|setting| is_bad(setting))
            .collect();
        match Timings::derive_classes(given, defaults, &good) {
            Ok(derived) => (bad.is_empty() && good.len() == classes.len()).then_some(derived),
            Err(mistakes) => {
                for mistake in mistakes.into_iter().filter(|mistake| !rests_on(mistake, &bad, &good)) {
                    let line = line(mistake, |path| self.found_in(path));
                    self.push(line);
                }
                None
            }
        }
    }

    /// Those whose names, patterns and places are good.
    fn classes(&mut self, classes: &[ClassSettings]) -> Vec<ClassGiven> {
        if classes.len() > CLASSES_MAX {
            let rule = format!("there are at most {CLASSES_MAX} beside the default class");
            self.wrong(LIST, format!("({} classes)", classes.len()), rule);
        }
        let read: Vec<(String, Option<ClassGiven>)> =
            classes.iter().enumerate().map(|(place, class)| self.class(class, place)).collect();
        let (paths, good): (Vec<String>, Vec<ClassGiven>) =
            read.into_iter().filter_map(|(path, class)| Some((path, class?))).unzip();
        for (number, misplaced) in misplaced(&good) {
            let (key, value) = match misplaced {
                Misplaced::NameTaken => ("name", good[number].name.as_str()),
                Misplaced::Shadowed { .. } => ("match", good[number].pattern.as_str()),
            };
            self.wrong(&format!("{}.{key}", paths[number]), format!("{value:?}"), misplaced.to_string());
        }
        let is_good = |path: &str| !self.has_mistakes_under(&format!("{path}."));
        paths.iter().zip(good).filter(|(path, _)| is_good(path)).map(|(_, class)| class).collect()
    }

    fn class(&mut self, class: &ClassSettings, place: usize) -> (String, Option<ClassGiven>) {
        let path = entry(LIST, &class.name, place);
        let name = self.part(&format!("{path}.name"), &class.name, ClassName::new);
        let pattern = self.part(&format!("{path}.match"), &class.pattern, RoomPattern::new);
        let ClassSettings { heartbeat, lease_ttl, grace, .. } = *class;
        let given = name.zip(pattern);
        let given = given.map(|(name, pattern)| ClassGiven { name, pattern, heartbeat, lease_ttl, grace });
        (path, given)
    }

    /// A part that every class has.
    fn part<T, E: std::fmt::Display>(
        &mut self,
        path: &str,
        given: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match given {
            "" if self.has_mistakes_under(path) => None,
            "" => {
                self.wrong(path, "(not set)".to_owned(), "every class has one".to_owned());
                None
            }
            given => self.value(path, given, read(given)),
        }
    }
}
