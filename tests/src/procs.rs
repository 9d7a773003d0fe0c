//! Real processes and real sockets, for what a simulation cannot know.

mod client;
mod kept;
mod lands;
mod neighbours;
mod observer;
mod peer;
mod process;
mod raw;
mod relay;
mod roamers;

pub use client::Client;
pub(crate) use client::open_socket;
pub use lands::{Land, LandOptions, Lands, Stay, keep};
pub use neighbours::{Neighbours, Seen};
pub use observer::{Observer, Sight};
pub use peer::{Answer, Peer};
pub use process::{
    CoreOptions, Crowd, EdgeOptions, Keys, Pair, Process, Timers, binary_path, core, core_on, core_with,
    core_with_file, edge, edge_with, pss_bytes,
};
pub use raw::{Raw, frame};
pub use relay::Relay;
pub use roamers::{Roamers, Tally};
