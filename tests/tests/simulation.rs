//! The fast simulation: many seeds, each a night of three edges, two or three cores and thirty tabs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use presence_tests::sim::{Failure, Keep, Plan, live, shrink};

/// Simulated time of each.
const SPAN: Duration = Duration::from_secs(600);
/// So many where nobody says otherwise: about a minute on two processors.
const SEEDS: u64 = 500;
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number")))
}

/// After so many seeds it is said how far it is.
const TELL_EVERY: u64 = 500;

/// Lives through one plan, and tells what broke, if anything did, as short as it can be told.
#[expect(clippy::print_stdout, reason = "the story is for whoever replays it")]
fn replay(seed: u64) {
    let plan = match std::env::var_os("PRESENCE_SIM_REGIONS") {
        None => Plan::draw(seed, SPAN),
        Some(_) => Plan::draw_regions(seed, SPAN),
    };
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

/// Lives through so many plans, on all processors; what breaks is told as it is found.
#[expect(clippy::print_stdout, reason = "a command tells how far it is")]
fn live_through(many: u64) -> Vec<(u64, Box<Failure>)> {
    let next = AtomicU64::new(0);
    let failures: Mutex<Vec<(u64, Box<Failure>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= many {
                        break;
                    }
                    if seed > 0 && seed.is_multiple_of(TELL_EVERY) {
                        println!("{seed} of {many} seeds");
                    }
                    let plan = if std::env::var_os("PRESENCE_SIM_REGIONS").is_some() {
                        Plan::draw_regions(seed, SPAN)
                    } else {
                        Plan::draw(seed, SPAN)
                    };
                    if let Err(failure) = live(&plan, Keep::Newest) {
                        println!("seed {seed}: {}", failure.violation);
                        failures.lock().expect("nobody panics with it").push((seed, failure));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("nobody panics with it");
    failures.sort_by_key(|(seed, _)| *seed);
    failures
}

#[test]
fn nights_break_no_guarantee() {
    if let Some(seed) = number("PRESENCE_SIM_SEED") {
        return replay(seed);
    }
    let many = number("PRESENCE_SIM_SEEDS").unwrap_or(SEEDS);
    assert_ne!(many, 0, "PRESENCE_SIM_SEEDS = 0 would show nothing");
    let broken = live_through(many);
    let broken: Vec<String> =
        broken.iter().map(|(seed, failure)| format!("seed {seed}: {}", failure.violation)).collect();
    assert!(
        broken.is_empty(),
        "{} of {many}: tests/run sim --seed N tells how\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[test]
fn the_same_seed_tells_the_same_story_byte_for_byte() {
    for seed in [1, 2, 3] {
        let plan = Plan::draw(seed, Duration::from_secs(120));
        let tell = || live(&plan, Keep::All).unwrap_or_else(|failure| failure.story);
        let (first, second) = (tell(), tell());
        assert!(first.count > 500, "{} lines", first.count);
        assert_eq!(first.lines, second.lines);
        assert_eq!(first.sum, second.sum);
    }
}
