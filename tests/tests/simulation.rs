//! The fast simulation: many seeds, each a night of three edges, two or three cores and thirty tabs, or of three regions.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use presence_model::reason::RemovalReason;
use presence_tests::sim::{Failure, Fault, Guarantee, Keep, Mutant, Plan, live, shrink};
use strum::VariantNames as _;

/// Simulated time of each.
const SPAN: Duration = Duration::from_secs(600);
/// So many where nobody says otherwise: about a minute on two processors.
const SEEDS: u64 = 500;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number")))
}

/// After so many nights it is said how far it is.
const TELL_EVERY: usize = 500;

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// One region, and everything that befalls it.
    Region,
    /// Several that watch each other.
    Regions,
}

impl Kind {
    fn plan(self, seed: u64, span: Duration) -> Plan {
        match self {
            Self::Region => Plan::draw(seed, span),
            Self::Regions => Plan::draw_regions(seed, span),
        }
    }

    /// How a seed of it is replayed.
    fn replayed(self) -> &'static str {
        match self {
            Self::Region => "tests/run sim --seed",
            Self::Regions => "tests/run sim --regions --seed",
        }
    }

    /// What is asked for; none: both.
    fn asked() -> Option<Self> {
        std::env::var_os("PRESENCE_SIM_REGIONS").map(|_| Self::Regions)
    }
}

/// The deliberate fault that is asked for by a word of its name.
fn mutant() -> Option<Mutant> {
    let word = std::env::var("PRESENCE_SIM_MUTANT").ok()?;
    let named: Vec<Mutant> =
        Mutant::ALL.iter().copied().filter(|mutant| mutant.name().contains(&word)).collect();
    match named[..] {
        [mutant] => Some(mutant),
        _ => panic!("{word:?} is in the name of {} deliberate faults: {named:?}", named.len()),
    }
}

/// Lives through one plan, and tells what broke, if anything did, as short as it can be told.
#[expect(clippy::print_stdout, reason = "the story is for whoever replays it")]
fn replay(kind: Kind, seed: u64) {
    let plan = Plan { mutant: mutant(), ..kind.plan(seed, SPAN) };
    match live(&plan, Keep::All) {
        Ok(story) => println!("seed {seed}: {} lines, sum {:x}, {:?}", story.count, story.sum, story.counts),
        Err(failure) => {
            let messages = std::env::var_os("PRESENCE_SIM_MESSAGES").is_some();
            let keep = if messages { Keep::Messages } else { Keep::All };
            let (plan, failure) = match std::env::var_os("PRESENCE_SIM_WHOLE") {
                None => shrink(&plan, failure, keep),
                Some(_) => {
                    let told = live(&plan, keep).err().unwrap_or(failure);
                    (plan, told)
                }
            };
            println!("{}", failure.tell(&plan));
            panic!("seed {seed}: {}", failure.violation);
        }
    }
}

/// Of so many nights one has several regions beside it.
const REGIONS_EACH: u64 = 8;

/// So many seeds of what is asked for: of one region, and each eighth of several as well.
fn nights(many: u64) -> Vec<(Kind, u64)> {
    match Kind::asked() {
        Some(kind) => (0..many).map(|seed| (kind, seed)).collect(),
        None => (0..many)
            .flat_map(|seed| {
                let regions =
                    seed.is_multiple_of(REGIONS_EACH).then_some((Kind::Regions, seed / REGIONS_EACH));
                [(Kind::Region, seed)].into_iter().chain(regions)
            })
            .collect(),
    }
}

