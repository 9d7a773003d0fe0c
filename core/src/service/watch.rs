//! `PresenceService.Watch`: one stream of a watcher.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, StreamExt as _};
use presence_model::id::RoomId;
use presence_model::watch::WatchUp;
use presence_proto::convert::room_error;
use presence_proto::status::ServiceError;
use presence_proto::v1::{self, watch_request::Message};
use smol_str::SmolStr;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use super::{Api, breach};
use crate::limits::NAMELESS_ERRORS_MAX;
use crate::shell::{Stopped, WatchEvent, WatchHandle, WatchWriter};

/// Events of a watch, as the transport takes them.
pub(super) type Events = BoxStream<'static, Result<v1::WatchResponse, Status>>;

/// Opens a watch and spawns its reader.
pub(super) async fn open(api: &Api, inbound: Streaming<v1::WatchRequest>) -> Result<Events, Status> {
    let mut watch = api.handle.open_watch().await.map_err(|_| Status::from(ServiceError::Draining))?;
    let events = watch.take_events().expect("taken once");
    let over = CancellationToken::new();
    let (tell, told) = mpsc::channel(NAMELESS_ERRORS_MAX);
    let outbound = Outbound {
        events,
        told,
        writer: watch.writer(),
        pending: VecDeque::new(),
        owed: false,
        ended: false,
        _over: over.clone().drop_guard(),
    };
    api.shutdown.spawn_one_of_many("watch", read(api.clone(), inbound, watch, over, tell));
    Ok(stream::unfold(outbound, Outbound::next).boxed())
}

struct Outbound {
    events: mpsc::Receiver<WatchEvent>,
    /// Answers to requests without a room, and why the watch is over.
    told: mpsc::Receiver<Result<v1::WatchResponse, ServiceError>>,
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
                Some(told) = self.told.recv() => match told {
                    Ok(error) => return Some((Ok(error), self)),
                    Err(end) => end,
                },
                event = self.events.recv() => match event? {
                    WatchEvent::Down(events) => {
                        self.pending.extend(events.into_iter().map(Into::into));
                        self.owed = true;
                        continue;
                    }
                    WatchEvent::End(end) => end.into(),
                },
            };
            self.ended = true;
            return Some((Err(end.into()), self));
        }
    }
}

async fn read(
    api: Api,
    mut inbound: Streaming<v1::WatchRequest>,
    watch: WatchHandle,
    over: CancellationToken,
    tell: mpsc::Sender<Result<v1::WatchResponse, ServiceError>>,
) {
    let stop = api.shutdown.token();
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Some(ServiceError::Draining),
        () = over.cancelled() => None,
        end = read_all(&mut inbound, &watch, &tell) => end,
    };
    if let Some(end) = end {
        // Told ahead of what still waits: whoever does not read that is not kept for it. One who does not
        // even read answers has its stream ended without a word.
        let _ = tell.try_send(Err(end));
    }
    // If the driver is gone, so are its watches.
    let _ = watch.closed().await;
}

/// Reads until there is nothing to be read; why the watch is over then, if it is for that.
async fn read_all(
    inbound: &mut Streaming<v1::WatchRequest>,
    watch: &WatchHandle,
    tell: &mpsc::Sender<Result<v1::WatchResponse, ServiceError>>,
) -> Option<ServiceError> {
    loop {
        let passed = match inbound.message().await {
            Ok(Some(message)) => match Asked::of(message) {
                Asked::Up(up) => watch.up(up).await,
                Asked::Malformed(room, what) => watch.malformed(room, what).await,
                // Whoever does not read the answers is not read either.
                Asked::Nameless(error) => tell.send(Ok(error)).await.map_err(|_| Stopped),
            },
            // A watcher that half-closes has nothing more to ask for, but still wants to see.
            Ok(None) => std::future::pending().await,
            Err(status) => return breach(&status),
        };
        if passed.is_err() {
            return Some(ServiceError::Draining);
        }
    }
}

/// What a message of a watcher comes to. One that is malformed concerns its room only.
enum Asked {
    Up(WatchUp),
    Malformed(RoomId, SmolStr),
    /// The room's name is malformed itself, or there is none, so that no such room is watched.
    Nameless(v1::WatchResponse),
}

impl Asked {
    fn of(message: v1::WatchRequest) -> Self {
        let room = match &message.message {
            Some(Message::Open(open)) => open.room.clone(),
            Some(Message::Close(close)) => close.room.clone(),
            None => String::new(),
        };
        let error = match WatchUp::try_from(message) {
            Ok(up) => return Self::Up(up),
            Err(error) => error,
        };
        match RoomId::new(&room) {
            Ok(room) => Self::Malformed(room, error.to_string().into()),
            Err(_) => Self::Nameless(room_error(room, &error.into())),
        }
    }
}
