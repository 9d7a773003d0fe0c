//! Deliberate faults in the simulation: each breaks a guarantee by name, and nothing of them ships.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use presence_tests::sim::{Guarantee, Keep, Mutant, Provoked, live};

/// Simulated time of a night that is drawn.
const SPAN: Duration = Duration::from_secs(600);
/// So many seeds are tried on a fault, at most.
const SEEDS_MAX: u64 = 500;
/// So many of them before the nights that were written by hand.
const SEEDS_FIRST: u64 = 8;
/// Of each night that is provoked; so many are clean without a fault.
const SEEDS_PROVOKED: u64 = 40;
/// In front of the table, and behind it.
const TABLE: (&str, &str) = ("<!-- made by tests/run sim --mutants -->\n", "<!-- up to here -->\n");
const HEAD: &str =
    "| fault | what is done | night | guarantee broken | seeds needed |\n|---|---|---|---|---|\n";

/// In which kind of night a fault was seen, what it broke, and how many seeds from 0 on that took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Caught {
    night: Option<Provoked>,
    guarantee: Guarantee,
    needed: u64,
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/simulated-mutants.md")
}

/// The table as it is written down: what each row is about, and what it says of that.
fn table() -> Vec<(String, Caught)> {
    let page = std::fs::read_to_string(page()).expect("the page");
    let (_, rest) = page.split_once(TABLE.0).expect("the table begins");
    let (table, _) = rest.split_once(TABLE.1).expect("the table ends");
    table.strip_prefix(HEAD).expect("the table has its head").lines().map(read).collect()
}

fn read(row: &str) -> (String, Caught) {
    let mut cells = row.strip_suffix(" |").expect("a row").rsplitn(4, " | ");
    let needed = cells.next().and_then(|needed| needed.parse().ok());
    let guarantee = cells.next().and_then(|name| name.parse::<Guarantee>().ok());
    let name = cells.next().expect("a night");
    let night = Provoked::ALL.iter().copied().find(|night| night.name() == name);
    let (Some(needed), Some(guarantee), true) = (needed, guarantee, night.is_some() || name == DRAWN) else {
        panic!("in which night, what was broken and after how many seeds: {row}");
    };
    (cells.next().expect("what it is about").to_owned(), Caught { night, guarantee, needed })
}

/// The word for a night that nobody wrote.
const DRAWN: &str = "drawn";

fn about(mutant: Mutant) -> String {
    format!("| {mutant} | {}", mutant.fault())
}

/// What a fault breaks in this night.
fn broken(mutant: Mutant, night: Option<Provoked>, seed: u64) -> Option<Guarantee> {
    live(&mutant.plan(night, seed, SPAN), Keep::Newest).err().map(|failure| failure.violation.guarantee)
}

/// The first night that sees it: a few that are drawn, those written by hand, and many that are drawn.
fn hunt(mutant: Mutant) -> Option<Caught> {
    let seen = |night, seeds: std::ops::Range<u64>| {
        let caught = |seed| Some(Caught { night, guarantee: broken(mutant, night, seed)?, needed: seed + 1 });
        seeds.into_iter().find_map(caught)
    };
    seen(None, 0..SEEDS_FIRST)
        .or_else(|| Provoked::ALL.iter().find_map(|night| seen(Some(*night), 0..SEEDS_PROVOKED)))
        .or_else(|| seen(None, SEEDS_FIRST..SEEDS_MAX))
}

