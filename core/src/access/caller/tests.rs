use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use presence_model::time::StoreTime;
use presence_runtime::telemetry::Metrics;
use tokio::sync::watch;

use super::*;

const TABLE: &str = r#"
[[edge]]
certificate = "edge.example"
names = ["edge-1"]
regions = ["eu-west"]

[[service]]
certificate = "team-a.example"
scopes = ["presence.read"]
rooms = ["team-a:"]

[[core]]
certificate = "core.us.example"
regions = ["us-east"]
"#;

fn refusals() -> Arc<AccessRefusals> {
    Arc::new(AccessRefusals::new(&Metrics::new()))
}

fn origin(need: Need, name: &str) -> Origin {
    Origin { address: None, names: PeerNames::from_iter([name]), method: "Some/Method", need }
}

fn certificate(name: &str) -> Credentials {
    let peers = Peers::parse(TABLE).unwrap();
    Credentials::Certificate(peers.named(&PeerNames::from_iter([name])).unwrap())
}

fn token(scopes: &[Scope]) -> Credentials {
    let token = TokenRef { ends: StoreTime(10_000), key_id: "k".into(), token_id: "".into() };
    let grant = Grant { scopes: scopes.to_vec(), rooms: vec!["team-a:".into()] };
    Credentials::Token(grant, Shown { subject: "a".into(), token })
}

fn admit(need: Need, credentials: Credentials) -> Result<Caller, AccessRefusal> {
    Caller::admit(origin(need, "edge.example"), credentials, (refusals(), Clock::manual().0))
}

const READ: Need = Need::Scope(Scope::Read);
const WATCH: Need = Need::ScopeOrEdge(Scope::Read);
const ADMIN: Need = Need::Scope(Scope::Admin);

#[test]
fn a_method_is_for_those_who_have_what_it_needs() {
    let (edge, service) = (|| certificate("edge.example"), || certificate("team-a.example"));
    let core = || certificate("core.us.example");
    let table: [(Need, Credentials, bool); 18] = [
        (Need::Edge, edge(), true),
        (Need::Edge, service(), false),
        (Need::Edge, token(&[Scope::Read, Scope::Feed, Scope::Admin]), false),
        (WATCH, edge(), true),
        (WATCH, service(), true),
        (WATCH, token(&[Scope::Read]), true),
        (WATCH, token(&[Scope::Admin]), false),
        (WATCH, core(), true),
        (READ, core(), false),
        (ADMIN, core(), false),
        (Need::Edge, core(), false),
        (READ, edge(), false),
        (READ, service(), true),
        (READ, token(&[Scope::Admin, Scope::Feed]), false),
        (ADMIN, edge(), false),
        (ADMIN, service(), false),
        (ADMIN, token(&[Scope::Admin]), true),
        (Need::Nothing, token(&[]), true),
    ];
    for (need, credentials, expected) in table {
        let told = format!("{need:?} {credentials:?}");
        assert_eq!(admit(need, credentials).is_ok(), expected, "{told}");
    }
    for need in [Need::Edge, WATCH, READ, ADMIN, Need::Nothing] {
        let caller = admit(need, Credentials::Unasked).unwrap();
        assert!(caller.everything().is_ok() && caller.rooms("any").is_ok());
    }
}

#[test]
fn rooms_are_judged_by_their_names_alone() {
    for credentials in [certificate("team-a.example"), token(&[Scope::Read])] {
        let caller = admit(READ, credentials).unwrap();
        assert!(caller.rooms("team-a:x").is_ok() && caller.rooms("team-a:").is_ok());
        for asked in ["team-b:x", "team-a", "", "TEAM-A:x", "x-team-a:"] {
            assert_eq!(caller.rooms(asked), Err(ServiceError::Forbidden), "{asked}");
        }
        assert_eq!(caller.everything(), Err(ServiceError::Forbidden));
    }
    let edge = admit(WATCH, certificate("edge.example")).unwrap();
    assert!(edge.rooms("team-b:x").is_ok(), "an edge shows every room");
}

