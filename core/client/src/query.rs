//! Questions: each is one read, asked of another core when one does not answer.

mod drain;
mod explain;
mod operate;

use std::time::Duration;

use presence_model::id::{RegionId, RoomId};
use presence_model::position::Position;
use presence_model::profile::Member;
use presence_model::replica::Freshness;
use presence_proto::convert::{freshness, members, position, region, room as room_id};
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_proto::{WireError, v1};
use tonic::{Response, Status};

pub use self::drain::EdgeDrain;
pub use self::explain::{EndedSession, Explanation, SessionNow};
use crate::client::Client;
use crate::cores::Line;
use crate::error::ClientError;
use crate::limits::{PAGE_SIZE, PAGES_MAX};

/// A region's part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionNow {
    /// The region.
    pub region: RegionId,
    /// Where its roster is; none: whoever was asked does not know.
    pub position: Option<Position>,
    /// How fresh it is.
    pub freshness: Freshness,
}

/// Who is in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomNow {
    /// Sorted by user. Of a room that changed while its pages were read, each page is of its own moment.
    pub members: Vec<Member>,
    /// Members in all, as of the last page.
    pub count: u64,
    /// Where each region was at the last page.
    pub regions: Vec<RegionNow>,
}

/// How many are in a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// Where each region is.
    pub regions: Vec<RegionNow>,
}

/// A room and how many are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomCount {
    /// The room.
    pub room: RoomId,
    /// How many.
    pub count: u64,
}

impl Client {
    /// Who is in a room: nobody of them is overdue for longer than 1 s (G1).
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_room(&self, room: &RoomId) -> Result<RoomNow, ClientError> {
        let mut now = RoomNow { members: Vec::new(), count: 0, regions: Vec::new() };
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let request =
                v1::GetRoomRequest { room: room.as_str().to_owned(), page_size: PAGE_SIZE, page_token };
            let page = self
                .ask(|channel| {
                    let request = request.clone();
                    async move { PresenceServiceClient::new(channel).get_room(request).await }
                })
                .await?;
            let more = members("GetRoomResponse.members", page.members)?;
            let ascends = now.members.last().zip(more.first()).is_none_or(|(a, b)| a.user < b.user);
            if !ascends {
                let rule = "must be sorted by user over all pages";
                return Err(WireError::Rule { field: "GetRoomResponse.members", rule }.into());
            }
            now.members.extend(more);
            now.count = page.count;
            now.regions = regions(page.regions)?;
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(now);
            }
        }
        Err(endless("GetRoomResponse.next_page_token"))
    }

    /// How many are in a room; constant time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn count_room(&self, room: &RoomId) -> Result<Counted, ClientError> {
        let request = v1::CountRoomRequest { room: room.as_str().to_owned() };
        let answer = self
            .ask(|channel| {
                let request = request.clone();
                async move { PresenceServiceClient::new(channel).count_room(request).await }
            })
            .await?;
        Ok(Counted { count: answer.count, regions: regions(answer.regions)? })
    }

    /// Rooms that have members and whose names start with `prefix`, sorted by name; at most `limit`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_rooms(&self, prefix: &str, limit: usize) -> Result<Vec<RoomCount>, ClientError> {
        let mut rooms = Vec::new();
        let mut page_token = String::new();
        for _ in 0..PAGES_MAX {
            let left = u32::try_from(limit - rooms.len()).unwrap_or(u32::MAX);
            if left == 0 {
                return Ok(rooms);
            }
            let page_size = left.min(PAGE_SIZE);
            let request = v1::ListRoomsRequest { prefix: prefix.to_owned(), page_size, page_token };
            let page = self
                .ask(|channel| {
                    let request = request.clone();
                    async move { PresenceServiceClient::new(channel).list_rooms(request).await }
                })
                .await?;
            for entry in page.rooms.into_iter().take(limit - rooms.len()) {
                let room = room_id("RoomCount.room", &entry.room)?;
                rooms.push(RoomCount { room, count: entry.count });
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(rooms);
            }
        }
        Err(endless("ListRoomsResponse.next_page_token"))
    }

    /// Asks the preferred core, and each other one once if that does not answer.
    async fn ask<T, F>(&self, call: impl Fn(Line) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut attempt = 1;
        loop {
            let (core, channel) = self.cores.pick();
            let error = match self.within(call(channel)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if error.is_of_one_core() {
                self.cores.failed(core);
            }
            if !error.is_of_one_core() || attempt >= self.cores.count() {
                return Err(error);
            }
            attempt += 1;
        }
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, ClientError> {
        let within: Duration = self.answer_within;
        tokio::select! {
            biased;
            answer = call => answer.map(Response::into_inner).map_err(|status| ClientError::of(&status)),
            () = self.clock.sleep(within) => Err(ClientError::TimedOut(within)),
        }
    }
}

fn regions(wire: Vec<v1::RegionView>) -> Result<Vec<RegionNow>, WireError> {
    let read = |view: v1::RegionView| {
        Ok(RegionNow {
            region: region("RegionView.region", &view.region)?,
            position: view.position.map(|known| position("RegionView.position", Some(known))).transpose()?,
            freshness: freshness("RegionView.freshness", view.freshness)?,
        })
    };
    wire.into_iter().map(read).collect()
}

fn endless(field: &'static str) -> ClientError {
    WireError::Rule { field, rule: "must come to an end" }.into()
}
