//! Histories written by hand, each with one thing that must not be, or may just be.

use presence_model::position::Epoch;
use presence_model::timing::TimingsGiven;

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(revision: u64) -> Position {
    Position { epoch: Epoch { minted_ms: 1, random: 1 }, revision: Revision(revision) }
}

fn shown(since: u64) -> Shown {
    Shown { status: "available".into(), state: "{}".into(), since }
}

fn members(users: &[&str]) -> Arc<Members> {
    Arc::new(users.iter().map(|user| ((*user).to_owned(), shown(1))).collect())
}

/// A history under way: heartbeat 3 s, ttl 12 s, grace 5 s, edge lost 4 s.
struct Book(History);

impl Book {
    /// Ann is there by one tab at edge `e`, since 10 s; an observer at the same edge shows her.
    fn of_ann() -> Self {
        let given = TimingsGiven::DEMO;
        let timings = Timings::derive(given).expect("these hold");
        let slack = Slack { propagation: secs(2), clocks: Duration::ZERO, recovery: secs(3) };
        let mut book = Self(History { timings, slack, cores: vec!["c".into()], events: Vec::new() });
        book.write(0, What::Roster { position: at(0), members: members(&[]) });
        book.observer(1, Sight::Opened { at: "e".into() });
        book.shows(1, 0, &[]);
        book.step(9, Step::Tries { edge: "e".into() });
        book.joins(9, 1, "ann", 1);
        book.step(10, Step::Joined);
        book.shows(10, 1, &["ann"]);
        book
    }

    fn write(&mut self, at: u64, what: What) {
        self.0.events.push(Event { at: secs(at), what });
    }

    fn observer(&mut self, at: u64, sight: Sight) {
        self.write(at, What::Observer { observer: "o".into(), sight });
    }

    fn look(&mut self, then: u64, position: Option<Position>, (live, users): (bool, &[&str]), gone: &[&str]) {
        let departure = |user: &&str| Departure { user: (*user).to_owned(), reason: "none".into() };
        let gone = gone.iter().map(departure).collect();
        self.observer(then, Sight::Shows(Look { position, live, members: members(users), gone }));
    }

    fn shows(&mut self, then: u64, revision: u64, users: &[&str]) {
        self.look(then, Some(at(revision)), (true, users), &[]);
    }

    fn step(&mut self, at: u64, step: Step) {
        self.write(at, What::Tab { tab: "t".into(), user: "ann".into(), step });
    }

    fn trouble(&mut self, at: u64, place: Place, begins: bool) {
        self.write(at, What::Trouble { place, begins });
    }

    fn joins(&mut self, then: u64, revision: u64, user: &str, since: u64) {
        if user == "bob" {
            let step = Step::Tries { edge: "e".into() };
            self.write(then, What::Tab { tab: "b".into(), user: user.into(), step });
        }
        let upserts = vec![(user.to_owned(), shown(since))];
        let from = Revision(revision - 1);
        self.write(then, What::Commit { position: at(revision), from, upserts, removals: Vec::new() });
    }

    fn removes(&mut self, then: u64, revision: u64, (reason, silent): (RemovalReason, u64)) {
        let gone = Gone { user: "ann".into(), reason, silent_for: secs(silent), renewed_at: None };
        let from = Revision(revision - 1);
        let what = What::Commit { position: at(revision), from, upserts: Vec::new(), removals: vec![gone] };
        self.write(then, what);
    }

    /// The guarantee that is broken.
    fn broken(&self) -> &'static str {
        check(&self.0).map_or_else(|violation| violation.guarantee, |_| "none")
    }
}

use RemovalReason::{ConnectionLost, EdgeLost, Evicted, LeaseExpired, Left};

