//! One very large room: joining costs what it costs in a small one, three cores fill it at once, and
//! loading it cold blocks nobody.

use std::sync::Arc;
use std::time::Duration;

use presence_proto::v1;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{CoreOptions, Keys, Process, Timers, core_with};
use presence_tests::redis::{Server, ServerOptions};

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(15),
    lease_ttl: Duration::from_secs(45),
    grace: Duration::from_secs(12),
    edge_lost: Duration::from_secs(5),
};
const WITHIN: Duration = Duration::from_secs(120);
const LARGE: usize = 50_000;
const SMALL: usize = 500;
/// Joins measured at once, so many times: the least disturbed time counts.
const MORE: usize = 500;
const TIMES: usize = 8;
/// In the slow log: no command may take so long. A page takes about one millisecond; being put off by others counts too.
const SLOW_MICROS: &str = "25000";

fn core(server: &Server, keys: &Keys) -> anyhow::Result<Process> {
    let store = Some(format!("redis://{}", server.address()));
    core_with(&CoreOptions { store, ..CoreOptions::default() }, keys, &TIMERS)
}

/// Microseconds that scripts have taken.
async fn script_micros(server: &Server) -> anyhow::Result<f64> {
    let text: String = server.call(&["INFO", "commandstats"]).await?;
    let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).unwrap_or_default();
    let micros = line.split(',').find_map(|field| field.strip_prefix("usec="));
    Ok(micros.and_then(|micros| micros.parse().ok()).unwrap_or(0.0))
}

/// What a join into a room costs Redis, in microseconds of scripts, less what turns cost meanwhile.
async fn cost(server: &Server, fleet: &Fleet, room: &str) -> anyhow::Result<f64> {
    let mut least = f64::INFINITY;
    for time in 0..TIMES {
        let idle_from = script_micros(server).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let idle = script_micros(server).await? - idle_from;
        let (before, start) = (script_micros(server).await?, tokio::time::Instant::now());
        fleet.join(Person::gathering(room, "more", time * MORE, MORE), WITHIN).await?;
        let spent = script_micros(server).await? - before - idle * start.elapsed().as_secs_f64();
        least = least.min(spent / MORE as f64);
    }
    Ok(least)
}

async fn count(core: &Process, room: &str) -> anyhow::Result<u64> {
    let channel = core.channel().await?;
    let mut rooms = v1::presence_service_client::PresenceServiceClient::new(channel);
    let asked = v1::CountRoomRequest { room: room.to_owned() };
    Ok(rooms.count_room(asked).await?.into_inner().count)
}

/// Lists a room to its end.
async fn list(core: &Process, room: &str) -> anyhow::Result<usize> {
    let channel = core.channel().await?;
    let mut rooms = v1::presence_service_client::PresenceServiceClient::new(channel);
    let open = v1::OpenRoom {
        room: room.to_owned(),
        level: v1::WatchLevel::Members.into(),
        ..v1::OpenRoom::default()
    };
    let request = v1::WatchRequest { message: Some(v1::watch_request::Message::Open(Box::new(open))) };
    let up = futures::StreamExt::chain(tokio_stream::iter([request]), futures::stream::pending());
    let mut down = rooms.watch(up).await?.into_inner();
    let mut members = 0;
    while let Some(told) = down.message().await? {
        if let Some(v1::watch_response::Event::Snapshot(page)) = told.event {
            members += page.members.len();
            if !page.more {
                break;
            }
        }
    }
    Ok(members)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_room_of_fifty_thousand_costs_what_a_small_one_does() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Arc::new(Keys::generate()?);
    let cores = [core(&server, &keys)?, core(&server, &keys)?, core(&server, &keys)?];
    let fleets: Vec<Fleet> = cores
        .iter()
        .enumerate()
        .map(|(number, core)| {
            let address = [core.address("grpc")];
            Fleet::start(&format!("edge-{number}"), &address, Arc::clone(&keys), TIMERS)
        })
        .collect();
    fleets[0].join(Person::gathering("small", "s", 0, SMALL), WITHIN).await?;
    let in_small = cost(&server, &fleets[0], "small").await?;

    let each = LARGE / fleets.len();
    let joins = fleets
        .iter()
        .enumerate()
        .map(|(number, fleet)| fleet.join(Person::gathering("large", "l", number * each, each), WITHIN));
    futures::future::try_join_all(joins).await?;
    for core in &cores {
        assert_eq!(count(core, "large").await?, (each * fleets.len()) as u64);
    }
    let in_large = cost(&server, &fleets[0], "large").await?;
    println!("a join costs {in_small:.1} us in a room of {SMALL}, {in_large:.1} us in one of {LARGE}");
    assert!(in_large <= 2.0 * in_small, "{in_large:.1} us against {in_small:.1} us");

    server.call::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", SLOW_MICROS]).await?;
    server.call::<()>(&["SLOWLOG", "RESET"]).await?;
    let cold = core(&server, &keys)?;
    let members = tokio::time::timeout(WITHIN, list(&cold, "large")).await??;
    assert_eq!(members, each * fleets.len() + MORE * TIMES);
    let slow: u64 = server.call(&["SLOWLOG", "LEN"]).await?;
    assert_eq!(slow, 0, "commands above 25 ms during a cold load");
    Ok(())
}
