//! What others see of a record, a change, a commit.

use std::time::Duration;

use presence_model::change::{Change, Committed, Visible};
use presence_model::digest::Digest;
use presence_model::id::{RegionId, RoomId, Roster};
use presence_model::member::{self, Update};
use presence_model::position::{Epoch, Position, Revision};
use presence_model::profile::Status;
use presence_model::reason::LeaveReason;
use presence_model::replica::{Freshness, Replica, SnapshotPage};
use presence_model::time::Mono;

use crate::build::{lease, no_update, state, tab, user};
use crate::roster::Store;

#[test]
fn the_strongest_status_and_the_latest_state_are_shown() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &tab(1, 1)).unwrap();
    store.join(&ann, &tab(2, 2)).unwrap();
    let mut say = |lease_number, status, text: Option<&'static str>| {
        let update = Update { status, state: text.map(state), ..no_update(lease(lease_number)) };
        let change = member::update(&store.read(&ann), &update, store.now).unwrap();
        change.map(|change| {
            store.commit(&change).unwrap();
            let shown = change.after().unwrap();
            (shown.status, String::from_utf8_lossy(shown.state.as_bytes()).into_owned())
        })
    };
    assert_eq!(say(2, Some(Status::Busy), None), Some((Status::Busy, "{}".to_owned())));
    assert_eq!(say(1, Some(Status::Away), Some("1")), Some((Status::Busy, "1".to_owned())));
    assert_eq!(say(2, None, Some("2")), Some((Status::Busy, "2".to_owned())), "also in the same millisecond");
    assert_eq!(say(1, Some(Status::Available), None), Some((Status::Busy, "2".to_owned())));
    assert_eq!(say(2, Some(Status::Away), None), Some((Status::Available, "2".to_owned())));
    assert_eq!(say(2, Some(Status::Away), Some("2")), None, "an unchanged update is no update");
}

#[test]
fn the_latest_state_is_shown_after_the_clock_went_back() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &tab(1, 1)).unwrap();
    store.now = store.now.before(Duration::from_secs(60));
    store.join(&ann, &tab(2, 2)).unwrap();
    let update = Update { state: Some(state("new")), ..no_update(lease(2)) };
    let change = member::update(&store.read(&ann), &update, store.now).unwrap().unwrap();
    assert_eq!(change.after().unwrap().state, state("new"));
}

#[test]
fn two_devices_in_antiphase_show_one_status() {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &tab(1, 1)).unwrap();
    store.join(&ann, &tab(2, 2)).unwrap();
    for step in 0..10 {
        let (up, down) = if step % 2 == 0 { (1, 2) } else { (2, 1) };
        for (number, status) in [(up, Status::Available), (down, Status::Away)] {
            store.pass(Duration::from_millis(50));
            let update = Update { status: Some(status), ..no_update(lease(number)) };
            if let Some(change) = member::update(&store.read(&ann), &update, store.now).unwrap() {
                store.commit(&change).unwrap();
                assert_eq!(change.visible(), None);
            }
        }
    }
}

/// Two devices change places in this order: how the roster's digest is before and after, and which commits
/// lower a status and nothing else.
fn change_places(order: [(u64, Status); 2]) -> ((Digest, Digest), Vec<bool>) {
    let (mut store, ann) = (Store::new(), user("ann"));
    store.join(&ann, &tab(1, 1)).expect("nobody is there");
    store.join(&ann, &tab(2, 2)).expect("one is there");
    let away = Update { status: Some(Status::Away), ..no_update(lease(2)) };
    let away = member::update(&store.read(&ann), &away, store.now)
        .expect("its lease is current")
        .expect("it says something new");
    let position =
        store.commit(&away).map(|told| Position { epoch: told.delta.epoch, revision: told.delta.to });
    let mut copy = Replica::cold();
    let page = SnapshotPage {
        position: position.expect("nothing came in between"),
        freshness: Freshness::Live,
        members: store.shown().into_values().collect(),
        first: true,
        last: Some(store.digest),
    };
    copy.page(page, Mono::default());
    let before = copy.digest();
    let mut lowers = Vec::new();
    for (number, status) in order {
        store.pass(Duration::from_millis(1));
        let update = Update { status: Some(status), ..no_update(lease(number)) };
        let change = member::update(&store.read(&ann), &update, store.now)
            .expect("its lease is current")
            .expect("it says something new");
        let delta = store.commit(&change).expect("nothing came in between").delta;
        lowers.push(copy.only_lowers(&delta));
        copy.delta(&delta, Mono::default());
    }
    assert_eq!(copy.get(&ann).map(|member| member.status), Some(Status::Available));
    ((before, copy.digest()), lowers)
}

