//! Anything in any order: nothing panics, nothing is left behind, and whoever replays the frames it was sent
//! has the list the core has.

use std::collections::{BTreeMap, BTreeSet};

use presence_model::link::{LinkDown, LinkRefusal, LinkUp};
use presence_model::reason::RemovalReason;
use presence_model::refusal::Refusal;
use presence_model::replica::Freshness;
use presence_model::view::RegionEvent;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

use super::world::*;
use crate::hub::{ConnKey, Input};

/// A list kept by the rules of the protocol.
#[derive(Default)]
struct Copy {
    revision: Option<u64>,
    paging: Option<(u64, BTreeSet<String>)>,
    users: BTreeSet<String>,
    cursor: Option<String>,
    asked: bool,
}

impl Copy {
    /// The first frame after each question sets the revision.
    fn ask(&mut self) {
        self.asked = true;
        self.paging = None;
    }

    fn take(&mut self, frame: &Value) {
        match frame["t"].as_str().unwrap() {
            "snapshot" => {
                let revision = frame["rev"].as_u64().unwrap();
                let (_, users) = self
                    .paging
                    .take_if(|(begun, _)| *begun == revision)
                    .unwrap_or_else(|| (revision, BTreeSet::new()));
                let mut all = users;
                all.extend(users_of(&frame["members"]));
                if frame["more"] == true {
                    self.paging = Some((revision, all));
                } else {
                    (self.users, self.revision, self.asked) = (all, Some(revision), false);
                    self.cursor = frame["cursor"].as_str().map(str::to_owned);
                }
            }
            "delta" => {
                let revision = frame["rev"].as_u64().unwrap();
                match frame["prev"].as_u64() {
                    None => assert!(self.asked, "only an answer has no prev"),
                    Some(prev) => {
                        let own = self.revision.expect("a delta follows something");
                        assert!(prev <= own, "a gap: {prev} after {own}");
                        if revision <= own {
                            return;
                        }
                    }
                }
                self.users.extend(users_of(&frame["upserts"]));
                for user in users_of(&frame["removals"]) {
                    self.users.remove(&user);
                }
                (self.revision, self.asked) = (Some(revision), false);
                self.cursor = frame["cursor"].as_str().map(str::to_owned);
            }
            "ended" => (self.revision, self.paging) = (None, None),
            _ => {}
        }
    }
}

fn users_of(list: &Value) -> Vec<String> {
    users(list).into_iter().map(str::to_owned).collect()
}

