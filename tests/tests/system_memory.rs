//! What an idle joined connection costs an edge: the slope of its proportional set size between 2,000 and
//! 10,000 connections in rooms of ten, with the clients in processes of their own.

use std::time::Duration;

use presence_tests::procs::{Crowd, Keys, Timers, core, edge, pss_bytes};

const FEW: usize = 2_000;
const MANY: usize = 10_000;
/// Clients of one process; it has 20,000 descriptors at most.
const CROWD_MAX: usize = 4_000;
/// User memory of one idle joined connection.
const BYTES_MAX: f64 = 4_096.0;
/// Pings, renewals and frames of the joins have come to rest.
const REST: Duration = Duration::from_secs(8);
/// Production timers: short ones would measure the traffic.
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(15),
    lease_ttl: Duration::from_secs(45),
    grace: Duration::from_secs(12),
    edge_lost: Duration::from_secs(5),
};

#[test]
fn an_idle_joined_connection_costs_at_most_four_kilobytes() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let core = core(&keys, &TIMERS)?;
    let edge = edge("edge", &core, &keys, &TIMERS)?;
    let mut crowds = vec![Crowd::start(&edge, &keys, 0, FEW)?];
    std::thread::sleep(REST);
    let few = pss_bytes(edge.id())?;
    let mut first = FEW;
    while first < MANY {
        let count = CROWD_MAX.min(MANY - first);
        crowds.push(Crowd::start(&edge, &keys, first, count)?);
        first += count;
    }
    std::thread::sleep(REST);
    let many = pss_bytes(edge.id())?;
    let slope = (many - few) / (MANY - FEW) as f64;
    println!(
        "edge: {:.1} MB at {FEW}, {:.1} MB at {MANY}: {slope:.0} bytes a connection",
        few / 1e6,
        many / 1e6
    );
    assert!(slope <= BYTES_MAX, "{slope:.0} bytes a connection");
    Ok(())
}
