//! Reads what clients send. Nothing here trusts its input beyond its length.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::id::{Generation, RoomId, SessionId};
use presence_model::limits::{GENERATION_MAX, MESSAGE_BYTES_MAX, ROOMS_PER_CONNECTION_MAX, TOKEN_BYTES_MAX};
use presence_model::link::Token;
use presence_model::profile::{Profile, State, Status};
use presence_model::view::ViewRevision;
use presence_model::watch::Level;
use presence_runtime::json::is_read_everywhere;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use smol_str::SmolStr;

use crate::hub::Unreadable;
use crate::limits::{CLIENT_NAME_BYTES_MAX, STATE_DEPTH_MAX};
use crate::protocol::{ClientMessage, CloseCode, ErrorCode, JoinMessage, Since};

/// Reads one message. Unknown fields are ignored, of repeated ones the last counts, `null` is absence
/// (of a state: the value null).
///
/// # Errors
/// [`Unreadable::Fatal`] if it is no JSON object or above [`MESSAGE_BYTES_MAX`]; else
/// [`Unreadable::Error`] with the room it names, if it names one.
pub fn parse(text: &str) -> Result<ClientMessage, Unreadable> {
    if text.len() > MESSAGE_BYTES_MAX {
        let message = format!("a message has at most {MESSAGE_BYTES_MAX} bytes");
        return Err(Unreadable::Fatal(CloseCode::TooLarge, message));
    }
    let fields: Fields<'_> = serde_json::from_str(text)
        .map_err(|_| Unreadable::Fatal(CloseCode::Malformed, "not a JSON object".to_owned()))?;
    fields.read().map_err(|refusal| Unreadable::Error(refusal.code, fields.room().ok(), refusal.message))
}

/// Why one field, and so the message, was refused.
struct Refusal {
    code: ErrorCode,
    message: String,
}

impl Refusal {
    fn bad(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::BadRequest, message: message.into() }
    }
}

/// The fields we know, each still as its JSON text: so that a bad field can be told with its room,
/// wherever in the message that stands.
#[derive(Default)]
struct Fields<'a> {
    kind: Option<&'a RawValue>,
    room: Option<&'a RawValue>,
    token: Option<&'a RawValue>,
    session: Option<&'a RawValue>,
    generation: Option<&'a RawValue>,
    status: Option<&'a RawValue>,
    state: Option<&'a RawValue>,
    since: Option<&'a RawValue>,
    watch: Option<&'a RawValue>,
    level: Option<&'a RawValue>,
    client: Option<&'a RawValue>,
    at: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    let field = match &*key.0 {
                        "t" => &mut fields.kind,
                        "room" => &mut fields.room,
                        "token" => &mut fields.token,
                        "session" => &mut fields.session,
                        "generation" => &mut fields.generation,
                        "status" => &mut fields.status,
                        "state" => &mut fields.state,
                        "since" => &mut fields.since,
                        "watch" => &mut fields.watch,
                        "level" => &mut fields.level,
                        "client" => &mut fields.client,
                        "at" => &mut fields.at,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *field = Some(map.next_value()?);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A string that borrows where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The value of an optional field; absent and null are the same.
fn value<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    wanted: &'static str,
) -> Result<Option<T>, Refusal> {
    let Some(raw) = raw else { return Ok(None) };
    serde_json::from_str::<Option<T>>(raw.get()).map_err(|_| Refusal::bad(format!("{wanted} is expected")))
}

impl<'a> Fields<'a> {
    fn read(&self) -> Result<ClientMessage, Refusal> {
        let kind =
            value::<Text<'_>>(self.kind, "t: a string")?.ok_or_else(|| Refusal::bad("t is missing"))?;
        match &*kind.0 {
            "join" => Ok(ClientMessage::Join(Box::new(self.join(self.room()?)?))),
            "watch" => Ok(ClientMessage::Watch {
                room: self.room()?,
                token: self.token()?,
                since: self.since()?,
                level: self.level()?,
                client: self.client()?,
            }),
            "update" => {
                Ok(ClientMessage::Update { room: self.room()?, status: self.status()?, state: self.state()? })
            }
            "token" => Ok(ClientMessage::Token { room: self.room()?, token: self.token()? }),
            "leave" => Ok(ClientMessage::Leave { room: self.room()? }),
            "resync" => Ok(ClientMessage::Resync { room: self.room()? }),
            "ping" => Ok(ClientMessage::Ping { at: self.at()? }),
            _ => Err(Refusal::bad("t is none that is known here")),
        }
    }