/// How often something struck or was looked at, by kind of night.
type Counts = BTreeMap<(Kind, &'static str), u64>;

/// Lives through nights, on all processors; what breaks is told as it is found.
#[expect(clippy::print_stdout, reason = "a command tells how far it is")]
fn live_through(nights: &[(Kind, u64)]) -> (Vec<String>, Counts) {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::new()));
    let failures: Mutex<Vec<(Kind, u64, Box<Failure>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some((kind, seed)) = nights.get(place).copied() else { break };
                    if place > 0 && place.is_multiple_of(TELL_EVERY) {
                        println!("{place} of {} nights", nights.len());
                    }
                    match live(&kind.plan(seed, SPAN), Keep::Newest) {
                        Ok(story) => {
                            let mut counts = counts.lock().expect("nobody panics with it");
                            for (what, often) in story.counts {
                                *counts.entry((kind, what)).or_default() += often;
                            }
                        }
                        Err(failure) => {
                            println!("{} {seed}: {}", kind.replayed(), failure.violation);
                            failures.lock().expect("nobody panics with it").push((kind, seed, failure));
                        }
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics with it");
    failures.sort_by_key(|(_, seed, _)| *seed);
    let told = |(kind, seed, failure): &(Kind, u64, Box<Failure>)| {
        format!("{} {seed} tells how: {}", kind.replayed(), failure.violation)
    };
    (failures.iter().map(told).collect(), counts.into_inner().expect("nobody panics with it"))
}

/// Everything that may befall a night of this kind, every guarantee that is looked at there, and whatever else must come up
/// for these to be of use.
fn due(kind: Kind) -> Vec<&'static str> {
    match kind {
        Kind::Region => {
            let faults =
                Fault::VARIANTS.iter().filter(|fault| !OF_REGIONS.contains(fault) && **fault != PROVOKED);
            let reasons = RemovalReason::ALL.iter().filter(|reason| **reason != RemovalReason::RegionLost);
            let others =
                ["renewal", "read", "explained", "audit", "token expiring", "refused trespass", "edge lost"];
            let all = faults.chain(Guarantee::VARIANTS).chain(&others).copied();
            all.chain(reasons.map(|reason| reason.as_str())).collect()
        }
        Kind::Regions => {
            let faults =
                ["Blip", "Go", "Leave", "Update", "CrashCore", "NapCore"].into_iter().chain(OF_REGIONS);
            faults.chain(["room answered", "G1", "G2", "G3", "G5", "G7", "G8", "G9", "G12"]).collect()
        }
    }
}

/// What is in no night that is drawn, but in one that is written by hand.
const PROVOKED: &str = "DozeCore";
/// What only nights of several regions have.
const OF_REGIONS: [&str; 2] = ["Cross", "CutRegions"];
/// So many nights of a kind must have had everything.
const NIGHTS_WITH_ALL: usize = 60;

/// How often each guarantee was looked at where nothing excused what was seen.
fn tell(counts: &Counts) -> String {
    let told = |kind: Kind| {
        let of = |guarantee: &&'static str| Some(format!("{guarantee} {}", counts.get(&(kind, *guarantee))?));
        Guarantee::VARIANTS.iter().filter_map(of).collect::<Vec<_>>().join(", ")
    };
    format!("looked at: {}; of several regions: {}", told(Kind::Region), told(Kind::Regions))
}

/// What has not struck, or was never looked at, in nights that are enough for all of it.
fn missing(nights: &[(Kind, u64)], counts: &Counts) -> Vec<(Kind, &'static str)> {
    let enough = |kind: &Kind| nights.iter().filter(|(of, _)| of == kind).count() >= NIGHTS_WITH_ALL;
    let kinds = [Kind::Region, Kind::Regions].into_iter().filter(enough);
    let due = kinds.flat_map(|kind| due(kind).into_iter().map(move |what| (kind, what)));
    due.filter(|due| !counts.contains_key(due)).collect()
}

#[test]
fn nights_break_no_guarantee() {
    if let Some(seed) = number("PRESENCE_SIM_SEED") {
        return replay(Kind::asked().unwrap_or(Kind::Region), seed);
    }
    let many = number("PRESENCE_SIM_SEEDS").unwrap_or(SEEDS);
    assert_ne!(many, 0, "PRESENCE_SIM_SEEDS = 0 would show nothing");
    let nights = nights(many);
    let (broken, counts) = live_through(&nights);
    assert!(broken.is_empty(), "{} of {} nights\n{}", broken.len(), nights.len(), broken.join("\n"));
    println!("{}", tell(&counts));
    let missing = missing(&nights, &counts);
    assert!(missing.is_empty(), "of {} nights none had {missing:?}", nights.len());
}

#[test]
fn the_same_seed_tells_the_same_story_byte_for_byte() {
    let nights =
        [(Kind::Region, 1), (Kind::Region, 2), (Kind::Region, 3), (Kind::Regions, 1), (Kind::Regions, 2)];
    for (kind, seed) in nights {
        let plan = kind.plan(seed, Duration::from_secs(120));
        let tell = || live(&plan, Keep::All).unwrap_or_else(|failure| failure.story);
        let (first, second) = (tell(), tell());
        let least = match kind {
            Kind::Region => 500,
            Kind::Regions => 80,
        };
        assert!(first.count > least, "{} lines", first.count);
        assert_eq!(first.lines, second.lines);
        assert_eq!(first.sum, second.sum);
    }
}
