//! A copy under any order of deltas, pages, freshness, epochs and losses.

use presence_model::digest::Digest;
use presence_model::position::{Position, Revision};
use presence_model::replica::{Applied, Freshness, Phase, Replica, SnapshotPage};
use presence_model::time::{Mono, StoreTime};
use proptest::prelude::*;

use crate::oracle::{Edits, History, List, config, difference, edits, list, user};

const NOW: Mono = Mono::from_millis(0);
const HELD: Freshness = Freshness::Held { since: StoreTime(5) };

#[derive(Debug, Clone)]
enum Step {
    Commit(Edits),
    /// The delta of a span that begins and ends so far back, of the newest or the epoch before it.
    Delta {
        back: u64,
        span: u64,
        old_epoch: bool,
    },
    /// The delta that the copy lacks.
    Next,
    /// Begins a snapshot of so far back.
    Begin {
        back: u64,
        size: usize,
        held: bool,
    },
    /// Sends its next page.
    Page,
    /// Any page of it, also again.
    Again(prop::sample::Index),
    /// Sends all that is left of it.
    Rest,
    Freshness(Freshness),
    /// The store starts anew, with some of the members.
    Epoch {
        keep: u8,
    },
    Cut,
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => edits().prop_map(Step::Commit),
        3 => (0..6u64, 0..4u64, prop::bool::weighted(0.2))
            .prop_map(|(back, span, old_epoch)| Step::Delta { back, span, old_epoch }),
        4 => Just(Step::Next),
        3 => (prop_oneof![3 => Just(0), 1 => 0..4u64], 1..4usize, any::<bool>())
            .prop_map(|(back, size, held)| Step::Begin { back, size, held }),
        3 => Just(Step::Page),
        1 => any::<prop::sample::Index>().prop_map(Step::Again),
        3 => Just(Step::Rest),
        2 => prop_oneof![Just(Freshness::Live), Just(HELD)].prop_map(Step::Freshness),
        1 => any::<u8>().prop_map(|keep| Step::Epoch { keep }),
        1 => Just(Step::Cut),
        1 => Just(Step::Lost),
    ]
}

/// A copy, the history it copies, and a snapshot on its way.
struct Bench {
    histories: Vec<History>,
    copy: Replica,
    pages: Vec<SnapshotPage>,
    next_page: usize,
    disordered: bool,
    /// Highest position ever, and where history was last cut by a snapshot.
    highest: Option<Position>,
    floor: Option<Position>,
}

impl Bench {
    fn new() -> Self {
        Self {
            histories: vec![History::new(1, 3, List::new())],
            copy: Replica::cold(),
            pages: Vec::new(),
            next_page: 0,
            disordered: false,
            highest: None,
            floor: None,
        }
    }

    fn newest(&mut self) -> &mut History {
        self.histories.last_mut().unwrap()
    }

