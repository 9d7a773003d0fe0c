//! A view over two regions: union, own revisions, resume.

use std::collections::BTreeSet;

use presence_model::cursor::Cursor;
use presence_model::id::RegionId;
use presence_model::position::{Position, Revision};
use presence_model::replica::{Applied, Freshness, Phase};
use presence_model::time::{Mono, StoreTime};
use presence_model::view::{RegionEvent, Resume, View, ViewRevision};
use proptest::prelude::*;

use crate::oracle::{Edits, History, List, apply_view, config, difference, edits, list, union};

const HELD: Freshness = Freshness::Held { since: StoreTime(5) };

#[derive(Debug, Clone)]
enum Step {
    Commit(usize, Edits),
    /// A delta towards the newest, of at most so many commits.
    Deliver(usize, u64),
    Snapshot {
        region: usize,
        held: bool,
    },
    Freshness(usize, Freshness),
    Epoch(usize, u8),
    Lost(usize),
    /// So many seconds pass, then old history is forgotten.
    Compact(u64),
}

fn step(regions: usize) -> impl Strategy<Value = Step> {
    let region = 0..regions;
    prop_oneof![
        6 => (region.clone(), edits()).prop_map(|(region, edits)| Step::Commit(region, edits)),
        6 => (region.clone(), 1..5u64).prop_map(|(region, span)| Step::Deliver(region, span)),
        1 => (region.clone(), any::<bool>()).prop_map(|(region, held)| Step::Snapshot { region, held }),
        1 => (region.clone(), prop_oneof![Just(Freshness::Live), Just(HELD)])
            .prop_map(|(region, freshness)| Step::Freshness(region, freshness)),
        1 => (region.clone(), any::<u8>()).prop_map(|(region, keep)| Step::Epoch(region, keep)),
        1 => region.prop_map(Step::Lost),
        1 => prop_oneof![Just(1), Just(200)].prop_map(Step::Compact),
    ]
}

fn regions() -> [RegionId; 2] {
    [RegionId::new("eu").unwrap(), RegionId::new("us").unwrap()]
}

struct Bench {
    names: [RegionId; 2],
    histories: Vec<History>,
    view: View,
    now: Mono,
    /// When anything was forgotten last.
    forgot: bool,
    /// Where each region was last read as a whole.
    floors: Vec<Option<Position>>,
    /// The list at each revision of the view.
    past: Vec<(ViewRevision, List)>,
    resumed_by_delta: usize,
}

impl Bench {
    fn new(count: usize) -> Self {
        let mut bench = Self {
            names: regions(),
            histories: (0..count).map(|_| History::new(1, 0, List::new())).collect(),
            view: View::new(),
            now: Mono::from_millis(0),
            forgot: false,
            floors: vec![None; count],
            past: Vec::new(),
            resumed_by_delta: 0,
        };
        (0..count).for_each(|region| bench.act(Step::Snapshot { region, held: false }));
        bench
    }

