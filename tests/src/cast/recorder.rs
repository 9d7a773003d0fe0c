//! Writes down what everybody meets: as lines for people, and as events for the checker.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use presence_model::time::millis;
use presence_runtime::clock::Clock;

use crate::history::{Event, Place, Sight, Step, What};

/// The book that all share. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    clock: Clock,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    lines: Vec<String>,
    events: Vec<Event>,
    /// How many troubles there are at each place.
    troubles: BTreeMap<Place, u32>,
}

impl Recorder {
    /// An empty book; times are those of this clock.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, book: Arc::default() }
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now().0
    }

    /// Writes a line.
    pub fn line(&self, who: &str, what: impl Display) {
        let now = millis(self.now());
        self.lock().lines.push(format!("{now:>8} {who}: {what}"));
    }

    /// Writes an event.
    pub fn event(&self, what: What) {
        self.event_at(self.now(), what);
    }

    /// Writes an event that is told later than it happened.
    pub fn event_at(&self, at: Duration, what: What) {
        self.lock().events.push(Event { at, what });
    }

    /// Writes a step of a tab.
    pub fn step(&self, tab: &str, user: &str, step: Step) {
        self.line(tab, format_args!("{step:?}"));
        self.event(What::Tab { tab: tab.to_owned(), user: user.to_owned(), step });
    }

    /// Writes what an observer met.
    pub fn sight(&self, observer: &str, sight: Sight) {
        self.event(What::Observer { observer: observer.to_owned(), sight });
    }

    /// Writes that a place is in trouble from now on, or in one trouble less: told when the first begins and the last ends.
    pub fn trouble(&self, place: Place, begins: bool) {
        let mut book = self.lock();
        let count = book.troubles.entry(place.clone()).or_default();
        let before = *count;
        *count = if begins { before + 1 } else { before.saturating_sub(1) };
        let is_told = (before == 0) != (*count == 0);
        drop(book);
        if is_told {
            self.event(What::Trouble { place, begins });
        }
    }

    /// Whether a place is in trouble.
    #[must_use]
    pub fn is_in_trouble(&self, place: &Place) -> bool {
        self.lock().troubles.get(place).is_some_and(|count| *count > 0)
    }

    /// All lines and all events so far, events in the order of time.
    #[must_use]
    pub fn read(&self) -> (Vec<String>, Vec<Event>) {
        let book = self.lock();
        let mut events = book.events.clone();
        events.sort_by_key(|event| event.at);
        (book.lines.clone(), events)
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("nobody panics with this lock")
    }
}
