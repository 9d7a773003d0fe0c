//! Room classes: rooms whose timers are not those of all others.
//!
//! A class is found by the name of a room; the first that matches counts. A lease carries nothing of its
//! class but the ttl, so whatever is asked of a lease alone (its grace, how long a hold lasts for it) follows
//! from its ttl, and classes of one ttl have one grace.

use std::fmt;
use std::time::Duration;

use smol_str::SmolStr;
use wildmatch::WildMatchPattern;

use crate::id::{RoomId, is_unsafe_to_print};
use crate::lease::LeaseId;
use crate::limits::{CLASS_NAME_CHARS_MAX, NAME_BYTES_MAX};
use crate::timing::{RECONNECT_WITHIN_MAX, TimingsGiven};

/// The class of all rooms that no other class matches.
pub const DEFAULT_CLASS: &str = "default";

/// Why the name of a class was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassNameError {
    /// Not what fits everywhere a class is named: metric labels, paths of settings, log lines.
    #[error("must be 1 to {CLASS_NAME_CHARS_MAX} of a-z, 0-9, _ and -, a letter first")]
    Characters,
    /// All other rooms are of the class of this name.
    #[error("must not be {DEFAULT_CLASS}: that is the class of all rooms that no other matches")]
    Reserved,
}

/// The name of a room class; a metric label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassName(SmolStr);

impl ClassName {
    /// Checks a name: 1 to 32 of `a-z`, `0-9`, `_` and `-`, a letter first, and not `default`.
    ///
    /// # Errors
    /// [`ClassNameError`].
    pub fn new(name: &str) -> Result<Self, ClassNameError> {
        let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'_' | b'-');
        let is_good = name.len() <= CLASS_NAME_CHARS_MAX
            && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
            && name.bytes().all(fits);
        match name {
            _ if !is_good => Err(ClassNameError::Characters),
            DEFAULT_CLASS => Err(ClassNameError::Reserved),
            _ => Ok(Self(name.into())),
        }
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It would match no room.
    #[error("must not be empty; * alone matches every room")]
    Empty,
    /// Longer than any room's name.
    #[error("has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed, as in the name of a room")]
    TooLong {
        /// Length as given, in bytes.
        bytes: usize,
    },
    /// Nobody would see what it matches.
    #[error("must not have control or other invisible characters")]
    Invisible,
}

/// Which rooms a class is for: `*` stands for any number of characters, every other character for itself.
#[derive(Clone, PartialEq)]
pub struct RoomPattern {
    text: SmolStr,
    // The second wildcard is a character that no pattern has: `?` stands for itself.
    matcher: WildMatchPattern<'*', '\0'>,
}

impl RoomPattern {
    /// Checks a pattern: 1 to 255 bytes of UTF-8 that can be seen.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(text: &str) -> Result<Self, PatternError> {
        match text.len() {
            0 => Err(PatternError::Empty),
            bytes if bytes > NAME_BYTES_MAX => Err(PatternError::TooLong { bytes }),
            _ if text.chars().any(is_unsafe_to_print) => Err(PatternError::Invisible),
            _ => Ok(Self { text: text.into(), matcher: WildMatchPattern::new(text) }),
        }
    }

    /// The pattern as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a room is meant.
    #[must_use]
    pub fn matches(&self, room: &RoomId) -> bool {
        self.matcher.matches(room.as_str())
    }

    /// Whether every room that the other matches is meant. The other's `*` is a character that only a `*` of
    /// this one can stand for, so its text is the hardest of all that it matches.
    fn covers(&self, other: &Self) -> bool {
        self.matcher.matches(&other.text)
    }
}

impl fmt::Debug for RoomPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// The timers of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoomTimings {
    /// How often a session is to be heard, before jitter of ± 20 %.
    pub heartbeat: Duration,
    /// How long one renewal carries.
    pub lease_ttl: Duration,
    /// How long a lost transport may take to come back.
    pub grace: Duration,
}

impl RoomTimings {
    /// Of a lease that was granted while the class had another ttl: heard often enough for it.
    #[must_use]
    pub fn of_lease(self, ttl: Duration) -> Self {
        if ttl == LeaseId::carried(self.lease_ttl) {
            return self;
        }
        Self { heartbeat: self.heartbeat.min(ttl / 3), lease_ttl: ttl, grace: self.grace.min(ttl) }
    }

    /// Within what clients first come back.
    #[must_use]
    pub fn reconnect_within(&self) -> Duration {
        RECONNECT_WITHIN_MAX.min(self.grace / 2)
    }
}

/// A class as an operator gives it; what is absent is as in the default class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassGiven {
    /// Its name.
    pub name: ClassName,
    /// Its rooms.
    pub pattern: RoomPattern,
    /// How often a session is to be heard.
    pub heartbeat: Option<Duration>,
    /// How long one renewal carries.
    pub lease_ttl: Option<Duration>,
    /// How long a lost transport may take to come back.
    pub grace: Option<Duration>,
}

