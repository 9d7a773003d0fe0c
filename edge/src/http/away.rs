//! Turning clients away, so that they hear when to come back.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use presence_model::limits::MESSAGE_BYTES_MAX;
use presence_runtime::network::Stream;

use super::{Body, Http, answer};
use crate::admission::{Cause, TurnedAway};
use crate::limits::CLOSE_WITHIN;
use crate::protocol::{Encoding, ServerMessage};
use crate::ws::Socket;
use crate::ws::handshake::Accepted;

/// The word in `reconnect`.
const fn reason(cause: Cause) -> &'static str {
    match cause {
        Cause::Full | Cause::Rate => "overloaded",
        Cause::Address | Cause::Tokens => "rate_limited",
    }
}

/// The transport of a finished handshake, and what was read behind it.
pub(super) fn transport(upgraded: Upgraded) -> Option<(Stream, Bytes)> {
    match upgraded.downcast::<TokioIo<Stream>>() {
        Ok(parts) => Some((parts.io.into_inner(), parts.read_buf)),
        Err(_) => {
            tracing::error!("a transport is not what was accepted");
            None
        }
    }
}

impl Http {
    /// Answers a good handshake that may not come in. A page does not see the status of a refused one, nor its
    /// headers: for it the WebSocket is opened, told, and closed.
    pub(super) fn turn_away(
        self: Arc<Self>,
        accepted: Accepted,
        is_of_a_page: bool,
        away: TurnedAway,
    ) -> Response<Body> {
        let place = Arc::clone(&self.partings.seeing_off).try_acquire_owned().ok();
        let Some(place) = place.filter(|_| is_of_a_page) else { return answer::turned_away(away) };
        let Accepted { response, encoding, upgrade } = accepted;
        let this = Arc::clone(&self);
        self.tasks.spawn_one_of_many("see off", async move {
            if let Some((stream, read)) = upgrade.await.ok().and_then(transport) {
                let stop = this.tasks.token();
                tokio::select! {
                    biased;
                    () = see_off((stream, &read), encoding, away) => {}
                    () = this.shared.clock.sleep(CLOSE_WITHIN) => {}
                    () = stop.cancelled() => {}
                }
            }
            drop(place);
        });
        response.map(answer::boxed)
    }
}

/// Says when to come back, closes, and waits until the peer has read it.
async fn see_off((stream, read): (Stream, &[u8]), encoding: Encoding, away: TurnedAway) {
    let mut socket = Socket::new(stream, read, MESSAGE_BYTES_MAX);
    let reconnect = ServerMessage::Reconnect { after: away.after, reason: reason(away.cause) };
    socket.writer().message(encoding, encoding.message(&reconnect));
    socket.writer().close(Some(away.cause.close_code().number()), &away.cause.to_string());
    let said = async {
        poll_fn(|cx| socket.poll_flush(cx)).await?;
        poll_fn(|cx| socket.poll_shutdown(cx)).await?;
        poll_fn(|cx| socket.poll_discard(cx)).await
    };
    if let Err(error) = said.await {
        tracing::debug!(%error, "whoever was turned away did not wait for it");
    }
}