    fn history(&self, position: Position) -> &History {
        self.histories.iter().find(|history| history.epoch == position.epoch).unwrap()
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Commit(edits) => self.newest().commit(&edits),
            Step::Delta { back, span, old_epoch } => {
                let at = self.histories.len().saturating_sub(1 + usize::from(old_epoch));
                let history = &self.histories[at];
                let to = history.revision().saturating_sub(back).max(history.first);
                let from = to.saturating_sub(span).max(history.first);
                let delta = history.delta(from, to);
                self.check(Sent::Delta(delta.clone()), |copy| copy.delta(&delta, NOW));
            }
            Step::Next => {
                let Some(own) = self.copy.position() else { return };
                let history = self.history(own);
                let delta = history.delta(own.revision.0, history.revision());
                self.check(Sent::Delta(delta.clone()), |copy| copy.delta(&delta, NOW));
            }
            Step::Begin { back, size, held } => {
                let history = self.newest();
                let revision = history.revision().saturating_sub(back).max(history.first);
                let freshness = if held { HELD } else { Freshness::Live };
                self.pages = history.pages(revision, size, freshness);
                self.next_page = 0;
                self.disordered = false;
                self.send_page();
            }
            Step::Page => self.send_page(),
            Step::Again(index) => {
                if !self.pages.is_empty() {
                    self.disordered = true;
                    self.page(index.get(&self.pages).clone());
                }
            }
            Step::Rest => (self.next_page..self.pages.len()).for_each(|_| self.send_page()),
            Step::Freshness(freshness) => {
                self.check(Sent::Freshness, |copy| copy.freshness(freshness, NOW));
            }
            Step::Epoch { keep } => {
                let number = self.histories.len() as u64 + 1;
                let kept = self.newest().now().clone();
                let kept = kept.into_iter().enumerate().filter(|(at, _)| keep >> (at % 8) & 1 == 1);
                let kept = kept.map(|(_, entry)| entry).collect();
                self.histories.push(History::new(number, number * 2 % 5, kept));
            }
            Step::Cut => self.check(Sent::Freshness, |copy| {
                copy.cut(StoreTime(9));
                Applied::Shown(Vec::new())
            }),
            Step::Lost => self.check(Sent::Lost, |copy| copy.lost(NOW)),
        }
    }

    fn send_page(&mut self) {
        if let Some(page) = self.pages.get(self.next_page).cloned() {
            self.next_page += 1;
            self.page(page);
        }
    }

    fn page(&mut self, page: SnapshotPage) {
        self.check(Sent::Page(page.clone()), |copy| copy.page(page.clone(), NOW));
    }

    fn check(&mut self, sent: Sent, apply: impl FnOnce(&mut Replica) -> Applied) {
        let before = list(self.copy.members());
        let confirmed = list(self.copy.confirmed_after(None));
        let was = self.copy.position();
        let applied = apply(&mut self.copy);
        let after = list(self.copy.members());
        match &applied {
            Applied::Shown(users) => assert_eq!(*users, difference(&before, &after)),
            Applied::Known | Applied::Gap => assert_eq!(before, after),
            Applied::Differs => {
                let whole = matches!(&sent, Sent::Page(page) if page.last.is_some());
                assert!(whole && self.disordered, "nothing is missing, yet it differs");
                assert_eq!(before, after);
            }
        }
        self.check_vanished(&sent, &before, &after);
        self.check_relation(&sent, was, &applied);
        self.check_equal();
        if matches!(sent, Sent::Page(_)) && self.copy.position() != was {
            self.floor = self.copy.position();
        }
        if let (Sent::Delta(_), true) = (&sent, applied == Applied::Known) {
            assert_eq!(confirmed, list(self.copy.confirmed_after(None)));
        }
        self.check_history();
    }

    /// Nobody goes but by a delta, or with a region, or since silence now proves something.
    fn check_vanished(&self, sent: &Sent, before: &List, after: &List) {
        for gone in before.keys().filter(|user| !after.contains_key(*user)) {
            let said = match sent {
                Sent::Delta(delta) => delta.removals.iter().any(|removal| removal.user == *gone),
                Sent::Lost => true,
                Sent::Page(_) | Sent::Freshness => false,
            };
            assert!(said || self.copy.fresh() == Some(Freshness::Live), "{gone} vanished");
        }
    }

    fn check_relation(&self, sent: &Sent, was: Option<Position>, applied: &Applied) {
        let (Sent::Delta(delta), Some(was)) = (sent, was) else { return };
        let known = delta.epoch < was.epoch || (delta.epoch == was.epoch && delta.to <= was.revision);
        assert_eq!(*applied == Applied::Known, known);
        let follows = delta.epoch == was.epoch && delta.covers(was.revision);
        let moved = self.copy.position() != Some(was);
        assert_eq!(moved, follows, "a delta is taken exactly if it follows");
    }

    /// What is confirmed is the roster at the position, and there is no way back.
    fn check_equal(&mut self) {
        let Some(own) = self.copy.position() else {
            assert_eq!(self.copy.cursor(), None);
            return;
        };
        assert!(self.highest.is_none_or(|highest| highest <= own), "taken back in time");
        self.highest = Some(own);
        let roster = self.history(own).at(own.revision.0);
        assert_eq!(list(self.copy.confirmed_after(None)), *roster);
        assert_eq!(self.copy.digest(), Digest::of_all(roster.values()));
        let equal = list(self.copy.members()) == *roster;
        assert_eq!(self.copy.cursor(), equal.then_some(own));
        assert_eq!(self.copy.len() - self.copy.unconfirmed(), roster.len());
        let paged = self.copy.pages(1).unwrap();
        assert_eq!(list(paged.iter().flat_map(|page| &page.members)), *roster);
    }

    /// Every question since the last snapshot is answered, with all who were touched.
    fn check_history(&self) {
        let Some(own) = self.copy.position() else {
            assert_eq!(self.copy.changed_since(Revision(0)), None);
            return;
        };
        let history = self.history(own);
        for from in history.first..=history.revision() {
            let floor = self.floor.unwrap();
            let answerable = from <= own.revision.0 && floor.revision.0 <= from;
            let Some(delta) = self.copy.changed_since(Revision(from)) else {
                assert!(!answerable, "{from} was not answered");
                continue;
            };
            assert!(answerable, "{from} was answered");
            let mut copy = history.at(from).clone();
            delta.apply(&mut copy);
            assert_eq!(copy, *history.at(own.revision.0));
            assert!(
                history
                    .touched(from, own.revision.0)
                    .into_iter()
                    .all(|user| delta.users().any(|u| u == user))
            );
        }
    }

    /// A resync with the newest: all differences end.
    fn settle(&mut self) {
        let history = self.newest();
        let pages = history.pages(history.revision(), 2, Freshness::Live);
        pages.into_iter().for_each(|page| self.page(page));
        assert_eq!(list(self.copy.members()), *self.newest().now());
        assert_eq!(self.copy.cursor(), Some(self.newest().position()));
    }
}

