//! A store that takes 300 ms for each command while a crowd wants in: whoever is cut off then and comes back is taken
//! before the crowd, and is never announced as gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use presence_model::claim::Action;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{Client, CoreOptions, Keys, Process, Timers, core_with, edge};
use presence_tests::redis::{Proxy, Server, ServerOptions, Weather};
use presence_tests::scene::{ROOM, Witness};
use serde_json::json;
use tokio::time::{Instant, sleep};

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(3),
    lease_ttl: Duration::from_secs(12),
    grace: Duration::from_secs(5),
    edge_lost: Duration::from_secs(4),
};
/// Who is cut off.
const PEOPLE: usize = 20;
const NEWCOMERS: usize = 1_500;
/// A newcomer more in so many moments: what the store can then is always exceeded.
const STEP: usize = 100;
const DELAY: Duration = Duration::from_millis(300);
const WITHIN: Duration = Duration::from_secs(90);

struct Member {
    token: String,
    session: String,
}

impl Member {
    fn new(keys: &Keys, number: usize) -> anyhow::Result<Self> {
        let token = keys.token(&user(number), ROOM, Action::Join)?;
        Ok(Self { token, session: format!("session-of-member-{number}") })
    }

    /// Comes back as the protocol has it, until it is in; how often it was told to come again, and how long all took.
    async fn come_back(&self, url: &str) -> anyhow::Result<(Client, u32, Duration)> {
        let (begin, mut refused) = (Instant::now(), 0);
        let mut client = Client::connect(url).await?;
        loop {
            let join = json!({
                "t": "join", "room": ROOM, "token": self.token, "session": self.session, "generation": 2,
            });
            client.send(&join).await?;
            let answer = loop {
                let frame = client.frame().await?;
                if frame["t"] == "joined" || frame["t"] == "error" {
                    break frame;
                }
            };
            if answer["t"] == "joined" {
                return Ok((client, refused, begin.elapsed()));
            }
            refused += 1;
            let wait = answer["retry_after_ms"].as_u64().ok_or_else(|| anyhow::anyhow!("{answer}"))?;
            sleep(Duration::from_millis(wait)).await;
        }
    }
}

fn user(number: usize) -> String {
    format!("member-{number:02}")
}

async fn shed(core: &Process) -> f64 {
    core.metric("presence_core_joins_shed_total{reason=\"slow\"}").await.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_before_a_slow_store_is_not_seen_to_go() -> anyhow::Result<()> {
    let (keys, server) = (Arc::new(Keys::generate()?), Server::start(ServerOptions::default()).await?);
    let weather = Weather::default();
    let proxy = Proxy::start(server.port(), &weather)?;
    let store = Some(format!("redis://{}", proxy.address()));
    let core = core_with(&CoreOptions { store, ..CoreOptions::default() }, &keys, &TIMERS)?;
    let edge = edge("home", &core, &keys, &TIMERS)?;
    let url = edge.address("ws");
    let mut members = Vec::new();
    for number in 0..PEOPLE {
        let member = Member::new(&keys, number)?;
        let mut client = Client::connect(&url).await?;
        client.join(ROOM, &member.token, &member.session, 1).await?;
        members.push((member, tokio::spawn(client.idle())));
    }
    let witness = Witness::start(&core.address("grpc"))?;
    witness.until(&(0..PEOPLE).map(user).collect(), WITHIN).await?;
    // Who is cut off while nobody knows yet whether the clock stepped would be kept anyway.
    sleep(TIMERS.lease_ttl + Duration::from_millis(500)).await;

    weather.delay(DELAY);
    let crowd = Arc::new(Fleet::start("crowd", &[core.address("grpc")], Arc::clone(&keys), TIMERS));
    let newcomers = Person::gathering(ROOM, "newcomer", 0, NEWCOMERS);
    let mut coming = Vec::new();
    for some in newcomers.chunks(STEP) {
        let (crowd, some) = (Arc::clone(&crowd), some.to_vec());
        coming.push(tokio::spawn(async move { crowd.join(some, WITHIN).await }));
        sleep(Duration::from_millis(200)).await;
    }
    let mut back = Vec::new();
    for (number, (member, client)) in members.into_iter().enumerate() {
        client.abort();
        let url = url.clone();
        let returns = async move {
            // Up to half of its grace passes before a client notices.
            sleep(TIMERS.grace * u32::try_from(number)? / (2 * PEOPLE as u32)).await;
            member.come_back(&url).await
        };
        back.push(tokio::spawn(returns));
    }
    let (mut clients, mut refused, mut longest) = (Vec::new(), 0, Duration::ZERO);
    for returned in back {
        let (client, times, took) = returned.await??;
        clients.push(tokio::spawn(client.idle()));
        (refused, longest) = (refused + times, longest.max(took));
    }
    let (live, shed) = (crowd.report().live, shed(&core).await);
    weather.delay(Duration::ZERO);
    sleep(TIMERS.grace).await;
    let gone: BTreeSet<_> = witness.seen().removed.into_iter().collect();
    println!(
        "{PEOPLE} cut off before a store of {} ms a command beside {NEWCOMERS} newcomers ({live} let in by then, \
         {shed} times told to come again): back within {} ms, {refused} times told to come again, {} seen to go",
        DELAY.as_millis(),
        longest.as_millis(),
        gone.len(),
    );
    assert!(gone.is_empty(), "{gone:?}");
    assert!(shed >= 100.0, "{shed}: too few newcomers to show anything");
    // One that waits for its own kind only waits for a commit under way, and is in with the next.
    assert!(refused as usize <= PEOPLE / 4, "{refused} times told to come again, as if they were newcomers");
    for joined in coming {
        joined.await??;
    }
    Ok(())
}