impl ClassGiven {
    /// The class, over the timers of the default one.
    #[must_use]
    pub fn over(&self, usual: RoomTimings) -> Class {
        let timings = RoomTimings {
            heartbeat: self.heartbeat.unwrap_or(usual.heartbeat),
            lease_ttl: self.lease_ttl.unwrap_or(usual.lease_ttl),
            grace: self.grace.unwrap_or(usual.grace),
        };
        Class { name: self.name.clone(), pattern: self.pattern.clone(), timings }
    }

    /// What it gives, as if it were all that is given.
    pub(crate) fn timings(&self) -> TimingsGiven {
        let Self { heartbeat, lease_ttl, grace, .. } = *self;
        TimingsGiven { heartbeat, lease_ttl, grace, ..TimingsGiven::default() }
    }
}

/// What is wrong with the place of a class among the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// One before it has its name.
    #[error("must be the name of one class only")]
    NameTaken,
    /// No room gets so far.
    #[error("is never reached: {by:?} of class {before}, in front of it, matches all of its rooms")]
    Shadowed {
        /// Which.
        before: ClassName,
        /// The pattern that does so.
        by: SmolStr,
    },
}

/// Those that are misplaced, by their number in the list.
#[must_use]
pub fn misplaced(classes: &[ClassGiven]) -> Vec<(usize, Misplaced)> {
    let mut found = Vec::new();
    for (number, class) in classes.iter().enumerate() {
        let before = &classes[..number];
        if before.iter().any(|other| other.name == class.name) {
            found.push((number, Misplaced::NameTaken));
        }
        if let Some(other) = before.iter().find(|other| other.pattern.covers(&class.pattern)) {
            let (before, by) = (other.name.clone(), other.pattern.text.clone());
            found.push((number, Misplaced::Shadowed { before, by }));
        }
    }
    found
}

/// Rooms that have timers of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name.
    pub name: ClassName,
    /// Its rooms.
    pub pattern: RoomPattern,
    /// Their timers.
    pub timings: RoomTimings,
}

/// All classes but the default one, in the order in which they are tried.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Classes(Vec<Class>);

impl Classes {
    /// Only for classes whose rules were checked: see [`Timings::derive_classes`](crate::timing::Timings).
    pub(crate) fn new(classes: Vec<Class>) -> Self {
        Self(classes)
    }

    /// The class of a room: the first that matches; none: the default class.
    #[must_use]
    pub fn of(&self, room: &RoomId) -> Option<&Class> {
        self.0.iter().find(|class| class.pattern.matches(room))
    }

    /// The name of a room's class.
    #[must_use]
    pub fn name_of(&self, room: &RoomId) -> &str {
        self.of(room).map_or(DEFAULT_CLASS, |class| class.name.as_str())
    }

    /// Odd but working timers, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let abrupt = self.iter().filter(|class| class.timings.grace.is_zero());
        abrupt
            .map(|Class { name, .. }| {
                format!("grace of class {name} is zero: each reconnect shows as a departure and a join")
            })
            .collect()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.0.iter()
    }
}

/// How long a lost transport may take to come back, by the ttl of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graces {
    /// Of leases whose ttl no class has.
    usual: Duration,
    by_ttl: Vec<(Duration, Duration)>,
}

impl Graces {
    /// Those of the default class and the others.
    #[must_use]
    pub fn new(usual: RoomTimings, classes: &Classes) -> Self {
        let all = std::iter::once(usual).chain(classes.iter().map(|class| class.timings));
        all.fold(Self::from(usual.grace), |graces, timings| graces.and(timings.lease_ttl, timings.grace))
    }

    /// These, and that of leases of one ttl.
    #[must_use]
    pub fn and(mut self, ttl: Duration, grace: Duration) -> Self {
        self.by_ttl.push((LeaseId::carried(ttl), grace));
        self
    }

    /// That of a lease. One granted under classes that are not in force any more has that of the default
    /// class; none is longer than its ttl.
    #[must_use]
    pub fn of(&self, ttl: Duration) -> Duration {
        let known = self.by_ttl.iter().find(|(own, _)| *own == ttl);
        known.map_or(self.usual, |(_, grace)| *grace).min(ttl)
    }

    /// That of leases whose ttl is not listed.
    #[must_use]
    pub fn usual(&self) -> Duration {
        self.usual
    }

    /// Each ttl that has a grace of its own.
    pub fn by_ttl(&self) -> impl Iterator<Item = (Duration, Duration)> {
        self.by_ttl.iter().copied()
    }
}

impl From<Duration> for Graces {
    /// The same for all.
    fn from(usual: Duration) -> Self {
        Self { usual, by_ttl: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
