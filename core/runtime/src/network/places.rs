//! The places of a listener: who says nothing holds none for long, and gives way first.
//!
//! An accepted connection has a place until it ends. Once it has asked for something it keeps that place;
//! before, it is the first to go when a further connection needs one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// At most so many connections at once. Clones share them.
#[derive(Debug, Clone)]
pub struct Places {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Those that have asked for nothing yet, in the order of their arrival.
    silent: BTreeMap<u64, CancellationToken>,
    asked: BTreeSet<u64>,
}

impl Places {
    /// Room for `most` connections.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// A place for one more connection; if there is none left, the one that has been silent longest is
    /// told to go. None if all have asked for something: the new one is to be closed.
    #[must_use]
    pub fn take(&self) -> Option<Place> {
        let mut taken = self.lock();
        if taken.silent.len() + taken.asked.len() >= self.most {
            let (_, silent) = taken.silent.pop_first()?;
            silent.cancel();
        }
        let number = taken.next;
        taken.next += 1;
        let gone = CancellationToken::new();
        taken.silent.insert(number, gone.clone());
        Some(Place { number, gone, places: self.clone() })
    }

    /// How many connections have one.
    #[must_use]
    pub fn len(&self) -> usize {
        let taken = self.lock();
        taken.silent.len() + taken.asked.len()
    }

    /// Whether nobody has one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, freed when dropped.
#[derive(Debug)]
pub struct Place {
    number: u64,
    gone: CancellationToken,
    places: Places,
}

impl Place {
    /// Ready once this connection has to go, as another one needs its place.
    pub fn gives_way(&self) -> WaitForCancellationFutureOwned {
        self.gone.clone().cancelled_owned()
    }

    /// For whoever hears what is asked over this connection.
    #[must_use]
    pub fn ear(&self) -> Ear {
        Ear { number: self.number, places: self.places.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.silent.remove(&self.number);
        taken.asked.remove(&self.number);
    }
}

/// Hears what is asked over one connection.
#[derive(Debug, Clone)]
pub struct Ear {
    number: u64,
    places: Places,
}

impl Ear {
    /// Something was asked: the connection keeps its place. Idempotent; too late once it had to go.
    pub fn heard(&self) {
        let mut taken = self.places.lock();
        if taken.silent.remove(&self.number).is_some() {
            taken.asked.insert(self.number);
        }
    }

    /// Whether something was asked.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.places.lock().asked.contains(&self.number)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn goes(place: &Place) -> bool {
        place.gives_way().now_or_never().is_some()
    }

    #[test]
    fn up_to_the_limit_nobody_gives_way_and_beyond_it_the_longest_silent_does() {
        let places = Places::new(3);
        let [first, asking, third] = [(); 3].map(|()| places.take().unwrap());
        asking.ear().heard();
        assert_eq!((places.len(), goes(&first)), (3, false));
        let fourth = places.take().unwrap();
        assert_eq!([&first, &asking, &third, &fourth].map(goes), [true, false, false, false]);
        let _fifth = places.take().unwrap();
        assert_eq!([&asking, &third, &fourth].map(goes), [false, true, false]);
        assert_eq!(places.len(), 3);
    }

    #[test]
    fn whoever_has_asked_stays_and_the_next_finds_no_place() {
        let places = Places::new(2);
        let both = [(); 2].map(|()| places.take().unwrap());
        both.iter().for_each(|place| place.ear().heard());
        assert!(places.take().is_none());
        assert!(both.iter().all(|place| place.ear().has_heard() && !goes(place)));
        drop(both);
        assert!(places.is_empty() && places.take().is_some());
    }

    #[test]
    fn a_place_is_freed_once() {
        let places = Places::new(1);
        let first = places.take().unwrap();
        let second = places.take().unwrap();
        first.ear().heard();
        assert!(!first.ear().has_heard(), "it had to go already");
        drop(first);
        assert_eq!(places.len(), 1, "the place is the second's");
        drop(second);
        assert!(places.is_empty());
    }
}
