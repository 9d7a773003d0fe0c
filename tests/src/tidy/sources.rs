//! Which words stand where, and how long a file may be.

use std::path::Path;
use std::process::Command;

/// A file of more lines holds more than one concept.
const FILE_LINES_MAX: usize = 600;

/// A rule: files it concerns, words that must not be in them, and why.
struct Rule {
    applies: fn(&str) -> bool,
    words: &'static [&'static str],
    reason: &'static str,
}

fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// Machines that the simulator runs: no I/O, no clock, no task.
fn is_machine(path: &str) -> bool {
    let machines = [
        "core/model/src/",
        "core/src/driver",
        "edge/src/hub",
        "edge/src/protocol",
        "core/client/src/watch",
        "core/src/store/memory/",
    ];
    let shells = ["core/src/store/memory/shared.rs"];
    is_rust(path) && machines.iter().any(|machine| path.starts_with(machine)) && !shells.contains(&path)
}

fn outside(path: &str, homes: &[&str]) -> bool {
    is_rust(path) && !homes.iter().any(|home| path.starts_with(home))
}

fn no_tonic_here(path: &str) -> bool {
    outside(
        path,
        &[
            "proto/",
            "core/src/service",
            "core/src/main.rs",
            "core/client/",
            "edge/src/link",
            "edge/src/protocol/proto",
            "cli/src/remote",
            "core/runtime/src/rpc",
            "tests/",
        ],
    )
}

fn no_websocket_library_here(path: &str) -> bool {
    outside(path, &["edge/src/ws", "cli/src/probe/socket.rs", "tests/"])
}

fn no_redis_here(path: &str) -> bool {
    outside(path, &["core/src/store/redis", "tests/"])
}

fn is_ours(path: &str) -> bool {
    !path.ends_with("Cargo.lock") && path != "LICENSE"
}

const RULES: &[Rule] = &[
    Rule {
        applies: is_machine,
        words: &[
            "tokio::",
            "std::net",
            "std::fs",
            "std::thread",
            "Instant",
            "SystemTime",
            "clock.now(",
            "rand::rng(",
            "async fn",
        ],
        reason: "a machine takes time and chance as arguments and does no I/O",
    },
    Rule {
        applies: no_tonic_here,
        words: &["tonic::", "prost::", "presence_proto::v1"],
        reason: "wire types stay at the wire",
    },
    Rule {
        applies: no_websocket_library_here,
        words: &["fastwebsockets"],
        reason: "WebSockets end in edge/src/ws, and begin in cli/src/probe/socket.rs",
    },
    Rule {
        applies: no_redis_here,
        // The client library; the adapter is `store::redis`.
        words: &[" redis::", "(redis::", "<redis::", "&redis::", "[redis::"],
        reason: "Redis is known to its adapter only",
    },
    Rule {
        applies: is_rust,
        words: &["TODO", "FIXME", "XXX", "#[allow(", "#![allow("],
        reason: "a decision or an `expect` with a reason instead",
    },
    Rule {
        applies: is_ours,
        words: &[
            concat!("/wo", "rk/"),
            concat!("shared/", "design"),
            concat!("crates.", "io"),
            concat!("pypi.", "org"),
            concat!("npmjs.", "org"),
        ],
        reason: "the project stands alone and names no machine and no registry host",
    },
];

/// All text files that git knows or would add, with their text.
///
/// # Errors
/// When git fails.
pub fn source_files(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()?;
    anyhow::ensure!(listed.status.success(), "git ls-files failed");
    let paths = String::from_utf8(listed.stdout)?;
    let files = paths.lines().filter_map(|path| {
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        Some((path.to_owned(), text))
    });
    Ok(files.collect())
}

/// What in a file breaks the rules, each as `path:line: …`.
#[must_use]
pub fn source_mistakes(path: &str, text: &str) -> Vec<String> {
    if path == "tests/src/tidy/sources.rs" || path == "tests/tests/tidy.rs" {
        return Vec::new();
    }
    let mut mistakes = Vec::new();
    let lines = text.lines().count();
    if is_rust(path) && lines > FILE_LINES_MAX {
        mistakes.push(format!("{path}: {lines} lines, at most {FILE_LINES_MAX} are allowed"));
    }
    for (number, line) in text.lines().enumerate() {
        if outside(path, &["tests/"]) && line.ends_with("select! {") && !is_biased(text, number) {
            mistakes.push(format!("{path}:{}: `select!` draws lots unless it is `biased`", number + 1));
        }
        if is_rust(path) && is_banner(line) {
            mistakes.push(format!("{path}:{}: a banner comment", number + 1));
        }
        // Prose may name what code may not use.
        let is_comment = line.trim_start().starts_with("//");
        for rule in RULES.iter().filter(|rule| (rule.applies)(path)) {
            let names_code = rule.words[0].ends_with("::") || rule.words.contains(&"Instant");
            if is_comment && names_code {
                continue;
            }
            if let Some(word) = rule.words.iter().find(|word| has_word(line, word)) {
                mistakes.push(format!("{path}:{}: `{word}`: {}", number + 1, rule.reason));
            }
        }
    }
    mistakes
}

/// Whether the branches that begin on that line are tried in their order: only `main` draws lots.
fn is_biased(text: &str, number: usize) -> bool {
    text.lines().nth(number + 1).is_some_and(|next| next.trim() == "biased;")
}

fn is_banner(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches('/').trim();
    line.trim_start().starts_with("//") && rest.len() >= 5 && rest.chars().all(|c| "=-*#~".contains(c))
}

/// Whether the word stands there by itself, not as the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_') || !word.starts_with(char::is_alphanumeric)
    })
}
