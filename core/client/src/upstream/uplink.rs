//! One watch stream to one core.

use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_model::watch::{WatchDown, WatchUp};
use presence_proto::v1;
use presence_proto::{CROSSING_FROM, CROSSING_TO};
use presence_runtime::clock::Clock;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Streaming};

use super::Crossing;
use crate::cores::{CoreIndex, Cores};
use crate::error::ClientError;
use crate::limits::{OUTBOX_MAX, STREAM_AHEAD_MAX};

pub(super) struct Uplink {
    core: CoreIndex,
    /// Whether the core said that it goes.
    pub(super) is_draining: bool,
    up: mpsc::Sender<v1::WatchRequest>,
    outbox: VecDeque<WatchUp>,
    down: Streaming<v1::WatchResponse>,
}

/// What happened on a stream.
pub(super) enum Heard {
    Message(WatchDown),
    /// Something was sent, or came that this version does not know.
    Nothing,
    End(ClientError),
}

impl Uplink {
    pub(super) fn core(&self) -> CoreIndex {
        self.core
    }

    pub(super) fn send(&mut self, up: WatchUp) {
        self.outbox.push_back(up);
    }

    async fn hear(&mut self) -> Heard {
        if self.outbox.len() > OUTBOX_MAX {
            return Heard::End(ClientError::Unreachable("the core does not read".to_owned()));
        }
        tokio::select! {
            biased;
            permit = self.up.reserve(), if !self.outbox.is_empty() => match (permit, self.outbox.pop_front()) {
                (Ok(permit), Some(up)) => {
                    permit.send(up.into());
                    Heard::Nothing
                }
                (Ok(_), None) => Heard::Nothing,
                (Err(_), _) => Heard::End(ClientError::Unreachable("the stream is closed".to_owned())),
            },
            message = self.down.message() => match message {
                Ok(Some(wire)) => read(wire),
                Ok(None) => Heard::End(ClientError::Unreachable("the core ended the watch".to_owned())),
                Err(status) => Heard::End(ClientError::of(&status)),
            },
        }
    }
}

fn read(wire: v1::WatchResponse) -> Heard {
    match WatchDown::try_from(wire) {
        Ok(down) => Heard::Message(down),
        Err(error) if error.may_skip() => Heard::Nothing,
        Err(error) => Heard::End(error.into()),
    }
}

/// What happens next on the stream, if there is one. Cancel-safe.
pub(super) async fn hear(uplink: &mut Option<Uplink>) -> Heard {
    match uplink {
        Some(uplink) => uplink.hear().await,
        None => std::future::pending().await,
    }
}

/// The stream being opened, when it is. Cancel-safe.
pub(super) async fn opened<T>(opening: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(future) = opening else { return std::future::pending().await };
    let outcome = future.await;
    *opening = None;
    outcome
}

/// Opens a stream to the preferred core.
pub(super) fn open(
    cores: &Cores,
    crossing: Option<&Crossing>,
    (clock, within): (&Clock, Duration),
) -> BoxFuture<'static, Result<Uplink, (CoreIndex, ClientError)>> {
    let (core, mut service) = cores.service();
    let clock = clock.clone();
    let (up, requests) = mpsc::channel(STREAM_AHEAD_MAX);
    let mut request = Request::new(ReceiverStream::new(requests));
    if let Some(crossing) = crossing {
        for (key, region) in [(CROSSING_FROM, &crossing.from), (CROSSING_TO, &crossing.to)] {
            request.metadata_mut().insert_bin(key, MetadataValue::from_bytes(region.as_str().as_bytes()));
        }
    }
    async move {
        tokio::select! {
            biased;
            answer = service.watch(request) => match answer {
                Ok(answer) => {
                    Ok(Uplink { core, is_draining: false, up, outbox: VecDeque::new(), down: answer.into_inner() })
                }
                Err(status) => Err((core, ClientError::of(&status))),
            },
            () = clock.sleep(within) => Err((core, ClientError::TimedOut(within))),
        }
    }
    .boxed()
}
