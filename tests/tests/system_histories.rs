//! Nights of real processes over a real Redis, read by the checker that knows the guarantees by name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use presence_model::position::{Position, Revision};
use presence_tests::field::{EVERYTHING, Plan, run};
use presence_tests::history::{Departure, Event, History, Look, Members, Night, Shown, Sight, What, check};
use tokio::task::JoinSet;

/// Nights of `tests/run long`.
const NIGHTS_LONG: u64 = 16;
/// Their processes sleep most of the time.
const AT_ONCE: usize = 2;
/// What every night looks at.
const LOOKED: [&str; 6] = ["G1", "G2", "G4", "G5", "G7", "G9"];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} = {text:?} is not a number")))
}

fn seeds() -> Vec<u64> {
    let long = std::env::var_os("PRESENCE_TEST_LONG").map(|_| NIGHTS_LONG);
    match number("PRESENCE_HISTORY_SEED") {
        Some(seed) => vec![seed],
        None => {
            let many = number("PRESENCE_HISTORY_SEEDS").or(long);
            many.map_or(EVERYTHING.to_vec(), |many| (1..=many).collect())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nights_of_real_processes_break_no_guarantee() -> anyhow::Result<()> {
    let mut broken = Vec::new();
    for together in seeds().chunks(AT_ONCE) {
        println!("seeds {together:?}");
        let mut nights = JoinSet::new();
        for seed in together.iter().copied() {
            nights.spawn(async move { run(seed, &Plan::default()).await });
        }
        while let Some(night) = nights.join_next().await {
            let (night, history) = night??;
            broken.extend(judge(&night, &history));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
    Ok(())
}

/// The story of a night that broke a guarantee.
#[expect(clippy::print_stdout, reason = "what happened, for whoever reads the test's output")]
fn judge(night: &Night, history: &History) -> Option<String> {
    println!("{}\nhappened: {:?}", night.told(), night.faults);
    if let Ok(looked) = &night.verdict {
        println!("looked: {looked:?}");
        let never: Vec<_> = LOOKED.iter().filter(|name| !looked.contains_key(*name)).collect();
        assert!(never.is_empty(), "the night has nothing to say of {never:?}");
        what_must_not_be_is_seen(history);
        return None;
    }
    let path = std::env::temp_dir().join(format!("history-night-{}.log", night.seed));
    std::fs::write(&path, night.lines.join("\n")).expect("a file can be written");
    println!("all of it: {}", path.display());
    night.story(&format!("PRESENCE_HISTORY_SEED={} tests/run system", night.seed))
}

/// The same history with one thing in it that must not be is found wrong, by the name of what it breaks.
fn what_must_not_be_is_seen(history: &History) {
    let last = last_of(history);
    let ghost = ("ghost".to_owned(), Shown { status: "available".into(), state: "{}".into(), since: 1 });
    let altered: BTreeMap<&str, (What, &str)> = BTreeMap::from([
        ("somebody is there whom nobody has brought", (commit(&last, vec![ghost.clone()]), "G6")),
        ("a list has somebody whom the roster has not", (shows_also(&last, ghost), "G5")),
        (
            "an observer is taken back",
            (shows(&last, Some(Position::default()), Members::clone(&last.members), Vec::new()), "G4"),
        ),
        ("a revision is committed twice", (commit_again(&last), "G4")),
    ]);
    for (about, (what, guarantee)) in altered {
        assert_eq!(found_with(history, what), guarantee, "{about}");
    }
    // Of who has just come back the checker cannot say whether that was not announced late.
    let gone = |user: &String| found_with(history, shows_gone(&last, user)) == "G2";
    assert!(last.members.keys().any(gone), "somebody who is there is shown to leave");
}

/// What is found wrong where this happens last of all, before everything has come to rest.
fn found_with(history: &History, what: What) -> &'static str {
    let mut history = history.clone();
    let rest = history.events.len() - 1;
    let at = history.events[rest].at - Duration::from_millis(1);
    history.events.insert(rest, Event { at, what });
    check(&history).map_or_else(|violation| violation.guarantee, |_| "nothing")
}

/// How it is in the end: where the roster is, and who shows it.
struct Last {
    observer: String,
    position: Position,
    members: Arc<Members>,
}

fn last_of(history: &History) -> Last {
    let mut positions = history.events.iter().filter_map(|event| match &event.what {
        What::Roster { position, .. } | What::Commit { position, .. } => Some(*position),
        What::Tab { .. }
        | What::StoreReturned
        | What::Observer { .. }
        | What::Trouble { .. }
        | What::Rest { .. } => None,
    });
    let shown = history.events.iter().rev().find_map(|event| match &event.what {
        What::Observer { observer, sight: Sight::Shows(look) } => Some((observer, &look.members)),
        What::Tab { .. }
        | What::Roster { .. }
        | What::Commit { .. }
        | What::StoreReturned
        | What::Observer { .. }
        | What::Trouble { .. }
        | What::Rest { .. } => None,
    });
    let (observer, members) = shown.expect("somebody looks");
    let position = positions.next_back().expect("somebody came");
    Last { observer: observer.clone(), position, members: Arc::clone(members) }
}

fn shows(last: &Last, position: Option<Position>, members: Members, gone: Vec<Departure>) -> What {
    let look = Look { position, live: true, members: Arc::new(members), gone };
    What::Observer { observer: last.observer.clone(), sight: Sight::Shows(look) }
}

fn shows_gone(last: &Last, user: &str) -> What {
    let mut members = Members::clone(&last.members);
    members.remove(user);
    shows(last, None, members, vec![Departure { user: user.to_owned(), reason: "lease_expired".into() }])
}

fn shows_also(last: &Last, (user, shown): (String, Shown)) -> What {
    let mut members = Members::clone(&last.members);
    members.insert(user, shown);
    shows(last, Some(last.position), members, Vec::new())
}

fn commit(last: &Last, upserts: Vec<(String, Shown)>) -> What {
    let position = Position { revision: last.position.revision.next(), ..last.position };
    What::Commit { position, from: last.position.revision, upserts, removals: Vec::new() }
}

fn commit_again(last: &Last) -> What {
    let from = Revision(last.position.revision.0.saturating_sub(1));
    What::Commit { position: last.position, from, upserts: Vec::new(), removals: Vec::new() }
}
