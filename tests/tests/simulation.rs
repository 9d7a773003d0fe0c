//! The fast simulation: many seeds, each a night of two edges, one core or two, and ten tabs.

use std::time::Duration;

use presence_tests::sim::{Plan, run};

/// Seeds of an ordinary run.
const SEEDS: u64 = 200;
/// And of those with two cores.
const SEEDS_OF_TWO_CORES: u64 = 100;
/// Simulated time of each.
const SPAN: Duration = Duration::from_secs(180);
/// Lines of the story shown when a guarantee breaks.
const STORY_TAIL: usize = 60;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number")))
}

#[test]
fn nights_break_no_guarantee() {
    println!("{}", live_through(&Plan::default(), SEEDS));
}

#[test]
fn nights_of_two_cores_break_no_guarantee() {
    println!("{}", live_through(&Plan::several_cores(), SEEDS_OF_TWO_CORES));
}

fn live_through(plan: &Plan, many: u64) -> String {
    let seeds: Vec<u64> = match (number("PRESENCE_SIM_SEED"), number("PRESENCE_SIM_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, seeds) => (0..seeds.unwrap_or(many)).collect(),
    };
    let (mut events, mut broken) = (0, Vec::new());
    for seed in &seeds {
        match run(*seed, plan, SPAN) {
            Ok(story) => events += story.lines.len(),
            Err(failure) => {
                let (violation, story) = *failure;
                let tail = story.lines.len().saturating_sub(STORY_TAIL);
                broken.push(format!(
                    "seed {seed}: {violation}\n{}\nreplay: tests/run sim --seed {seed}",
                    story.lines[tail..].join("\n")
                ));
                if broken.len() >= 3 {
                    break;
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
    format!("{} seeds, {events} events, no guarantee broken", seeds.len())
}

#[test]
fn the_same_seed_gives_the_same_story() {
    let story = |seed| run(seed, &Plan::default(), SPAN).map_err(|failure| failure.0).expect("no violation");
    assert_eq!(story(7), story(7));
    assert_ne!(story(7).lines, story(8).lines);
}

#[test]
fn the_nights_are_rough_enough() {
    let story = run(11, &Plan::default(), SPAN).map_err(|failure| failure.0).expect("no violation");
    for kind in ["fault", "edge dies", "core starts", "reply lost", "joined", "transition", "seen", "dial"] {
        assert!(story.counts.get(kind).is_some_and(|count| *count > 1), "{kind}: {:?}", story.counts);
    }
}
