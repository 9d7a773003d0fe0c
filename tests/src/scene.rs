//! Cores over one Redis with people in a room and somebody who watches: what a fault of the store must
//! leave unseen.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use presence_client::watch::RoomOptions;
use presence_client::{Client, ClientSettings, Deps, RoomChange};
use presence_model::claim::Action;
use presence_model::id::RoomId;
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use tokio::time::Instant;

use crate::fleet::{Fleet, Person};
use crate::procs::{CoreOptions, EdgeOptions, Keys, Process, Timers, core_with, edge_with};
use crate::redis::{Proxy, Server, ServerOptions, Weather};

/// The room of every scene.
pub const ROOM: &str = "hall";
const WITHIN: Duration = Duration::from_secs(30);

/// Timers of a scene: short, and long enough for a busy machine.
pub const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(1_500),
    lease_ttl: Duration::from_secs(6),
    grace: Duration::from_millis(1_500),
    edge_lost: Duration::from_secs(2),
};

/// What a witness has seen.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Who is there.
    pub members: BTreeSet<String>,
    /// Whoever was announced as gone, in order, with the reason.
    pub removed: Vec<(String, String)>,
    /// Whoever was announced as there after the first list.
    pub added: Vec<String>,
    is_listed: bool,
}

/// Somebody who watches the room at one core, and goes on when that is back.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Witness {
    /// Starts to watch at a core.
    ///
    /// # Errors
    /// When the address is none.
    pub fn start(core: &str) -> anyhow::Result<Self> {
        let settings = ClientSettings::new(vec![format!("http://{core}")], rand::random());
        let client = Client::new(settings, Deps { network: Network::tcp(), clock: Clock::system() })?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let told = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut stream = client.watch(RoomId::new(ROOM)?, RoomOptions::default()).await?;
            loop {
                let update = stream.next().await?;
                lock(&told).take(update.change);
            }
        });
        Ok(Self { seen, task })
    }

    /// What has been seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Waits until the list is this.
    ///
    /// # Errors
    /// When it is not within the time.
    pub async fn until(&self, members: &BTreeSet<String>, within: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + within;
        while lock(&self.seen).members != *members {
            let seen = self.seen().members;
            anyhow::ensure!(
                Instant::now() < end && !self.task.is_finished(),
                "after {within:?}: {:?} missed, {:?} too many",
                members.difference(&seen).take(5).collect::<Vec<_>>(),
                seen.difference(members).take(5).collect::<Vec<_>>()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn take(&mut self, change: RoomChange) {
        match change {
            RoomChange::Nothing => {}
            RoomChange::List(members) => {
                let now: BTreeSet<String> =
                    members.into_iter().map(|member| member.user.as_str().to_owned()).collect();
                if self.is_listed {
                    let gone = self.members.difference(&now);
                    self.removed.extend(gone.map(|user| (user.clone(), "not listed".to_owned())));
                    self.added.extend(now.difference(&self.members).cloned());
                }
                self.is_listed = true;
                self.members = now;
            }
            RoomChange::Delta { upserts, removals } => {
                for member in upserts {
                    let user = member.user.as_str().to_owned();
                    if self.members.insert(user.clone()) {
                        self.added.push(user);
                    }
                }
                for removal in removals {
                    let user = removal.user.as_str().to_owned();
                    if self.members.remove(&user) {
                        self.removed.push((user, removal.ending.reason.to_string()));
                    }
                }
            }
        }
    }
}

/// Cores over a store, one edge with people, a witness at each core.
pub struct Cast {
    /// The cores.
    pub cores: Vec<Process>,
    /// The edge.
    pub fleet: Fleet,
    /// One at each core.
    pub witnesses: Vec<Witness>,
    /// Who is there.
    pub there: BTreeSet<String>,
    keys: Arc<Keys>,
    store: String,
    came: usize,
}

impl Cast {
    /// `people` are there, everybody has seen them, and the hold of the first start is over.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn set(cores: usize, people: usize, store: &str) -> anyhow::Result<Self> {
        let keys = Arc::new(Keys::generate()?);
        let options = CoreOptions { store: Some(store.to_owned()), ..CoreOptions::default() };
        let started: anyhow::Result<Vec<Process>> =
            (0..cores).map(|_| core_with(&options, &keys, &TIMERS)).collect();
        let cores = started?;
        let addresses: Vec<String> = cores.iter().map(|core| core.address("grpc")).collect();
        let fleet = Fleet::start("edge", &addresses, Arc::clone(&keys), TIMERS);
        let witnesses =
            addresses.iter().map(|address| Witness::start(address)).collect::<anyhow::Result<_>>()?;
        let (there, store) = (BTreeSet::new(), store.to_owned());
        let mut cast = Self { cores, fleet, witnesses, there, keys, store, came: 0 };
        cast.come(people).await?;
        cast.everybody_sees(WITHIN).await?;
        tokio::time::sleep(TIMERS.lease_ttl).await;
        Ok(cast)
    }

    /// A token for the room.
    ///
    /// # Errors
    /// When the name is out of bounds.
    pub fn token(&self, user: &str, action: Action) -> anyhow::Result<String> {
        self.keys.token(user, ROOM, action)
    }

    /// Starts a real edge that knows all cores.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_edge(&self, name: &str) -> anyhow::Result<Process> {
        let cores = self.cores.iter().map(|core| core.address("grpc")).collect();
        edge_with(name, &EdgeOptions { cores, ..EdgeOptions::default() }, &self.keys, &TIMERS)
    }

    /// One more hand-made edge that knows all cores; nobody is there yet.
    #[must_use]
    pub fn start_fleet(&self, name: &str) -> Fleet {
        let cores: Vec<String> = self.cores.iter().map(|core| core.address("grpc")).collect();
        Fleet::start(name, &cores, Arc::clone(&self.keys), TIMERS)
    }

    /// More people come.
    ///
    /// # Errors
    /// When they do not get in.
    pub async fn come(&mut self, people: usize) -> anyhow::Result<()> {
        let more = Person::gathering(ROOM, "user", self.came, people);
        self.came += people;
        let users: Vec<String> = more.iter().map(|person| person.user.clone()).collect();
        self.fleet.join(more, WITHIN).await?;
        self.there.extend(users);
        Ok(())
    }

    /// The first so many fall silent for good: nobody speaks for them again.
    ///
    /// # Errors
    /// When the edge has ended.
    pub fn fall_silent(&mut self, people: usize) -> anyhow::Result<BTreeSet<String>> {
        let users: Vec<String> = self.there.iter().take(people).cloned().collect();
        self.fleet.silence(users.clone())?;
        users.iter().for_each(|user| {
            self.there.remove(user);
        });
        Ok(users.into_iter().collect())
    }

    /// Every witness has the list of those who are there.
    ///
    /// # Errors
    /// When one has not within the time.
    pub async fn everybody_sees(&self, within: Duration) -> anyhow::Result<()> {
        for witness in &self.witnesses {
            witness.until(&self.there, within).await?;
        }
        Ok(())
    }

    /// Nobody of those who are there was ever announced as gone, and the list is right in the end.
    ///
    /// # Errors
    /// Who was.
    pub async fn nothing_was_seen_but(
        &self,
        gone: &BTreeSet<String>,
        within: Duration,
    ) -> anyhow::Result<()> {
        self.everybody_sees(within).await?;
        for (number, witness) in self.witnesses.iter().enumerate() {
            let removed = witness.seen().removed;
            let wrong: Vec<_> = removed.iter().filter(|(user, _)| !gone.contains(user)).take(5).collect();
            anyhow::ensure!(wrong.is_empty(), "at core {number}: {wrong:?} of {}", removed.len());
        }
        Ok(())
    }

    /// Starts one more core, and a witness there.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn add_core(&mut self) -> anyhow::Result<()> {
        let options = CoreOptions { store: Some(self.store.clone()), ..CoreOptions::default() };
        let core = core_with(&options, &self.keys, &TIMERS)?;
        self.witnesses.push(Witness::start(&core.address("grpc"))?);
        self.cores.push(core);
        Ok(())
    }
}

/// A cast over one Redis behind a proxy.
pub struct Scene {
    /// What happens between cores and server.
    pub weather: Weather,
    /// The way to the server.
    pub proxy: Proxy,
    /// The server.
    pub server: Server,
    cast: Cast,
}

impl Scene {
    /// As [`Cast::set`], over a server of its own.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn set(cores: usize, people: usize, options: ServerOptions) -> anyhow::Result<Self> {
        let server = Server::start(options).await?;
        let weather = Weather::default();
        let proxy = Proxy::start(server.port(), &weather)?;
        let cast = Cast::set(cores, people, &format!("redis://{}", proxy.address())).await?;
        Ok(Self { weather, proxy, server, cast })
    }
}

impl Deref for Scene {
    type Target = Cast;

    fn deref(&self) -> &Cast {
        &self.cast
    }
}

impl DerefMut for Scene {
    fn deref_mut(&mut self) -> &mut Cast {
        &mut self.cast
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("nobody panics with this lock")
}
