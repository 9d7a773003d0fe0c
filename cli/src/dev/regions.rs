//! Several regions in one process: a core over a store of its own and an edge for each, and ways between the cores that
//! can be cut.

use std::net::SocketAddr;

use presence_core::settings::{PeerSettings, Regions};
use presence_model::id::RegionId;
use presence_runtime::network::{Listener, Network};
use presence_runtime::shutdown::Shutdown;
use tokio_util::sync::CancellationToken;

use super::listen;
use super::relay::{self, RegionCut};

/// From each region a way to each other one.
pub(crate) struct Ways {
    /// What each region is to know of all.
    known: Vec<Regions>,
    /// To which region each leads.
    listeners: Vec<(usize, Listener)>,
}

/// A free port of loopback.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Ways {
    /// Listens for all of them.
    ///
    /// # Errors
    /// When there is no port.
    pub(crate) fn between(regions: &[RegionId], network: &Network) -> anyhow::Result<Self> {
        let mut ways = Self { known: Vec::new(), listeners: Vec::new() };
        for own in regions {
            let mut known = Regions::single(own.clone());
            for (to, region) in regions.iter().enumerate().filter(|(_, region)| *region != own) {
                let listener = listen(network, any_port())?;
                let cores = vec![format!("http://{}", listener.local_addr())];
                known.peers.push(PeerSettings { region: region.clone(), cores });
                ways.listeners.push((to, listener));
            }
            ways.known.push(known);
        }
        Ok(ways)
    }

    /// What the core of the region at that place is to know.
    pub(crate) fn known_at(&self, place: usize) -> Regions {
        self.known[place].clone()
    }

    /// Carries, until stopped, what goes to these cores, one for each region.
    pub(crate) fn carry(
        self,
        cores: &[SocketAddr],
        (network, cut): (&Network, &RegionCut),
        tasks: &Shutdown,
        stop: &CancellationToken,
    ) {
        for (to, listener) in self.listeners {
            let carried =
                relay::between_regions(listener, cores[to], network.clone(), cut.clone(), stop.clone());
            tasks.spawn("way", carried);
        }
    }
}
