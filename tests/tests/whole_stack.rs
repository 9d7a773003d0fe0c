//! The whole stack: real cores, edges and clients over simulated time, network and store.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use presence_tests::whole::{Night, Plan, run};

/// Seeds of an ordinary run.
const SEEDS: u64 = 20;
/// Lines of the story that are shown when a guarantee breaks.
const STORY_TAIL: usize = 80;

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
        match &night.verdict {
            Ok(counts) => add(&mut looked, counts),
            Err(_) => broken.push(story(night)),
        }
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
                    println!("{}", verdict(&night));
                    nights.lock().expect("no panic").push(night);
                }
            });
        }
    });
    let mut nights = nights.into_inner().expect("no panic");
    nights.sort_by_key(|night| night.seed);
    nights
}

fn verdict(night: &Night) -> String {
    match &night.verdict {
        Ok(_) => format!("seed {}: {} lines, no guarantee broken", night.seed, night.lines.len()),
        Err(violation) => format!("seed {}: {violation}", night.seed),
    }
}

fn add(sum: &mut BTreeMap<&'static str, u64>, counts: &BTreeMap<&'static str, u64>) {
    for (name, count) in counts {
        *sum.entry(name).or_default() += count;
    }
}

/// What led to the end of a night, for people.
fn story(night: &Night) -> String {
    let Err(violation) = &night.verdict else { return String::new() };
    let until = violation.at.as_millis();
    let before = |line: &&String| {
        let at: u128 = line.split_whitespace().next().and_then(|at| at.parse().ok()).unwrap_or(0);
        at <= until
    };
    let lines: Vec<&String> = night.lines.iter().take_while(before).collect();
    let tail: Vec<&str> =
        lines[lines.len().saturating_sub(STORY_TAIL)..].iter().map(|line| line.as_str()).collect();
    format!(
        "seed {}: {violation}\n{}\nreplay: tests/run whole --seed {}",
        night.seed,
        tail.join("\n"),
        night.seed
    )
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
