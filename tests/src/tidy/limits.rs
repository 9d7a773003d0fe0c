//! Every limit has its row in the page on hostile input, and the test that the row names is there.

use std::collections::{BTreeMap, BTreeSet};

/// Names of the constants of a file.
#[must_use]
pub fn constants(source: &str) -> Vec<&str> {
    source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next()).collect()
}

/// What is wrong with the rows ``| `LIMIT` | `test`… |`` of a page: limits without one, rows of no limit, and tests that
/// no source has. `limits`: those that must have a row; `others`: those that may.
#[must_use]
pub fn limit_mistakes(
    page: &str,
    limits: &[&str],
    others: &[&str],
    sources: &[(String, String)],
) -> Vec<String> {
    let tests: BTreeSet<&str> = sources.iter().flat_map(|(_, text)| functions(text)).collect();
    let rows: BTreeMap<&str, &str> = page.lines().filter_map(row).collect();
    let mut mistakes = Vec::new();
    for limit in limits.iter().filter(|limit| !rows.contains_key(*limit)) {
        mistakes.push(format!("{limit} has no row"));
    }
    for (limit, named) in rows {
        if !limits.contains(&limit) && !others.contains(&limit) {
            mistakes.push(format!("{limit} is no limit any more"));
        }
        let mut named = named.split('`').skip(1).step_by(2).peekable();
        if named.peek().is_none() {
            mistakes.push(format!("{limit} names no test"));
        }
        for test in named.filter(|test| !tests.contains(test)) {
            mistakes.push(format!("{limit} names {test}, which is no test"));
        }
    }
    mistakes
}

/// Limit and tests of a row whose first cell is a constant.
fn row(line: &str) -> Option<(&str, &str)> {
    let (limit, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
    let is_constant =
        limit.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    is_constant.then_some((limit, rest.strip_suffix(" |")?))
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")?.split(['(', '<']).next()
    })
}
