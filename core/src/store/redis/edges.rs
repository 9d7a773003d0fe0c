//! Which core sees which edge, or since when nobody.

use std::time::Duration;

use futures::future::try_join_all;
use presence_model::id::{EdgeName, Incarnation, LinkNumber};
use presence_model::lease::Shard;
use presence_model::time::StoreTime;
use redis::Cmd;
use serde::Deserialize;

use super::Inner;
use super::arguments::Arguments;
use super::fault::fault;
use super::reader::{Reader, hex, number, unexpected};
use super::script::{EDGES, LINK};
use crate::store::{EdgeState, Outcome, StoreFault};

/// An edge that nobody has spoken of for so long is forgotten, if it holds no lease.
const UNHEARD_MAX: Duration = Duration::from_secs(600);

/// The note of an edge, as its script writes it.
#[derive(Debug, Deserialize)]
struct Note {
    name: String,
    link: String,
    core: String,
    heard: String,
    broken: Option<String>,
    drain: Option<String>,
}

/// An edge and when somebody spoke of it last.
struct Heard {
    state: EdgeState,
    heard: StoreTime,
}

impl Inner {
    /// The note first: it says whether the number is in force. Then every shard, so that what comes late
    /// is known as such wherever a lease may be.
    pub(super) async fn link(
        &self,
        edge: Incarnation,
        link: LinkNumber,
        (name, core): (EdgeName, u64),
    ) -> Result<Outcome, StoreFault> {
        let mut arguments = note_arguments("link", (edge, &name), link);
        arguments.hex(core);
        let (now, accepted) = self.note(arguments).await?;
        if accepted {
            self.in_every_shard(edge, link, "set").await?;
        }
        Ok(Outcome::Linked { accepted, now })
    }

    pub(super) async fn unlink(
        &self,
        edge: Incarnation,
        name: &EdgeName,
        link: LinkNumber,
    ) -> Result<Outcome, StoreFault> {
        self.note(note_arguments("unlink", (edge, name), link)).await?;
        Ok(Outcome::Done)
    }

    pub(super) async fn forget(
        &self,
        edge: Incarnation,
        name: &EdgeName,
        link: LinkNumber,
    ) -> Result<Outcome, StoreFault> {
        let (_, accepted) = self.note(note_arguments("forget", (edge, name), link)).await?;
        if accepted {
            self.in_every_shard(edge, link, "remove").await?;
        }
        Ok(Outcome::Done)
    }

    pub(super) async fn drain_edge(
        &self,
        name: &EdgeName,
        edge: Option<Incarnation>,
    ) -> Result<Outcome, StoreFault> {
        let mut arguments = Arguments::default();
        arguments.text("drain");
        match edge {
            Some(edge) => arguments.hex(edge.0),
            None => arguments.text(""),
        }
        arguments.text("");
        arguments.text(name.as_str());
        self.note(arguments).await?;
        Ok(Outcome::Done)
    }

    async fn note(&self, arguments: Arguments) -> Result<(StoreTime, bool), StoreFault> {
        let mut reader = Reader::new(self.write(&EDGES, &self.keys.edges(), arguments).await?)?;
        Ok((reader.time()?, reader.flag()?))
    }

    async fn in_every_shard(
        &self,
        edge: Incarnation,
        link: LinkNumber,
        what: &str,
    ) -> Result<(), StoreFault> {
        let write = async |shard| {
            let mut arguments = Arguments::default();
            arguments.hex(edge.0);
            arguments.hex(link.0);
            arguments.text(what);
            self.write(&LINK, &self.keys.shard(shard), arguments).await
        };
        try_join_all(self.shards().map(write)).await.map(drop)
    }

    /// Counts leases only of those that are broken, to go or long unheard: nobody asks for the others.
    pub(super) async fn edges(&self) -> Result<Outcome, StoreFault> {
        let mut arguments = Arguments::default();
        arguments.text("list");
        let answer = self.read(&self.lanes.scripts, &EDGES, &self.keys.edges(), arguments).await?;
        let mut reader = Reader::new(answer)?;
        let now = reader.time()?;
        let mut edges = Vec::new();
        for Heard { mut state, heard } in notes(reader)? {
            let is_unheard = now.since(heard) > UNHEARD_MAX;
            let is_asked_for = state.broken_since.is_some() || state.draining;
            if is_asked_for || is_unheard {
                let leases = self.count_leases(state.edge).await?;
                if is_unheard && leases == 0 {
                    self.forget(state.edge, &state.name, state.link).await?;
                    continue;
                }
                state.leases = is_asked_for.then_some(leases);
            }
            edges.push(state);
        }
        edges.sort_unstable_by_key(|state| state.edge);
        Ok(Outcome::Edges { now, edges })
    }

    async fn count_leases(&self, edge: Incarnation) -> Result<usize, StoreFault> {
        let count = async |shard: Shard| {
            let mut command = Cmd::new();
            command.arg("SCARD").arg(self.keys.edge(shard, edge));
            let answer = match self.lanes.scripts.run(&command).await {
                // Somebody's hand: what was there is gone.
                Err(error) if error.code() == Some("WRONGTYPE") => return Ok(0),
                other => other.map_err(|error| fault(&error, false))?,
            };
            let redis::Value::Int(count) = answer else { return Err(unexpected(&format!("{answer:?}"))) };
            Ok(usize::try_from(count).unwrap_or(0))
        };
        Ok(try_join_all(self.shards().map(count)).await?.into_iter().sum())
    }
}

fn note_arguments(verb: &str, (edge, name): (Incarnation, &EdgeName), link: LinkNumber) -> Arguments {
    let mut arguments = Arguments::default();
    arguments.text(verb);
    arguments.hex(edge.0);
    arguments.hex(link.0);
    arguments.text(name.as_str());
    arguments
}

fn notes(mut reader: Reader) -> Result<Vec<Heard>, StoreFault> {
    let mut notes = Vec::new();
    while !reader.is_done() {
        let (edge, text) = (reader.text()?, reader.text()?);
        // One that is none is as if it were lost: its edge's core writes it again.
        notes.extend(heard(&edge, &text).ok());
    }
    Ok(notes)
}

fn heard(edge: &str, text: &str) -> Result<Heard, StoreFault> {
    let note: Note = serde_json::from_str(text).map_err(|_| unexpected(text))?;
    let state = EdgeState {
        edge: Incarnation(hex(edge)?),
        name: EdgeName::new(note.name).map_err(|error| unexpected(&error.to_string()))?,
        link: LinkNumber(hex(&note.link)?),
        core: hex(&note.core)?,
        broken_since: note.broken.as_deref().map(number).transpose()?.map(StoreTime),
        draining: note.drain.is_some(),
        leases: None,
    };
    Ok(Heard { state, heard: StoreTime(number(&note.heard)?) })
}
