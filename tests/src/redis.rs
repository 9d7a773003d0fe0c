//! Real Redis servers on ports the system picks: one, a pair behind Sentinel, a Cluster; proxies in
//! front of them that delay, cut and lose; clocks that step while the servers run.

mod bench;
mod clock;
mod cluster;
mod copy;
mod proxy;
mod sentinel;
mod server;
mod wire;

pub use bench::{RedisBench, Shape, turn};
pub use clock::FakeClock;
pub use cluster::Cluster;
pub use copy::Copy;
pub use proxy::{Lost, Mutation, Proxy, Weather};
pub use sentinel::{MASTER, SentinelPair};
pub use server::{Data, Server, ServerOptions, free_port};
