//! The cores there are: all equal, one of them preferred until it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_runtime::network::Network;
use presence_runtime::rpc;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::bearer::Bearer;
use crate::client::ClientSettings;
use crate::error::ClientError;

/// A place in the list of cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoreIndex(usize);

/// The way to one core, on which each request shows who asks.
pub(crate) type Line = InterceptedService<Channel, Bearer>;

#[derive(Debug, Clone)]
pub(crate) struct Cores(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    channels: Vec<Channel>,
    bearer: Bearer,
    preferred: AtomicUsize,
}

impl Cores {
    /// Channels that connect when they are first used.
    fn new(
        network: &Network,
        (urls, bearer): (&[String], &Bearer),
        first: usize,
    ) -> Result<Self, ClientError> {
        let settings = rpc::ClientSettings::default();
        let channels = urls
            .iter()
            .map(|url| rpc::connect_lazy(network, url, &settings))
            .collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(ClientError::Address("the list of addresses is empty".to_owned()));
        }
        let preferred = AtomicUsize::new(first % channels.len());
        Ok(Self(Arc::new(Inner { channels, bearer: bearer.clone(), preferred })))
    }

    /// Those that are named, of which a drawn one is asked first.
    pub(crate) fn of(settings: &ClientSettings, network: &Network) -> Result<Self, ClientError> {
        let first = usize::try_from(settings.seed % settings.cores.len().max(1) as u64).unwrap_or_default();
        Self::new(network, (&settings.cores, &settings.bearer), first)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.channels.len()
    }

    /// The preferred one.
    pub(crate) fn pick(&self) -> (CoreIndex, Line) {
        let index = self.0.preferred.load(Ordering::Relaxed) % self.count();
        let line = InterceptedService::new(self.0.channels[index].clone(), self.0.bearer.clone());
        (CoreIndex(index), line)
    }

    pub(crate) fn service(&self) -> (CoreIndex, PresenceServiceClient<Line>) {
        let (index, channel) = self.pick();
        (index, PresenceServiceClient::new(channel))
    }

    /// That one does not answer: prefers the next, unless somebody else has moved on already.
    pub(crate) fn failed(&self, index: CoreIndex) {
        let next = (index.0 + 1) % self.count();
        let moved = self.0.preferred.compare_exchange(index.0, next, Ordering::Relaxed, Ordering::Relaxed);
        tracing::debug!(from = index.0, moved = moved.is_ok(), "a core does not answer");
    }
}