struct Chaos {
    world: World,
    chance: Xoshiro256PlusPlus,
    copies: BTreeMap<ConnKey, Copy>,
    truth: BTreeSet<String>,
    /// Kept over connections, as clients do.
    kept: Option<Copy>,
    leases: u64,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let world = World::linked();
        let chance = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (copies, truth) = (BTreeMap::new(), BTreeSet::new());
        Self { world, chance, copies, truth, kept: None, leases: 0 }
    }

    fn below(&mut self, n: u32) -> u32 {
        self.chance.random_range(0..n)
    }

    fn some_client(&mut self) -> Option<ConnKey> {
        let keys: Vec<ConnKey> = self.copies.keys().copied().collect();
        if keys.is_empty() { None } else { Some(keys[self.chance.random_range(0..keys.len())]) }
    }

    fn step(&mut self) {
        match self.below(14) {
            0 | 1 => self.come(),
            2 => self.go(),
            3 => self.talk(),
            4 => {
                if let Some(key) = self.some_client() {
                    let client = self.world.clients.get_mut(&key).unwrap();
                    client.stalled = !client.stalled;
                    self.world.write();
                }
            }
            5 => self.break_something(),
            6 | 7 => self.answer(),
            8 => self.end_some(),
            9 => {
                let ms = [1, 60, 1_000, 6_000][self.below(4) as usize];
                self.world.pass_ms(ms);
            }
            _ => self.commit(),
        }
        self.read();
    }

    fn come(&mut self) {
        let key = self.world.accept();
        let user = format!("u{}", self.below(8));
        let mut copy = self.kept.take().unwrap_or_default();
        copy.revision = None;
        let since = copy.cursor.as_ref().map(|since| format!(",\"since\":\"{since}\"")).unwrap_or_default();
        copy.ask();
        self.copies.insert(key, copy);
        if self.below(2) == 0 {
            let text = format!(r#"{{"t":"watch","room":"r","token":"t"{since}}}"#);
            self.world.say(key, &user, &text);
        } else {
            self.world.say(key, &user, &join_text(&user, "r", Some(1), &since));
        }
    }

    fn go(&mut self) {
        let Some(key) = self.some_client() else { return };
        self.read();
        self.world.hang_up(key);
        if let Some(copy) = self.copies.remove(&key).filter(|copy| copy.cursor.is_some()) {
            self.kept = Some(copy);
        }
    }

    fn talk(&mut self) {
        let Some(key) = self.some_client() else { return };
        match self.below(5) {
            0 => {
                self.copies.get_mut(&key).unwrap().ask();
                self.world.say(key, "u1", r#"{"t":"resync","room":"r"}"#);
            }
            1 => self.world.say(key, "u1", r#"{"t":"update","room":"r","status":"away"}"#),
            2 => self.world.say(key, "u1", r#"{"t":"update","room":"r","status":"busy"}"#),
            3 => self.world.say(key, "u1", r#"{"t":"leave","room":"r"}"#),
            _ => self.world.give(Input::Heard(key)),
        }
    }

    fn break_something(&mut self) {
        match self.below(4) {
            0 => self.world.give(Input::WatchLost),
            1 => self.world.give(Input::LinkLost),
            2 => self.world.down(LinkDown::Drain),
            _ => self.mend(),
        }
    }

    /// What was asked for comes up.
    fn mend(&mut self) {
        if self.world.wanted.0 {
            self.world.link();
        } else if self.world.wanted.1 {
            self.world.watch_up();
        }
        self.show_all();
    }

    /// A core shows a room it is asked for.
    fn show_all(&mut self) {
        if self.world.take_opened().is_empty() {
            return;
        }
        let truth: Vec<&str> = self.truth.iter().map(String::as_str).collect();
        self.world.snapshot("r", &truth);
    }

    fn commit(&mut self) {
        self.show_all();
        let user = format!("m{}", self.below(6));
        if self.truth.remove(&user) {
            self.world.commit("r", &[], &[&user]);
        } else {
            self.truth.insert(user.clone());
            self.world.commit("r", &[&user], &[]);
        }
    }

    fn answer(&mut self) {
        for up in std::mem::take(&mut self.world.up) {
            let fate = self.below(10);
            match up {
                LinkUp::Join(join) => {
                    self.leases += 1;
                    match fate {
                        0 => self.world.refused(join.request, LinkRefusal::BadRequest),
                        1 => self.world.refused(
                            join.request,
                            LinkRefusal::Refused(Refusal::HasEnded { reason: RemovalReason::Evicted }),
                        ),
                        2 => self.world.refused(
                            join.request,
                            LinkRefusal::Unavailable { retry_after: std::time::Duration::from_millis(100) },
                        ),
                        _ => self.world.granted(join.request, lease(self.leases)),
                    }
                }
                LinkUp::Renew { batch, leases } => {
                    let unknown = if fate == 0 { leases } else { Vec::new() };
                    self.world.down(LinkDown::Renewed { batch, unknown });
                }
                LinkUp::Release { request, .. }
                | LinkUp::Update { request, .. }
                | LinkUp::Leave { request, .. } => {
                    let outcome =
                        if fate == 0 { Err(LinkRefusal::Refused(Refusal::NotCurrent)) } else { Ok(None) };
                    self.world.down(LinkDown::Done { request, outcome });
                }
                LinkUp::Beat { .. } | LinkUp::Bye { .. } => {}
            }
        }
    }

    fn end_some(&mut self) {
        let last = self.leases;
        let n = last.saturating_sub(u64::from(self.below(4)));
        let reasons = [RemovalReason::Superseded, RemovalReason::LeaseExpired, RemovalReason::TokenExpired];
        let reason = reasons[self.below(3) as usize];
        self.world.down(LinkDown::EndLease { lease: lease(n), reason });
    }

    fn read(&mut self) {
        let keys: Vec<ConnKey> = self.copies.keys().copied().collect();
        for key in keys {
            if std::mem::take(&mut self.world.clients.get_mut(&key).unwrap().pings) > 0 && key.index % 3 > 0 {
                self.world.give(Input::Heard(key));
            }
            for frame in self.world.frames(key) {
                self.copies.get_mut(&key).unwrap().take(&frame);
            }
            if self.world.closed(key).is_some() {
                self.copies.remove(&key);
            }
        }
    }

    /// All calms down: copies equal the truth, and when everybody went nothing is left.
    fn settle(&mut self) {
        for key in self.copies.keys().copied().collect::<Vec<_>>() {
            self.world.clients.get_mut(&key).unwrap().stalled = false;
        }
        self.world.write();
        let mut calm = 0;
        while calm < 10 {
            calm += u32::from(self.world.hub.link.is_watching());
            self.world.pass_ms(1_000);
            self.mend();
            self.answer();
            self.show_all();
            self.read();
        }
        self.world.region_event("r", RegionEvent::Freshness(Freshness::Live));
        self.world.pass_ms(100);
        self.read();
        for copy in self.copies.values().filter(|copy| copy.revision.is_some()) {
            assert_eq!(copy.users, self.truth);
        }
        for key in self.copies.keys().copied().collect::<Vec<_>>() {
            self.world.hang_up(key);
        }
        for _ in 0..40 {
            self.world.pass_ms(1_000);
            self.answer();
        }
        let counts = self.world.hub.counts();
        assert_eq!((counts.connections, counts.leases, counts.rooms), (0, 0, 0));
        assert!(self.world.hub.requests.is_empty(), "{:?}", self.world.hub.requests);
        assert!(self.world.hub.releasing.is_empty() && self.world.hub.unanswered.is_empty());
    }
}

#[test]
fn anything_in_any_order() {
    let mut shown = 0;
    for seed in 0..300 {
        let run = std::panic::catch_unwind(|| {
            let mut chaos = Chaos::new(seed);
            for _ in 0..120 {
                chaos.step();
            }
            let shown = chaos.copies.values().filter(|copy| copy.revision.is_some()).count();
            chaos.settle();
            shown
        });
        match run {
            Ok(copies) => shown += copies,
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(shown > 300, "only {shown} copies were compared");
}
