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
use crate::access::Caller;
use crate::limits::NAMELESS_ERRORS_MAX;
use crate::shell::{Stopped, WatchEvent, WatchHandle, WatchWriter};

/// Events of a watch, as the transport takes them.
pub(super) type Events = BoxStream<'static, Result<v1::WatchResponse, Status>>;

/// Opens a watch and spawns its reader.
pub(super) async fn open(
    api: &Api,
    caller: Caller,
    inbound: Streaming<v1::WatchRequest>,
) -> Result<Events, Status> {
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
    let reader = Reader { api: api.clone(), caller, inbound, over, tell };
    api.shutdown.spawn_one_of_many("watch", reader.run(watch));
    Ok(stream::unfold(outbound, Outbound::next).boxed())
}

struct Outbound {
    events: mpsc::Receiver<WatchEvent>,
    /// Answers about rooms that are not watched, and why the watch is over.
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

struct Reader {
    api: Api,
    caller: Caller,
    inbound: Streaming<v1::WatchRequest>,
    over: CancellationToken,
    tell: mpsc::Sender<Result<v1::WatchResponse, ServiceError>>,
}

impl Reader {
    async fn run(mut self, watch: WatchHandle) {
        let stop = self.api.shutdown.token();
        let (api, caller) = (self.api.clone(), self.caller.clone());
        let over = self.over.clone();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => Some(ServiceError::Draining),
            () = over.cancelled() => None,
            end = api.is_over(&caller) => Some(end),
            end = self.read_all(&watch) => end,
        };
        if let Some(end) = end {
            // Told ahead of what still waits: whoever does not read that is not kept for it. One who does not
            // even read answers has its stream ended without a word.
            let _ = self.tell.try_send(Err(end));
        }
        // If the driver is gone, so are its watches.
        let _ = watch.closed().await;
    }

    /// Reads until there is nothing to be read; why the watch is over then, if it is for that.
    async fn read_all(&mut self, watch: &WatchHandle) -> Option<ServiceError> {
        loop {
            let passed = match self.inbound.message().await {
                Ok(Some(message)) => match Asked::of(message, &self.caller) {
                    Asked::Up(up) => watch.up(up).await,
                    Asked::Malformed(room, what) => watch.malformed(room, what).await,
                    // Whoever does not read the answers is not read either.
                    Asked::Refused(error) => self.tell.send(Ok(error)).await.map_err(|_| Stopped),
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
}

/// What a message of a watcher comes to. One that is malformed concerns its room only.
enum Asked {
    Up(WatchUp),
    Malformed(RoomId, SmolStr),
    /// The room's name is malformed itself, or there is none, or the room is not for this watcher: no such room is
    /// watched.
    Refused(v1::WatchResponse),
}

impl Asked {
    fn of(message: v1::WatchRequest, caller: &Caller) -> Self {
        let room = match &message.message {
            Some(Message::Open(open)) => open.room.clone(),
            Some(Message::Close(close)) => close.room.clone(),
            None => String::new(),
        };
        let read = WatchUp::try_from(message);
        let Ok(named) = RoomId::new(&room) else {
            let error = read.err().map_or(ServiceError::Internal, Into::into);
            return Self::Refused(room_error(room, &error));
        };
        match (read, caller.rooms(&room)) {
            (_, Err(forbidden)) => Self::Refused(room_error(room, &forbidden)),
            (Ok(up), Ok(())) => Self::Up(up),
            (Err(error), Ok(())) => Self::Malformed(named, error.to_string().into()),
        }
    }
}
