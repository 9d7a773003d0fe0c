//! Sessions come, change, go and come again.

use presence_model::claim::TokenRefusal;
use presence_model::id::{Generation, SessionId};
use presence_model::link::{LinkRefusal, LinkUp, RequestId};
use presence_model::profile::{State, Status};
use presence_model::refusal::Refusal;

use super::world::{World, ms, room, secs, session, user};
use crate::driver::Input;

#[test]
fn a_join_is_granted_and_seen_a_goodbye_as_well() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let grant = world.join(edge, "ann", 1);
    assert!(!grant.resumed);
    assert_eq!(grant.generation, Generation(1));
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    world.leave(edge, "ann", grant.lease).unwrap();
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann left"]);
    assert_eq!(world.watchers[&watch].gaps, 0);
    assert_eq!(world.log(), ["ann joined", "ann ended left"]);
    assert!(world.edges[edge].ended().is_empty(), "its own goodbye is not told back");
}

#[test]
fn an_update_shows_once_and_only_the_current_lease_may_make_it() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let old = world.join(edge, "ann", 1);
    let new = world.join(edge, "ann", 2);
    assert_eq!(world.update(edge, ("ann", new.lease), Status::Busy, None), Ok(None));
    assert_eq!(world.update(edge, ("ann", new.lease), Status::Busy, None), Ok(None), "no update");
    let refused = world.update(edge, ("ann", old.lease), Status::Away, None);
    assert_eq!(refused, Err(LinkRefusal::Refused(Refusal::NotCurrent)));
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "~ann"]);
}

#[test]
fn a_fresh_token_moves_the_end_and_must_be_of_the_same_subject() {
    let mut world = World::new();
    let edge = world.edge(0);
    let up = world.join_up("ann", 1);
    let ends = world.store_now() + secs(60);
    let request = world.send_join_until(edge, "ann", up, ends);
    let grant = world.joined(edge, request).unwrap();
    assert_eq!(grant.token_ends, ends);
    let of_bob = world.update(edge, ("ann", grant.lease), Status::Busy, Some(("bob", ends + secs(60))));
    assert_eq!(of_bob, Err(LinkRefusal::Forbidden));
    let fresh = world.update(edge, ("ann", grant.lease), Status::Busy, Some(("ann", ends + secs(60))));
    assert_eq!(fresh, Ok(Some(ends + secs(60))));
    world.run(secs(90));
    assert_eq!(world.stored("r"), ["ann"], "the first token has ended, the second has not");
    world.run(secs(31));
    assert_eq!(world.stored("r"), [""; 0]);
    assert_eq!(world.edges[edge].ended(), [(grant.lease, "token_expired")]);
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let mut world = World::new();
    let edge = world.edge(0);
    let (up, now) = (world.join_up("ann", 1), world.store_now());
    let request = world.send_join_until(edge, "ann", up, now);
    assert_eq!(world.joined(edge, request), Err(LinkRefusal::Refused(Refusal::TokenEnded)), "ended");

    let mut up = world.join_up("ann", 1);
    up.room = super::world::room("another");
    let request = world.send_join(edge, "ann", up);
    assert_eq!(world.joined(edge, request), Err(LinkRefusal::Forbidden), "another room");

    for (verified, refusal) in [
        (Some(Err(TokenRefusal::Signature)), LinkRefusal::Unauthorized),
        (Some(Err(TokenRefusal::Action)), LinkRefusal::Forbidden),
        (None, LinkRefusal::Unauthorized),
    ] {
        let up = world.join_up("ann", 1);
        let (request, key) = (up.request, world.edges[edge].key());
        world.input(0, Input::Link(key, presence_model::link::LinkUp::Join(Box::new(up)), verified));
        assert_eq!(world.joined(edge, request), Err(refusal));
    }
    assert_eq!(world.commits, 0);
}

/// Scenario 4.
#[test]
fn three_tabs_are_one_join_and_one_departure() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let mut leases = Vec::new();
    for tab in ["tab-1", "tab-2", "tab-3"] {
        let mut up = world.join_up("ann", 1);
        up.session = session(tab);
        let request = world.send_join(edge, "ann", up);
        leases.push(world.joined(edge, request).unwrap().lease);
    }
    for lease in [leases[1], leases[0], leases[2]] {
        world.leave(edge, "ann", lease).unwrap();
    }
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann left"]);
    assert_eq!(world.watchers[&watch].gaps, 0);
}

/// Scenario 5: with one session id and rising generations, then with fifty ids.
#[test]
fn fifty_quick_opens_and_closes_are_one_join_and_one_departure() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    for generation in 1..=50 {
        let grant = world.join(edge, "ann", generation);
        world.release(edge, grant.lease);
        world.run(ms(20));
    }
    for id in 1..=50 {
        let mut up = world.join_up("ann", 1);
        up.session = SessionId::new(format!("one-of-fifty-{id:04}")).unwrap();
        let request = world.send_join(edge, "ann", up);
        let grant = world.joined(edge, request).unwrap();
        world.release(edge, grant.lease);
        world.run(ms(20));
    }
    world.run(secs(13));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann connection_lost"]);
    assert_eq!(world.stored("r"), [""; 0]);
}

