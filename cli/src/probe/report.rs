//! What a probe has seen, and how it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::time::{Mono, millis};
use serde_json::{Value, json};

use super::part::{Goes, Told, What};
use super::{EdgeAddress, ProbeError};
use crate::args::ProbeArgs;
use crate::paint::{self, Paint};

/// What one edge has shown.
#[derive(Debug)]
struct Edge {
    address: EdgeAddress,
    /// Members of its first list.
    listed: Option<usize>,
    /// How long after it came.
    seen: Option<Duration>,
    /// How long after it went, for which reason, and after how much silence.
    gone: Option<(Duration, String, Duration)>,
    /// Regions that it does not show as live.
    behind: BTreeMap<String, String>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    paint: Paint,
    room: String,
    user: String,
    how: Goes,
    edges: Vec<Edge>,
    came: Option<Mono>,
    joined: Option<Duration>,
    /// When it saw itself.
    sees_itself: Option<Duration>,
    went: Option<Mono>,
    was_there: bool,
}

impl Report {
    pub(super) fn new(args: &ProbeArgs, user: &str, how: Goes) -> Self {
        let edge = |address: &EdgeAddress| Edge {
            address: address.clone(),
            listed: None,
            seen: None,
            gone: None,
            behind: BTreeMap::new(),
        };
        Self {
            json: args.json,
            paint: Paint::for_stdout(),
            room: args.room.clone(),
            user: user.to_owned(),
            how,
            edges: args.edges.iter().map(edge).collect(),
            came: None,
            joined: None,
            sees_itself: None,
            went: None,
            was_there: false,
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.edges.iter().all(|edge| edge.listed.is_some())
    }

    pub(super) fn is_seen(&self) -> bool {
        let is_in = self.joined.is_some() && self.sees_itself.is_some();
        is_in && self.edges.iter().all(|edge| edge.seen.is_some())
    }

    pub(super) fn is_gone(&self) -> bool {
        self.edges.iter().all(|edge| edge.gone.is_some())
    }

    /// Somebody else with the same name would hide what is to be seen.
    pub(super) fn nobody_is_there_yet(&self) -> Result<(), ProbeError> {
        if !self.was_there {
            return Ok(());
        }
        Err(ProbeError::AlreadyThere(format!(
            "{} is in {} already, perhaps since the probe before: ask again later, or probe as a user nobody else is",
            self.user, self.room
        )))
    }

    pub(super) fn comes(&mut self, now: Mono) {
        self.came = Some(now);
    }

    pub(super) fn goes(&mut self, now: Mono) -> std::io::Result<()> {
        self.went = Some(now);
        self.step(match self.how {
            Goes::Goodbye => "says goodbye",
            Goes::Drop => "drops its connection without a word",
        })
    }

    /// Takes what a part tells.
    pub(super) fn take(&mut self, told: Told) -> anyhow::Result<()> {
        let since = |moment: Option<Mono>| moment.map(|moment| told.at.since(moment));
        let (after, later) = (since(self.came), since(self.went));
        let Some(edge) = told.by.and_then(|number| self.edges.get_mut(number)) else {
            return self.take_own(told.what, after);
        };
        let at = edge.address.clone();
        match told.what {
            What::Listed(members) => {
                if edge.listed.replace(members).is_none() {
                    self.step(&format!("{at} lists {members} in {}", self.room))?;
                }
            }
            What::Seen => match after {
                None => self.was_there = true,
                Some(after) => {
                    edge.seen.get_or_insert(after);
                    self.step(&format!("seen at {at} after {}", ms(after)))?;
                }
            },
            What::Gone(reason, silent) => {
                let Some(later) = later else {
                    return Err(ProbeError::WrongReason(format!(
                        "{at} shows it as gone while it is there: {reason}"
                    ))
                    .into());
                };
                let should = self.how.reason();
                if reason != should {
                    let why =
                        format!("{at} shows it as gone for the reason {reason}, and it should be {should}");
                    return Err(ProbeError::WrongReason(why).into());
                }
                edge.gone = Some((later, reason.clone(), silent));
                self.step(&format!("gone at {at} after {}: {reason}", ms(later)))?;
            }
            What::Fresh(region, state) if state == "live" => {
                edge.behind.remove(&region);
            }
            What::Fresh(region, state) => {
                edge.behind.insert(region.clone(), state.clone());
                self.note(&format!("{at} says that {region} is {state}"))?;
            }
            What::Failed(failed) => return Err(failed.at(&at).into()),
            What::Joined => {}
        }
        Ok(())
    }

    /// What the one who comes and goes tells.
    fn take_own(&mut self, what: What, after: Option<Duration>) -> anyhow::Result<()> {
        let after = after.unwrap_or_default();
        match what {
            What::Joined if self.joined.is_none() => {
                self.joined = Some(after);
                self.step(&format!("{} joined {} in {}", self.user, self.room, ms(after)))?;
            }
            What::Seen if self.sees_itself.is_none() => {
                self.sees_itself = Some(after);
                self.step(&format!("sees itself after {}", ms(after)))?;
            }
            What::Failed(failed) => return Err(failed.at(&self.edges[0].address).into()),
            What::Joined | What::Seen | What::Listed(_) | What::Gone(..) | What::Fresh(..) => {}
        }
        Ok(())
    }

    /// At which edges something is missing, and what may explain it.
    pub(super) fn missing(&self) -> String {
        let is_done = |edge: &&Edge| match (self.came, self.went) {
            (None, _) => edge.listed.is_some(),
            (Some(_), None) => edge.seen.is_some(),
            (Some(_), Some(_)) => edge.gone.is_some(),
        };
        let named = |edge: &Edge| {
            let behind: String =
                edge.behind.iter().map(|(region, state)| format!(" ({region} is {state})")).collect();
            format!("{}{behind}", edge.address)
        };
        let missing: Vec<String> = self.edges.iter().filter(|edge| !is_done(edge)).map(named).collect();
        if missing.is_empty() { String::new() } else { format!("; missing at {}", missing.join(", ")) }
    }

    fn step(&self, what: &str) -> std::io::Result<()> {
        self.say(&self.paint.green("ok:"), what)
    }

    /// Something that is not as it should be, and may explain what comes.
    fn note(&self, what: &str) -> std::io::Result<()> {
        self.say(&self.paint.yellow("note:"), what)
    }

    fn say(&self, sign: &str, what: &str) -> std::io::Result<()> {
        if self.json { Ok(()) } else { paint::line(&format!("{sign} {}", paint::harmless(what))) }
    }

    /// The whole of it, for scripts.
    pub(super) fn end(&self) -> std::io::Result<()> {
        if !self.json {
            return Ok(());
        }
        let edge = |edge: &Edge| {
            let gone = edge.gone.as_ref();
            json!({
                "url": edge.address.to_string(),
                "members": edge.listed,
                "seen_ms": edge.seen.map(millis),
                "gone_ms": gone.map(|(after, ..)| millis(*after)),
                "reason": gone.map(|(_, reason, _)| reason),
                "silent_ms": gone.map(|(.., silent)| millis(*silent)),
            })
        };
        let edges: Vec<Value> = self.edges.iter().map(edge).collect();
        let (joined, seen) = (self.joined.map(millis), self.sees_itself.map(millis));
        let whole = json!({
            "room": self.room, "user": self.user, "joined_ms": joined, "sees_itself_ms": seen, "edges": edges,
        });
        paint::json_line(&whole)
    }
}

fn ms(span: Duration) -> String {
    format!("{} ms", millis(span))
}