#[test]
fn a_removal_needs_a_reason_in_what_the_tab_did() {
    let cases: [(u64, RemovalReason, u64, &str); 6] = [
        (30, LeaseExpired, 12, "G2"),
        (30, ConnectionLost, 6, "G2"),
        (30, EdgeLost, 9, "G2"),
        (30, Left, 0, "G2"),
        (30, Evicted, 0, "G2"),
        (30, LeaseExpired, 11, "G2"),
    ];
    for (then, reason, silent, expected) in cases {
        let mut book = Book::of_ann();
        book.removes(then, 2, (reason, silent));
        assert_eq!(book.broken(), expected, "{reason} after {silent} s of silence");
    }
}

#[test]
fn an_edge_that_could_not_speak_for_a_ttl_is_an_excuse_and_a_renewal_is_none() {
    let mut book = Book::of_ann();
    book.trouble(15, Place::Link("e".into(), "c".into()), true);
    book.removes(30, 2, (LeaseExpired, 12));
    book.shows(31, 2, &[]);
    assert_eq!(book.broken(), "none");
    let Some(Event { what: What::Commit { removals, .. }, .. }) = book.0.events.get_mut(8) else {
        panic!("the removal is there");
    };
    removals[0].renewed_at = Some(secs(20));
    assert_eq!(book.broken(), "G2");
}

#[test]
fn who_lost_the_connection_may_come_back_within_grace() {
    for (then, expected) in [(24, "G8"), (25, "none")] {
        let mut book = Book::of_ann();
        book.step(20, Step::Lost);
        book.removes(then, 2, (ConnectionLost, 6));
        assert_eq!(book.broken(), expected, "at {then} s");
    }
    let mut book = Book::of_ann();
    book.trouble(15, Place::Path("t".into()), true);
    book.removes(27, 2, (ConnectionLost, 12));
    book.shows(28, 2, &[]);
    assert_eq!(book.broken(), "none", "nothing of hers arrived");
    let mut book = Book::of_ann();
    book.step(20, Step::Left);
    book.removes(20, 2, (Left, 0));
    assert_eq!(book.broken(), "none", "a goodbye counts at once");
}

#[test]
fn a_goodbye_may_be_dated_after_what_comes_of_it_as_far_as_clocks_disagree() {
    for (removed, expected) in [(19, "none"), (18, "G2")] {
        let mut book = Book::of_ann();
        book.0.slack.clocks = secs(1);
        book.removes(removed, 2, (Left, 0));
        book.step(20, Step::Left);
        book.shows(20, 2, &[]);
        assert_eq!(book.broken(), expected, "removed at {removed} s");
    }
}

#[test]
fn nothing_is_ended_for_silence_within_a_ttl_of_the_stores_return() {
    for (returned, expected) in [(14, "G2"), (13, "none")] {
        let mut book = Book::of_ann();
        book.write(returned, What::StoreReturned);
        book.step(15, Step::Lost);
        book.removes(25, 2, (ConnectionLost, 10));
        assert_eq!(book.broken(), expected);
    }
}

#[test]
fn a_goodbye_ends_also_whom_the_store_has_forgotten_and_only_then() {
    for (returned, expected) in [(None, "G2"), (Some(18), "none")] {
        let mut book = Book::of_ann();
        let step = |step| What::Tab { tab: "t2".into(), user: "ann".into(), step };
        for (at, done) in [(11, Step::Tries { edge: "e".into() }), (12, Step::Joined), (20, Step::Left)] {
            if at == 20
                && let Some(returned) = returned
            {
                book.write(returned, What::StoreReturned);
            }
            book.write(at, step(done));
        }
        book.removes(20, 2, (Left, 0));
        assert_eq!(book.broken(), expected);
    }
}

#[test]
fn revisions_rise_by_one_and_nobody_is_taken_back() {
    let mut book = Book::of_ann();
    book.joins(20, 3, "bob", 1);
    assert_eq!(book.broken(), "G4", "a commit is missing");
    let mut book = Book::of_ann();
    book.joins(20, 2, "bob", 1);
    book.shows(21, 2, &["ann", "bob"]);
    book.shows(22, 1, &["ann"]);
    assert_eq!(book.broken(), "G4");
    let mut book = Book::of_ann();
    book.write(20, What::Roster { position: at(1), members: members(&["ann"]) });
    assert_eq!(book.broken(), "G4", "an epoch begins twice");
}

