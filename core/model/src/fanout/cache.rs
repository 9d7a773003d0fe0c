//! Encoded frames of one room by (from, to), aligned to flush boundaries.

use bytes::Bytes;

use crate::view::{View, ViewDelta, ViewRevision};

/// Flush boundaries remembered. Who lags by more flushes than that gets a frame of its own.
const BOUNDARIES_MAX: usize = 8;

/// A bounded cache of encoded frames. The oldest goes first; a miss costs one encoding, nothing else.
///
/// All frames kept lead to one revision, the newest: no receiver is led anywhere else. Takes no memory of
/// its own before the first frame.
#[derive(Debug, Clone)]
pub struct FrameCache {
    capacity: usize,
    to: ViewRevision,
    frames: Vec<(ViewRevision, Bytes)>,
    // Where frames led to before: where most receivers are. Rising.
    boundaries: Vec<ViewRevision>,
}

impl FrameCache {
    /// An empty cache of at most `frames` frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { capacity: frames, to: ViewRevision(0), frames: Vec::new(), boundaries: Vec::new() }
    }

    /// The frame that brings a receiver at `at` to the view's revision, from the cache or else encoded; none
    /// if the view no longer remembers that far back.
    ///
    /// It begins at the last flush boundary at or before `at`, so that receivers that came in between
    /// share it with those that were there.
    pub fn delta(
        &mut self,
        view: &View,
        at: ViewRevision,
        encode: impl FnOnce(&ViewDelta) -> Bytes,
    ) -> Option<Bytes> {
        let to = view.revision();
        if let Some(frame) = self.get(at, to) {
            return Some(frame);
        }
        let aligned = self.boundary(at).filter(|from| view.reaches(*from)).unwrap_or(at);
        let frame = encode(&view.changed_since(aligned)?);
        self.put(aligned, to, frame.clone());
        Some(frame)
    }

    /// A frame that brings a receiver at `at` to `to`: a cached (from, to] with from ≤ at < to, unless a
    /// flush boundary in between promises a shorter one.
    #[must_use]
    pub fn get(&self, at: ViewRevision, to: ViewRevision) -> Option<Bytes> {
        if self.to != to {
            return None;
        }
        let covers = |(from, _): &&(ViewRevision, Bytes)| *from <= at;
        let (from, frame) = self.frames.iter().filter(covers).max_by_key(|(from, _)| *from)?;
        let shortest = self.boundary(at).is_none_or(|boundary| boundary <= *from);
        shortest.then(|| frame.clone())
    }

    /// Keeps a frame, and forgets those that lead elsewhere.
    pub fn put(&mut self, from: ViewRevision, to: ViewRevision, frame: Bytes) {
        if self.to != to {
            self.frames.clear();
            self.to = to;
            if self.boundaries.len() == BOUNDARIES_MAX {
                self.boundaries.remove(0);
            }
            self.boundaries.push(to);
        }
        if self.frames.len() == self.capacity && !self.frames.is_empty() {
            self.frames.remove(0);
        }
        if self.frames.len() < self.capacity {
            self.frames.push((from, frame));
        }
    }

    /// Forgets all frames, to give their memory back while a room rests. Boundaries stay.
    pub fn clear(&mut self) {
        self.frames = Vec::new();
    }

    fn boundary(&self, at: ViewRevision) -> Option<ViewRevision> {
        self.boundaries.iter().rev().copied().find(|boundary| *boundary <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(revision: u64) -> ViewRevision {
        ViewRevision(revision)
    }

    fn put(cache: &mut FrameCache, from: u64, to: u64) {
        cache.put(at(from), at(to), Bytes::from(format!("{from}-{to}")));
    }

    fn get(cache: &FrameCache, from: u64, to: u64) -> Option<String> {
        cache.get(at(from), at(to)).map(|frame| String::from_utf8(frame.to_vec()).unwrap())
    }

    #[test]
    fn a_frame_serves_all_that_it_covers() {
        let mut cache = FrameCache::new(4);
        put(&mut cache, 10, 20);
        assert_eq!(get(&cache, 10, 20).as_deref(), Some("10-20"));
        assert_eq!(get(&cache, 15, 20).as_deref(), Some("10-20"));
        assert_eq!(get(&cache, 9, 20), None, "begins too late");
        assert_eq!(get(&cache, 10, 21), None, "leads elsewhere");
    }

    #[test]
    fn the_long_frame_of_one_who_lags_is_not_sent_to_those_who_do_not() {
        let mut cache = FrameCache::new(4);
        put(&mut cache, 10, 20);
        put(&mut cache, 20, 30);
        put(&mut cache, 10, 40);
        assert_eq!(get(&cache, 30, 40), None);
        put(&mut cache, 30, 40);
        assert_eq!(get(&cache, 30, 40).as_deref(), Some("30-40"));
        assert_eq!(get(&cache, 35, 40).as_deref(), Some("30-40"));
        assert_eq!(get(&cache, 12, 40).as_deref(), Some("10-40"));
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_what_leads_elsewhere() {
        let mut cache = FrameCache::new(2);
        (1..=3).for_each(|from| put(&mut cache, from, 5));
        assert_eq!((get(&cache, 1, 5), cache.frames.len()), (None, 2));
        put(&mut cache, 5, 6);
        assert_eq!(cache.frames.len(), 1);
        cache.clear();
        assert_eq!(get(&cache, 5, 6), None);
        let mut none = FrameCache::new(0);
        put(&mut none, 1, 2);
        assert_eq!(get(&none, 1, 2), None);
    }
}
