//! What an idle joined connection costs an edge: the slope of its proportional set size between 2,000 and
//! 10,000 connections in rooms of ten, by TLS between 500 and 2,500, with the clients in processes of their own.

use std::time::Duration;

use presence_tests::certificates::Certificates;
use presence_tests::procs::{Crowd, EdgeOptions, Keys, Timers, core, edge, edge_with, pss_bytes};

const FEW: usize = 2_000;
const MANY: usize = 10_000;
/// Clients of one process; it has 20,000 descriptors at most.
const CROWD_MAX: usize = 4_000;
/// User memory of one idle joined connection.
const BYTES_MAX: f64 = 4_096.0;
const FEW_TLS: usize = 500;
const MANY_TLS: usize = 2_500;
/// The same by TLS.
const TLS_BYTES_MAX: f64 = 14_000.0;
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

#[test]
fn an_idle_joined_connection_by_tls_costs_at_most_fourteen_kilobytes() -> anyhow::Result<()> {
    let (keys, authority) = (Keys::generate()?, Certificates::new()?);
    let core = core(&keys, &TIMERS)?;
    let own = authority.sign("edge.test")?;
    let more = [("--tls-cert", &own.certificate), ("--tls-key", &own.key)];
    let more =
        more.iter().flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()]).collect();
    let options = EdgeOptions { cores: vec![core.address("grpc")], more, ..EdgeOptions::default() };
    let edge = edge_with("edge", &options, &keys, &TIMERS)?;
    let trusted = authority.authority();
    let crowd = |first, count| Crowd::start_trusting(Some(&trusted), &edge, &keys, (first, count));
    let _few = crowd(0, FEW_TLS)?;
    std::thread::sleep(REST);
    let few = pss_bytes(edge.id())?;
    let _many = crowd(FEW_TLS, MANY_TLS - FEW_TLS)?;
    std::thread::sleep(REST);
    let many = pss_bytes(edge.id())?;
    let slope = (many - few) / (MANY_TLS - FEW_TLS) as f64;
    println!(
        "edge by TLS: {:.1} MB at {FEW_TLS}, {:.1} MB at {MANY_TLS}: {slope:.0} bytes a connection",
        few / 1e6,
        many / 1e6
    );
    assert!(slope <= TLS_BYTES_MAX, "{slope:.0} bytes a connection");
    Ok(())
}
