//! The whole stack: real cores, edges and clients over simulated time, network and store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use presence_tests::history::Night;
use presence_tests::whole::{Plan, run};

/// Seeds of an ordinary run.
const SEEDS: u64 = 20;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number")))
}

#[test]
fn nights_of_the_whole_stack_break_no_guarantee() {
    let seeds: Vec<u64> = match (number("PRESENCE_WHOLE_SEED"), number("PRESENCE_WHOLE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, seeds) => (1..=seeds.unwrap_or(SEEDS)).collect(),
    };
    println!("seeds {seeds:?}; replay one with tests/run whole --seed N");
    let nights = live_through(&seeds);
    let (mut looked, mut faults, mut broken) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for night in &nights {
        add(&mut faults, &night.faults);
        if let Ok(counts) = &night.verdict {
            add(&mut looked, counts);
        }
        broken.extend(night.story(&format!("tests/run whole --seed {}", night.seed)));
        if seeds.len() == 1 {
            let path = std::env::temp_dir().join(format!("whole-night-{}.log", night.seed));
            std::fs::write(&path, night.lines.join("\n")).expect("a file can be written");
            println!("the whole night is in {}", path.display());
        }
    }
    println!("happened: {faults:?}\nlooked: {looked:?}");
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

/// Over two threads, since a night needs one.
#[expect(clippy::print_stdout, reason = "a test tells how far it is")]
fn live_through(seeds: &[u64]) -> Vec<Night> {
    let (next, nights) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) =
                    seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).expect("few"))
                {
                    let night = run(*seed, &Plan::default());
                    println!("{}", night.told());
                    nights.lock().expect("no panic").push(night);
                }
            });
        }
    });
    let mut nights = nights.into_inner().expect("no panic");
    nights.sort_by_key(|night| night.seed);
    nights
}

fn add(sum: &mut BTreeMap<&'static str, u64>, counts: &BTreeMap<&'static str, u64>) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

#[test]
fn the_same_seed_gives_the_same_night_line_for_line() {
    let (one, again) = (run(7, &Plan::default()), run(7, &Plan::default()));
    for heard in [" < {", " < RoomUpdate", "store", "world"] {
        assert!(one.lines.iter().any(|line| line.contains(heard)), "nothing of {heard}");
    }
    for (number, (one, again)) in one.lines.iter().zip(&again.lines).enumerate() {
        assert_eq!(one, again, "line {number}");
    }
    assert_eq!(one.lines.len(), again.lines.len());
    assert_ne!(one.lines, run(8, &Plan::default()).lines);
}
