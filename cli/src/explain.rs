//! `presence explain`: why a user is shown in a room, or why not.

use std::process::ExitCode;

use presence_client::Explanation;
use presence_model::id::{RoomId, UserId};
use presence_model::time::millis;
use serde_json::{Value, json};

use crate::args::ExplainArgs;
use crate::paint;
use crate::remote::{freshness_json, state_json, with_client};

/// Asks once and tells.
pub(crate) fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let (room, user) = (RoomId::new(&args.room)?, UserId::new(&args.user)?);
    let told = with_client(&args.core, |client| async move { Ok(client.explain(&room, &user).await?) })?;
    if args.json {
        paint::json_line(&as_json(&told))?;
        return Ok(ExitCode::SUCCESS);
    }
    // One sentence a line is easier to read in a terminal than a paragraph.
    for sentence in told.story.split_inclusive(". ") {
        paint::line(&paint::harmless(sentence.trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(told: &Explanation) -> Value {
    let sessions: Vec<Value> = told
        .sessions
        .iter()
        .map(|session| {
            json!({
                "session": session.session.as_str(),
                "generation": session.generation.0,
                "connection": session.connection.to_string(),
                "edge": session.edge.as_str(),
                "edge_incarnation": session.edge_incarnation.to_string(),
                "region": session.region.as_str(),
                "client": session.client.as_str(),
                "status": session.profile.status.as_str(),
                "state": state_json(&session.profile.state),
                "deadline": session.deadline.map(|deadline| deadline.0),
                "in_grace": session.in_grace,
                "heartbeat_age_ms": millis(session.heartbeat_age),
                "joined": session.joined.0,
                "token_ends": session.token_ends.0,
            })
        })
        .collect();
    let ended: Vec<Value> = told
        .ended
        .iter()
        .map(|ended| {
            json!({
                "session": ended.session.as_str(),
                "generation": ended.generation.0,
                "reason": ended.reason.as_str(),
                "ended": ended.ended.0,
                "silent_ms": millis(ended.silent_for),
            })
        })
        .collect();
    json!({
        "member": told.member.as_ref().map(|member| json!({
            "user": member.user.as_str(),
            "status": member.status.as_str(),
            "state": state_json(&member.state),
            "since": member.since.0,
        })),
        "sessions": sessions,
        "ended": ended,
        "region": told.region.as_str(),
        "class": told.class.as_str(),
        "position": told.position.to_string(),
        "freshness": freshness_json(told.freshness),
        "now": told.now.0,
        "story": told.story,
    })
}
