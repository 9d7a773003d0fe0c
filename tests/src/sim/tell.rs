//! A failure as a person reads it: what broke, what befell the world, and what happened to those concerned.

use std::fmt::Write as _;

use super::plan::Plan;
use super::{Failure, Shape};

/// Kinds of lines that concern everybody.
const OF_ALL: [&str; 15] = [
    "fault",
    "core starts",
    "core dies",
    "core stops",
    "core goes on",
    "core closes link",
    "edge starts",
    "edge dies",
    "edge stops",
    "edge goes on",
    "edge lost",
    "link opens",
    "calm",
    "at rest",
    "BROKEN",
];
/// Lines of a story that are told, at most: the newest.
const LINES_MAX: usize = 120;

impl Failure {
    /// Tells it: the plan, and of the story what concerns whom the violation names.
    #[must_use]
    pub fn tell(&self, plan: &Plan) -> String {
        let names = concerned(&self.violation.what, &plan.shape);
        let matters = |line: &&String| {
            let kind = line.get(10..).unwrap_or_default();
            OF_ALL.iter().any(|of_all| kind.starts_with(of_all))
                || ["store", "watch", "link: "].iter().any(|of_all| kind.starts_with(of_all))
                || words(line).any(|word| names.iter().any(|name| name == word))
        };
        let lines: Vec<&String> = self.story.lines.iter().filter(matters).collect();
        let mut told = format!("{}\n\n{plan}\n", self.violation);
        let _ = writeln!(
            told,
            "what happened to {}:",
            if names.is_empty() { "all".into() } else { names.join(", ") }
        );
        let most = if self.story.keeps_messages() { usize::MAX } else { LINES_MAX };
        for line in &lines[lines.len().saturating_sub(most)..] {
            let _ = writeln!(told, "{line}");
        }
        told
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// Users named, with their tabs, and tabs and desks named.
fn concerned(what: &str, shape: &Shape) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in words(what) {
        let number = |kind| word.strip_prefix(kind).and_then(|number: &str| number.parse::<usize>().ok());
        if let Some(user) = number("u") {
            let tabs = (0..shape.tabs).filter(|tab| shape.user_of(*tab) == user && !shape.is_onlooker(*tab));
            names.extend(tabs.map(|tab| format!("tab{tab}")));
            names.push(word.to_owned());
        } else if number("tab").is_some() || number("desk").is_some() {
            names.push(word.to_owned());
        }
    }
    names.sort();
    names.dedup();
    names
}
