//! Three cores over one Redis, none of which matters: people come, leave and fall silent at random while
//! cores are killed. Nobody live is ever announced as gone, and in the end everybody sees the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use presence_client::watch::RoomOptions;
use presence_client::{Client, ClientSettings, Deps, RoomChange};
use presence_model::id::RoomId;
use presence_model::reason::RemovalReason;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_tests::fleet::{Fleet, Person};
use presence_tests::procs::{CoreOptions, Keys, Process, Timers, core_with};
use presence_tests::redis::{Server, ServerOptions, free_port};
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(1_500),
    lease_ttl: Duration::from_secs(6),
    grace: Duration::from_millis(1_500),
    edge_lost: Duration::from_secs(2),
};
const ROOMS: usize = 8;
const ROUNDS: usize = 24;
const KILL_EVERY: usize = 4;
const WITHIN: Duration = Duration::from_secs(30);

/// When somebody stopped being there, as the test knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Live,
    Left(Instant),
    Silent(Instant),
}

type Truth = Arc<Mutex<BTreeMap<(String, String), Life>>>;

/// What one watcher saw that must not be.
#[derive(Debug, Default)]
struct Verdict {
    early: Vec<String>,
    lists: BTreeMap<String, BTreeSet<String>>,
}

/// Watches a room at one core, through its deaths, and judges each removal at once.
async fn watch(
    client: Client,
    room: String,
    truth: Truth,
    verdict: Arc<Mutex<Verdict>>,
) -> anyhow::Result<()> {
    let mut stream = client.watch(RoomId::new(&room)?, RoomOptions::default()).await?;
    loop {
        let update = stream.next().await?;
        let mut verdict = verdict.lock().expect("nobody panics with this lock");
        match update.change {
            RoomChange::Nothing => {}
            RoomChange::List(members) => {
                let users = members.into_iter().map(|member| member.user.as_str().to_owned()).collect();
                verdict.lists.insert(room.clone(), users);
            }
            RoomChange::Delta { upserts, removals } => {
                for member in upserts {
                    verdict.lists.entry(room.clone()).or_default().insert(member.user.as_str().to_owned());
                }
                for removal in removals {
                    let user = removal.user.as_str().to_owned();
                    let was_there = verdict.lists.entry(room.clone()).or_default().remove(&user);
                    let life = truth.lock().expect("no panic").get(&(room.clone(), user.clone())).copied();
                    let reason = removal.ending.reason;
                    let is_right = match life {
                        Some(Life::Left(_)) => true,
                        // Its last renewal lies before the silence by two thirds of a heartbeat at most.
                        Some(Life::Silent(at)) => {
                            reason == RemovalReason::EdgeLost
                                || at.elapsed() + TIMERS.heartbeat >= TIMERS.lease_ttl
                        }
                        Some(Life::Live) | None => false,
                    };
                    if was_there && !is_right {
                        verdict.early.push(format!("{user} of {room}: {reason}, {life:?}"));
                    }
                }
            }
        }
    }
}

struct World {
    server: Server,
    keys: Arc<Keys>,
    addresses: Vec<String>,
    cores: Vec<Option<Process>>,
    fleets: Vec<Fleet>,
    truth: Truth,
    counter: usize,
    rng: StdRng,
}

impl World {
    fn start_core(&mut self, number: usize) -> anyhow::Result<()> {
        let store = Some(format!("redis://{}", self.server.address()));
        let options =
            CoreOptions { store, grpc: Some(self.addresses[number].clone()), ..CoreOptions::default() };
        self.cores[number] = Some(core_with(&options, &self.keys, &TIMERS)?);
        Ok(())
    }

    /// People come to one edge; they are true once they are in.
    async fn come(&mut self) -> anyhow::Result<()> {
        let fleet = self.rng.random_range(0..self.fleets.len());
        let people: Vec<Person> = (0..self.rng.random_range(5..40))
            .map(|_| {
                self.counter += 1;
                let room = format!("room-{}", self.rng.random_range(0..ROOMS));
                Person { room, user: format!("user-{}", self.counter) }
            })
            .collect();
        let names: Vec<_> = people.iter().map(|one| (one.room.clone(), one.user.clone())).collect();
        {
            let mut truth = self.truth.lock().expect("no panic");
            truth.extend(names.into_iter().map(|name| (name, Life::Live)));
        }
        self.fleets[fleet].join(people, WITHIN).await
    }

    /// Some go: with a goodbye, or without a word.
    fn go(&mut self, silently: bool) -> anyhow::Result<()> {
        let mut truth = self.truth.lock().expect("no panic");
        let live: Vec<_> =
            truth.iter().filter(|(_, life)| **life == Life::Live).map(|(name, _)| name.clone()).collect();
        let many = self.rng.random_range(1..10);
        let going: Vec<_> = live.sample(&mut self.rng, many).cloned().collect();
        let users: Vec<String> = going.iter().map(|(_, user)| user.clone()).collect();
        let at = Instant::now();
        for name in going {
            truth.insert(name, if silently { Life::Silent(at) } else { Life::Left(at) });
        }
        // Each edge knows its own.
        for fleet in &self.fleets {
            if silently { fleet.silence(users.clone())? } else { fleet.leave(users.clone())? }
        }
        Ok(())
    }

