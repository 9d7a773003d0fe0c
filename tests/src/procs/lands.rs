//! Regions with a Redis, a core and an edge each, which watch each other over long ways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::v1;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{Client, CoreOptions, EdgeOptions, Keys, Observer, Process, Relay, Timers, core_with, edge_with};
use crate::redis::{Server, ServerOptions, free_port};

/// One region.
pub struct Land {
    /// Its name.
    pub name: &'static str,
    /// Its store.
    pub server: Server,
    /// Where its core accepts.
    pub grpc: String,
    /// Its core; none: it does not run.
    pub core: Option<Process>,
    /// Its edge.
    pub edge: Process,
}

/// How regions are started.
#[derive(Debug, Clone, Copy)]
pub struct LandOptions {
    /// Their names.
    pub names: [&'static str; 3],
    /// Timers of all cores and edges.
    pub timers: Timers,
    /// One way between two of them.
    pub way: Duration,
    /// How often others are merged.
    pub merge: Duration,
}

/// All of them.
pub struct Lands {
    keys: Arc<Keys>,
    options: LandOptions,
    /// In the order of their names.
    pub lands: Vec<Land>,
    ways: BTreeMap<(usize, usize), Relay>,
}

impl Lands {
    /// Starts all.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn start(options: LandOptions) -> anyhow::Result<Self> {
        let all = options.names.len();
        let mut ways = BTreeMap::new();
        for from in 0..all {
            for to in (0..all).filter(|to| *to != from) {
                ways.insert((from, to), Relay::start(options.way).await?);
            }
        }
        let mut this = Self { keys: Arc::new(Keys::generate()?), options, lands: Vec::new(), ways };
        for (land, name) in options.names.into_iter().enumerate() {
            let server = Server::start(ServerOptions::default()).await?;
            let grpc = format!("127.0.0.1:{}", free_port()?);
            for from in (0..all).filter(|from| *from != land) {
                this.way(from, land).lead_to(&grpc)?;
            }
            let core = Some(this.core(land, &server, &grpc)?);
            let more = vec!["--region".to_owned(), name.to_owned()];
            let edge = EdgeOptions { cores: vec![grpc.clone()], more, ..EdgeOptions::default() };
            let edge = edge_with(&format!("edge-{name}"), &edge, &this.keys, &options.timers)?;
            this.lands.push(Land { name, server, grpc, core, edge });
        }
        Ok(this)
    }

    fn core(&self, land: usize, server: &Server, grpc: &str) -> anyhow::Result<Process> {
        let names = self.options.names;
        let mut more = vec!["--region".to_owned(), names[land].to_owned()];
        more.extend(["--merge-interval".to_owned(), format!("{}ms", self.options.merge.as_millis())]);
        for to in (0..names.len()).filter(|to| *to != land) {
            more.extend([
                "--peer".to_owned(),
                format!("{}=http://{}", names[to], self.way(land, to).address),
            ]);
        }
        let store = Some(format!("redis://{}", server.address()));
        let options = CoreOptions { store, grpc: Some(grpc.to_owned()), more, ..CoreOptions::default() };
        core_with(&options, &self.keys, &self.options.timers)
    }

    /// Kills the core of a region and starts another one.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart_core(&mut self, land: usize) -> anyhow::Result<()> {
        drop(self.lands[land].core.take());
        let core = self.core(land, &self.lands[land].server, &self.lands[land].grpc)?;
        self.lands[land].core = Some(core);
        Ok(())
    }

    /// The way from the core of one region to that of another.
    #[must_use]
    pub fn way(&self, from: usize, to: usize) -> &Relay {
        &self.ways[&(from, to)]
    }

    /// All ways.
    pub fn ways(&self) -> impl Iterator<Item = &Relay> {
        self.ways.values()
    }

    /// Holds back all ways from and to a region, or lets through what comes.
    pub fn isolate(&self, land: usize, is_cut: bool) {
        let of = |(from, to): &(usize, usize)| *from == land || *to == land;
        self.ways.iter().filter(|(ends, _)| of(ends)).for_each(|(_, way)| way.hold_back(is_cut, is_cut));
    }

    /// What all ways have carried so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.ways().map(Relay::bytes).sum()
    }

    /// Somebody in each region who watches this room.
    ///
    /// # Errors
    /// When an edge refuses.
    pub async fn observe(&self, room: &str) -> anyhow::Result<Vec<Observer>> {
        let mut observers = Vec::new();
        for land in &self.lands {
            observers.push(Observer::start(&land.edge.address("ws"), &self.keys, &[room.to_owned()]).await?);
        }
        Ok(observers)
    }

    /// A user joins a room in a region, as its client of before would with its cursor.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn join(
        &self,
        (land, room): (usize, &str),
        user: &str,
        (generation, cursor): (u64, Option<String>),
    ) -> anyhow::Result<Client> {
        let mut client = Client::connect(&self.lands[land].edge.address("ws")).await?;
        client.cursor = cursor;
        let token = self.keys.token(user, room, Action::Join)?;
        client.join(room, &token, &format!("{user:-<16}"), generation).await?;
        Ok(client)
    }

    /// The same, of somebody who comes for the first time and reads what it is sent until the task ends.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn come(&self, place: (usize, &str), user: &str) -> anyhow::Result<JoinHandle<()>> {
        Ok(keep(self.join(place, user, (1, None)).await?))
    }

    /// Who is in a room, as the core of a region answers, each as often as it is listed.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ask(&self, land: usize, room: &str) -> anyhow::Result<Vec<String>> {
        let core = self.lands[land].core.as_ref().ok_or_else(|| anyhow::anyhow!("no core in {land}"))?;
        let mut rooms = v1::presence_service_client::PresenceServiceClient::new(core.channel().await?);
        let asked = v1::GetRoomRequest { room: room.to_owned(), ..v1::GetRoomRequest::default() };
        let page = rooms.get_room(asked).await?.into_inner();
        Ok(page.members.into_iter().map(|member| member.user).collect())
    }
}

/// Somebody who is in a room, and reads what it is sent.
pub struct Stay {
    cursor: watch::Receiver<Option<String>>,
    goodbye: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Stay {
    /// Reads on from here.
    #[must_use]
    pub fn of(mut client: Client, room: &str) -> Self {
        let (tell, cursor) = watch::channel(client.cursor.clone());
        let (goodbye, mut said) = oneshot::channel();
        let leave = json!({ "t": "leave", "room": room });
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    told = &mut said => {
                        // What follows is read to keep the connection, and what it says is of no interest.
                        if told.is_ok() && client.send(&leave).await.is_ok() {
                            client.idle().await;
                        }
                        return;
                    }
                    frame = client.next() => {
                        if frame.is_err() {
                            return;
                        }
                        tell.send_replace(client.cursor.clone());
                    }
                }
            }
        });
        Self { cursor, goodbye, task }
    }

    /// Where its list is, as soon as it has one.
    ///
    /// # Errors
    /// When its connection ends before.
    pub async fn cursor(&mut self) -> anyhow::Result<Option<String>> {
        Ok(self.cursor.wait_for(Option::is_some).await?.clone())
    }

    /// Says goodbye; the connection goes on.
    pub fn leave(self) {
        let _ = self.goodbye.send(());
    }

    /// The connection is lost.
    pub fn cut(self) {
        self.task.abort();
    }
}

/// Reads what a client is sent until the task ends.
#[must_use]
pub fn keep(client: Client) -> JoinHandle<()> {
    tokio::spawn(client.idle())
}
