//! A reader's place in the view of one room.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::Stream;
use presence_model::change::Removal;
use presence_model::cursor::Cursor;
use presence_model::id::{RegionId, RoomId};
use presence_model::profile::Member;
use presence_model::replica::Freshness;
use presence_model::view::{View, ViewRevision};
use tokio::sync::oneshot;

use crate::client::Watch;
use crate::error::ClientError;
use crate::keeper::Command;
use crate::watch::RoomOptions;

/// What changed in the list of members since the update before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoomChange {
    /// Nothing.
    Nothing,
    /// All members, sorted by user: the first list, or changes too old to be told one by one.
    List(Vec<Member>),
    /// Everybody touched. Removing somebody who is not in the reader's list is silent.
    Delta {
        /// As they are now, sorted by user.
        upserts: Vec<Member>,
        /// Who is gone, and why, sorted by user.
        removals: Vec<Removal>,
    },
}

/// What is new about a room: a change, or how fresh it is, or how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomUpdate {
    /// What changed.
    pub change: RoomChange,
    /// How fresh each region is; empty before anything is known.
    pub freshness: BTreeMap<RegionId, Freshness>,
    /// How many members there are.
    pub count: u64,
    /// Where the reader is after this.
    pub cursor: Cursor,
}

/// What a reader has been given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    revision: Option<ViewRevision>,
    freshness: BTreeMap<RegionId, Freshness>,
    count: Option<u64>,
}

/// An update, and what the reader has been given with it.
pub(crate) type Answer = Result<(RoomUpdate, Seen), ClientError>;

/// What a reader that has `seen` this is to be told of a view, or of a count alone; none: nothing.
pub(crate) fn news(view: &View, told_count: Option<u64>, seen: &Seen) -> Option<(RoomUpdate, Seen)> {
    let freshness: BTreeMap<_, _> =
        view.regions().filter_map(|(region, copy)| Some((region.clone(), copy.fresh()?))).collect();
    let listed = view.revision() > ViewRevision(0);
    let change = match seen.revision {
        _ if !listed => RoomChange::Nothing,
        Some(revision) if revision == view.revision() => RoomChange::Nothing,
        Some(revision) => match view.changed_since(revision) {
            Some(delta) => RoomChange::Delta { upserts: delta.upserts, removals: delta.removals },
            None => list(view),
        },
        None => list(view),
    };
    let count = listed.then(|| view.len() as u64).or(told_count);
    let now = Seen { revision: listed.then(|| view.revision()), freshness, count };
    if change == RoomChange::Nothing && now.freshness == seen.freshness && now.count == seen.count {
        return None;
    }
    let freshness = now.freshness.clone();
    let update = RoomUpdate { change, freshness, count: count.unwrap_or(0), cursor: view.cursor() };
    Some((update, now))
}

fn list(view: &View) -> RoomChange {
    RoomChange::List(view.page(None, usize::MAX))
}

/// What is new about a room, whenever there is something.
#[derive(Debug)]
pub struct RoomStream {
    watch: Arc<Watch>,
    room: RoomId,
    seen: Seen,
    // The keeper closes the room when this is gone.
    _alive: Arc<()>,
}

impl RoomStream {
    pub(crate) async fn open(
        watch: Arc<Watch>,
        room: RoomId,
        options: RoomOptions,
    ) -> Result<Self, ClientError> {
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        watch.send(Command::Watch { room: room.clone(), options, alive: weak }).await?;
        Ok(Self { watch, room, seen: Seen::default(), _alive: alive })
    }

    /// The room.
    #[must_use]
    pub fn room(&self) -> &RoomId {
        &self.room
    }

    /// Waits for what is new since the update before, collapsed into one. Cancel-safe: what a dropped call
    /// would have given, the next one gives.
    ///
    /// # Errors
    /// [`ClientError::NotWatched`] when the core refuses the room for good, what a core says against this
    /// client as a whole, [`ClientError::Ended`]. Losses of the watch are no errors: the room is stale for
    /// so long.
    pub async fn next(&mut self) -> Result<RoomUpdate, ClientError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Next { room: self.room.clone(), seen: self.seen.clone(), reply };
        self.watch.send(command).await?;
        let (update, seen) = answer.await.map_err(|_| ClientError::Ended)??;
        self.seen = seen;
        Ok(update)
    }

    /// The same as a stream; an error is its last item.
    pub fn into_stream(self) -> impl Stream<Item = Result<RoomUpdate, ClientError>> {
        futures::stream::unfold(Some(self), |stream| async move {
            let mut stream = stream?;
            match stream.next().await {
                Ok(update) => Some((Ok(update), Some(stream))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}
