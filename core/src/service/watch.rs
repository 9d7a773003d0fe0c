//! `PresenceService.Watch`: one stream of a watcher.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, StreamExt as _};
use presence_model::watch::WatchUp;
use presence_proto::status::ServiceError;
use presence_proto::v1;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use super::Api;
use crate::shell::{WatchEvent, WatchHandle, WatchWriter};

/// Events of a watch, as the transport takes them.
pub(super) type Events = BoxStream<'static, Result<v1::WatchResponse, Status>>;

/// Opens a watch and spawns its reader.
pub(super) async fn open(api: &Api, inbound: Streaming<v1::WatchRequest>) -> Result<Events, Status> {
    let mut watch = api.handle.open_watch().await.map_err(|_| Status::from(ServiceError::Draining))?;
    let events = watch.take_events().expect("taken once");
    let over = CancellationToken::new();
    let (told, refused) = mpsc::channel(1);
    let outbound = Outbound {
        events,
        refused,
        writer: watch.writer(),
        pending: VecDeque::new(),
        owed: false,
        ended: false,
        _over: over.clone().drop_guard(),
    };
    api.shutdown.spawn_one_of_many("watch", read(api.clone(), inbound, watch, over, told));
    Ok(stream::unfold(outbound, Outbound::next).boxed())
}

struct Outbound {
    events: mpsc::Receiver<WatchEvent>,
    refused: mpsc::Receiver<Status>,
    writer: WatchWriter,
    pending: VecDeque<v1::WatchResponse>,
    /// A portion was given to the transport and is not reported as written yet.
    owed: bool,
    ended: bool,
    _over: DropGuard,
}

impl Outbound {
    /// The transport asks for the next event only once it can take it: that the last of a portion is
    /// followed by another call says that the portion is on its way.
    async fn next(mut self) -> Option<(Result<v1::WatchResponse, Status>, Self)> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.pending.pop_front() {
                return Some((Ok(event), self));
            }
            if std::mem::take(&mut self.owed) && self.writer.written().await.is_err() {
                return None;
            }
            let end = tokio::select! {
                biased;
                Some(status) = self.refused.recv() => status,
                event = self.events.recv() => match event? {
                    WatchEvent::Down(events) => {
                        self.pending.extend(events.into_iter().map(Into::into));
                        self.owed = true;
                        continue;
                    }
                    WatchEvent::Close(refusal) => ServiceError::from(refusal).into(),
                },
            };
            self.ended = true;
            return Some((Err(end), self));
        }
    }
}

async fn read(
    api: Api,
    mut inbound: Streaming<v1::WatchRequest>,
    watch: WatchHandle,
    over: CancellationToken,
    told: mpsc::Sender<Status>,
) {
    let stop = api.shutdown.token();
    loop {
        let message = tokio::select! {
            message = inbound.message() => message,
            () = stop.cancelled() => break,
            () = over.cancelled() => break,
        };
        let Ok(Some(message)) = message else {
            // A watcher that half-closes has nothing more to ask for, but still wants to see.
            if matches!(message, Ok(None)) {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = over.cancelled() => {}
                }
            }
            break;
        };
        match WatchUp::try_from(message) {
            Ok(up) => {
                if watch.up(up).await.is_err() {
                    return;
                }
            }
            Err(error) if error.may_skip() => tracing::debug!(%error, "skipped a message of a later version"),
            Err(error) => {
                // Only this one message can be in the channel; the stream ends with it.
                let _ = told.try_send(error.into());
                break;
            }
        }
    }
    let _ = watch.closed().await;
}
