//! Tokens of services and operators: what their bearer may do, in rooms whose names begin with given prefixes.

use std::time::Duration;

use presence_model::claim::TokenRefusal;
use presence_model::limits::NAME_BYTES_MAX;
use presence_model::record::TokenRef;
use presence_model::time::StoreTime;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::issue::Issuer;
use super::verify::{NumericDate, Verifier};
use crate::limits::TOKEN_PREFIXES_MAX;

/// What a bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Ask about rooms and watch them.
    Read,
    /// Follow everything that happens.
    Feed,
    /// Explain, evict, revoke, send edges away.
    Admin,
}

impl Scope {
    /// The words for them.
    pub const WORDS: [&'static str; 3] = ["presence.read", "presence.feed", "presence.admin"];
    const ALL: [Self; 3] = [Self::Read, Self::Feed, Self::Admin];

    /// The one that a word stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

/// The claims of a service's token whose signature is good. Time is judged by whoever knows the store's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scoped {
    /// Who bears it, for people.
    pub subject: SmolStr,
    /// What may be done. May be empty: scopes of others are left out.
    pub scopes: Vec<Scope>,
    /// In rooms whose names begin with one of these; an empty one is for all rooms.
    pub rooms: Vec<SmolStr>,
    /// When it starts to count, if it says so.
    pub not_before: Option<StoreTime>,
    /// Its end and what could revoke it.
    pub token: TokenRef,
}

/// What a service's token is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopedGrant {
    /// Who bears it, for people.
    pub subject: SmolStr,
    /// What may be done.
    pub scopes: Vec<Scope>,
    /// In rooms whose names begin with one of these; an empty one is for all rooms.
    pub rooms: Vec<SmolStr>,
    /// Its end; rounded down to whole seconds.
    pub ends: StoreTime,
    /// Its own id, by which it can be revoked alone.
    pub token_id: Option<SmolStr>,
}

/// The payload. A claim given twice is an error of the reader; what makes a client's token makes no service's.
#[derive(Deserialize)]
struct RawScoped {
    sub: SmolStr,
    scope: String,
    rooms: Prefixes,
    exp: NumericDate,
    nbf: Option<NumericDate>,
    jti: Option<SmolStr>,
    room: Option<IgnoredAny>,
    act: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Prefixes {
    One(SmolStr),
    Some(Vec<SmolStr>),
}

impl RawScoped {
    fn into_scoped(self, kid: SmolStr) -> Option<Scoped> {
        let rooms = match self.rooms {
            Prefixes::One(prefix) => vec![prefix],
            Prefixes::Some(prefixes) => prefixes,
        };
        let is_bounded = (1..=NAME_BYTES_MAX).contains(&self.sub.len())
            && (1..=TOKEN_PREFIXES_MAX).contains(&rooms.len())
            && rooms.iter().all(|prefix| prefix.len() <= NAME_BYTES_MAX);
        let token_id = self.jti.unwrap_or_default();
        if !is_bounded || token_id.len() > NAME_BYTES_MAX || self.room.is_some() || self.act.is_some() {
            return None;
        }
        Some(Scoped {
            subject: self.sub,
            scopes: self.scope.split(' ').filter_map(Scope::of).collect(),
            rooms,
            not_before: self.nbf.map(|date| date.0),
            token: TokenRef { ends: self.exp.0, key_id: kid, token_id },
        })
    }
}

impl Scoped {
    /// Judges the time of good claims by the store's clock, as [`presence_model::claim::judge_time`] does.
    ///
    /// # Errors
    /// `Expired`, `NotYetValid`.
    pub fn judge_time(&self, now: StoreTime, leeway: Duration) -> Result<(), TokenRefusal> {
        let is_early = self.not_before.is_some_and(|start| now + leeway < start);
        match (now >= self.token.ends, is_early) {
            (true, _) => Err(TokenRefusal::Expired),
            (false, true) => Err(TokenRefusal::NotYetValid),
            (false, false) => Ok(()),
        }
    }
}

impl Verifier {
    /// Verifies everything about a service's token but its time and what it is used for.
    ///
    /// # Errors
    /// As of [`Verifier::verify`]; nothing of the token is told.
    pub fn verify_scoped(&self, token: &str) -> Result<Scoped, TokenRefusal> {
        let (claims, kid) = self.read::<RawScoped>(token)?;
        claims.into_scoped(kid).ok_or(TokenRefusal::Claim)
    }
}

impl Issuer {
    /// A signed token of a service, as text.
    #[must_use]
    pub fn sign_scoped(&self, grant: &ScopedGrant) -> String {
        let scopes: Vec<&str> = grant.scopes.iter().map(|scope| scope.as_str()).collect();
        self.encode(&SignedScoped {
            sub: &grant.subject,
            scope: scopes.join(" "),
            rooms: &grant.rooms,
            aud: self.audience(),
            exp: grant.ends.0 / 1000,
            jti: grant.token_id.as_deref(),
        })
    }
}

#[derive(Serialize)]
struct SignedScoped<'a> {
    sub: &'a str,
    scope: String,
    rooms: &'a [SmolStr],
    aud: &'a str,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    jti: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use presence_model::claim::Action;
    use presence_model::id::{RoomId, UserId};
    use serde_json::{Value, json};

