//! What operators decide about people and tokens.

use std::time::Duration;

use presence_model::id::{RoomId, UserId};
use presence_model::revocation::Revocation;
use presence_model::time::{StoreTime, millis};
use presence_proto::v1::admin_service_client::AdminServiceClient;
use presence_proto::{convert, v1};

use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Puts a user out of a room; how many sessions that concerned.
    ///
    /// # Errors
    /// [`ClientError`]; after one that says when to ask again it may have happened, and is asked for again.
    pub async fn evict(&self, room: &RoomId, user: &UserId) -> Result<u32, ClientError> {
        let request = v1::EvictRequest { room: room.as_str().to_owned(), user: user.as_str().to_owned() };
        let answer = self
            .ask(|channel| {
                let request = request.clone();
                async move { AdminServiceClient::new(channel).evict(request).await }
            })
            .await?;
        Ok(answer.sessions)
    }

    /// Revokes what tokens rest on for a span, ten years at most; until when that is, by the store's clock.
    ///
    /// # Errors
    /// [`ClientError`]; after one that says when to ask again it may have happened, and is asked for again. A session is
    /// not revoked but evicted: [`ClientError::Refused`].
    pub async fn revoke(&self, what: Revocation, span: Duration) -> Result<StoreTime, ClientError> {
        // Nought would mean the most.
        let request = v1::RevokeRequest { what: convert::revocation(what), for_ms: millis(span).max(1) };
        let answer = self
            .ask(|channel| {
                let request = request.clone();
                async move { AdminServiceClient::new(channel).revoke(request).await }
            })
            .await?;
        Ok(convert::time("RevokeResponse.until_ms", answer.until_ms)?)
    }
}
