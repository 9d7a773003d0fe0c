//! The doorstep: nobody is let in by a core that has not read yet what is revoked.
//!
//! Whatever shows a token waits until that is read, which a core asks for before all else. Takes it longer than
//! people wait, they are told to come again; so a core that cannot read it lets nobody in, and asks on. Whoever is in
//! stays: renewals, releases and goodbyes show no token, and an edge keeps those whom it would bring back until it is
//! answered.

use std::collections::VecDeque;

use presence_model::link::{JoinUp, LinkDown, LinkUp, RequestId};
use presence_model::time::Mono;

use super::{Driver, LinkKey, Verified};
use crate::limits::{DOORSTEP_MAX, DOORSTEP_WAIT};

/// What comes with a token.
#[derive(Debug)]
pub(super) enum Shown {
    /// A session wants in.
    Join(Box<JoinUp>),
    /// A session is to rest on another token: an update, and what names its answer.
    Update(RequestId, LinkUp),
}

#[derive(Debug)]
struct Waiting {
    since: Mono,
    link: LinkKey,
    shown: Shown,
    verified: Verified,
}

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Doorstep(VecDeque<Waiting>);

impl Doorstep {
    /// When the first has waited long enough.
    pub(super) fn due(&self) -> Option<Mono> {
        self.0.front().map(|waiting| waiting.since + DOORSTEP_WAIT)
    }
}

impl Driver {
    /// An edge shows a token.
    pub(super) fn on_shown(&mut self, link: LinkKey, shown: Shown, verified: Verified) {
        if !self.has_read_revoked() {
            if self.doorstep.0.len() >= DOORSTEP_MAX {
                return self.turn_away(link, shown);
            }
            return self.doorstep.0.push_back(Waiting { since: self.now, link, shown, verified });
        }
        match shown {
            Shown::Join(join) => self.on_join(link, *join, verified),
            Shown::Update(_, update) => self.on_update(link, update, verified),
        }
    }

    /// What is revoked is read: those who wait are judged by it.
    pub(super) fn open_the_door(&mut self) {
        for Waiting { link, shown, verified, .. } in std::mem::take(&mut self.doorstep.0) {
            self.on_shown(link, shown, verified);
        }
    }

    /// Those who have waited long enough are told to come again.
    pub(super) fn tend_doorstep(&mut self) {
        while self.doorstep.due().is_some_and(|due| due <= self.now)
            && let Some(Waiting { link, shown, .. }) = self.doorstep.0.pop_front()
        {
            self.turn_away(link, shown);
        }
    }

    fn turn_away(&mut self, link: LinkKey, shown: Shown) {
        let refusal = self.unavailable();
        match shown {
            Shown::Join(join) => {
                self.tell(link, LinkDown::Joined { request: join.request, outcome: Err(refusal) });
            }
            Shown::Update(request, _) => self.answer_done(link, request, Err(refusal)),
        }
    }
}
