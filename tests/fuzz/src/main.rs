//! One of the targets of `presence-tests` under libFuzzer: the one that `PRESENCE_FUZZ_TARGET` names.
#![no_main]

use std::sync::OnceLock;

use presence_tests::fuzz::{Target, target};

static TARGET: OnceLock<&Target> = OnceLock::new();

fn chosen() -> &'static Target {
    TARGET.get_or_init(|| {
        let name = std::env::var("PRESENCE_FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("PRESENCE_FUZZ_TARGET={name} is no target"))
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (chosen().run)(bytes));
