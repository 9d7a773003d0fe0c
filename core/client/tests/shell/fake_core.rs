//! A core played by a test: it gets each watch stream in hand, and sets the answers to questions.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use presence_client::{Client, ClientSettings, Deps};
use presence_model::backoff::Backoff;
use presence_model::digest::Digest;
use presence_model::id::{RegionId, RoomId, UserId};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::{Member, State, Status as Reachable};
use presence_model::replica::{Freshness, SnapshotPage};
use presence_model::time::StoreTime;
use presence_model::view::RegionEvent;
use presence_model::watch::{OpenRoom, WatchDown, WatchUp};
use presence_proto::v1;
use presence_proto::v1::admin_service_server::{AdminService, AdminServiceServer};
use presence_proto::v1::presence_service_server::{PresenceService, PresenceServiceServer};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::rpc::{self, RequestObserver, ServeError, ServerSettings};
use presence_runtime::telemetry::Metrics;
use presence_runtime::tls::Door;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

type Answers = mpsc::Sender<Result<v1::WatchResponse, Status>>;

/// How a question is answered.
#[derive(Clone, Default)]
pub(crate) struct Book {
    /// Pages of `GetRoom`, by token.
    pub(crate) pages: Vec<v1::GetRoomResponse>,
    /// Pages of `ListRooms`, by token.
    pub(crate) lists: Vec<v1::ListRoomsResponse>,
    pub(crate) count: Option<v1::CountRoomResponse>,
    pub(crate) explained: Option<v1::ExplainResponse>,
    /// Everything is refused with this.
    pub(crate) refusal: Option<Status>,
    /// Nothing is answered at all.
    pub(crate) is_mute: bool,
}

pub(crate) struct FakeCore {
    pub(crate) url: String,
    pub(crate) book: Arc<Mutex<Book>>,
    streams: mpsc::Receiver<WatchStream>,
    end: CancellationToken,
    served: JoinHandle<Result<(), ServeError>>,
}

/// A watch stream in hand.
pub(crate) struct WatchStream {
    requests: Streaming<v1::WatchRequest>,
    answers: Answers,
}

/// Longer than anything on loopback takes.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("something did not happen")
}

impl FakeCore {
    pub(crate) fn start() -> Self {
        let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let url = format!("http://{}", listener.local_addr());
        let (opened, streams) = mpsc::channel(16);
        let book = Arc::new(Mutex::new(Book::default()));
        let service = Service { opened, book: Arc::clone(&book) };
        let routes = Routes::new(PresenceServiceServer::new(service.clone()))
            .add_service(AdminServiceServer::new(service));
        let settings = ServerSettings { drain_within: Duration::ZERO, ..ServerSettings::default() };
        let (metrics, clock) = (Metrics::new(), Clock::system());
        let door = Door::new(("test", "gRPC"), None, &metrics, clock.clone());
        let observer = RequestObserver::new("test", &metrics, clock);
        let end = CancellationToken::new();
        let served = tokio::spawn(rpc::serve((listener, door), routes, settings, observer, end.clone()));
        Self { url, book, streams, end, served }
    }

    /// The next watch stream that a client opens.
    pub(crate) async fn stream(&mut self) -> WatchStream {
        soon(self.streams.recv()).await.unwrap()
    }

    pub(crate) fn has_stream(&mut self) -> bool {
        self.streams.try_recv().is_ok()
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book.lock().unwrap());
    }

    /// Cuts all connections and answers no more.
    pub(crate) async fn die(&mut self) {
        self.end.cancel();
        soon(&mut self.served).await.unwrap().unwrap();
    }
}

impl Drop for FakeCore {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl WatchStream {
    pub(crate) async fn up(&mut self) -> WatchUp {
        soon(self.requests.next()).await.unwrap().unwrap().try_into().unwrap()
    }

    pub(crate) async fn opened(&mut self) -> OpenRoom {
        match self.up().await {
            WatchUp::Open(open) => *open,
            WatchUp::Close(room) => panic!("{room} was closed"),
        }
    }

    pub(crate) async fn say(&self, down: WatchDown) {
        self.answers.send(Ok(down.into())).await.unwrap();
    }

    pub(crate) async fn event(&self, name: &str, event: RegionEvent) {
        self.say(WatchDown::Region { room: room(name), region: region(), event }).await;
    }

    pub(crate) async fn progress(&self, store_ms: u64) {
        self.say(WatchDown::Progress { sequence: 1, store_time: StoreTime(store_ms) }).await;
    }

    /// The client has gone.
    pub(crate) async fn closed(&self) {
        self.answers.closed().await;
    }

