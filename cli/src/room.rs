//! `presence room`: who is in a room now.

use std::process::ExitCode;
use std::time::Duration;

use presence_client::RoomNow;
use presence_model::id::RoomId;
use presence_model::time::{StoreTime, spoken};
use presence_runtime::clock::Clock;
use serde_json::{Value, json};

use crate::args::RoomArgs;
use crate::paint::{self, Paint};
use crate::remote::{freshness_json, freshness_word, state_json, with_client};

/// Asks once and prints.
pub(crate) fn run(args: RoomArgs) -> anyhow::Result<ExitCode> {
    let room = RoomId::new(&args.room)?;
    let now = with_client(&args.core, |client| {
        let room = room.clone();
        async move { Ok(client.get_room(&room).await?) }
    })?;
    if args.json {
        paint::json_line(&as_json(&room, &now))?;
    } else {
        table(&room, &now)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(room: &RoomId, now: &RoomNow) -> Value {
    let members: Vec<Value> = now
        .members
        .iter()
        .map(|member| {
            json!({
                "user": member.user.as_str(),
                "status": member.status.as_str(),
                "state": state_json(&member.state),
                "since": member.since.0,
            })
        })
        .collect();
    let regions: Vec<Value> = now
        .regions
        .iter()
        .map(|region| {
            json!({
                "region": region.region.as_str(),
                "position": region.position.map(|position| position.to_string()),
                "freshness": freshness_json(region.freshness),
            })
        })
        .collect();
    json!({ "room": room.as_str(), "count": now.count, "members": members, "regions": regions })
}

fn table(room: &RoomId, now: &RoomNow) -> anyhow::Result<()> {
    let paint = Paint::for_stdout();
    let regions: Vec<String> = now
        .regions
        .iter()
        .map(|region| format!("{} is {}", region.region, freshness_word(region.freshness)))
        .collect();
    let title = format!("{room}: {} {}", now.count, if now.count == 1 { "member" } else { "members" });
    paint::line(&format!("{}  {}", paint.bold(&title), paint.dim(&regions.join(", "))))?;
    let names: Vec<String> = now.members.iter().map(|member| member.user.to_string()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(40);
    let clock = StoreTime(Clock::system().wall_ms());
    for (member, name) in now.members.iter().zip(names) {
        let here = spoken(Duration::from_secs(clock.since(member.since).as_secs()));
        let state = match paint::harmless(&String::from_utf8_lossy(member.state.as_bytes())) {
            empty if empty == "{}" => String::new(),
            state => format!("  {state}"),
        };
        paint::line(&format!(
            "  {name:width$}  {:9}  {}",
            member.status.as_str(),
            paint.dim(&format!("here for {here}{state}"))
        ))?;
    }
    Ok(())
}
