//! What a core costs its Redis: renewals are merged into few commands, no script is on their way, and
//! everything else is the same whether nobody or 50,000 are present.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{CoreOptions, Keys, Process, Timers, core_with};
use presence_tests::redis::{Server, ServerOptions};

/// The timers of production: a budget holds for them.
const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(15),
    lease_ttl: Duration::from_secs(45),
    grace: Duration::from_secs(12),
    edge_lost: Duration::from_secs(5),
};
const WINDOW: Duration = Duration::from_secs(10);
const WITHIN: Duration = Duration::from_secs(60);
const SHARDS: f64 = 16.0;
/// With the history of a join each.
const BYTES_A_SESSION: f64 = 2_048.0;

/// Calls of each command in a window; `hmget` without those of scripts, each of which begins with one (a load
/// has more, and none is made meanwhile).
async fn calls(server: &Server) -> anyhow::Result<BTreeMap<String, f64>> {
    let text: String = server.call(&["INFO", "commandstats"]).await?;
    let mut calls = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':')) else {
            continue;
        };
        let count = rest.split([',', '=']).nth(1).and_then(|count| count.parse().ok()).unwrap_or(0.0);
        calls.insert(name.to_owned(), count);
    }
    Ok(calls)
}

struct Window {
    /// Commands that renew.
    renewals: f64,
    /// Scripts.
    scripts: f64,
    /// Everything but renewals.
    background: f64,
    /// Lease ids that edges sent.
    renewed: f64,
}

async fn window(server: &Server, fleets: &[Fleet]) -> anyhow::Result<Window> {
    let renewed = || fleets.iter().map(|fleet| fleet.report().renewed).sum::<u64>();
    let (before, sent) = (calls(server).await?, renewed());
    tokio::time::sleep(WINDOW).await;
    let (after, sent) = (calls(server).await?, renewed() - sent);
    let of = |name: &str| after.get(name).copied().unwrap_or(0.0) - before.get(name).copied().unwrap_or(0.0);
    let scripts = of("evalsha") + of("evalsha_ro");
    let looks = (of("hmget") - scripts).max(0.0);
    let renewals = of("zadd") + of("zmscore");
    let background = scripts + looks + of("xread") + of("scard") + of("eval") + of("eval_ro");
    Ok(Window { renewals, scripts, background, renewed: sent as f64 })
}

/// Those who said goodbye have ended.
async fn until_leases_are(server: &Server, wanted: usize) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + WITHIN * 2;
    loop {
        let mut count = 0;
        for shard in 0..SHARDS as usize {
            count += server.call::<usize>(&["ZCARD", &format!("presence:{{s{shard}}}:leases")]).await?;
        }
        if count == wanted {
            return Ok(());
        }
        anyhow::ensure!(tokio::time::Instant::now() < end, "{count} leases of {wanted}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn core(server: &Server, keys: &Keys) -> anyhow::Result<Process> {
    let store = format!("redis://{}", server.address());
    core_with(&CoreOptions { store: Some(store), ..CoreOptions::default() }, keys, &TIMERS)
}

#[expect(clippy::print_stdout, reason = "a test tells what it measured")]
fn assert_background(window: &Window, cores: f64, what: &str) {
    let per_second = window.background / WINDOW.as_secs_f64();
    println!("{what}: {per_second:.0} commands a second in the background, {:.0} renewing", window.renewals);
    // Two ticks of slack: a window does not begin with one.
    let allowed = SHARDS * 8.0 + 3.0 * cores;
    assert!(per_second <= allowed * 1.05, "{what}: {per_second:.1} a second, allowed {allowed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_merged_and_the_background_does_not_grow() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Arc::new(Keys::generate()?);
    let first = core(&server, &keys)?;
    let address = vec![first.address("grpc")];
    let mut fleets: Vec<Fleet> = (0..4)
        .map(|number| Fleet::start(&format!("edge-{number}"), &address, Arc::clone(&keys), TIMERS))
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = window(&server, &fleets).await?;
    assert_background(&idle, 1.0, "nobody, one core");

    let mut present = 0;
    let mut people = vec![Vec::new(); fleets.len()];
    for wanted in [20_000, 50_000] {
        let each = (wanted - present) / fleets.len();
        let joins = fleets.iter().enumerate().map(|(number, fleet)| {
            let more = Person::crowd("user", present + number * each, each, 10);
            people[number].extend(more.iter().map(|person| person.user.clone()));
            fleet.join(more, WITHIN)
        });
        futures::future::try_join_all(joins).await?;
        present = wanted;
        let busy = window(&server, &fleets).await?;
        assert_background(&busy, 1.0, &format!("{wanted} sessions, one core"));
        assert!(busy.renewed >= wanted as f64 * 0.9, "{} renewed of {wanted}", busy.renewed);
        let grown = busy.scripts / idle.scripts;
        // A busy machine asks a little less often, never more often.
        assert!(grown < 1.1, "scripts grew {grown:.2} times with {wanted} sessions");
        if wanted == 50_000 {
            let each = busy.renewals / busy.renewed;
            let bytes: f64 = server.info("memory", "used_memory_dataset").await?.trim().parse()?;
            println!("{:.0} bytes of Redis a session", bytes / wanted as f64);
            assert!(bytes / (wanted as f64) < BYTES_A_SESSION, "{bytes} bytes for {wanted} sessions");
            println!("one core: one command for {:.0} renewals", 1.0 / each);
            assert!(each <= 1.0 / 64.0, "one command for {:.1} renewals", 1.0 / each);
        }
    }

    let others = [core(&server, &keys)?, core(&server, &keys)?];
    // Edges that link anew stay where they are unless told of others: two move, two remain.
    let more: Vec<Fleet> = others
        .iter()
        .enumerate()
        .map(|(number, core)| {
            let cores = vec![core.address("grpc")];
            Fleet::start(&format!("edge-m{number}"), &cores, Arc::clone(&keys), TIMERS)
        })
        .collect();
    let each = present / 4;
    let leaving = fleets.split_off(2);
    for (fleet, users) in leaving.iter().zip(people.split_off(2)) {
        fleet.leave(users)?;
    }
    until_leases_are(&server, present / 2).await?;
    drop(leaving);
    let joins = more
        .iter()
        .enumerate()
        .map(|(number, fleet)| fleet.join(Person::crowd("other", number * each, each, 10), WITHIN));
    futures::future::try_join_all(joins).await?;
    fleets.extend(more);
    until_leases_are(&server, present).await?;
    tokio::time::sleep(WINDOW).await;
    let three = window(&server, &fleets).await?;
    assert_background(&three, 3.0, "three cores");
    let each = three.renewals / three.renewed;
    println!("three cores: one command for {:.0} renewals", 1.0 / each);
    assert!(each <= 1.0 / 30.0, "one command for {:.1} renewals", 1.0 / each);
    Ok(())
}