    fn join(&self, room: RoomId) -> Result<JoinMessage, Refusal> {
        let session = value::<Text<'_>>(self.session, "session: a string")?
            .ok_or_else(|| Refusal::bad("session is missing"))?;
        let generation = value::<u64>(self.generation, "generation: a whole number")?;
        if generation.is_some_and(|generation| generation > GENERATION_MAX) {
            return Err(Refusal::bad(format!("generation is at most {GENERATION_MAX}")));
        }
        Ok(JoinMessage {
            room,
            token: self.token()?,
            session: SessionId::new(&*session.0).map_err(|e| Refusal::bad(e.to_string()))?,
            generation: generation.map(Generation),
            profile: Profile {
                status: self.status()?.unwrap_or(Status::Available),
                state: self.state()?.unwrap_or_default(),
            },
            since: self.since()?,
            watch: value::<bool>(self.watch, "watch: true or false")?.unwrap_or(true),
            level: self.level()?,
            client: self.client()?,
        })
    }

    fn room(&self) -> Result<RoomId, Refusal> {
        let name =
            value::<Text<'_>>(self.room, "room: a string")?.ok_or_else(|| Refusal::bad("room is missing"))?;
        RoomId::new(&*name.0).map_err(|e| Refusal::bad(e.to_string()))
    }

    fn token(&self) -> Result<Token, Refusal> {
        let token = value::<Text<'_>>(self.token, "token: a string")?
            .ok_or_else(|| Refusal::bad("token is missing"))?;
        if token.0.len() > TOKEN_BYTES_MAX {
            let message = format!("token has at most {TOKEN_BYTES_MAX} bytes");
            return Err(Refusal { code: ErrorCode::TooLarge, message });
        }
        Ok(Token(SmolStr::new(&*token.0)))
    }

    fn status(&self) -> Result<Option<Status>, Refusal> {
        let wanted = "status: available, away or busy";
        value::<Text<'_>>(self.status, wanted)?
            .map(|word| Status::parse(&word.0).ok_or_else(|| Refusal::bad(format!("{wanted} is expected"))))
            .transpose()
    }

    fn state(&self) -> Result<Option<State>, Refusal> {
        let Some(raw) = self.state else { return Ok(None) };
        let json = raw.get();
        let state = State::new(Bytes::copy_from_slice(json.as_bytes()))
            .map_err(|e| Refusal { code: ErrorCode::TooLarge, message: e.to_string() })?;
        if depth(json) > STATE_DEPTH_MAX {
            return Err(Refusal::bad(format!("state is nested at most {STATE_DEPTH_MAX} deep")));
        }
        if !is_read_everywhere(json.as_bytes()) {
            return Err(Refusal::bad(
                "state: numbers that a double holds and escapes that are characters are expected",
            ));
        }
        Ok(Some(state))
    }

    fn since(&self) -> Result<Since, Refusal> {
        let text = value::<Text<'_>>(self.since, "since: a string")?;
        Ok(match text.as_ref().map(|text| &*text.0) {
            None | Some("") => Since::Nowhere,
            Some(text) => Cursor::decode(text).map_or(Since::Unreadable, Since::Cursor),
        })
    }

    fn level(&self) -> Result<Option<Level>, Refusal> {
        let wanted = "level: members or count";
        value::<Text<'_>>(self.level, wanted)?
            .map(|word| match &*word.0 {
                "members" => Ok(Level::Members),
                "count" => Ok(Level::Count),
                _ => Err(Refusal::bad(format!("{wanted} is expected"))),
            })
            .transpose()
    }

    fn client(&self) -> Result<SmolStr, Refusal> {
        let Some(name) = value::<Text<'_>>(self.client, "client: a string")? else {
            return Ok(SmolStr::default());
        };
        if name.0.len() > CLIENT_NAME_BYTES_MAX {
            return Err(Refusal::bad(format!("client has at most {CLIENT_NAME_BYTES_MAX} bytes")));
        }
        Ok(SmolStr::new(&*name.0))
    }

    fn at(&self) -> Result<Vec<(RoomId, ViewRevision)>, Refusal> {
        let reached = value::<Reached>(self.at, "at: a number by room")?.unwrap_or_default();
        if reached.0.len() > ROOMS_PER_CONNECTION_MAX {
            return Err(Refusal::bad(format!("at names at most {ROOMS_PER_CONNECTION_MAX} rooms")));
        }
        let named = |(name, revision)| {
            RoomId::new(name)
                .map(|room| (room, ViewRevision(revision)))
                .map_err(|e| Refusal::bad(e.to_string()))
        };
        reached.0.into_iter().map(named).collect()
    }
}

/// Revision by room, in the order sent.
#[derive(Default)]
struct Reached(Vec<(String, u64)>);

impl<'de> Deserialize<'de> for Reached {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReachedVisitor;

        impl<'de> Visitor<'de> for ReachedVisitor {
            type Value = Reached;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut reached = Reached::default();
                while let Some(entry) = map.next_entry::<String, u64>()? {
                    reached.0.push(entry);
                }
                Ok(reached)
            }
        }

        deserializer.deserialize_map(ReachedVisitor)
    }
}

/// How deep valid JSON is nested.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests;
