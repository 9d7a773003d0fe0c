//! `presence watch`: who comes, who goes, and why, as it happens.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use presence_client::watch::RoomOptions;
use presence_client::{Client, RoomChange, RoomUpdate};
use presence_model::id::{RegionId, RoomId, UserId};
use presence_model::profile::Member;
use presence_model::replica::Freshness;
use presence_runtime::clock::Clock;
use serde_json::{Value, json};

use crate::args::WatchArgs;
use crate::paint::{self, Paint};
use crate::remote::{freshness_json, freshness_word, state_json, with_client_until_told};

/// Runs until it is told to end, or until the reader of a pipe has enough.
pub(crate) fn run(args: WatchArgs) -> anyhow::Result<ExitCode> {
    let room = RoomId::new(&args.room)?;
    let screen = Screen {
        room: room.clone(),
        json: args.json,
        paint: Paint::for_stdout(),
        clock: Clock::system(),
        members: BTreeMap::new(),
        freshness: BTreeMap::new(),
        listed: false,
    };
    with_client_until_told(args.core, || ExitCode::SUCCESS, |client| watch(client, room, screen))
}

async fn watch(client: Client, room: RoomId, mut screen: Screen) -> anyhow::Result<ExitCode> {
    // A first question tells at once if nobody is there; later losses are told as stale.
    client.count_room(&room).await?;
    let mut updates = client.watch(room, RoomOptions::default()).await?;
    loop {
        match screen.show(updates.next().await?) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What has been shown.
struct Screen {
    room: RoomId,
    json: bool,
    paint: Paint,
    clock: Clock,
    members: BTreeMap<UserId, Member>,
    freshness: BTreeMap<RegionId, Freshness>,
    listed: bool,
}

impl Screen {
    fn show(&mut self, update: RoomUpdate) -> std::io::Result<()> {
        if update.freshness != self.freshness {
            self.fresh(&update.freshness)?;
            self.freshness = update.freshness;
        }
        match update.change {
            RoomChange::Nothing => Ok(()),
            RoomChange::List(members) => self.list(members),
            RoomChange::Delta { upserts, removals } => {
                for member in upserts {
                    self.upsert(member)?;
                }
                for removal in removals {
                    self.remove(
                        &removal.user,
                        removal.ending.reason.as_str(),
                        Some(removal.ending.silent_for),
                    )?;
                }
                Ok(())
            }
        }
    }

    fn fresh(&self, freshness: &BTreeMap<RegionId, Freshness>) -> std::io::Result<()> {
        for (region, fresh) in
            freshness.iter().filter(|(region, fresh)| self.freshness.get(*region) != Some(*fresh))
        {
            if self.json {
                self.line(json!({ "event": "freshness", "region": region.as_str(), "freshness": freshness_json(*fresh) }))?;
                continue;
            }
            let words = match fresh {
                Freshness::Live => "live: this is how it is now",
                Freshness::Held { .. } => {
                    "held: the store cannot vouch for silence, nobody is removed for it"
                }
                Freshness::Stale { .. } => "stale: cannot be heard, this is the last that was known",
            };
            self.text("·", &self.paint.yellow(freshness_word(*fresh)), &format!("{region} is {words}"))?;
        }
        Ok(())
    }

    fn list(&mut self, members: Vec<Member>) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.listed, true) {
            let count = members.len();
            if self.json {
                let list: Vec<Value> = members.iter().map(member_json).collect();
                self.line(json!({ "event": "list", "members": list }))?;
            } else {
                let title =
                    format!("{} has {count} {}", self.room, if count == 1 { "member" } else { "members" });
                paint::line(&self.paint.bold(&title))?;
                for member in &members {
                    self.text("=", &member.user.to_string(), &describe(member))?;
                }
            }
            self.members = members.into_iter().map(|member| (member.user.clone(), member)).collect();
            return Ok(());
        }
        // Too much has changed to be told one by one: only real differences are shown.
        let gone: Vec<UserId> = self
            .members
            .keys()
            .filter(|user| !members.iter().any(|member| member.user == **user))
            .cloned()
            .collect();
        for user in gone {
            self.remove(&user, "unknown", None)?;
        }
        for member in members {
            self.upsert(member)?;
        }
        Ok(())
    }

    fn upsert(&mut self, member: Member) -> std::io::Result<()> {
        let before = self.members.insert(member.user.clone(), member.clone());
        let (event, sign) = match before {
            None => ("join", self.paint.green("+")),
            Some(before) if before != member => ("update", self.paint.yellow("~")),
            Some(_) => return Ok(()),
        };
        if self.json {
            return self.line(json!({ "event": event, "member": member_json(&member) }));
        }
        self.text(&sign, &member.user.to_string(), &describe(&member))
    }

    fn remove(&mut self, user: &UserId, reason: &str, silent_for: Option<Duration>) -> std::io::Result<()> {
        if self.members.remove(user).is_none() {
            return Ok(());
        }
        if self.json {
            let silent_ms = silent_for.map(presence_model::time::millis);
            return self.line(
                json!({ "event": "leave", "user": user.as_str(), "reason": reason, "silent_ms": silent_ms }),
            );
        }
        let silent = match silent_for {
            Some(silent) if !silent.is_zero() => format!(", silent for {:.1} s", silent.as_secs_f64()),
            Some(_) | None => String::new(),
        };
        self.text(&self.paint.red("-"), &user.to_string(), &format!("{reason}{silent}"))
    }

    fn text(&self, sign: &str, who: &str, what: &str) -> std::io::Result<()> {
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.wall_ms());
        let time = humantime::format_rfc3339_millis(now).to_string();
        // The time of day alone: `2026-01-31T12:34:56.789Z`.
        let time = self.paint.dim(&time[11..23]);
        paint::line(&format!("{time} {sign} {who}  {}", self.paint.dim(what)))
    }

    fn line(&self, mut event: Value) -> std::io::Result<()> {
        event["room"] = Value::from(self.room.as_str());
        event["at"] = Value::from(self.clock.wall_ms());
        paint::json_line(&event)
    }
}

fn describe(member: &Member) -> String {
    let state = String::from_utf8_lossy(member.state.as_bytes());
    if state == "{}" {
        member.status.as_str().to_owned()
    } else {
        format!("{} {}", member.status.as_str(), paint::harmless(&state))
    }
}

fn member_json(member: &Member) -> Value {
    json!({
        "user": member.user.as_str(),
        "status": member.status.as_str(),
        "state": state_json(&member.state),
        "since": member.since.0,
    })
}