enum Sent {
    Delta(presence_model::delta::Delta),
    Page(SnapshotPage),
    Freshness,
    Lost,
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn a_copy_follows_whatever_comes(steps in prop::collection::vec(step(), 1..60)) {
        let mut bench = Bench::new();
        steps.into_iter().for_each(|step| bench.run(step));
        bench.settle();
    }

    /// Data loss: the roster starts anew and empty, held, and fills as edges join their sessions again.
    #[test]
    fn nobody_who_came_back_within_the_hold_was_seen_to_leave(
        before in prop::collection::btree_set(0..6u8, 1..6),
        back in prop::collection::vec((0..6u8, any::<u8>()), 0..8),
        resync_at in any::<prop::sample::Index>(),
    ) {
        let mut bench = Bench::new();
        let all: Edits = before.iter().map(|number| (*number, Some(9))).collect();
        bench.run(Step::Commit(all));
        bench.settle();
        bench.run(Step::Epoch { keep: 0 });
        bench.run(Step::Begin { back: 0, size: 2, held: true });
        let there = |bench: &Bench| list(bench.copy.members()).into_keys().collect::<Vec<_>>();
        let resync_at = resync_at.index(back.len() + 1);
        for (at, (number, value)) in back.iter().enumerate() {
            if at == resync_at {
                bench.run(Step::Begin { back: 0, size: 2, held: true });
                bench.run(Step::Rest);
            }
            bench.run(Step::Commit(vec![(*number, Some(*value))]));
            bench.run(Step::Next);
            let shown = there(&bench);
            prop_assert!(before.iter().all(|number| shown.contains(&user(*number))));
        }
        bench.run(Step::Freshness(Freshness::Live));
        let now: Vec<_> = bench.newest().now().keys().cloned().collect();
        prop_assert_eq!(there(&bench), now);
        prop_assert_eq!(bench.copy.phase(), Phase::Complete);
    }
}