    pub(crate) async fn fail(&self, status: Status) {
        self.answers.send(Err(status)).await.unwrap();
    }
}

#[derive(Clone)]
struct Service {
    opened: mpsc::Sender<WatchStream>,
    book: Arc<Mutex<Book>>,
}

impl Service {
    async fn book(&self) -> Result<Book, Status> {
        let book = self.book.lock().unwrap().clone();
        if book.is_mute {
            std::future::pending::<()>().await;
        }
        match book.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(book),
        }
    }
}

fn page<T: Clone>(pages: &[T], token: &str) -> Result<Response<T>, Status> {
    let at: usize = token.parse().unwrap_or(0);
    pages.get(at).cloned().map(Response::new).ok_or_else(|| Status::not_found("not in the book"))
}

#[tonic::async_trait]
impl PresenceService for Service {
    type WatchStream = ReceiverStream<Result<v1::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.book().await?;
        let (answers, stream) = mpsc::channel(64);
        self.opened.send(WatchStream { requests: request.into_inner(), answers }).await.unwrap();
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_room(
        &self,
        request: Request<v1::GetRoomRequest>,
    ) -> Result<Response<v1::GetRoomResponse>, Status> {
        page(&self.book().await?.pages, &request.into_inner().page_token)
    }

    async fn count_room(
        &self,
        _: Request<v1::CountRoomRequest>,
    ) -> Result<Response<v1::CountRoomResponse>, Status> {
        Ok(Response::new(self.book().await?.count.unwrap()))
    }

    async fn list_rooms(
        &self,
        request: Request<v1::ListRoomsRequest>,
    ) -> Result<Response<v1::ListRoomsResponse>, Status> {
        page(&self.book().await?.lists, &request.into_inner().page_token)
    }
}

#[tonic::async_trait]
impl AdminService for Service {
    async fn explain(&self, _: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainResponse>, Status> {
        Ok(Response::new(self.book().await?.explained.unwrap()))
    }

    async fn revoke(&self, _: Request<v1::RevokeRequest>) -> Result<Response<v1::RevokeResponse>, Status> {
        Err(Status::unimplemented("not asked here"))
    }

    async fn evict(&self, _: Request<v1::EvictRequest>) -> Result<Response<v1::EvictResponse>, Status> {
        Err(Status::unimplemented("nobody is put out of a fake"))
    }

    async fn drain_edge(
        &self,
        asked: Request<v1::DrainEdgeRequest>,
    ) -> Result<Response<v1::DrainEdgeResponse>, Status> {
        self.book().await?;
        let incarnation = asked.into_inner().incarnation.unwrap_or(7);
        let runs = vec![v1::EdgeDrain { incarnation, sessions: 3 }];
        Ok(Response::new(v1::DrainEdgeResponse { runs }))
    }
}

/// A client that is quick to come back.
pub(crate) fn client(cores: &[&FakeCore]) -> Client {
    let settings = ClientSettings {
        beat: Duration::from_secs(1),
        answer_within: Duration::from_secs(5),
        backoff: Backoff::new(Duration::from_millis(1), Duration::from_millis(20)),
        ..ClientSettings::new(cores.iter().map(|core| core.url.clone()).collect(), 0)
    };
    with(settings)
}

pub(crate) fn with(settings: ClientSettings) -> Client {
    Client::new(settings, Deps { network: Network::tcp(), clock: Clock::system() }).unwrap()
}

pub(crate) fn room(name: &str) -> RoomId {
    RoomId::new(name).unwrap()
}

pub(crate) fn region() -> RegionId {
    RegionId::new("home").unwrap()
}

pub(crate) fn member(user: &str) -> Member {
    Member {
        user: UserId::new(user).unwrap(),
        status: Reachable::Available,
        state: State::new(Bytes::from_static(b"{}")).unwrap(),
        since: StoreTime(100),
    }
}

pub(crate) fn position(revision: u64) -> Position {
    Position { epoch: Epoch { minted_ms: 1, random: 9 }, revision: Revision(revision) }
}

pub(crate) fn digest(users: &[&str]) -> Digest {
    users.iter().map(|user| Digest::of(&member(user))).fold(Digest::default(), Digest::plus)
}

pub(crate) fn snapshot(revision: u64, users: &[&str]) -> RegionEvent {
    RegionEvent::Page(SnapshotPage {
        position: position(revision),
        freshness: Freshness::Live,
        members: users.iter().map(|user| member(user)).collect(),
        first: true,
        last: Some(digest(users)),
    })
}
