//! Builds the wall clock that is loaded into servers of tests: it must be C.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/redis/clock.c");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let library = PathBuf::from(out).join("clock.so");
    let built = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "src/redis/clock.c", "-o"])
        .arg(&library)
        .status();
    assert!(built.is_ok_and(|status| status.success()), "cc failed: install a C compiler");
}
