//! Scenario 34: between edge and core there is somebody who answers for a core that is dead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use presence_model::claim::Action;
use presence_proto::v1;
use presence_proto::v1::edge_service_client::EdgeServiceClient;
use presence_proto::v1::edge_service_server::{EdgeService, EdgeServiceServer};
use presence_proto::v1::presence_service_client::PresenceServiceClient;
use presence_proto::v1::presence_service_server::{PresenceService, PresenceServiceServer};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc::{self, RequestObserver, ServerSettings};
use presence_runtime::telemetry::Metrics;
use presence_runtime::tls::Door;
use presence_tests::procs::{
    Client, CoreOptions, EdgeOptions, Keys, Observer, Process, Timers, core_with, edge_with,
};
use presence_tests::redis::{Server, ServerOptions};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_secs(2),
    lease_ttl: Duration::from_secs(8),
    grace: Duration::from_secs(2),
    edge_lost: Duration::from_millis(2_500),
};
/// A link beat with these timers: a fifth of a heartbeat.
const BEAT: Duration = Duration::from_millis(400);
/// For the new link to be opened, on a busy machine.
const SLACK: Duration = Duration::from_millis(900);
const WITHIN: Duration = Duration::from_secs(20);
const ROOM: &str = "lobby";

/// Relays streams to a core, message by message. Its own HTTP/2 answers every ping, whether or not that core
/// lives, as a proxy does.
#[derive(Clone)]
struct Relay {
    core: Channel,
    links: Arc<AtomicUsize>,
}

/// A relay that serves until dropped.
struct Relayed {
    address: SocketAddr,
    links: Arc<AtomicUsize>,
    _ends: DropGuard,
}

impl Relay {
    async fn start(core: &Process) -> anyhow::Result<Relayed> {
        let core = core.channel().await?;
        let links = Arc::new(AtomicUsize::new(0));
        let relay = Self { core, links: Arc::clone(&links) };
        let listener = Network::tcp().listen(([127, 0, 0, 1], 0).into())?;
        let address = listener.local_addr();
        let routes =
            Routes::new(EdgeServiceServer::new(relay.clone())).add_service(PresenceServiceServer::new(relay));
        let settings = ServerSettings { drain_within: Duration::ZERO, ..ServerSettings::default() };
        let (metrics, clock) = (Metrics::new(), Clock::system());
        let door = Door::new(("relay", "gRPC"), None, &metrics, clock.clone());
        let observer = RequestObserver::new("relay", &metrics, clock);
        let end = CancellationToken::new();
        tokio::spawn(rpc::serve((listener, door), routes, settings, observer, end.clone()));
        Ok(Relayed { address, links, _ends: end.drop_guard() })
    }
}

impl Relayed {
    fn links(&self) -> usize {
        self.links.load(Ordering::SeqCst)
    }
}

fn sound<T: Send + 'static>(inbound: Streaming<T>) -> impl futures::Stream<Item = T> + Send + 'static {
    inbound.filter_map(async |message| message.ok())
}

#[tonic::async_trait]
impl EdgeService for Relay {
    type LinkStream = BoxStream<'static, Result<v1::LinkResponse, Status>>;

    async fn link(
        &self,
        request: Request<Streaming<v1::LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let up = sound(request.into_inner());
        let down = EdgeServiceClient::new(self.core.clone()).link(up).await?.into_inner();
        self.links.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(down.boxed()))
    }
}

#[tonic::async_trait]
impl PresenceService for Relay {
    type WatchStream = BoxStream<'static, Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let up = sound(request.into_inner());
        let down = PresenceServiceClient::new(self.core.clone()).watch(up).await?.into_inner();
        Ok(Response::new(down.boxed()))
    }

    async fn get_room(
        &self,
        _: Request<v1::GetRoomRequest>,
    ) -> Result<Response<v1::GetRoomResponse>, Status> {
        Err(Status::unimplemented("streams only"))
    }

    async fn count_room(
        &self,
        _: Request<v1::CountRoomRequest>,
    ) -> Result<Response<v1::CountRoomResponse>, Status> {
        Err(Status::unimplemented("streams only"))
    }

    async fn list_rooms(
        &self,
        _: Request<v1::ListRoomsRequest>,
    ) -> Result<Response<v1::ListRoomsResponse>, Status> {
        Err(Status::unimplemented("streams only"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_34_a_core_for_which_a_proxy_answers_is_left_within_three_beats() -> anyhow::Result<()> {
    let server = Server::start(ServerOptions::default()).await?;
    let keys = Keys::generate()?;
    let options =
        CoreOptions { store: Some(format!("redis://{}", server.address())), ..CoreOptions::default() };
    let cores = [core_with(&options, &keys, &TIMERS)?, core_with(&options, &keys, &TIMERS)?];
    let relays = [Relay::start(&cores[0]).await?, Relay::start(&cores[1]).await?];
    let addresses = relays.iter().map(|relay| relay.address.to_string()).collect();
    let edge =
        edge_with("edge", &EdgeOptions { cores: addresses, ..EdgeOptions::default() }, &keys, &TIMERS)?;
    let linked = relays.iter().position(|relay| relay.links() > 0).expect("the edge said that it is linked");
    let other = &relays[1 - linked];

    let mut client = Client::connect(&edge.address("ws")).await?;
    client.join(ROOM, &keys.token("ann", ROOM, Action::Join)?, "session-of-ann-000000", 1).await?;
    let idle = tokio::spawn(client.idle());
    let observing = edge_with(
        "observing",
        &EdgeOptions { cores: vec![cores[1 - linked].address("grpc")], ..EdgeOptions::default() },
        &keys,
        &TIMERS,
    )?;
    let observer = Observer::start(&observing.address("ws"), &keys, &[ROOM.to_owned()]).await?;
    observer.until(1, WITHIN).await?;
    // The hold of a new store would hide what comes of it.
    tokio::time::sleep(TIMERS.lease_ttl + TIMERS.heartbeat).await;
    assert_eq!(other.links(), 0, "nothing moves without a reason");

    let start = Instant::now();
    cores[linked].signal("STOP")?;
    while other.links() == 0 {
        anyhow::ensure!(start.elapsed() < WITHIN, "the edge stays with a dead core");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let took = start.elapsed();
    println!("the edge moved {took:.2?} after its core had stopped; three beats are {:.2?}", BEAT * 3);
    assert!(took <= BEAT * 3 + SLACK, "{took:?}");
    assert!(took >= BEAT, "a core that was heard a moment ago is not left");

    tokio::time::sleep(TIMERS.lease_ttl + TIMERS.heartbeat).await;
    let sight = observer.sight();
    assert!(sight.departures.is_empty() && sight.count() == 1, "{:?}", sight.departures);
    assert!(!idle.is_finished(), "its client was told nothing");
    cores[linked].signal("CONT")?;
    Ok(())
}
