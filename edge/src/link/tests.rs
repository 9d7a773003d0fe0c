use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_model::id::{EdgeName, Incarnation, LinkNumber, RegionId, RoomId};
use presence_model::link::LinkDown;
use presence_model::watch::WatchDown;
use presence_proto::v1;
use presence_proto::v1::edge_service_server::{EdgeService, EdgeServiceServer};
use presence_proto::v1::presence_service_server::{PresenceService, PresenceServiceServer};
use presence_runtime::clock::ManualClock;
use presence_runtime::network::{Accept, Duplex, Simulated};
use presence_runtime::rpc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::limits::{LINK_FLUSH_WITHIN, RESOLVE_EVERY, RESOLVE_WITHIN};
use crate::logs::Lines;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A core that notes what it hears, greets, and ends a link at Bye.
#[derive(Clone)]
struct FakeCore {
    heard: mpsc::Sender<v1::link_request::Message>,
}

#[tonic::async_trait]
impl EdgeService for FakeCore {
    type LinkStream = Answers<v1::LinkResponse>;

    async fn link(
        &self,
        request: Request<Streaming<v1::LinkRequest>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let (mut up, heard) = (request.into_inner(), self.heard.clone());
        let (down, answers) = mpsc::channel(8);
        tokio::spawn(async move {
            down.send(Ok(LinkDown::Drain.into())).await.unwrap();
            while let Ok(Some(v1::LinkRequest { message: Some(message) })) = up.message().await {
                let is_last = matches!(message, v1::link_request::Message::Bye(_));
                heard.send(message).await.unwrap();
                if is_last {
                    break;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

#[tonic::async_trait]
impl PresenceService for FakeCore {
    type WatchStream = Answers<v1::WatchResponse>;

    async fn watch(
        &self,
        request: Request<Streaming<v1::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let answers = request.into_inner().map(|asked| {
            asked.map(|_| WatchDown::Count { room: RoomId::new("r1").expect("a name"), members: 7 }.into())
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_room(
        &self,
        _: Request<v1::GetRoomRequest>,
    ) -> Result<Response<v1::GetRoomResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn count_room(
        &self,
        _: Request<v1::CountRoomRequest>,
    ) -> Result<Response<v1::CountRoomResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_rooms(
        &self,
        _: Request<v1::ListRoomsRequest>,
    ) -> Result<Response<v1::ListRoomsResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

async fn listen() -> (tokio::net::TcpListener, SocketAddr) {
    #[expect(clippy::disallowed_methods, reason = "the far side of the network under test")]
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn core() -> (String, mpsc::Receiver<v1::link_request::Message>) {
    let (listener, address) = listen().await;
    let (heard, hears) = mpsc::channel(64);
    let core = FakeCore { heard };
    let server = tonic::transport::Server::builder()
        .add_service(EdgeServiceServer::new(core.clone()))
        .add_service(PresenceServiceServer::new(core));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (format!("http://{address}"), hears)
}

fn links() -> (Links, mpsc::Receiver<Event>) {
    Links::new(Network::tcp(), Clock::system(), Shutdown::new())
}

fn at(url: &str) -> CoreAddress {
    CoreAddress { url: url.into(), address: None }
}

fn hello(link: u64) -> Hello {
    Hello {
        edge: EdgeName::new("edge-1").unwrap(),
        incarnation: Incarnation(9),
        link: LinkNumber(link),
        region: RegionId::new("local").unwrap(),
        release: "test".into(),
    }
}

async fn soon<T>(what: impl Future<Output = Option<T>>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("in time").expect("something")
}

async fn input(links: &mut Links, events: &mut mpsc::Receiver<Event>) -> Input {
    soon(async {
        loop {
            if let Some(input) = links.input(events.recv().await?) {
                return Some(input);
            }
        }
    })
    .await
}

#[tokio::test]
async fn the_core_that_is_told_is_linked_to_and_words_go_both_ways() {
    let (listener, dead) = listen().await;
    drop(listener);
    let (alive, mut hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&format!("http://{dead}")), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkLost));
    // Where a name stands for several addresses, the one that is told is taken.
    let address = rpc::target(&alive).map(Into::into);
    links.open_link(CoreAddress { url: "http://cores.test:1".into(), address }, hello(2));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    assert!(matches!(input(&mut links, &mut events).await, Input::Link(LinkDown::Drain)));
    links.send_link(LinkUp::Beat { sequence: 5 }).unwrap();
    let first = soon(hears.recv()).await;
    assert!(matches!(first, v1::link_request::Message::Hello(hello) if hello.link_number == 2));
    let second = soon(hears.recv()).await;
    assert!(matches!(second, v1::link_request::Message::Beat(beat) if beat.sequence == 5));
}

#[tokio::test]
async fn a_core_that_ends_the_link_is_lost() {
    let (core, _hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    links.send_link(LinkUp::Bye { moving: false }).unwrap();
    assert!(matches!(input(&mut links, &mut events).await, Input::Link(_)));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkLost));
    assert_eq!(links.send_link(LinkUp::Beat { sequence: 1 }), Err(Lost));
}

#[tokio::test]
async fn the_last_words_of_a_link_that_is_given_up_still_go_out_and_nothing_of_it_is_reported() {
    let (core, mut hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    links.send_link(LinkUp::Bye { moving: true }).unwrap();
    links.drop_link();
    assert!(matches!(soon(hears.recv()).await, v1::link_request::Message::Hello(_)));
    assert!(matches!(soon(hears.recv()).await, v1::link_request::Message::Bye(bye) if bye.moving));
    while let What::Down(_) = soon(events.recv()).await.what {}
    let late = Event { kind: Kind::Link, serial: 1, what: What::Down(Input::Link(LinkDown::Drain)) };
    assert!(links.input(late).is_none());
}

#[tokio::test]
async fn what_an_older_link_says_is_not_taken_for_the_newer() {
    let (core, _hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&core), hello(1));
    let late = soon(events.recv()).await;
    links.open_link(at(&core), hello(2));
    assert!(links.input(late).is_none());
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
}

#[tokio::test]
async fn the_watch_goes_beside_the_link() {
    let (core, _hears) = core().await;
    let (mut links, mut events) = links();
    assert_eq!(links.open_watch(), Err(Lost), "there is no link yet");
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    assert!(matches!(input(&mut links, &mut events).await, Input::Link(_)));
    links.open_watch().unwrap();
    links.send_watch(WatchUp::Close(RoomId::new("r1").unwrap())).unwrap();
    assert!(matches!(input(&mut links, &mut events).await, Input::WatchUp));
    let down = input(&mut links, &mut events).await;
    assert!(matches!(down, Input::Watch(WatchDown::Count { members: 7, .. })), "{down:?}");
}

#[tokio::test]
async fn a_core_that_does_not_read_is_given_up() {
    let (_listener, silent) = listen().await;
    let (mut links, _events) = links();
    links.open_link(at(&format!("http://{silent}")), hello(1));
    for sequence in 0..LINK_UP_MAX as u64 {
        links.send_link(LinkUp::Beat { sequence }).unwrap();
    }
    assert_eq!(links.send_link(LinkUp::Beat { sequence: 0 }), Err(Lost));
    assert!(links.link.is_none());
}

#[tokio::test]
async fn a_core_that_does_not_read_its_watch_is_given_up() {
    let (core, _hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    links.open_watch().unwrap();
    let room = RoomId::new("r1").unwrap();
    // Nothing carries it meanwhile: this thread is the only one.
    for _ in 0..WATCH_UP_MAX {
        links.send_watch(WatchUp::Close(room.clone())).unwrap();
    }
    assert_eq!(links.send_watch(WatchUp::Close(room)), Err(Lost));
    assert!(links.watch.is_none() && links.link.is_some());
}

#[tokio::test]
async fn what_cores_say_waits_at_the_core_beyond_so_much() {
    let (core, _hears) = core().await;
    let (mut links, mut events) = links();
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    links.open_watch().unwrap();
    let asked = 2 * CORE_EVENTS_MAX;
    for _ in 0..asked {
        links.send_watch(WatchUp::Close(RoomId::new("r1").unwrap())).unwrap();
    }
    let full = async {
        while events.len() < CORE_EVENTS_MAX {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(Duration::from_secs(10), full).await.expect("in time");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(events.len(), CORE_EVENTS_MAX);
    for _ in 0..asked {
        // What the link says comes in between.
        while !matches!(input(&mut links, &mut events).await, Input::Watch(_)) {}
    }
}

#[tokio::test]
async fn a_link_that_was_given_up_has_so_long_for_its_last_messages() {
    let (core, _hears) = core().await;
    let (clock, hand) = Clock::manual();
    let (mut links, mut events) = Links::new(Network::tcp(), clock, Shutdown::new());
    links.open_link(at(&core), hello(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::LinkUp));
    // More than this core takes before somebody hears it: it does not come to the end of the stream.
    for sequence in 0..100 {
        links.send_link(LinkUp::Beat { sequence }).unwrap();
    }
    links.drop_link();
    let mut is_over = async |advance| {
        hand.advance(advance);
        let over = async { while !matches!(events.recv().await.unwrap().what, What::Lost) {} };
        tokio::time::timeout(Duration::from_millis(300), over).await.is_ok()
    };
    assert!(!is_over(Duration::ZERO).await, "it begins to wait");
    assert!(!is_over(LINK_FLUSH_WITHIN - Duration::from_millis(1)).await);
    assert!(is_over(Duration::from_millis(1)).await);
}

#[tokio::test]
async fn a_core_that_is_tried_again_and_again_is_told_now_and_then() {
    let (listener, dead) = listen().await;
    drop(listener);
    let (clock, hand) = Clock::manual();
    let (mut links, mut events) = Links::new(Network::tcp(), clock, Shutdown::new());
    let lines = Lines::collect();
    let mut told_after = async |advance| {
        hand.advance(advance);
        links.open_link(at(&format!("http://{dead}")), hello(1));
        assert!(matches!(input(&mut links, &mut events).await, Input::LinkLost));
        lines.with("no stream to a core")
    };
    assert_eq!(told_after(Duration::ZERO).await, 1);
    assert_eq!(told_after(LINK_TOLD_EVERY - Duration::from_millis(1)).await, 1);
    assert_eq!(told_after(Duration::from_millis(1)).await, 2);
    assert_eq!(told_after(Duration::from_millis(1)).await, 2);
}

/// A network whose names are not found for ever, or are, and that counts how often somebody asks.
#[derive(Default)]
struct Names {
    asked: AtomicUsize,
    hangs: bool,
}

impl Simulated for Names {
    fn listen(&self, _: SocketAddr) -> std::io::Result<(SocketAddr, Box<dyn Accept>)> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn connect(&self, _: String) -> BoxFuture<'static, std::io::Result<Box<dyn Duplex>>> {
        std::future::ready(Err(std::io::ErrorKind::Unsupported.into())).boxed()
    }

    fn resolve(&self, _: String) -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        if self.hangs {
            return std::future::pending().boxed();
        }
        // Another address each time: there is something to tell.
        let port = u16::try_from(asked).expect("asked a few times");
        std::future::ready(Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])).boxed()
    }
}

fn following(names: &Arc<Names>) -> (Links, mpsc::Receiver<Event>, ManualClock) {
    let (clock, hand) = Clock::manual();
    let network = Network::simulated(Arc::<Names>::clone(names));
    let (links, events) = Links::new(network, clock, Shutdown::new());
    links.follow_names(vec!["http://cores.test:1".to_owned()]);
    (links, events, hand)
}

/// Lets whatever can go on do so.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn names_are_looked_up_at_their_cadence() {
    let names = Arc::new(Names::default());
    let (mut links, mut events, hand) = following(&names);
    assert!(matches!(input(&mut links, &mut events).await, Input::Cores(_)));
    settle().await;
    hand.advance(RESOLVE_EVERY - Duration::from_millis(1));
    settle().await;
    assert_eq!(names.asked.load(Ordering::Relaxed), 1);
    hand.advance(Duration::from_millis(1));
    assert!(matches!(input(&mut links, &mut events).await, Input::Cores(_)));
    assert_eq!(names.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_name_that_nobody_answers_for_is_left_to_whoever_connects() {
    let names = Arc::new(Names { hangs: true, ..Names::default() });
    let (mut links, mut events, hand) = following(&names);
    settle().await;
    hand.advance(RESOLVE_WITHIN - Duration::from_millis(1));
    settle().await;
    assert!(events.is_empty(), "it may still be found");
    hand.advance(Duration::from_millis(1));
    let Input::Cores(cores) = input(&mut links, &mut events).await else { panic!("no cores") };
    assert_eq!(cores, [at("http://cores.test:1")]);
}

#[tokio::test]
async fn names_are_looked_up_and_each_address_is_a_core() {
    let urls = |urls: &[&str]| urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>();
    let digits = literal(&urls(&["http://127.0.0.1:1", "http://[::1]:2"])).unwrap();
    assert_eq!(digits[1].address.as_deref(), Some("[::1]:2"));
    assert_eq!(literal(&urls(&["http://127.0.0.1:1", "http://localhost:2"])), None);
    let (mut links, mut events) = links();
    links.follow_names(urls(&["http://localhost:7", "http://127.0.0.1:8", "http://nobody.invalid:9"]));
    let Input::Cores(cores) = input(&mut links, &mut events).await else { panic!("no cores") };
    let of = |port: u16| cores.iter().filter(move |core| core.url.ends_with(&format!(":{port}")));
    let addresses = |port| of(port).map(|core| core.address.as_deref()).collect::<Vec<_>>();
    let local = |at: &Option<&str>| at.is_some_and(|at| ["127.0.0.1:7", "[::1]:7"].contains(&at));
    assert!(!addresses(7).is_empty() && addresses(7).iter().all(local), "{cores:?}");
    assert_eq!(addresses(8), [Some("127.0.0.1:8")]);
    assert_eq!(addresses(9), [None], "left to whoever connects");
}
