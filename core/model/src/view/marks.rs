//! Where the positions of one region lie in the log of a view.

use std::collections::VecDeque;

use crate::position::Revision;
use crate::view::ViewRevision;

/// Pairs that say: what happened in the region after this revision is logged above that view revision.
/// Both rise.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks(VecDeque<(Revision, ViewRevision)>);

impl Marks {
    /// Forgets all but where a snapshot has led to.
    pub(super) fn reset(&mut self, mark: Option<(Revision, ViewRevision)>) {
        self.0 = VecDeque::new();
        self.0.extend(mark);
    }

    pub(super) fn push(&mut self, revision: Revision, view: ViewRevision) {
        self.0.push_back((revision, view));
    }

    /// The view revision above which everything after `revision` is logged; none if it lies before all
    /// marks.
    pub(super) fn at(&self, revision: Revision) -> Option<ViewRevision> {
        let after = self.0.partition_point(|(mark, _)| *mark <= revision);
        after.checked_sub(1).map(|last| self.0[last].1)
    }

    /// The log now begins above `floor`: marks below are folded into the last of them, after which
    /// nothing was logged that is forgotten now.
    pub(super) fn fold(&mut self, floor: ViewRevision) {
        while self.0.get(1).is_some_and(|(_, view)| *view <= floor) {
            self.0.pop_front();
        }
        if let Some((_, view)) = self.0.front_mut() {
            *view = floor.max(*view);
        }
        if self.0.capacity() > 4 * self.0.len().max(1) {
            self.0.shrink_to_fit();
        }
    }
}
