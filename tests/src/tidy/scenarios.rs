//! The page of scenarios: what it says is held is held by a test of that name.

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
    for tier in of_tiers.split(", ").filter(|tier| !tier.is_empty() && !tiers.contains(tier)) {
        wrong(format!("no tier {tier}"));
    }
    for name in names.into_iter().filter(|name| !files.iter().any(|(path, text)| has_test(path, text, name)))
    {
        wrong(format!("no test {name}"));
    }
    mistakes
}

/// Whether a file has a test of this name: a function, or in quotes the title of a test of a page.
fn has_test(path: &str, text: &str, name: &str) -> bool {
    match name.strip_prefix('"') {
        Some(_) => path.ends_with(".mjs") && text.contains(&format!("test({name}")),
        None if path.ends_with(".rs") => text.contains(&format!("fn {name}(")),
        None => path.ends_with(".py") && text.contains(&format!("def {name}(")),
    }
}
