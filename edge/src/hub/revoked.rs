//! What the core tells of revoked tokens: whatever rests on one is over at once, and none is taken any more. It is
//! kept here as well, so that no other core and no time without a link brings any of it back.

use presence_model::reason::{LeaveReason, RemovalReason};
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;

use super::{Cx, Hub};

impl Hub {
    /// These are revoked, whether that is news or not.
    pub(super) fn on_revoked(&mut self, revocations: Vec<(Revocation, StoreTime)>, cx: &mut Cx<'_>) {
        let Some(now) = self.link.store_time(cx.now) else { return };
        self.revoked.forget(now);
        let mut is_news = false;
        for (what, until) in revocations {
            is_news |= self.revoked.note(what, until);
        }
        if is_news {
            self.end_revoked(now, cx);
        }
    }

    /// The core is told of sessions that are over, and why: it may not have heard of it yet. Those it finds it ends by
    /// itself as well.
    fn end_revoked(&mut self, now: StoreTime, cx: &mut Cx<'_>) {
        let mut over = Vec::new();
        for (key, conn) in self.conns.iter() {
            for stay in &conn.stays {
                if self.revoked.judge_token(&stay.user, &stay.rests_on, now).is_err() {
                    over.push((key, stay.room));
                }
            }
        }
        for (key, room) in over {
            self.counts.revoked += 1;
            self.say_over(key, room, LeaveReason::TokenRevoked, cx);
            self.end_stay(key, room, RemovalReason::TokenRevoked, cx);
        }
    }
}
