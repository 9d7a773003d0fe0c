//! The page of scenarios: what it says is held is held by a test of that name.

use std::collections::BTreeSet;

/// Lists what each store has to hold: a macro makes tests of these.
const CASES: &str = "tests/src/conformance.rs";
/// How many there are.
const SCENARIOS: usize = 44;

/// What is wrong with the page. `files` are all sources with their paths, `tiers` those that can be run.
#[must_use]
pub fn scenario_mistakes(page: &str, files: &[(String, String)], tiers: &[&str]) -> Vec<String> {
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| #"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut mistakes: Vec<String> =
        rows.iter().enumerate().flat_map(|(place, row)| row_mistakes(place + 1, row, files, tiers)).collect();
    if rows.len() != SCENARIOS {
        mistakes.push(format!("{} rows and not {SCENARIOS}", rows.len()));
    }
    mistakes
}

fn row_mistakes(number: usize, row: &[&str], files: &[(String, String)], tiers: &[&str]) -> Vec<String> {
    let [own, _, _, state, of_tiers, tests] = row else { return vec![format!("{number}: not six cells")] };
    let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
    let mut mistakes = Vec::new();
    let mut wrong = |what: String| mistakes.push(format!("{number}: {what}"));
    if *own != number.to_string() {
        wrong(format!("is numbered {own}"));
    }
    match *state {
        "done" | "in part" if names.is_empty() => wrong(format!("{state}, but without a test")),
        "done" | "in part" => {}
        "not yet" if names.is_empty() => {}
        _ => wrong(format!("is {state:?} with {} tests", names.len())),
    }
    let named: BTreeSet<&str> = of_tiers.split(", ").filter(|tier| !tier.is_empty()).collect();
    for tier in named.iter().filter(|tier| !tiers.contains(tier)) {
        wrong(format!("no tier {tier}"));
    }
    let mut held = BTreeSet::new();
    for name in names {
        let of_test: BTreeSet<&str> = files
            .iter()
            .filter(|(path, text)| has_test(path, text, name))
            .map(|(path, _)| tier_of(path))
            .collect();
        if of_test.is_empty() {
            wrong(format!("no test {name}"));
        }
        held.extend(of_test);
    }
    for tier in named.symmetric_difference(&held) {
        let has = if held.contains(tier) { "a test in it is named" } else { "no test in it is named" };
        wrong(format!("tier {tier}: {has}"));
    }
    mistakes
}

/// Whether a file has a test of this name: a function that is one, a case that each store has to hold, or in quotes the
/// title of a test of a page.
fn has_test(path: &str, text: &str, name: &str) -> bool {
    match name.strip_prefix('"') {
        Some(_) => path.ends_with(".mjs") && text.contains(&format!("test({name}")),
        None if path == CASES => text.contains(&format!("::{name},")),
        None if path.ends_with(".rs") => is_test(text, name),
        None => path.ends_with(".py") && name.starts_with("test_") && text.contains(&format!("def {name}(")),
    }
}

/// Whether a function is a test, by its attributes.
fn is_test(text: &str, name: &str) -> bool {
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.rsplit_once("\n}\n").map_or(before, |(_, attributes)| attributes);
    attributes.contains("#[test]") || attributes.contains("#[tokio::test")
}

/// The tier that runs the tests of a file.
fn tier_of(path: &str) -> &'static str {
    let Some(file) = path.strip_prefix("tests/") else { return "model" };
    let (folder, name) = file.split_once('/').unwrap_or((file, ""));
    let starts = |with: &str| name.starts_with(with);
    match folder {
        "foreign" => "foreign",
        "browser" => "browser",
        "helm" => "helm",
        "tests" if starts("simul") => "sim",
        "tests" if starts("whole_stack") => "whole",
        "tests" if starts("conformance_sentinel") || starts("conformance_cluster") => "topologies",
        "tests" if starts("redis_") && !starts("redis_servers") => "topologies",
        "tests" if starts("system_") => "system",
        _ => "conformance",
    }
}