#[test]
fn a_list_is_the_roster_of_the_position_it_claims() {
    let mut book = Book::of_ann();
    book.joins(20, 2, "bob", 1);
    book.shows(21, 2, &["ann"]);
    assert_eq!(book.broken(), "G5");
    let mut book = Book::of_ann();
    book.observer(20, Sight::Gap(Gap { own: Some(1), frame: "{}".into() }));
    assert_eq!(book.broken(), "G5");
}

#[test]
fn a_live_view_is_at_most_one_bound_behind() {
    let late = |place: Option<Place>, live| {
        let mut book = Book::of_ann();
        book.look(11, Some(at(1)), (live, &["ann"]), &[]);
        if let Some(place) = place {
            book.trouble(18, place, true);
        }
        book.step(20, Step::Left);
        book.removes(20, 2, (Left, 0));
        book.step(23, Step::Lost);
        book.broken()
    };
    assert_eq!(late(None, true), "G1");
    assert_eq!(late(None, false), "none", "it says that it is not live");
    assert_eq!(late(Some(Place::Path("o".into())), true), "none");
    assert_eq!(late(Some(Place::Path("p".into())), true), "G1");
    let mut book = Book::of_ann();
    book.joins(20, 2, "bob", 1);
    book.step(23, Step::Lost);
    assert_eq!(book.broken(), "G5", "somebody is missing");
}

#[test]
fn nobody_comes_without_having_been_brought_and_nobody_comes_twice() {
    let mut book = Book::of_ann();
    book.joins(20, 2, "ann", 15);
    assert_eq!(book.broken(), "G7", "she was here without interruption");
    let mut book = Book::of_ann();
    book.joins(100, 2, "ghost", 1);
    assert_eq!(book.broken(), "G6");
    let mut book = Book::of_ann();
    book.step(20, Step::Left);
    book.removes(20, 2, (Left, 0));
    book.removes(21, 3, (Left, 0));
    assert_eq!(book.broken(), "G7", "she is removed twice");
}

#[test]
fn who_is_deserted_is_removed_in_time_unless_the_store_is_in_trouble() {
    for (trouble, expected) in [(false, "G3"), (true, "none")] {
        let mut book = Book::of_ann();
        book.step(20, Step::Lost);
        if trouble {
            book.trouble(21, Place::Store, true);
        }
        book.write(60, What::Trouble { place: Place::Path("x".into()), begins: true });
        assert_eq!(book.broken(), expected);
    }
}

#[test]
fn nobody_is_shown_to_leave_whom_no_commit_removed() {
    let mut book = Book::of_ann();
    book.look(30, None, (true, &[]), &["ann"]);
    assert_eq!(book.broken(), "G2");
    let mut book = Book::of_ann();
    book.step(20, Step::Lost);
    book.look(22, None, (true, &[]), &["ann"]);
    assert_eq!(book.broken(), "G8");
}

#[test]
fn at_rest_all_see_those_who_are_there() {
    let rest = |users: &[&str], live, present: &[&str]| {
        let mut book = Book::of_ann();
        book.look(20, None, (live, users), &[]);
        book.write(40, What::Rest { present: present.iter().map(|user| (*user).to_owned()).collect() });
        book.broken()
    };
    assert_eq!(rest(&["ann"], true, &["ann"]), "none");
    assert_eq!(rest(&["ann"], false, &["ann"]), "G9");
    assert_eq!(rest(&["ann", "bob"], true, &["ann"]), "G9");
    assert_eq!(rest(&["ann"], true, &["ann", "bob"]), "G9");
}
