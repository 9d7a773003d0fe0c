//! Scenario 24: everybody loses the connection at the same moment, and comes back.
//!
//! Scaled to what two busy cores bear within a minute, clients included: 2,500 clients that come back within
//! 5 s, and all 10,000 in the long run. `PRESENCE_STORM_CLIENTS` takes another number.

use std::sync::Arc;
use std::time::Duration;

use presence_tests::fleet::Person;
use presence_tests::procs::{Keys, Observer, Process, Roamers, Timers, core, edge};
use tokio::time::Instant;

const CLIENTS: usize = 2_500;
const CLIENTS_LONG: usize = 10_000;
const ROOM_OF: usize = 20;
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(3),
    lease_ttl: Duration::from_secs(16),
    grace: Duration::from_secs(10),
    edge_lost: Duration::from_secs(5),
};
/// What hello tells with these timers: half of grace. Each comes back within it.
const HINT: Duration = Duration::from_secs(5);
/// What a busy machine may take beyond it: still inside grace.
const SLACK: Duration = Duration::from_secs(4);
const WITHIN: Duration = Duration::from_secs(30);
/// The most memory against what it was at rest; what is old goes as what is new comes.
const PEAK_MAX: f64 = 1.3;

/// A line of `/proc/PID/status`, in bytes.
fn memory(process: &Process, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id()))?;
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).map(str::parse::<f64>);
    Ok(kib.ok_or_else(|| anyhow::anyhow!("no {name} in {status}"))?? * 1024.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_24_everybody_comes_back_at_once_and_nobody_was_seen_to_leave() -> anyhow::Result<()> {
    let usual = if std::env::var_os("PRESENCE_TEST_LONG").is_some() { CLIENTS_LONG } else { CLIENTS };
    let clients = std::env::var("PRESENCE_STORM_CLIENTS").ok().map_or(Ok(usual), |text| text.parse())?;
    let keys = Arc::new(Keys::generate()?);
    let core = core(&keys, &TIMERS)?;
    let started = Instant::now();
    let edges = [edge("edge-a", &core, &keys, &TIMERS)?, edge("edge-b", &core, &keys, &TIMERS)?];
    let third = edge("edge-c", &core, &keys, &TIMERS)?;
    let rooms: Vec<String> = (0..clients.div_ceil(ROOM_OF)).map(|n| format!("room-{n}")).collect();
    let observer = Observer::start(&third.address("ws"), &keys, &rooms).await?;
    let doors = edges.iter().map(|edge| edge.address("ws")).collect();
    let mut roamers = Roamers::new(Arc::clone(&keys), doors);
    roamers.come(Person::crowd("user", 0, clients, ROOM_OF), WITHIN).await?;
    observer.until(clients, WITHIN).await?;
    // In the hold of a new store nobody would be ended whatever happened.
    tokio::time::sleep_until(started + TIMERS.lease_ttl + TIMERS.heartbeat).await;
    let mut steady = Vec::new();
    for process in edges.iter().chain([&core]) {
        steady.push(memory(process, "VmRSS")?);
        // From here on the peak is that of the storm.
        std::fs::write(format!("/proc/{}/clear_refs", process.id()), "5")?;
    }

    let storm = Instant::now();
    roamers.cut_all();
    roamers.until(WITHIN, |tally| tally.inside == clients).await?;
    let all_back = storm.elapsed();
    tokio::time::sleep(TIMERS.grace + Duration::from_secs(2)).await;

    let (sight, tally) = (observer.sight(), roamers.tally());
    println!(
        "{clients} clients cut off: all back after {all_back:.1?}, told to come within {HINT:?}; {} resumed by delta, \
         {} by snapshot, {} failed attempts; observer: {} departures",
        tally.resumed,
        tally.snapshots,
        tally.failures,
        sight.departures.len(),
    );
    for ((process, name), steady) in edges.iter().chain([&core]).zip(["edge-a", "edge-b", "core"]).zip(steady)
    {
        let peak = memory(process, "VmHWM")?;
        println!("{name}: {:.1} MB at rest, {:.1} MB at most", steady / 1e6, peak / 1e6);
        assert!(peak <= steady * PEAK_MAX, "{name}: {:.2} × what it was at rest", peak / steady);
    }
    assert!(all_back <= HINT + SLACK, "{all_back:?}");
    assert!(sight.departures.is_empty(), "{:?}", &sight.departures[..sight.departures.len().min(5)]);
    assert_eq!(sight.count(), clients);
    Ok(())
}
