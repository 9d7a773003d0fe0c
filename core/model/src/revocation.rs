//! What has been revoked, until it cannot matter any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use smol_str::SmolStr;

use crate::claim::TokenRefusal;
use crate::id::{Roster, SessionId, UserId, escape_into};
use crate::limits::REVOCATIONS_MAX;
use crate::reason::RemovalReason;
use crate::record::TokenRef;
use crate::refusal::Refusal;
use crate::time::StoreTime;

/// What does not open anything any more, though its signature is good.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revocation {
    /// One token, by its `jti`.
    Token(SmolStr),
    /// All tokens of one key, by its `kid`.
    Key(SmolStr),
    /// All tokens of one user.
    Subject(UserId),
    /// One session in one roster: it was evicted. Others of the user may come.
    Session {
        /// Where.
        roster: Roster,
        /// Whose.
        user: UserId,
        /// Which.
        session: SessionId,
    },
}

impl fmt::Display for Revocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => {
                f.write_str("token ")?;
                escape_into(id, f)
            }
            Self::Key(id) => {
                f.write_str("key ")?;
                escape_into(id, f)
            }
            Self::Subject(user) => write!(f, "user {user}"),
            Self::Session { roster, user, session } => write!(f, "session {session} of {user} in {roster}"),
        }
    }
}

/// Revocations that are known to one process. Bounded: beyond [`REVOCATIONS_MAX`] the one that ends first
/// is let go; the store has it still.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Revocations {
    until: BTreeMap<Revocation, StoreTime>,
    ends: BTreeSet<(StoreTime, Revocation)>,
}

impl Revocations {
    /// Notes that something is revoked until then; whether that is news. Never shortens.
    pub fn note(&mut self, what: Revocation, until: StoreTime) -> bool {
        if let Some(known) = self.until.get(&what) {
            if *known >= until {
                return false;
            }
            self.ends.remove(&(*known, what.clone()));
        }
        self.ends.insert((until, what.clone()));
        self.until.insert(what, until);
        if self.until.len() > REVOCATIONS_MAX
            && let Some((_, first)) = self.ends.pop_first()
        {
            self.until.remove(&first);
        }
        true
    }

    /// Forgets what has ended.
    pub fn forget(&mut self, now: StoreTime) {
        while let Some((until, _)) = self.ends.first()
            && *until <= now
        {
            if let Some((_, ended)) = self.ends.pop_first() {
                self.until.remove(&ended);
            }
        }
    }

    /// Until when something is revoked; none: it is not.
    #[must_use]
    pub fn until(&self, what: &Revocation, now: StoreTime) -> Option<StoreTime> {
        self.until.get(what).copied().filter(|until| *until > now)
    }

    /// Whether a session may join: one that was evicted a short while ago stays out, whatever the store
    /// remembers of it.
    ///
    /// # Errors
    /// [`Refusal::HasEnded`].
    pub fn judge_join(
        &self,
        roster: &Roster,
        user: &UserId,
        session: &SessionId,
        now: StoreTime,
    ) -> Result<(), Refusal> {
        let (roster, user, session) = (roster.clone(), user.clone(), session.clone());
        match self.until(&Revocation::Session { roster, user, session }, now) {
            Some(_) => Err(Refusal::HasEnded { reason: RemovalReason::Evicted }),
            None => Ok(()),
        }
    }

    /// Whether a token still opens something: neither it, nor its key, nor its subject is revoked.
    ///
    /// # Errors
    /// [`TokenRefusal::Revoked`].
    pub fn judge_token(&self, user: &UserId, token: &TokenRef, now: StoreTime) -> Result<(), TokenRefusal> {
        self.judge_bearer(Some(user), token, now)
    }

    /// The same of a token whose subject is perhaps no name that a user may have, and so not revoked.
    ///
    /// # Errors
    /// [`TokenRefusal::Revoked`].
    pub fn judge_bearer(
        &self,
        user: Option<&UserId>,
        token: &TokenRef,
        now: StoreTime,
    ) -> Result<(), TokenRefusal> {
        let mut rests_on = [
            user.cloned().map(Revocation::Subject),
            Some(Revocation::Key(token.key_id.clone())).filter(|_| !token.key_id.is_empty()),
            Some(Revocation::Token(token.token_id.clone())).filter(|_| !token.token_id.is_empty()),
        ]
        .into_iter()
        .flatten();
        if !self.until.is_empty() && rests_on.any(|what| self.until(&what, now).is_some()) {
            return Err(TokenRefusal::Revoked);
        }
        Ok(())
    }

