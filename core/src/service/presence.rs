//! `PresenceService`: watching rooms and asking about them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use presence_client::Crossing;
use presence_model::id::{RegionId, RoomId, UserId};
use presence_proto::status::ServiceError;
use presence_proto::{CROSSING_FROM, CROSSING_TO, v1};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status, Streaming};

use super::{Api, caller, watch};
use crate::driver::{Answer, Query, RegionNow};
use crate::limits::{PAGE_SIZE_DEFAULT, QUERY_PAGE_MAX};

/// Reads and watches.
#[derive(Debug)]
pub(crate) struct PresenceApi(pub(super) Api);

#[tonic::async_trait]
impl v1::presence_service_server::PresenceService for PresenceApi {
    type WatchStream = watch::Events;

    async fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = caller(&request)?;
        if let Some(crossing) = crossing(request.metadata())? {
            self.0.admit_crossing(&caller, &crossing)?;
        }
        Ok(Response::new(watch::open(&self.0, caller, request.into_inner()).await?))
    }

    async fn get_room(
        &self,
        request: Request<v1::GetRoomRequest>,
    ) -> Result<Response<v1::GetRoomResponse>, Status> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        let query = Query::Room {
            room: room(&asked.room)?,
            after: after(&asked.page_token, UserId::new)?,
            count: page_size(asked.page_size)?,
        };
        let Answer::Room { members, more, count, regions } = self.0.ask(&caller, query).await? else {
            return Err(ServiceError::Internal.into());
        };
        let last = members.last().map(|member| member.user.as_str());
        Ok(Response::new(v1::GetRoomResponse {
            next_page_token: next_page_token(more, last),
            members: members.into_iter().map(Into::into).collect(),
            regions: regions.into_iter().map(region_view).collect(),
            count,
        }))
    }

    async fn count_room(
        &self,
        request: Request<v1::CountRoomRequest>,
    ) -> Result<Response<v1::CountRoomResponse>, Status> {
        let caller = caller(&request)?;
        let query = Query::Count { room: room(&request.into_inner().room)? };
        let Answer::Count { count, regions } = self.0.ask(&caller, query).await? else {
            return Err(ServiceError::Internal.into());
        };
        let regions = regions.into_iter().map(region_view).collect();
        Ok(Response::new(v1::CountRoomResponse { count, regions }))
    }

    async fn list_rooms(
        &self,
        request: Request<v1::ListRoomsRequest>,
    ) -> Result<Response<v1::ListRoomsResponse>, Status> {
        let caller = caller(&request)?;
        let asked = request.into_inner();
        if asked.prefix.len() > presence_model::limits::NAME_BYTES_MAX {
            return Err(bad("ListRoomsRequest.prefix is longer than any room"));
        }
        let query = Query::Rooms {
            prefix: asked.prefix,
            after: after(&asked.page_token, RoomId::new)?,
            count: page_size(asked.page_size)?,
        };
        let Answer::Rooms { rooms, more } = self.0.ask(&caller, query).await? else {
            return Err(ServiceError::Internal.into());
        };
        let last = rooms.last().map(|(room, _)| room.as_str());
        Ok(Response::new(v1::ListRoomsResponse {
            next_page_token: next_page_token(more, last),
            rooms: rooms
                .into_iter()
                .map(|(room, count)| v1::RoomCount { room: room.as_str().to_owned(), count })
                .collect(),
        }))
    }
}

/// The regions that a core names which watches another one's rooms.
fn crossing(metadata: &MetadataMap) -> Result<Option<Crossing>, Status> {
    let named = |key| {
        let bytes = metadata.get_bin(key).map(MetadataValue::to_bytes).transpose();
        let bytes = bytes.map_err(|_| bad("a region in the metadata is not in base64"))?;
        let name = |bytes: &Bytes| std::str::from_utf8(bytes).ok().and_then(|name| RegionId::new(name).ok());
        let read = |bytes| name(&bytes).ok_or_else(|| bad("a region in the metadata is no name"));
        bytes.map(read).transpose()
    };
    match (named(CROSSING_FROM)?, named(CROSSING_TO)?) {
        (None, None) => Ok(None),
        (Some(from), Some(to)) => Ok(Some(Crossing { from, to })),
        (Some(_), None) | (None, Some(_)) => Err(bad("the metadata names one region and not the other")),
    }
}

pub(super) fn bad(rule: &str) -> Status {
    ServiceError::BadRequest(rule.to_owned()).into()
}

pub(super) fn room(name: &str) -> Result<RoomId, Status> {
    RoomId::new(name).map_err(|error| bad(&error.to_string()))
}

fn region_view(now: RegionNow) -> v1::RegionView {
    v1::RegionView {
        region: now.region.as_str().to_owned(),
        position: now.position.map(Into::into),
        freshness: Some(now.freshness.into()),
    }
}

fn page_size(asked: u32) -> Result<usize, Status> {
    match usize::try_from(asked).unwrap_or(usize::MAX) {
        0 => Ok(PAGE_SIZE_DEFAULT),
        size if size <= QUERY_PAGE_MAX => Ok(size),
        _ => Err(bad("page_size is at most 1,000")),
    }
}

/// A page token is the last name of the page before, so a walk survives any change of the room.
fn next_page_token(more: bool, last: Option<&str>) -> String {
    last.filter(|_| more).map(|name| URL_SAFE_NO_PAD.encode(name)).unwrap_or_default()
}

fn after<T, E>(page_token: &str, parse: impl Fn(String) -> Result<T, E>) -> Result<Option<T>, Status> {
    if page_token.is_empty() {
        return Ok(None);
    }
    let not_ours = || bad("page_token is not one of ours");
    let name = URL_SAFE_NO_PAD.decode(page_token).map_err(|_| not_ours())?;
    let name = String::from_utf8(name).map_err(|_| not_ours())?;
    parse(name).map(Some).map_err(|_| not_ours())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_to_a_thousand_entries() {
        assert_eq!(page_size(0).unwrap(), PAGE_SIZE_DEFAULT);
        assert_eq!(page_size(1).unwrap(), 1);
        assert_eq!(page_size(1_000).unwrap(), 1_000);
        assert_eq!(page_size(1_001).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_page_token_comes_back_as_the_name_and_anything_else_is_refused() {
        let token = next_page_token(true, Some("ü \u{202e}"));
        assert_eq!(after(&token, UserId::new).unwrap(), Some(UserId::new("ü \u{202e}").unwrap()));
        assert_eq!(next_page_token(false, Some("u1")), "");
        assert_eq!(after("", UserId::new).unwrap(), None);
        for hostile in ["%%", "====", "_w", &URL_SAFE_NO_PAD.encode("x".repeat(256))] {
            assert_eq!(after(hostile, UserId::new).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