    use super::*;
    use crate::tokens::{GeneratedKeys, Grant, KeySet};

    fn pair() -> (Issuer, Verifier) {
        let keys = GeneratedKeys::from_seed([7; 32]);
        let verifier = Verifier::new(KeySet::parse(keys.jwks().as_bytes()).unwrap());
        (Issuer::from_pem(keys.key_pem()).unwrap(), verifier)
    }

    fn judged(claims: &Value) -> Result<Scoped, TokenRefusal> {
        let (issuer, verifier) = pair();
        verifier.verify_scoped(&issuer.encode(claims))
    }

    fn good() -> Value {
        json!({ "sub": "billing", "scope": "presence.read", "rooms": ["team-a:"], "aud": "presence", "exp": 2_000_000_000 })
    }

    #[test]
    fn what_is_signed_is_read_back() {
        let (issuer, verifier) = pair();
        let grant = ScopedGrant {
            subject: "billing".into(),
            scopes: vec![Scope::Read, Scope::Admin],
            rooms: vec!["team-a:".into(), "team-b:".into()],
            ends: StoreTime(2_000_000_000_000),
            token_id: Some("billing-7".into()),
        };
        let read = verifier.verify_scoped(&issuer.sign_scoped(&grant)).unwrap();
        assert_eq!(read.token.token_id, "billing-7");
        assert_eq!((read.subject, read.scopes, read.rooms), (grant.subject, grant.scopes, grant.rooms));
        assert_eq!((read.token.ends, read.not_before), (grant.ends, None));
    }

    #[test]
    fn a_token_of_a_client_is_none_of_a_service_and_the_reverse() {
        let (issuer, verifier) = pair();
        let client = issuer.sign(&Grant {
            user: UserId::new("u1").unwrap(),
            room: RoomId::new("lobby").unwrap(),
            action: Action::Join,
            ends: StoreTime(2_000_000_000_000),
            not_before: None,
            token_id: None,
        });
        assert_eq!(verifier.verify_scoped(&client), Err(TokenRefusal::Claim));
        assert_eq!(verifier.verify(&issuer.encode(&good())), Err(TokenRefusal::Claim));
        for (claim, value) in [("room", "lobby"), ("act", "join")] {
            let mut both = good();
            both[claim] = value.into();
            assert_eq!(judged(&both), Err(TokenRefusal::Claim), "{claim}");
        }
    }

    #[test]
    fn each_claim_has_to_be_there_and_within_bounds() {
        assert!(judged(&good()).is_ok());
        for claim in ["sub", "scope", "rooms", "exp"] {
            let mut without = good();
            without.as_object_mut().unwrap().remove(claim);
            assert_eq!(judged(&without), Err(TokenRefusal::Claim), "{claim}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let many = vec!["a:"; TOKEN_PREFIXES_MAX + 1];
        for (claim, value) in [
            ("sub", json!("")),
            ("sub", json!(long)),
            ("jti", json!(long)),
            ("rooms", json!([])),
            ("rooms", json!([long])),
            ("rooms", json!(many)),
            ("rooms", json!(7)),
            ("scope", json!(["presence.read"])),
        ] {
            let mut bad = good();
            bad[claim] = value.clone();
            assert_eq!(judged(&bad), Err(TokenRefusal::Claim), "{claim} {value}");
        }
        let mut elsewhere = good();
        elsewhere["aud"] = "elsewhere".into();
        assert_eq!(judged(&elsewhere), Err(TokenRefusal::Audience));
    }

    #[test]
    fn as_many_prefixes_as_may_be_are_read_and_one_needs_no_list() {
        let mut most = good();
        most["rooms"] = json!(vec!["a:"; TOKEN_PREFIXES_MAX]);
        assert_eq!(judged(&most).unwrap().rooms.len(), TOKEN_PREFIXES_MAX);
        most["rooms"] = json!("team-a:");
        assert_eq!(judged(&most).unwrap().rooms, ["team-a:"]);
    }

    #[test]
    fn the_store_s_clock_says_whether_it_counts() {
        let mut early = good();
        early["nbf"] = 1_000.into();
        let scoped = judged(&early).unwrap();
        let at = |ms| scoped.judge_time(StoreTime(ms), Duration::from_secs(30));
        assert_eq!(at(969_999), Err(TokenRefusal::NotYetValid));
        assert_eq!(at(970_000), Ok(()));
        assert_eq!(at(1_999_999_999_999), Ok(()));
        assert_eq!(at(2_000_000_000_000), Err(TokenRefusal::Expired));
    }

    #[test]
    fn scopes_of_others_grant_nothing() {
        let mut other = good();
        other["scope"] = "presence.Read presence.reader openid presence.read\u{0}".into();
        assert_eq!(judged(&other).unwrap().scopes, []);
        for scope in Scope::ALL {
            assert_eq!(Scope::of(scope.as_str()), Some(scope));
        }
    }
}
