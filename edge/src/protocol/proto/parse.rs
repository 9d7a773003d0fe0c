//! Reads what clients send. Nothing here trusts its input beyond its length.

use bytes::Bytes;
use presence_model::id::RoomId;
use presence_model::profile::{Profile, State, Status};
use presence_model::watch::Level;
use presence_proto::v1::client_message::{self as wire, Message};
use presence_proto::v1::{self, ClientMessage as Wire};
use prost::Message as _;
use serde_json::value::RawValue;

use crate::hub::Unreadable;
use crate::protocol::fields::{self, Refusal};
use crate::protocol::{ClientMessage, CloseCode, JoinMessage};

/// Reads one message. Unknown fields are ignored.
///
/// # Errors
/// [`Unreadable::Fatal`] if it is no message of `client.proto` or above
/// [`presence_model::limits::MESSAGE_BYTES_MAX`]; else [`Unreadable::Error`] with the room it names, if it names one.
pub fn parse(bytes: &[u8]) -> Result<ClientMessage, Unreadable> {
    fields::bounded(bytes.len())?;
    let Wire { message } = Wire::decode(bytes).map_err(|_| {
        Unreadable::Fatal(CloseCode::Malformed, "not a ClientMessage of presence.v1.proto".to_owned())
    })?;
    let Some(message) = message else {
        return Err(Refusal::bad("message is none that is known here").about(None));
    };
    let about = room_of(&message);
    read(message).map_err(|refusal| refusal.about(about))
}

fn room_of(message: &Message) -> Option<RoomId> {
    let name = match message {
        Message::Join(wire::Join { room, .. })
        | Message::Watch(wire::Watch { room, .. })
        | Message::Update(wire::Update { room, .. })
        | Message::Token(wire::Token { room, .. })
        | Message::Leave(wire::Leave { room })
        | Message::Resync(wire::Resync { room }) => room,
        Message::Ping(_) => return None,
    };
    fields::room(Some(name)).ok()
}

fn read(message: Message) -> Result<ClientMessage, Refusal> {
    Ok(match message {
        Message::Join(join) => ClientMessage::Join(Box::new(read_join(join)?)),
        Message::Watch(watch) => ClientMessage::Watch {
            room: fields::room(Some(&watch.room))?,
            token: fields::token(Some(&watch.token))?,
            since: fields::since(Some(&watch.since)),
            level: level(watch.level)?,
            client: fields::client(Some(&watch.client))?,
        },
        Message::Update(update) => ClientMessage::Update {
            room: fields::room(Some(&update.room))?,
            status: status(update.status)?,
            state: state(update.state.as_ref())?,
        },
        Message::Token(token) => ClientMessage::Token {
            room: fields::room(Some(&token.room))?,
            token: fields::token(Some(&token.token))?,
        },
        Message::Leave(leave) => ClientMessage::Leave { room: fields::room(Some(&leave.room))? },
        Message::Resync(resync) => ClientMessage::Resync { room: fields::room(Some(&resync.room))? },
        Message::Ping(ping) => {
            let reached = ping.at.into_iter().map(|reached| (reached.room, reached.rev)).collect();
            ClientMessage::Ping { at: fields::at(reached)? }
        }
    })
}

fn read_join(join: wire::Join) -> Result<JoinMessage, Refusal> {
    Ok(JoinMessage {
        room: fields::room(Some(&join.room))?,
        session: fields::session(Some(&join.session))?,
        generation: fields::generation(join.generation)?,
        token: fields::token(Some(&join.token))?,
        profile: Profile {
            status: status(join.status)?.unwrap_or(Status::Available),
            state: state(join.state.as_ref())?.unwrap_or_default(),
        },
        since: fields::since(Some(&join.since)),
        watch: join.watch.unwrap_or(true),
        level: level(join.level)?,
        client: fields::client(Some(&join.client))?,
    })
}

fn status(value: i32) -> Result<Option<Status>, Refusal> {
    match v1::Status::try_from(value) {
        Ok(v1::Status::Unspecified) => Ok(None),
        Ok(v1::Status::Available) => Ok(Some(Status::Available)),
        Ok(v1::Status::Away) => Ok(Some(Status::Away)),
        Ok(v1::Status::Busy) => Ok(Some(Status::Busy)),
        Err(_) => Err(Refusal::bad("status: available, away or busy is expected")),
    }
}

fn level(value: i32) -> Result<Option<Level>, Refusal> {
    match v1::WatchLevel::try_from(value) {
        Ok(v1::WatchLevel::Unspecified) => Ok(None),
        Ok(v1::WatchLevel::Members) => Ok(Some(Level::Members)),
        Ok(v1::WatchLevel::Count) => Ok(Some(Level::Count)),
        Err(_) => Err(Refusal::bad("level: members or count is expected")),
    }
}

/// As one value of JSON, without the spaces around it: text that is spliced into text for others.
fn state(json: Option<&Bytes>) -> Result<Option<State>, Refusal> {
    let Some(json) = json else { return Ok(None) };
    let raw: &RawValue =
        serde_json::from_slice(json).map_err(|_| Refusal::bad("state: a JSON value is expected"))?;
    fields::state(raw.get()).map(Some)
}
