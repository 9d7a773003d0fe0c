//! The store conformance suite on the memory adapter, over a clock that the test moves.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use presence_core::store::memory::{Lost, MemorySettings, SharedMemoryStore, Upheaval};
use presence_core::store::{LeaseStore, Retention};
use presence_runtime::clock::{Clock, ManualClock};
use presence_tests::conformance::{Fault, Harness};

struct Memory {
    store: SharedMemoryStore,
    hand: ManualClock,
}

impl Memory {
    fn new() -> Self {
        let (clock, hand) = Clock::manual();
        let settings = MemorySettings { replica_lag: 1024, ..MemorySettings::default() };
        Self { store: SharedMemoryStore::new(settings, clock), hand }
    }
}

impl Harness for Memory {
    fn store(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.store.clone())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn remembers(&self) -> Duration {
        Retention::default().history
    }

    fn remembers_seen(&self) -> Duration {
        Retention::default().seen
    }

    fn remembers_listing(&self) -> Duration {
        Retention::default().listing
    }

    fn advance(&self, span: Duration) -> BoxFuture<'_, ()> {
        self.hand.advance(span);
        tokio::task::yield_now().boxed()
    }

    fn provoke(&self, fault: Fault) -> BoxFuture<'_, ()> {
        let store = &self.store;
        match fault {
            Fault::Restart => store.suffer(Upheaval::Restart),
            Fault::RestartEmpty => store.suffer(Upheaval::RestartEmpty),
            Fault::FailOver { lost_commits } => {
                store.suffer(Upheaval::FailOver(Lost::Commits(lost_commits)));
            }
            Fault::StepClock { by_ms } => store.step_clock(by_ms),
            Fault::LoseAnswer => store.set_weather(|weather| weather.lose_answers = 1),
            Fault::LoseCommand => store.set_weather(|weather| weather.lose_commands = 1),
            Fault::ReadOnly(read_only) => store.set_weather(|weather| weather.read_only = read_only),
            Fault::Full(full) => store.set_weather(|weather| weather.full = full),
            Fault::Unavailable(is_away) => store.set_weather(|weather| {
                weather.unavailable = is_away.then(|| "cut by the test".to_owned());
            }),
            Fault::Tamper(tampering) => store.tamper(tampering),
            Fault::Slow(delay) => store.set_weather(|weather| weather.delay = delay),
        }
        futures::future::ready(()).boxed()
    }
}

presence_tests::conformance!(Memory::new());

#[test]
fn every_case_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let list = std::fs::read_to_string(folder.with_extension("rs")).unwrap();
    let mut cases = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let part = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let functions = text.lines().filter_map(|line| line.strip_prefix("pub async fn "));
        let named = functions.filter_map(|line| line.split_once("(bench")).map(|(name, _)| name.to_owned());
        cases.extend(named.map(|name| format!("{part}::{name},")));
    }
    assert!(cases.len() > 50, "{} cases found", cases.len());
    let missing: Vec<_> = cases.iter().filter(|case| !list.contains(case.as_str())).collect();
    assert!(missing.is_empty(), "not in the list: {missing:?}");
}
