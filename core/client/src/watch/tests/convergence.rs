//! Whatever a stream loses, repeats or breaks off: when it is quiet, the view is the roster (G5, G9).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use presence_model::position::Position;
use presence_model::replica::Freshness;
use presence_model::view::RegionEvent;
use presence_model::watch::{WatchDown, WatchUp};
use proptest::prelude::*;

use super::desk::{BEAT, Desk, delta, page_of, position, region, room};
use crate::watch::Effect;

#[derive(Debug, Clone)]
enum Step {
    /// A user comes or goes.
    Toggle(u8),
    /// So many messages arrive.
    Deliver(u8),
    /// The next message is lost, unless it tells how fresh the region is: nothing would follow from that.
    Lose,
    /// The next message comes twice.
    Repeat,
    /// The stream breaks, and a new one is there.
    Break,
    /// The core is left for another, with the old stream intact.
    Move,
    /// The store starts a new history.
    Epoch,
    /// Time passes.
    Pass(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..6_u8).prop_map(Step::Toggle),
        4 => (1..5_u8).prop_map(Step::Deliver),
        1 => Just(Step::Lose),
        1 => Just(Step::Repeat),
        1 => Just(Step::Break),
        1 => Just(Step::Move),
        1 => Just(Step::Epoch),
        2 => (1..40_u8).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..80)
}

/// The far side: one roster, its history, and a stream to the watcher.
struct Core {
    members: BTreeSet<String>,
    at: Position,
    /// Who was touched by each revision of this epoch.
    history: BTreeMap<u64, String>,
    stream: VecDeque<RegionEvent>,
}

impl Core {
    fn toggle(&mut self, user: String) {
        if !self.members.remove(&user) {
            self.members.insert(user.clone());
        }
        self.at.revision = self.at.revision.next();
        self.history.insert(self.at.revision.0, user);
        let event = self.since(self.at.revision.0 - 1);
        self.stream.push_back(event);
    }

    fn since(&self, from: u64) -> RegionEvent {
        let touched: BTreeSet<&str> = self.history.range(from + 1..).map(|(_, user)| user.as_str()).collect();
        let (here, gone): (Vec<&str>, Vec<&str>) =
            touched.into_iter().partition(|user| self.members.contains(*user));
        delta(self.at.epoch.minted_ms, (from, self.at.revision.0), &here, &gone, &self.all())
    }

    fn all(&self) -> Vec<&str> {
        self.members.iter().map(String::as_str).collect()
    }

    fn answer(&mut self, cursor: Option<Position>) {
        let answer = match cursor {
            Some(cursor) if cursor.epoch == self.at.epoch => self.since(cursor.revision.0),
            Some(_) | None => page_of(self.at.epoch, self.at.revision.0, Freshness::Live, &self.all()),
        };
        self.stream.push_back(answer);
        self.stream.push_back(RegionEvent::Freshness(Freshness::Live));
    }
}

fn carry_out(desk: &mut Desk, core: &mut Core) {
    for effect in desk.drain() {
        if let Effect::Send(WatchUp::Open(open)) = effect {
            core.answer(open.cursor.and_then(|cursor| cursor.get(&region("home"))));
        }
    }
}

fn deliver(desk: &mut Desk, core: &mut Core, count: usize) {
    for _ in 0..count {
        let Some(event) = core.stream.pop_front() else { return };
        desk.event("r1", event);
        carry_out(desk, core);
    }
}

proptest! {
    #[test]
    fn a_quiet_stream_leaves_the_roster_in_view(steps in steps()) {
        let mut desk = Desk::watching("r1");
        let mut core = Core {
            members: BTreeSet::new(), at: position(1, 5), history: BTreeMap::new(), stream: VecDeque::new(),
        };
        core.answer(None);
        let mut shown = position(0, 0);
        for step in steps {
            match step {
                Step::Toggle(user) => core.toggle(format!("u{user}")),
                Step::Deliver(count) => deliver(&mut desk, &mut core, count.into()),
                Step::Lose => {
                    if core.stream.front().is_some_and(|event| !matches!(event, RegionEvent::Freshness(_))) {
                        core.stream.pop_front();
                    }
                }
                Step::Repeat => {
                    if let Some(event) = core.stream.front().cloned() {
                        core.stream.push_front(event);
                    }
                }
                Step::Break => {
                    core.stream.clear();
                    desk.watcher.lost(&mut desk.effects);
                    desk.connect();
                }
                Step::Move => {
                    core.stream.clear();
                    desk.connect();
                }
                Step::Epoch => {
                    core.at = position(core.at.epoch.minted_ms + 1, 0);
                    core.history.clear();
                }
                Step::Pass(tenths) => {
                    desk.progress(1);
                    desk.pass(Duration::from_millis(u64::from(tenths) * 50));
                }
            }
            carry_out(&mut desk, &mut core);
            let copy = desk.watcher.view(&room("r1")).unwrap().region(&region("home"));
            if let Some(at) = copy.and_then(|copy| copy.position()) {
                prop_assert!(at >= shown, "taken back in time");
                shown = at;
            }
        }
        // One more change shows a loss at the end; then all repairs have their time.
        core.toggle("u0".to_owned());
        for _ in 0..64 {
            deliver(&mut desk, &mut core, usize::MAX);
            desk.say(WatchDown::Progress { sequence: 1, store_time: Default::default() });
            desk.pass(BEAT);
            carry_out(&mut desk, &mut core);
        }
        let expected: Vec<String> = core.members.iter().cloned().collect();
        prop_assert_eq!(desk.users("r1"), expected);
        prop_assert_eq!(desk.fresh("r1"), Freshness::Live);
    }
}
