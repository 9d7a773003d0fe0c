//! What hostile bytes may do, as functions of bytes: each takes anything, and panics only at a defect.
//!
//! The same targets are run three ways: the corpus is replayed, mutated blindly for a while on the stable toolchain
//! (`tests/tests/fuzz.rs`), and grown by coverage (`tests/fuzz/run`).

mod clients;
pub mod corpus;
mod cursors;
mod frames;
mod grpc;
pub mod mutate;
mod stored;
mod tokens;

/// Bytes that reach a process from outside, and what is done with them.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, also that of its corpus.
    pub name: &'static str,
    /// Panics at a defect.
    pub run: fn(&[u8]),
    /// Inputs that are good, or nearly so: what the corpus begins with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that blind mutation would not find.
    pub words: &'static [&'static [u8]],
    /// Inputs are at most so long: a little beyond what is ever read.
    pub bytes_max: usize,
}

/// All of them.
pub const TARGETS: [Target; 7] = [
    Target {
        name: "frames",
        run: frames::run,
        seeds: frames::seeds,
        words: &[
            b"\x81\x80\x00\x00\x00\x00",
            b"\x01\x80\x00\x00\x00\x00",
            b"\x80\x80\x00\x00\x00\x00",
            b"\x88\x82\x00\x00\x00\x00\x03\xe8",
            b"\x82\xfe\x00\x7e\x00\x00\x00\x00",
            b"\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00",
        ],
        bytes_max: 2_048,
    },
    Target {
        name: "client_json",
        run: clients::run_json,
        seeds: clients::seeds_json,
        words: &[
            b"{\"t\":\"join\",",
            b"\"room\":\"r\"",
            b"\"session\":\"0123456789abcdef\"",
            b"\"state\":",
            b"\"generation\":9007199254740991",
            b"\"since\":\"AQA\"",
            b"\"at\":{",
            b"\\ud83d\\ude00",
            b"\\u0000",
            b"null",
            b"1e308",
            b"[[[[[[[[",
            b"]]]]]]]]",
        ],
        bytes_max: 4_096,
    },
    Target {
        name: "client_proto",
        run: clients::run_proto,
        seeds: clients::seeds_proto,
        words: &[
            b"\x0a\x01r",
            b"\x1a\x100123456789abcdef",
            b"\x32\x02{}",
            b"\x20\xff\xff\xff\xff\xff\xff\xff\x0f",
        ],
        bytes_max: 4_096,
    },
    Target {
        name: "tokens",
        run: tokens::run,
        seeds: tokens::seeds,
        // {"alg":"none"}, {"alg":"HS256", {"alg":"EdDSA", ,"kid":"
        words: &[
            b".",
            b"eyJhbGciOiJub25lIn0",
            b"eyJhbGciOiJIUzI1NiIs",
            b"eyJhbGciOiJFZERTQSIs",
            b"LCJraWQiOiIi",
        ],
        bytes_max: 4_200,
    },
    Target {
        name: "cursors",
        run: cursors::run,
        seeds: cursors::seeds,
        words: &[b"\x01\x01\x02eu", b"\x02\x01\x02eu", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
        bytes_max: 2_048,
    },
    Target {
        name: "stored",
        run: stored::run,
        seeds: stored::seeds,
        words: &[b"\x0a\x100123456789abcdef", b"\x08\x80\xf0\xf3\x88\xac\x34"],
        bytes_max: 2_048,
    },
    Target {
        name: "grpc",
        run: grpc::run,
        seeds: grpc::seeds,
        words: &[
            b"\x0a\x01r",
            b"\x12\x01u",
            b"\x1a\x100123456789abcdef",
            b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        ],
        bytes_max: 2_048,
    },
];

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