#[test]
fn an_edge_links_as_itself_for_its_region() {
    let names = |edge: &str, region: &str| (EdgeName::new(edge).unwrap(), RegionId::new(region).unwrap());
    let metrics = Metrics::new();
    let refusals = Arc::new(AccessRefusals::new(&metrics));
    let deps = (Arc::clone(&refusals), Clock::manual().0);
    let caller =
        Caller::admit(origin(Need::Edge, "edge.example"), certificate("edge.example"), deps).unwrap();
    let link = |edge: &str, region: &str| {
        let (edge, region) = names(edge, region);
        caller.link(&edge, &region)
    };
    assert_eq!(link("edge-1", "eu-west"), Ok(()));
    assert_eq!(link("edge-1", "us-east"), Err(ServiceError::Forbidden));
    assert_eq!(link("edge-2", "eu-west"), Err(ServiceError::Forbidden));
    let text = metrics.encode();
    for reason in ["region", "edge"] {
        let line = format!("presence_core_access_refusals_total{{reason=\"{reason}\"}} 1");
        assert!(text.contains(&line), "{text}");
    }
}

fn is_pending<T>(future: impl Future<Output = T>) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// How long a token is good still, by a clock that shows this.
fn left(now: Option<StoreTime>) -> impl Fn(&Shown) -> Option<Duration> {
    move |shown| Some(shown.token.ends.since(now?))
}

#[tokio::test]
async fn a_stream_is_over_when_its_token_has_ended_by_the_store_s_clock() {
    let caller = admit(READ, token(&[Scope::Read])).unwrap();
    for now in [None, Some(StoreTime(9_999))] {
        assert!(is_pending(caller.over(&Access::Anybody, left(now))), "{now:?}");
    }
    let over = caller.over(&Access::Anybody, left(Some(StoreTime(10_000))));
    assert_eq!(over.await, ServiceError::Unauthorized);

    let (clock, hand) = Clock::manual();
    let began = clock.now();
    let store = move |clock: &Clock| {
        Some(StoreTime(9_000 + u64::try_from(clock.now().since(began).as_millis()).unwrap()))
    };
    let deps = (refusals(), clock.clone());
    let caller = Caller::admit(origin(READ, "edge.example"), token(&[Scope::Read]), deps).unwrap();
    let waiting = tokio::spawn({
        let clock = clock.clone();
        async move { caller.over(&Access::Anybody, |shown| left(store(&clock))(shown)).await }
    });
    while !waiting.is_finished() {
        tokio::task::yield_now().await;
        hand.advance(Duration::from_millis(50));
    }
    assert!(store(&clock).unwrap() >= StoreTime(10_000), "not before");
    assert_eq!(waiting.await.unwrap(), ServiceError::Unauthorized);
}

#[tokio::test]
async fn a_stream_is_over_when_the_table_takes_something_away_and_only_then() {
    let peers = watch::Sender::new(Arc::new(Peers::parse(TABLE).unwrap()));
    let access = Access::Named(peers.subscribe());
    let caller = admit(Need::Edge, certificate("edge.example")).unwrap();
    assert!(is_pending(caller.over(&access, left(None))));
    let more = format!(
        "{TABLE}\n[[edge]]\ncertificate = \"edge.example\"\nnames = [\"edge-9\"]\nregions = [\"eu-west\"]\n"
    );
    peers.send_replace(Arc::new(Peers::parse(&more).unwrap()));
    assert!(is_pending(caller.over(&access, left(None))), "more takes nothing away");
    peers.send_replace(Arc::new(Peers::parse(&TABLE.replace("eu-west", "us-east")).unwrap()));
    assert_eq!(caller.over(&access, left(None)).await, ServiceError::Forbidden);
    assert!(is_pending(admit(READ, Credentials::Unasked).unwrap().over(&access, left(None))));
}

#[test]
fn a_core_speaks_for_its_own_region_and_shows_every_room() {
    let core = admit(WATCH, certificate("core.us.example")).unwrap();
    let [own, other] = ["us-east", "eu-west"].map(|name| RegionId::new(name).unwrap());
    assert!(core.crosses(&own).is_ok() && core.crosses(&other).is_err());
    assert!(core.rooms("any room").is_ok());
    for (what, credentials) in [
        ("an edge", certificate("edge.example")),
        ("a service", certificate("team-a.example")),
        ("a token", token(&[Scope::Read, Scope::Admin])),
    ] {
        assert!(admit(WATCH, credentials).unwrap().crosses(&own).is_err(), "{what}");
    }
    assert!(admit(WATCH, Credentials::Unasked).unwrap().crosses(&own).is_ok(), "nobody is asked");
}