/// Scenario 7.
#[test]
fn an_older_generation_never_displaces_a_newer_one() {
    let mut world = World::new();
    let edge = world.edge(0);
    let newer = world.join(edge, "ann", 2);
    let refused = world.try_join(edge, "ann", 1);
    let stale = Refusal::StaleGeneration { given: Generation(1), stored: Generation(2) };
    assert_eq!(refused, Err(LinkRefusal::Refused(stale)));
    assert!(world.edges[edge].ended().is_empty());
    world.update(edge, ("ann", newer.lease), Status::Busy, None).unwrap();
}

/// Scenario 37.
#[test]
fn a_delayed_join_after_a_newer_one_joined_and_left_is_refused() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let newer = world.join(edge, "ann", 2);
    world.leave(edge, "ann", newer.lease).unwrap();
    let refused = world.try_join(edge, "ann", 1);
    assert!(matches!(refused, Err(LinkRefusal::Refused(Refusal::StaleGeneration { .. }))), "{refused:?}");
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann left"]);
}

#[test]
fn the_edge_of_a_superseded_session_is_told_wherever_it_is_linked() {
    let mut world = World::with_cores(2);
    let (old_edge, new_edge) = (world.edge(0), world.edge(1));
    let watch = world.watch(0, 1);
    let old = world.join(old_edge, "ann", 1);
    let new = world.join(new_edge, "ann", 2);
    assert!(new.resumed);
    assert_eq!(new.since, old.since);
    world.run(ms(20));
    assert_eq!(world.edges[old_edge].ended(), [(old.lease, "superseded")]);
    assert!(world.edges[new_edge].ended().is_empty());
    assert_eq!(world.watchers[&watch].saw, ["+ann"]);
    assert_eq!(world.log(), ["ann joined", "ann ended superseded", "ann joined"], "each once");
}

#[test]
fn joins_that_wait_together_share_a_commit() {
    let mut world = World::new();
    let edge = world.edge(0);
    let watch = world.watch(0, 1);
    let before = world.commits;
    let mut requests = Vec::new();
    for n in 0..300 {
        let name = format!("user-{n:03}");
        let up = world.join_up(&name, 1);
        requests.push(world.send_join(edge, &name, up));
    }
    for request in requests {
        world.joined(edge, request).unwrap();
    }
    world.run(ms(50));
    assert_eq!(world.stored("r").len(), 300);
    assert_eq!(world.watchers[&watch].shown().len(), 300);
    assert!(world.commits - before <= 4, "{} commits", world.commits - before);
}

#[test]
fn two_cores_decide_about_one_member_at_once_and_both_tabs_are_in() {
    let mut world = World::with_cores(2);
    let edges = [world.edge(0), world.edge(1)];
    let watch = world.watch(0, 1);
    let mut requests = Vec::new();
    for (edge, tab) in edges.into_iter().zip(["tab-1", "tab-2"]) {
        let mut up = world.join_up("ann", 1);
        up.session = session(tab);
        requests.push((edge, world.send_join(edge, "ann", up)));
    }
    let leases: Vec<_> = requests
        .into_iter()
        .map(|(edge, request)| (edge, world.joined(edge, request).unwrap().lease))
        .collect();
    assert_eq!(world.commits, 3, "one of two at once is refused and decided again");
    for (edge, lease) in leases {
        world.leave(edge, "ann", lease).unwrap();
    }
    world.run(ms(20));
    assert_eq!(world.watchers[&watch].saw, ["+ann", "-ann left"]);
}

#[test]
fn a_state_that_not_every_reader_takes_is_refused_whichever_edge_lets_it_pass() {
    let mut world = World::new();
    let edge = world.edge(0);
    let state = |json: &'static str| State::new(bytes::Bytes::from_static(json.as_bytes())).unwrap();
    for bad in ["1e999", r#""\ud800""#, "", "{"] {
        let mut up = world.join_up("ann", 1);
        up.profile.state = state(bad);
        let request = world.send_join(edge, "ann", up);
        assert_eq!(world.joined(edge, request), Err(LinkRefusal::BadRequest), "{bad}");
    }
    let mut up = world.join_up("ann", 1);
    up.profile.state = state(r#"["\ud83d\ude00",1e308]"#);
    let request = world.send_join(edge, "ann", up);
    let lease = world.joined(edge, request).unwrap().lease;
    let mut say = |json| {
        let request = RequestId(1_000_000);
        let (room, user) = (room("r"), user("ann"));
        let state = Some(state(json));
        world.say(edge, LinkUp::Update { request, lease, room, user, status: None, state, token: None });
        let outcome = world.done(edge, request);
        world.edges[edge].done.remove(&request);
        outcome
    };
    assert_eq!(say(r#"{"a":-1e999}"#), Err(LinkRefusal::BadRequest));
    assert_eq!(say("1e308"), Ok(None));
}