    fn expected(&self) -> BTreeMap<String, BTreeSet<String>> {
        let truth = self.truth.lock().expect("no panic");
        let mut rooms: BTreeMap<_, BTreeSet<String>> =
            (0..ROOMS).map(|number| (format!("room-{number}"), BTreeSet::new())).collect();
        for ((room, user), _) in truth.iter().filter(|(_, life)| **life == Life::Live) {
            rooms.entry(room.clone()).or_default().insert(user.clone());
        }
        rooms
    }
}

/// A client at each core, and what its watchers of every room have seen.
type Watchers = (Vec<Client>, Vec<Arc<Mutex<Verdict>>>);

fn watch_everywhere(world: &World, seed: u64) -> anyhow::Result<Watchers> {
    let mut verdicts = Vec::new();
    let mut clients = Vec::new();
    for (number, address) in world.addresses.iter().enumerate() {
        let settings = ClientSettings::new(vec![format!("http://{address}")], seed ^ number as u64);
        let client = Client::new(settings, Deps { network: Network::tcp(), clock: Clock::system() })?;
        let verdict = Arc::new(Mutex::new(Verdict::default()));
        for room in 0..ROOMS {
            let (truth, verdict) = (Arc::clone(&world.truth), Arc::clone(&verdict));
            tokio::spawn(watch(client.clone(), format!("room-{room}"), truth, verdict));
        }
        clients.push(client);
        verdicts.push(verdict);
    }
    Ok((clients, verdicts))
}

#[tokio::test(flavor = "multi_thread")]
async fn cores_are_killed_and_nobody_live_is_missed() -> anyhow::Result<()> {
    let seed = std::env::var("PRESENCE_SIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().next_u64());
    println!("seed {seed}");
    let server = Server::start(ServerOptions::default()).await?;
    let addresses =
        (0..3).map(|_| Ok(format!("127.0.0.1:{}", free_port()?))).collect::<anyhow::Result<Vec<_>>>()?;
    let mut world = World {
        server,
        keys: Arc::new(Keys::generate()?),
        addresses,
        cores: vec![None, None, None],
        fleets: Vec::new(),
        truth: Truth::default(),
        counter: 0,
        rng: StdRng::seed_from_u64(seed),
    };
    for number in 0..3 {
        world.start_core(number)?;
    }
    for number in 0..6 {
        let mut cores = world.addresses.clone();
        cores.rotate_left(number % 3);
        let fleet = Fleet::start(&format!("edge-{number}"), &cores, Arc::clone(&world.keys), TIMERS);
        world.fleets.push(fleet);
    }
    let (clients, verdicts) = watch_everywhere(&world, seed)?;

    for round in 0..ROUNDS {
        world.come().await?;
        let silently = world.rng.random_bool(0.5);
        world.go(silently)?;
        if round % KILL_EVERY == KILL_EVERY - 1 {
            let victim = world.rng.random_range(0..3);
            // What is dropped is killed with -9.
            world.cores[victim] = None;
            tokio::time::sleep(Duration::from_millis(world.rng.random_range(0..1_500))).await;
            world.start_core(victim)?;
        }
        tokio::time::sleep(Duration::from_millis(world.rng.random_range(0..500))).await;
    }
    tokio::time::sleep(TIMERS.lease_ttl * 2 + TIMERS.grace + Duration::from_secs(2)).await;

    let expected = world.expected();
    for (number, verdict) in verdicts.iter().enumerate() {
        let verdict = verdict.lock().expect("no panic");
        assert!(verdict.early.is_empty(), "seed {seed}, core {number}: {:#?}", verdict.early);
        for (room, users) in &expected {
            let seen = verdict.lists.get(room).cloned().unwrap_or_default();
            let (missed, ghosts): (Vec<_>, Vec<_>) =
                (users.difference(&seen).collect(), seen.difference(users).collect());
            assert!(
                missed.is_empty() && ghosts.is_empty(),
                "seed {seed}, core {number}, {room}: {missed:?} missed, {ghosts:?} are ghosts"
            );
        }
    }
    for client in &clients {
        for (room, users) in &expected {
            let now = client.get_room(&RoomId::new(room)?).await?;
            let listed: BTreeSet<String> =
                now.members.into_iter().map(|member| member.user.as_str().to_owned()).collect();
            assert_eq!(listed, *users, "seed {seed}: {room} as asked for");
        }
    }
    println!("{} came, {} are there", world.counter, expected.values().map(BTreeSet::len).sum::<usize>());
    Ok(())
}
