//! A service that watches a room over gRPC.

use std::collections::BTreeSet;
use std::sync::Arc;

use presence_client::watch::RoomOptions;
use presence_client::{Client, ClientError, RoomChange, RoomUpdate};
use presence_model::id::{RegionId, RoomId};
use presence_model::profile::Member;
use presence_model::replica::Freshness;

use super::Recorder;
use crate::history::{Departure, Look, Members, Shown, Sight};

/// Watches a room and tells what it is shown, until the client ends.
///
/// # Errors
/// What the client gives up for.
pub async fn watch(
    name: &str,
    client: &Client,
    (room, region): (RoomId, RegionId),
    recorder: &Recorder,
) -> Result<(), ClientError> {
    recorder.sight(name, Sight::Opened { at: name.to_owned() });
    let mut stream = client.watch(room, RoomOptions::default()).await?;
    let mut members = Members::new();
    loop {
        let update = stream.next().await?;
        recorder.line(name, format_args!("< {update:?}"));
        let before: BTreeSet<String> = members.keys().cloned().collect();
        take(&mut members, &update.change);
        let gone = before.into_iter().filter(|user| !members.contains_key(user));
        let gone = gone.map(|user| departure(user, &update)).collect();
        let live = update.freshness.get(&region) == Some(&Freshness::Live);
        let position = update.cursor.get(&region);
        recorder.sight(name, Sight::Shows(Look { position, live, members: Arc::new(members.clone()), gone }));
    }
}

fn take(members: &mut Members, change: &RoomChange) {
    match change {
        RoomChange::Nothing => {}
        RoomChange::List(list) => *members = list.iter().map(shown).collect(),
        RoomChange::Delta { upserts, removals } => {
            members.extend(upserts.iter().map(shown));
            for removal in removals {
                members.remove(removal.user.as_str());
            }
        }
    }
}

fn departure(user: String, update: &RoomUpdate) -> Departure {
    let reason = match &update.change {
        RoomChange::Delta { removals, .. } => {
            let told = removals.iter().find(|removal| removal.user.as_str() == user);
            told.map_or("none", |removal| removal.ending.reason.as_str())
        }
        RoomChange::List(_) | RoomChange::Nothing => "not_listed",
    };
    Departure { user, reason: reason.to_owned() }
}

/// A member as the history tells it.
pub(crate) fn shown(member: &Member) -> (String, Shown) {
    let state = serde_json::from_slice::<serde_json::Value>(member.state.as_bytes());
    let shown = Shown {
        status: member.status.as_str().to_owned(),
        state: state.map(|state| state.to_string()).unwrap_or_default(),
        since: member.since.0,
    };
    (member.user.as_str().to_owned(), shown)
}