#[test]
fn two_devices_that_change_places_leave_the_roster_as_it_was_in_either_order() {
    let (up, down) = ((2, Status::Available), (1, Status::Away));
    let ((before, after), lowers) = change_places([up, down]);
    assert_eq!((before == after, lowers), (true, vec![false, false]), "nothing shows");
    let ((before, after), lowers) = change_places([down, up]);
    assert_eq!(
        (before == after, lowers),
        (true, vec![true, false]),
        "both away for an instant: to be awaited"
    );
}

#[test]
fn only_a_status_that_falls_alone_is_awaited() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let mut copy = Replica::cold();
    let page = SnapshotPage {
        position: Position { epoch: Epoch { minted_ms: 1, random: 1 }, revision: Revision(0) },
        freshness: Freshness::Live,
        members: Vec::new(),
        first: true,
        last: Some(Digest::default()),
    };
    copy.page(page, Mono::default());
    let mut told = |store: &mut Store, change: &Change| {
        let delta = store.commit(change).unwrap().delta;
        let lowers = copy.only_lowers(&delta);
        copy.delta(&delta, Mono::default());
        lowers
    };
    let joined = *member::join(&store.read(&ann), &tab(1, 1), store.now).unwrap().change.unwrap();
    assert!(!told(&mut store, &joined), "a join");
    for (status, text, awaited) in [
        (Status::Busy, "1", false),
        (Status::Away, "1", true),
        (Status::Busy, "1", false),
        (Status::Available, "2", false),
        (Status::Available, "3", false),
        (Status::Away, "3", true),
    ] {
        let update = Update { status: Some(status), state: Some(state(text)), ..no_update(lease(1)) };
        let change = member::update(&store.read(&ann), &update, store.now).unwrap().unwrap();
        assert_eq!(told(&mut store, &change), awaited, "{status:?} {text}");
    }
    let left = member::leave(&store.read(&ann), lease(1), LeaveReason::Goodbye, store.now).unwrap();
    assert!(!told(&mut store, &left), "a departure");
}

#[test]
fn a_second_tab_and_the_first_of_two_goodbyes_show_nothing() {
    let (mut store, ann) = (Store::new(), user("ann"));
    let first = store.join(&ann, &tab(1, 1)).unwrap().change.unwrap();
    assert!(matches!(first.visible(), Some(Visible::Upsert(_))));
    let second = store.join(&ann, &tab(2, 2)).unwrap().change.unwrap();
    assert_eq!(second.visible(), None);
    let goodbye = member::leave(&store.read(&ann), lease(1), LeaveReason::Goodbye, store.now).unwrap();
    store.commit(&goodbye).unwrap();
    assert_eq!((goodbye.visible(), goodbye.removal), (None, None));
    let last = member::leave(&store.read(&ann), lease(2), LeaveReason::Goodbye, store.now).unwrap();
    assert!(matches!(last.visible(), Some(Visible::Removal(_))));
}

#[test]
fn a_commit_tells_its_members_sorted_with_the_digest_carried_on() {
    let (mut store, now) = (Store::new(), Store::new().now);
    let gone = store.join(&user("zoe"), &tab(1, 1)).unwrap();
    let leave = member::leave(&store.read(&user("zoe")), gone.lease, LeaveReason::Goodbye, now).unwrap();
    let come = |name, number| {
        let granted = member::join(&store.read(&user(name)), &tab(1, number), now).unwrap();
        *granted.change.unwrap()
    };
    let changes = [come("cid", 3), leave, come("ann", 2)];
    let roster = Roster { region: RegionId::new("here").unwrap(), room: RoomId::new("r").unwrap() };
    let position = Position { epoch: Epoch { minted_ms: 4, random: 2 }, revision: Revision(9) };
    let told = Committed::new(roster, position, (store.digest, 1), &changes, now);
    let delta = &told.delta;
    assert_eq!(told.members, 2, "two came and the one that was there went");
    assert_eq!((delta.epoch, delta.from, delta.to), (position.epoch, Revision(8), Revision(9)));
    assert_eq!(delta.upserts.iter().map(|m| m.user.as_str()).collect::<Vec<_>>(), ["ann", "cid"]);
    assert_eq!(delta.removals.iter().map(|r| r.user.as_str()).collect::<Vec<_>>(), ["zoe"]);
    let digest = delta.upserts.iter().fold(Digest::default(), |sum, member| sum.plus(Digest::of(member)));
    assert_eq!(delta.digest, digest);
    assert_eq!(
        told.transitions.iter().map(|(user, _)| user.as_str()).collect::<Vec<_>>(),
        ["cid", "zoe", "ann"]
    );
}
