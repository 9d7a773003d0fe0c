//! Several copies of a room as one list.

use std::borrow::Cow;
use std::iter::Peekable;

use crate::profile::Member;
use crate::replica::After;

/// One user as shown, from what the regions have: strongest status, earliest since, and the state of the
/// region entered last, where the user most likely spoke last.
pub(super) fn merge<'a>(mut members: impl Iterator<Item = &'a Member>) -> Option<Cow<'a, Member>> {
    let first = members.next()?;
    let mut shown = Cow::Borrowed(first);
    let mut entered = first.since;
    for other in members {
        let merged = shown.to_mut();
        merged.status = merged.status.max(other.status);
        merged.since = merged.since.min(other.since);
        if other.since > entered {
            entered = other.since;
            merged.state = other.state.clone();
        }
    }
    Some(shown)
}

/// Iterates over the users of several copies, each user once, sorted.
pub(super) struct Union<'a> {
    heads: Vec<Peekable<After<'a>>>,
}

impl<'a> Union<'a> {
    pub(super) fn new(parts: impl Iterator<Item = After<'a>>) -> Self {
        Self { heads: parts.map(Iterator::peekable).collect() }
    }
}

impl<'a> Iterator for Union<'a> {
    type Item = Cow<'a, Member>;

    fn next(&mut self) -> Option<Self::Item> {
        let user =
            &self.heads.iter_mut().filter_map(Peekable::peek).map(|member| &member.user).min()?.clone();
        merge(self.heads.iter_mut().filter_map(|head| head.next_if(|member| member.user == *user)))
    }
}
