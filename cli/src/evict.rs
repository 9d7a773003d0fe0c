//! `presence evict`: put a user out of a room.

use std::process::ExitCode;

use presence_model::id::{RoomId, UserId};
use serde_json::json;

use crate::args::EvictArgs;
use crate::paint;
use crate::remote::with_client;

/// Asks once and tells how many sessions that concerned.
pub(crate) fn run(args: EvictArgs) -> anyhow::Result<ExitCode> {
    let (room, user) = (RoomId::new(&args.room)?, UserId::new(&args.user)?);
    let sessions = with_client(&args.core, |client| {
        let (room, user) = (room.clone(), user.clone());
        async move { Ok(client.evict(&room, &user).await?) }
    })?;
    if args.json {
        paint::json_line(&json!({ "room": room.as_str(), "user": user.as_str(), "sessions": sessions }))?;
    } else if sessions == 0 {
        paint::line(&format!("{user} was not in {room}"))?;
    } else {
        let noun = if sessions == 1 { "session" } else { "sessions" };
        paint::line(&format!("{user} is out of {room}: {sessions} {noun}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