    fn run(&mut self, step: Step) {
        self.act(step);
        self.check();
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Commit(region, edits) => self.histories[region].commit(&edits),
            Step::Deliver(region, span) => {
                let history = &self.histories[region];
                let own = self.view.region(&self.names[region]).and_then(|copy| copy.position());
                if let Some(own) = own.filter(|own| own.epoch == history.epoch) {
                    let to = history.revision().min(own.revision.0 + span);
                    let delta = history.delta(own.revision.0, to);
                    self.apply(region, RegionEvent::Delta(delta));
                }
            }
            Step::Snapshot { region, held } => {
                let history = &self.histories[region];
                let freshness = if held { HELD } else { Freshness::Live };
                let pages = history.pages(history.revision(), 2, freshness);
                let before = self.view.region(&self.names[region]).and_then(|copy| copy.position());
                if before != Some(history.position()) {
                    self.floors[region] = Some(history.position());
                }
                pages.into_iter().for_each(|page| self.apply(region, RegionEvent::Page(page)));
            }
            Step::Freshness(region, freshness) => self.apply(region, RegionEvent::Freshness(freshness)),
            Step::Epoch(region, keep) => {
                let old = &self.histories[region];
                let kept = old.now().clone().into_iter().enumerate();
                let kept = kept.filter(|(at, _)| keep >> (at % 8) & 1 == 1).map(|(_, entry)| entry).collect();
                self.histories[region] = History::new(old.epoch.minted_ms + 1, 2, kept);
            }
            Step::Lost(region) => self.apply(region, RegionEvent::Lost),
            Step::Compact(seconds) => {
                self.now = self.now + std::time::Duration::from_secs(seconds);
                self.forgot |= self.now >= Mono::from_millis(300_000);
                self.view.compact(self.now);
            }
        }
    }

    fn shown(&self) -> List {
        list(&self.view.page(None, usize::MAX))
    }

    fn apply(&mut self, region: usize, event: RegionEvent) {
        let (before, revision) = (self.shown(), self.view.revision());
        let applied = self.view.apply(&self.names[region], event, self.now);
        let after = self.shown();
        let changed = difference(&before, &after);
        match applied {
            Applied::Shown(users) => assert_eq!(users, changed),
            Applied::Known => assert!(changed.is_empty()),
            Applied::Gap | Applied::Differs => panic!("everything follows here"),
        }
        let rose = self.view.revision().0 - revision.0;
        assert!(rose <= 1 && (rose == 1) == (!changed.is_empty() || (revision.0 == 0 && rose == 1)));
        if rose == 1 && revision.0 > 0 {
            self.check_sample(revision, (&before, &after));
        }
        self.past.push((self.view.revision(), after));
        assert_eq!(self.view.changed_since(self.view.revision()).unwrap().to, self.view.revision());
    }

    /// A sample names all who came, if there is room, and all who went; nobody who is as before.
    fn check_sample(&self, from: ViewRevision, (before, after): (&List, &List)) {
        let sample = self.view.sample(from, usize::MAX);
        let joined: BTreeSet<_> = sample.joined.iter().map(|member| &member.user).collect();
        let left: BTreeSet<_> = sample.left.iter().map(|removal| &removal.user).collect();
        assert_eq!(joined, after.keys().filter(|user| !before.contains_key(*user)).collect());
        assert!(before.keys().filter(|user| !after.contains_key(*user)).all(|user| left.contains(user)));
        assert!(left.iter().all(|user| !after.contains_key(*user)));
        assert!(sample.joined.iter().all(|member| after[&member.user] == *member));
        let few = self.view.sample(from, 1);
        assert_eq!((few.joined.len(), few.left.len()), (joined.len().min(1), left.len().min(1)));
    }

    fn check(&mut self) {
        let shown = self.shown();
        let copies: Vec<List> = self.view.regions().map(|(_, copy)| list(copy.members())).collect();
        assert_eq!(shown, union(&copies.iter().collect::<Vec<_>>()));
        assert_eq!(self.view.len(), shown.len());
        for (user, member) in &shown {
            assert_eq!(self.view.get(user).as_ref(), Some(member));
            let after: Vec<_> =
                shown.range(user.clone()..).skip(1).map(|(_, member)| member.clone()).collect();
            assert_eq!(self.view.page(Some(user), usize::MAX), after);
        }
        self.check_past(&shown);
        self.check_cursor();
        self.check_resume(&shown);
    }

    /// A receiver at any revision remembered is brought to what is shown now.
    fn check_past(&self, shown: &List) {
        for (revision, past) in &self.past {
            let Some(delta) = self.view.changed_since(*revision) else {
                assert!(self.forgot || revision.0 == 0, "{revision:?} is forgotten early");
                continue;
            };
            let mut receiver = past.clone();
            apply_view(&delta, &mut receiver);
            assert_eq!(receiver, *shown, "from {revision:?}");
            assert_eq!(delta.to, self.view.revision());
        }
    }

    /// A region is named exactly if what is shown of it is its roster at that position.
    fn check_cursor(&self) {
        let cursor = self.view.cursor();
        for (name, copy) in self.view.regions() {
            let clean = copy.phase() == Phase::Complete && copy.unconfirmed() == 0;
            assert_eq!(cursor.get(name), copy.position().filter(|_| clean));
            assert!(copy.position().is_none_or(|position| cursor.seen(name) == Some(position)));
        }
    }

    /// Every client that could come, from anywhere: it ends up with what is shown here, or is told to
    /// start over, or this view first has to catch up.
    fn check_resume(&mut self, shown: &List) {
        let spans = self.histories.iter().map(|history| (history.first..=history.revision()).rev().take(6));
        let spans: Vec<Vec<u64>> = spans.map(Iterator::collect).collect();
        for first in &spans[0] {
            match spans.get(1) {
                None => self.check_client(&[*first], shown),
                Some(second) => second.iter().for_each(|second| self.check_client(&[*first, *second], shown)),
            }
        }
        assert_eq!(self.view.resume(&Cursor::default()), Resume::Snapshot);
    }

    fn check_client(&mut self, at: &[u64], shown: &List) {
        let places = self.histories.iter().zip(at);
        let places: Vec<Position> = places.map(|(history, at)| history.position_at(*at)).collect();
        let cursor = Cursor::new(self.names.iter().cloned().zip(places.iter().copied()).collect());
        let rosters: Vec<&List> =
            self.histories.iter().zip(at).map(|(history, at)| history.at(*at)).collect();
        let mut client = union(&rosters);
        let own: Vec<Option<Position>> = self.view.regions().map(|(_, copy)| copy.position()).collect();
        let behind = own.iter().zip(&places).any(|(own, place)| own.is_some_and(|own| own < *place));
        match self.view.resume(&cursor) {
            Resume::Behind => assert!(behind),
            Resume::Snapshot | Resume::Forgotten => assert!(!behind && !self.must_answer(&places)),
            Resume::Delta(delta) => {
                assert!(!behind && delta.from.is_none() && delta.to == self.view.revision());
                apply_view(&delta, &mut client);
                assert_eq!(client, *shown, "from {at:?}");
                self.resumed_by_delta += 1;
                self.check_again(delta.cursor, client, shown);
            }
        }
    }

    /// Five times in a row, without anything in between.
    fn check_again(&self, mut cursor: Cursor, mut client: List, shown: &List) {
        for _ in 0..4 {
            cursor = Cursor::decode(&cursor.encode()).unwrap();
            let Resume::Delta(delta) = self.view.resume(&cursor) else { panic!("not contiguous") };
            apply_view(&delta, &mut client);
            assert_eq!(client, *shown);
            cursor = delta.cursor;
        }
    }

    fn must_answer(&self, places: &[Position]) -> bool {
        let cursor = self.view.cursor();
        let own: Vec<Position> = cursor.iter().filter_map(|(_, entry)| entry.equal()).collect();
        let clean = own.len() == self.histories.len();
        let reach = places.iter().zip(&self.floors).all(|(place, floor)| {
            floor.is_some_and(|floor| floor.epoch == place.epoch && floor.revision <= place.revision)
        });
        let same = |(own, place): (&Position, &Position)| own.epoch == place.epoch;
        clean && reach && !self.forgot && own.iter().zip(places).all(same)
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn one_region(steps in prop::collection::vec(step(1), 1..50)) {
        let mut bench = Bench::new(1);
        steps.into_iter().for_each(|step| bench.run(step));
        converge(bench);
    }

    #[test]
    fn two_regions(steps in prop::collection::vec(step(2), 1..50)) {
        let mut bench = Bench::new(2);
        steps.into_iter().for_each(|step| bench.run(step));
        converge(bench);
    }
}

fn converge(mut bench: Bench) {
    for region in 0..bench.histories.len() {
        bench.histories[region].commit(&[(0, Some(1))]);
        bench.run(Step::Snapshot { region, held: false });
    }
    let rosters: Vec<&List> = bench.histories.iter().map(History::now).collect();
    assert_eq!(bench.shown(), union(&rosters));
    assert!(bench.resumed_by_delta > 0 && bench.view.is_complete());
    assert!(bench.view.cursor().iter().all(|(_, entry)| entry.position().revision > Revision(0)));
}