    /// Those in force, in the order of what they are.
    pub fn in_force(&self, now: StoreTime) -> impl Iterator<Item = (&Revocation, StoreTime)> {
        self.until.iter().map(|(what, until)| (what, *until)).filter(move |(_, until)| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: usize) -> Revocation {
        Revocation::Token(format!("token {number}").into())
    }

    #[test]
    fn a_revocation_lasts_until_its_time_and_is_never_shortened() {
        let mut known = Revocations::default();
        known.note(token(1), StoreTime(100));
        known.note(token(1), StoreTime(50));
        assert_eq!(known.until(&token(1), StoreTime(99)), Some(StoreTime(100)));
        assert_eq!(known.until(&token(1), StoreTime(100)), None);
        assert_eq!(known.until(&token(2), StoreTime(0)), None);
        known.note(token(1), StoreTime(200));
        known.forget(StoreTime(100));
        assert_eq!(known.in_force(StoreTime(150)).count(), 1, "the first end is not its end any more");
        known.forget(StoreTime(200));
        assert_eq!(known, Revocations::default());
    }

    #[test]
    fn kinds_do_not_run_together() {
        let mut known = Revocations::default();
        known.note(Revocation::Token("x".into()), StoreTime(100));
        assert_eq!(known.until(&Revocation::Key("x".into()), StoreTime(0)), None);
    }

    #[test]
    fn an_evicted_session_stays_out_and_others_may_come() {
        let [roster, elsewhere] = ["r", "s"].map(|room| Roster {
            region: crate::id::RegionId::new("eu").unwrap(),
            room: crate::id::RoomId::new(room).unwrap(),
        });
        let [ann, bob] = ["ann", "bob"].map(|name| UserId::new(name).unwrap());
        let [one, other] = ["session-0123456789", "session-9876543210"].map(|id| SessionId::new(id).unwrap());
        let (user, session) = (ann.clone(), one.clone());
        let mut known = Revocations::default();
        known.note(Revocation::Session { roster: roster.clone(), user, session }, StoreTime(100));
        let evicted = Err(Refusal::HasEnded { reason: RemovalReason::Evicted });
        assert_eq!(known.judge_join(&roster, &ann, &one, StoreTime(99)), evicted);
        assert_eq!(known.judge_join(&roster, &ann, &one, StoreTime(100)), Ok(()));
        assert_eq!(known.judge_join(&roster, &ann, &other, StoreTime(99)), Ok(()));
        assert_eq!(known.judge_join(&roster, &bob, &one, StoreTime(99)), Ok(()));
        assert_eq!(known.judge_join(&elsewhere, &ann, &one, StoreTime(99)), Ok(()));
    }

    #[test]
    fn a_token_is_revoked_by_itself_by_its_key_and_by_its_subject() {
        let ann = UserId::new("ann").unwrap();
        let token =
            |key: &str, id: &str| TokenRef { ends: StoreTime(9), key_id: key.into(), token_id: id.into() };
        let of_ann = token("k", "t");
        for what in
            [Revocation::Token("t".into()), Revocation::Key("k".into()), Revocation::Subject(ann.clone())]
        {
            let mut known = Revocations::default();
            assert!(known.note(what.clone(), StoreTime(100)) && !known.note(what.clone(), StoreTime(100)));
            assert_eq!(
                known.judge_token(&ann, &of_ann, StoreTime(99)),
                Err(TokenRefusal::Revoked),
                "{what:?}"
            );
            assert_eq!(known.judge_token(&ann, &of_ann, StoreTime(100)), Ok(()), "{what:?}");
        }
        let mut known = Revocations::default();
        for what in [Revocation::Token("k".into()), Revocation::Key("t".into()), Revocation::Key("".into())] {
            known.note(what, StoreTime(100));
        }
        known.note(Revocation::Token("".into()), StoreTime(100));
        known.note(Revocation::Subject(UserId::new("bob").unwrap()), StoreTime(100));
        assert_eq!(known.judge_token(&ann, &of_ann, StoreTime(0)), Ok(()), "others of the same name");
        assert_eq!(
            known.judge_token(&ann, &token("", ""), StoreTime(0)),
            Ok(()),
            "what has no name is not named"
        );
    }

    #[test]
    fn beyond_the_bound_the_one_that_ends_first_goes() {
        let mut known = Revocations::default();
        for number in 0..REVOCATIONS_MAX {
            known.note(token(number), StoreTime(1_000 + number as u64));
        }
        assert!(known.until(&token(0), StoreTime(0)).is_some(), "at the bound all are kept");
        known.note(token(REVOCATIONS_MAX), StoreTime(1_001));
        assert_eq!(known.until(&token(0), StoreTime(0)), None);
        assert_eq!(known.in_force(StoreTime(0)).count(), REVOCATIONS_MAX);
    }
}
