//! Hostile bytes: what is kept of them is replayed, then mutated for a while.
//!
//! `PRESENCE_FUZZ_SECONDS` says how long each target is mutated (default: 1), `PRESENCE_FUZZ_SEED` repeats a run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use presence_runtime::clock::Clock;
use presence_tests::fuzz::{TARGETS, Target, corpus, mutate::Mutator, target};

/// Between two looks at the clock.
const INPUTS_AT_ONCE: usize = 100;

fn number_of(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text}")),
        Err(_) => default,
    }
}

/// Runs one input; a defect is told with the line that keeps it.
fn try_one(target: &Target, input: &[u8]) {
    if catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err() {
        panic!("add this line to tests/corpus/{}.txt: {}", target.name, corpus::line(input));
    }
}

#[expect(clippy::print_stdout, reason = "a run is repeated by the seed that it prints")]
fn replay_and_mutate(name: &str) {
    let target = target(name).expect("a target");
    let inputs = corpus::read(target).expect("the corpus of each target is there");
    inputs.iter().for_each(|input| try_one(target, input));
    let clock = Clock::system();
    let seed = number_of("PRESENCE_FUZZ_SEED", clock.wall_ms());
    let span = Duration::from_secs(number_of("PRESENCE_FUZZ_SECONDS", 1));
    println!("{name}: seed {seed}, {} inputs kept", inputs.len());
    let mut mutator = Mutator::new(target, &inputs, seed);
    let (began, mut tried) = (clock.now(), 0);
    while clock.now().since(began) < span {
        (0..INPUTS_AT_ONCE).for_each(|_| try_one(target, &mutator.next_input()));
        tried += INPUTS_AT_ONCE;
    }
    println!("{name}: {tried} inputs in {} s", span.as_secs());
}

#[test]
fn frames() {
    replay_and_mutate("frames");
}

#[test]
fn client_json() {
    replay_and_mutate("client_json");
}

#[test]
fn client_proto() {
    replay_and_mutate("client_proto");
}

#[test]
fn tokens() {
    replay_and_mutate("tokens");
}

#[test]
fn cursors() {
    replay_and_mutate("cursors");
}

#[test]
fn stored() {
    replay_and_mutate("stored");
}

#[test]
fn grpc() {
    replay_and_mutate("grpc");
}

/// A list of targets that grows without its test would never be run.
#[test]
fn every_target_has_its_test() {
    let source = include_str!("fuzz.rs");
    for Target { name, .. } in TARGETS {
        assert!(source.contains(&format!("fn {name}() {{\n")), "{name}");
    }
}

#[test]
fn a_defect_is_told_with_the_line_that_keeps_it() {
    let defective = Target { run: |bytes| assert_ne!(bytes, b"x"), ..TARGETS[0] };
    let told = catch_unwind(|| try_one(&defective, b"x")).unwrap_err();
    assert_eq!(told.downcast_ref::<String>().unwrap(), "add this line to tests/corpus/frames.txt: eA==");
}