/// Does something with each fault, on all processors; the answers are in their order.
fn with_each<T: Send>(act: impl Fn(usize, Mutant) -> T + Sync) -> Vec<T> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = Mutant::ALL.get(place) else { break };
                    let outcome = act(place, *mutant);
                    done.lock().expect("nobody panics with it").push((place, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("nobody panics with it");
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Hunts all of them, and writes the table; or those whose name has a word in it, and only tells. Of no fault there is
/// nothing to tell.
#[expect(clippy::print_stdout, reason = "a command tells how far it is")]
fn make_the_table(word: &str) {
    let is_meant = |mutant: &&Mutant| word == "all" || mutant.name().contains(word);
    assert!(Mutant::ALL.iter().any(|mutant| is_meant(&mutant)), "no fault has {word:?} in its name");
    let caught = with_each(|_, mutant| {
        if !is_meant(&&mutant) {
            return None;
        }
        let caught = hunt(mutant);
        println!("{mutant}: {caught:?}");
        caught
    });
    if word != "all" {
        return;
    }
    let mut table = String::from(HEAD);
    for (mutant, caught) in Mutant::ALL.iter().zip(&caught) {
        let Some(Caught { night, guarantee, needed }) = caught else { continue };
        let night = night.map_or(DRAWN, Provoked::name);
        let _ = writeln!(table, "{} | {night} | {guarantee} | {needed} |", about(*mutant));
    }
    let text = std::fs::read_to_string(page()).expect("the page");
    let (before, rest) = text.split_once(TABLE.0).expect("the table begins");
    let (_, after) = rest.split_once(TABLE.1).expect("the table ends");
    std::fs::write(page(), format!("{before}{}{table}{}{after}", TABLE.0, TABLE.1)).expect("the page");
    let survives: Vec<_> = Mutant::ALL.iter().zip(&caught).filter(|(_, caught)| caught.is_none()).collect();
    assert!(survives.is_empty(), "{survives:?}");
}

#[test]
fn the_table_has_each_fault_once() {
    let (table, faults): (Vec<String>, Vec<String>) = (
        table().into_iter().map(|(about, _)| about).collect(),
        Mutant::ALL.iter().map(|m| about(*m)).collect(),
    );
    assert_eq!(table, faults, "tests/run sim --mutants makes it anew");
    assert!(faults.len() >= 25);
}

/// Replays what the table says. Of a fault that its seed does not see any more, as what runs has changed, it is told
/// whether another does.
#[test]
fn each_fault_breaks_a_guarantee_with_its_seed() {
    if let Ok(word) = std::env::var("PRESENCE_SIM_MUTANTS") {
        return make_the_table(&word);
    }
    let table = table();
    let judged = with_each(|place, mutant| {
        let (_, told) = &table[place];
        let seen = broken(mutant, told.night, told.needed - 1);
        (mutant, *told, if seen == Some(told.guarantee) { Some(*told) } else { hunt(mutant) })
    });
    let moved: Vec<String> = judged
        .iter()
        .filter_map(|(mutant, told, caught)| Some((mutant, (*caught).filter(|caught| caught != told)?)))
        .map(|(mutant, caught)| format!("{mutant}: now {caught:?}"))
        .collect();
    let survives: Vec<Mutant> =
        judged.iter().filter(|(.., caught)| caught.is_none()).map(|(mutant, ..)| *mutant).collect();
    assert!(survives.is_empty(), "no guarantee is broken by {survives:?}");
    assert!(moved.is_empty(), "tests/run sim --mutants makes the table anew\n{}", moved.join("\n"));
}

/// The same plan without the fault breaks nothing: it is the fault that is seen.
#[test]
fn what_is_provoked_breaks_no_guarantee_by_itself() {
    for provoked in Provoked::ALL {
        for seed in 0..SEEDS_PROVOKED {
            if let Err(failure) = live(&provoked.plan(seed), Keep::All) {
                panic!("{provoked}, seed {seed}: {}", failure.tell(&provoked.plan(seed)));
            }
        }
    }
}

#[test]
fn what_ships_has_no_deliberate_fault() {
    let faults: Vec<String> = Mutant::ALL.iter().map(|mutant| mutant.fault()).collect();
    let exe = std::env::current_exe().expect("a test knows itself");
    let release = exe.parent().and_then(Path::parent).expect("tests are in deps");
    let names = |path: &Path| {
        let binary = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let words = faults.iter().map(String::as_str).chain(["presence_tests"]);
        words.filter(|word| holds(&binary, word.as_bytes())).count()
    };
    assert_eq!(names(&exe), faults.len() + 1, "the words are looked for where they are");
    for binary in ["presence", "presence-core", "presence-edge"] {
        assert_eq!(names(&release.join(binary)), 0, "{binary}");
    }
}

fn holds(binary: &[u8], word: &[u8]) -> bool {
    let first = word[0];
    let starts = binary.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.into_iter().any(|(at, _)| binary[at..].starts_with(word))
}
