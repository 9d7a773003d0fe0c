//! Encoded frames of one room by (from, to), aligned to flush boundaries.

use bytes::Bytes;

use crate::view::ViewRevision;

/// A bounded cache of encoded frames. The oldest goes first; a miss costs one encoding, nothing else.
#[derive(Debug, Clone)]
pub struct FrameCache {
    _private: (),
}

impl FrameCache {
    /// An empty cache of at most `frames` frames.
    #[must_use]
    pub fn new(frames: usize) -> Self {
        let _ = frames;
        unimplemented!()
    }

    /// A frame that brings a receiver at `at` to `to`: any cached (from, to] with from ≤ at < to serves.
    #[must_use]
    pub fn get(&self, at: ViewRevision, to: ViewRevision) -> Option<Bytes> {
        let _ = (at, to);
        unimplemented!()
    }

    /// Keeps a frame.
    pub fn put(&mut self, from: ViewRevision, to: ViewRevision, frame: Bytes) {
        let _ = (from, to, frame);
        unimplemented!()
    }
}
