//! The rules of single fields, in whatever encoding they came.

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::id::{Generation, RoomId, SessionId};
use presence_model::limits::{GENERATION_MAX, MESSAGE_BYTES_MAX, ROOMS_PER_CONNECTION_MAX, TOKEN_BYTES_MAX};
use presence_model::link::Token;
use presence_model::profile::State;
use presence_model::view::ViewRevision;
use presence_runtime::json::is_read_everywhere;
use smol_str::SmolStr;

use super::{CloseCode, ErrorCode, Since};
use crate::hub::Unreadable;
use crate::limits::{CLIENT_NAME_BYTES_MAX, STATE_DEPTH_MAX};

/// Why one field, and so the message, was refused.
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self { code: ErrorCode::BadRequest, message: message.into() }
    }

    /// With the room that the message names, if it names one.
    pub(super) fn about(self, room: Option<RoomId>) -> Unreadable {
        Unreadable::Error(self.code, room, self.message)
    }
}

/// # Errors
/// The end of a connection that said more than [`MESSAGE_BYTES_MAX`].
pub(super) fn bounded(bytes: usize) -> Result<(), Unreadable> {
    if bytes <= MESSAGE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a message has at most {MESSAGE_BYTES_MAX} bytes");
    Err(Unreadable::Fatal(CloseCode::TooLarge, message))
}

/// Empty is the same as absent, as one of the encodings does not tell them apart.
fn given<'a>(text: Option<&'a str>, missing: &'static str) -> Result<&'a str, Refusal> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| Refusal::bad(missing))
}

pub(super) fn room(name: Option<&str>) -> Result<RoomId, Refusal> {
    RoomId::new(given(name, "room is missing")?).map_err(|rule| Refusal::bad(rule.to_string()))
}

pub(super) fn token(token: Option<&str>) -> Result<Token, Refusal> {
    let token = given(token, "token is missing")?;
    if token.len() > TOKEN_BYTES_MAX {
        let message = format!("token has at most {TOKEN_BYTES_MAX} bytes");
        return Err(Refusal { code: ErrorCode::TooLarge, message });
    }
    Ok(Token(SmolStr::new(token)))
}

pub(super) fn session(id: Option<&str>) -> Result<SessionId, Refusal> {
    SessionId::new(given(id, "session is missing")?).map_err(|rule| Refusal::bad(rule.to_string()))
}

pub(super) fn generation(generation: Option<u64>) -> Result<Option<Generation>, Refusal> {
    if generation.is_some_and(|generation| generation > GENERATION_MAX) {
        return Err(Refusal::bad(format!("generation is at most {GENERATION_MAX}")));
    }
    Ok(generation.map(Generation))
}

/// `json` is one JSON value, without spaces around it.
pub(super) fn state(json: &str) -> Result<State, Refusal> {
    let state = State::new(Bytes::copy_from_slice(json.as_bytes()))
        .map_err(|rule| Refusal { code: ErrorCode::TooLarge, message: rule.to_string() })?;
    if depth(json) > STATE_DEPTH_MAX {
        return Err(Refusal::bad(format!("state is nested at most {STATE_DEPTH_MAX} deep")));
    }
    if !is_read_everywhere(json.as_bytes()) {
        return Err(Refusal::bad(
            "state: numbers that a double holds and escapes that are characters are expected",
        ));
    }
    Ok(state)
}

pub(super) fn since(text: Option<&str>) -> Since {
    match text {
        None | Some("") => Since::Nowhere,
        Some(text) => Cursor::decode(text).map_or(Since::Unreadable, Since::Cursor),
    }
}

pub(super) fn client(name: Option<&str>) -> Result<SmolStr, Refusal> {
    let name = name.unwrap_or_default();
    if name.len() > CLIENT_NAME_BYTES_MAX {
        return Err(Refusal::bad(format!("client has at most {CLIENT_NAME_BYTES_MAX} bytes")));
    }
    Ok(SmolStr::new(name))
}

pub(super) fn at(reached: Vec<(String, u64)>) -> Result<Vec<(RoomId, ViewRevision)>, Refusal> {
    if reached.len() > ROOMS_PER_CONNECTION_MAX {
        return Err(Refusal::bad(format!("at names at most {ROOMS_PER_CONNECTION_MAX} rooms")));
    }
    let named = |(name, revision): (String, u64)| Ok((room(Some(&name))?, ViewRevision(revision)));
    reached.into_iter().map(named).collect()
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
