//! Encoded frames of one room by (from, to), aligned to flush boundaries.

use bytes::Bytes;

use crate::view::{View, ViewDelta, ViewRevision};

/// Flush boundaries remembered. Who lags by more flushes than that gets a frame of its own.
const BOUNDARIES_MAX: usize = 8;

/// An encoded frame: what happened in (from, to], for receivers that were sent `prev` or more.
#[derive(Debug, Clone)]
struct Frame {
    from: ViewRevision,
    prev: ViewRevision,
    bytes: Bytes,
}

/// A bounded cache of encoded frames. The oldest goes first; a miss costs one encoding, nothing else.
///
/// All frames kept lead to one revision, the newest: no receiver is led anywhere else. Takes no memory of
/// its own before the first frame.
#[derive(Debug, Clone)]
pub struct FrameCache {
    capacity: usize,
    to: ViewRevision,
    frames: Vec<Frame>,
    // Where frames led to before, or would have if anything had shown: where most receivers are. Rising.
    boundaries: Vec<ViewRevision>,
}

impl FrameCache {
    /// An empty cache of at most `frames` frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        Self { capacity: frames, to: ViewRevision(0), frames: Vec::new(), boundaries: Vec::new() }
    }

    /// The frame that brings a receiver at `at`, which was sent `sent`, to the view's revision, from the
    /// cache or else encoded; none if the view no longer remembers that far back.
    ///
    /// It begins at the last flush boundary at or before `at`, so that receivers that came in between
    /// share it with those that were there. The number it is told to follow is one that the receiver has.
    pub fn delta(
        &mut self,
        view: &View,
        (sent, at): (ViewRevision, ViewRevision),
        encode: impl FnOnce(&ViewDelta) -> Bytes,
    ) -> Option<Bytes> {
        let to = view.revision();
        if let Some(frame) = self.get((sent, at), to) {
            return Some(frame);
        }
        let from = self.boundary(at).filter(|from| view.reaches(*from)).unwrap_or(at);
        let prev = from.min(sent);
        let bytes = encode(&ViewDelta { from: Some(prev), ..view.changed_since(from)? });
        self.put((prev, from), to, bytes.clone());
        Some(bytes)
    }

    /// A frame that brings a receiver at `at`, which was sent `sent`, to `to`: a cached (from, to] with
    /// from ≤ at < to, unless a flush boundary in between promises a shorter one.
    fn get(&self, (sent, at): (ViewRevision, ViewRevision), to: ViewRevision) -> Option<Bytes> {
        if self.to != to {
            return None;
        }
        let covers = |frame: &&Frame| frame.from <= at && frame.prev <= sent;
        let frame = self.frames.iter().filter(covers).max_by_key(|frame| frame.from)?;
        let shortest = self.boundary(at).is_none_or(|boundary| boundary <= frame.from);
        shortest.then(|| frame.bytes.clone())
    }

    /// Keeps a frame, and forgets those that lead elsewhere.
    fn put(&mut self, (prev, from): (ViewRevision, ViewRevision), to: ViewRevision, bytes: Bytes) {
        if self.to != to {
            self.frames.clear();
            self.to = to;
            self.bound(to);
        }
        if self.frames.len() == self.capacity && !self.frames.is_empty() {
            self.frames.remove(0);
        }
        if self.frames.len() < self.capacity {
            self.frames.push(Frame { from, prev, bytes });
        }
    }

    /// Receivers are at this revision from here on, also if no frame led there.
    pub fn bound(&mut self, at: ViewRevision) {
        if self.boundaries.last().is_some_and(|last| *last >= at) {
            return;
        }
        if self.boundaries.len() == BOUNDARIES_MAX {
            self.boundaries.remove(0);
        }
        self.boundaries.push(at);
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
        cache.put((at(from), at(from)), at(to), Bytes::from(format!("{from}-{to}")));
    }

    fn get(cache: &FrameCache, from: u64, to: u64) -> Option<String> {
        get_after(cache, (from, from), to)
    }

    fn get_after(cache: &FrameCache, (sent, from): (u64, u64), to: u64) -> Option<String> {
        cache.get((at(sent), at(from)), at(to)).map(|frame| String::from_utf8(frame.to_vec()).unwrap())
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
    fn a_frame_follows_only_a_number_that_its_receiver_has() {
        let mut cache = FrameCache::new(4);
        cache.bound(at(10));
        cache.bound(at(14));
        cache.put((at(10), at(14)), at(20), Bytes::from_static(b"after 10"));
        assert_eq!(get_after(&cache, (10, 14), 20).as_deref(), Some("after 10"));
        assert_eq!(get_after(&cache, (14, 14), 20).as_deref(), Some("after 10"), "has more");
        assert_eq!(get_after(&cache, (9, 14), 20), None, "to it that would be a gap");
        assert_eq!(get_after(&cache, (12, 12), 20), None, "saw what came in between");
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
