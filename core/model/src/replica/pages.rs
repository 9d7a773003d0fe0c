//! A copy as pages for others.

use super::{Freshness, Replica, SnapshotPage};
use crate::profile::Member;

/// What a member takes on the wire beside its user and state, rounded up.
const MEMBER_BYTES: usize = 48;

impl Replica {
    /// The stored roster as a snapshot in pages of at most about `bytes` (at least one member a page),
    /// with the digest in the last; none while it is not complete or known to differ.
    #[must_use]
    pub fn pages(&self, bytes: usize) -> Option<Vec<SnapshotPage>> {
        let position = self.position().filter(|_| !self.differs)?;
        let freshness = self.fresh().unwrap_or(Freshness::Live);
        let page = |members, first| SnapshotPage { position, freshness, members, first, last: None };
        let mut pages = vec![page(Vec::new(), true)];
        let mut room = bytes;
        for member in self.confirmed_after(None) {
            let weight = weight(member);
            let last = pages.last_mut().expect("starts with one");
            if weight > room && !last.members.is_empty() {
                pages.push(page(vec![member.clone()], false));
                room = bytes;
            } else {
                last.members.push(member.clone());
            }
            room = room.saturating_sub(weight);
        }
        pages.last_mut().expect("starts with one").last = Some(self.digest());
        Some(pages)
    }
}

fn weight(member: &Member) -> usize {
    MEMBER_BYTES + member.user.as_str().len() + member.state.as_bytes().len()
}
