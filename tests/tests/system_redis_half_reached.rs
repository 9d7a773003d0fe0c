//! One of two cores loses the store, and does not die of it: its edges move to the other within a heartbeat, and
//! nobody ends early.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_tests::procs::{Client, CoreOptions, EdgeOptions, Keys, Process, core_with, edge_with};
use presence_tests::redis::{Proxy, Server, ServerOptions, Weather};
use presence_tests::scene::{ROOM, TIMERS, Witness};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

const EDGES: usize = 4;
const PEOPLE: usize = 10;
const WITHIN: Duration = Duration::from_secs(30);
/// An edge waits for an acknowledgement for a heartbeat after a batch; a batch leaves each flush.
const MOVED_WITHIN: Duration = Duration::from_millis(1_500 + 1_500);

struct World {
    _keys: Keys,
    server: Server,
    /// What is between each core and the store.
    ways: [Weather; 2],
    _proxies: Vec<Proxy>,
    _cores: Vec<Process>,
    /// What the first core calls itself in the store.
    first: String,
    _edges: Vec<Process>,
    witnesses: Vec<Witness>,
    /// Connections that stand.
    people: JoinSet<()>,
}

impl World {
    async fn start() -> anyhow::Result<Self> {
        let (keys, server) = (Keys::generate()?, Server::start(ServerOptions::default()).await?);
        let ways = [Weather::default(), Weather::default()];
        let (mut proxies, mut cores, mut first) = (Vec::new(), Vec::new(), String::new());
        for way in &ways {
            let proxy = Proxy::start(server.port(), way)?;
            let store = Some(format!("redis://{}", proxy.address()));
            cores.push(core_with(&CoreOptions { store, ..CoreOptions::default() }, &keys, &TIMERS)?);
            proxies.push(proxy);
            if cores.len() == 1 {
                first = until_it_turns(&server).await?;
            }
        }
        let addresses: Vec<String> = cores.iter().map(|core| core.address("grpc")).collect();
        let (mut edges, mut people) = (Vec::new(), JoinSet::new());
        for number in 0..EDGES {
            let options = EdgeOptions { cores: addresses.clone(), ..EdgeOptions::default() };
            let edge = edge_with(&format!("edge-{number}"), &options, &keys, &TIMERS)?;
            for person in 0..PEOPLE {
                let user = format!("user-{number}-{person}");
                let mut client = Client::connect(&edge.address("ws")).await?;
                let token = keys.token(&user, ROOM, Action::Join)?;
                client.join(ROOM, &token, &format!("session-of-{user}"), 1).await?;
                people.spawn(client.idle());
            }
            edges.push(edge);
        }
        let witnesses = addresses.iter().map(|core| Witness::start(core)).collect::<anyhow::Result<_>>()?;
        // The hold of the first start is over then, and so are the first choices of cores.
        tokio::time::sleep(TIMERS.lease_ttl + TIMERS.heartbeat).await;
        Ok(Self {
            _keys: keys,
            server,
            ways,
            _proxies: proxies,
            _cores: cores,
            first,
            _edges: edges,
            witnesses,
            people,
        })
    }

    /// Which core each edge is linked to, as the store knows.
    async fn links(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let notes: BTreeMap<String, String> = self.server.call(&["HGETALL", "presence:edges"]).await?;
        let core = |note: &String| -> anyhow::Result<(String, String)> {
            let note: Value = serde_json::from_str(note)?;
            let word = |name: &str| note[name].as_str().map(str::to_owned).context("a word");
            Ok((word("name")?, word("core")?))
        };
        notes.values().map(core).collect()
    }
}

/// The name of the only core, once it has a turn.
async fn until_it_turns(server: &Server) -> anyhow::Result<String> {
    let turns = async {
        loop {
            let holder: Option<String> = server.call(&["HGET", "presence:{s0}", "holder"]).await?;
            match holder {
                Some(holder) => return anyhow::Ok(holder),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(WITHIN, turns).await.context("the core does not turn")?
}

#[tokio::test(flavor = "multi_thread")]
async fn edges_of_a_core_without_its_store_move_in_time() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let before = world.links().await?;
    // Edges take cores in an order of their own: the one with edges loses the store.
    let on_first = before.values().filter(|core| **core == world.first).count();
    let cut = usize::from(on_first == 0);
    let is_left = |core: &String| (*core == world.first) == (cut == 0);
    world.ways[cut].cut(true);
    let since = Instant::now();
    loop {
        let links = world.links().await?;
        if links.len() == EDGES && !links.values().any(is_left) {
            break;
        }
        anyhow::ensure!(since.elapsed() < WITHIN, "{links:?}, before {before:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = since.elapsed();
    println!(
        "{on_first} of {EDGES} edges were on the first core; all had moved {took:?} after core {cut} lost the store"
    );
    assert!(took <= MOVED_WITHIN, "{took:?}");
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    world.ways[cut].cut(false);
    tokio::time::sleep(TIMERS.lease_ttl * 2).await;
    for (number, witness) in world.witnesses.iter().enumerate() {
        let seen = witness.seen();
        assert_eq!(seen.removed, [], "at core {number}");
        assert_eq!(seen.members.len(), EDGES * PEOPLE, "at core {number}");
    }
    assert!(world.people.try_join_next().is_none(), "nobody was cut off");
    Ok(())
}
