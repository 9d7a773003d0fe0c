//! Revocations, until they cannot matter.

use presence_model::id::{RegionId, RoomId, Roster, SessionId, UserId};
use presence_model::revocation::Revocation;
use presence_model::time::StoreTime;
use serde::{Deserialize, Serialize};

use super::Inner;
use super::arguments::Arguments;
use super::reader::{Reader, unexpected};
use super::script::{REVOKE, REVOKED};
use crate::store::{Outcome, StoreFault};

/// Ended revocations forgotten by one command.
const FORGET_PORTION: u64 = 64;

/// What is revoked, as stored: JSON, so that a person can read it, of fields in this order, so that the
/// same is the same text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Text<'a> {
    Token(std::borrow::Cow<'a, str>),
    Key(std::borrow::Cow<'a, str>),
    Subject(std::borrow::Cow<'a, str>),
    Session {
        region: std::borrow::Cow<'a, str>,
        room: std::borrow::Cow<'a, str>,
        user: std::borrow::Cow<'a, str>,
        session: std::borrow::Cow<'a, str>,
    },
}

impl Inner {
    pub(super) async fn revoke(
        &self,
        revocations: Vec<(Revocation, StoreTime)>,
    ) -> Result<Outcome, StoreFault> {
        let mut arguments = Arguments::default();
        arguments.number(FORGET_PORTION);
        for (what, until) in &revocations {
            arguments.number(until.0);
            arguments.text(&text(what));
        }
        self.write(&REVOKE, &self.keys.revoked(), arguments).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn revoked(
        &self,
        after: Option<(Revocation, StoreTime)>,
        count: usize,
        unless: Option<u64>,
    ) -> Result<Outcome, StoreFault> {
        let mut arguments = Arguments::default();
        match after {
            Some((what, until)) => {
                arguments.number(until.0);
                arguments.text(&text(&what));
            }
            None => (0..2).for_each(|_| arguments.text("")),
        }
        arguments.number(count as u64);
        arguments.text(&unless.map_or_else(String::new, |news| news.to_string()));
        let key = self.keys.revoked();
        let mut reader = Reader::new(self.read(&self.lanes.loads, &REVOKED, &key, arguments).await?)?;
        let (now, news) = (reader.time()?, reader.number()?);
        let (mut revocations, mut read, mut unread) = (Vec::new(), 0, 0);
        while !reader.is_done() {
            let (text, until) = (reader.text()?, reader.time()?);
            read += 1;
            match parse(&text) {
                Ok(what) => revocations.push((what, until)),
                Err(_) => unread += 1,
            }
        }
        if unread > 0 {
            // Of a later version, or written by hand: it must not hide the others.
            tracing::warn!(unread, "revocations that this core cannot read have no effect here");
        }
        let more = read > count;
        revocations.truncate(count);
        Ok(Outcome::Revoked { now, news, revocations, more })
    }
}

fn text(what: &Revocation) -> String {
    let text = match what {
        Revocation::Token(id) => Text::Token(id.as_str().into()),
        Revocation::Key(id) => Text::Key(id.as_str().into()),
        Revocation::Subject(user) => Text::Subject(user.as_str().into()),
        Revocation::Session { roster, user, session } => Text::Session {
            region: roster.region.as_str().into(),
            room: roster.room.as_str().into(),
            user: user.as_str().into(),
            session: session.as_str().into(),
        },
    };
    serde_json::to_string(&text).expect("texts are JSON")
}

/// # Errors
/// Not that.
fn parse(stored: &str) -> Result<Revocation, StoreFault> {
    let bad = || unexpected(stored);
    let text: Text = serde_json::from_str(stored).map_err(|_| bad())?;
    Ok(match text {
        Text::Token(id) => Revocation::Token(id.into()),
        Text::Key(id) => Revocation::Key(id.into()),
        Text::Subject(user) => Revocation::Subject(UserId::new(user).map_err(|_| bad())?),
        Text::Session { region, room, user, session } => Revocation::Session {
            roster: Roster {
                region: RegionId::new(region).map_err(|_| bad())?,
                room: RoomId::new(room).map_err(|_| bad())?,
            },
            user: UserId::new(user).map_err(|_| bad())?,
            session: SessionId::new(session).map_err(|_| bad())?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_comes_back_and_is_readable() {
        let session = Revocation::Session {
            roster: Roster { region: RegionId::new("eu:w").unwrap(), room: RoomId::new("a\nb\0\"").unwrap() },
            user: UserId::new("__proto__\u{202e}").unwrap(),
            session: SessionId::new("\"}{\\0123456789ab").unwrap(),
        };
        let all = [
            Revocation::Token("jti \"1\"".into()),
            Revocation::Key("".into()),
            Revocation::Subject(UserId::new("ω").unwrap()),
            session,
        ];
        for what in all {
            assert_eq!(parse(&text(&what)), Ok(what));
        }
        assert_eq!(text(&Revocation::Key("k1".into())), "{\"key\":\"k1\"}");
        assert!(parse("{\"session\":{\"region\":\"eu\"}}").is_err());
        assert!(parse("{\"subject\":\"\"}").is_err());
    }
}
