//! Exit codes, after `sysexits.h`: what a script or an orchestrator may rely on. One table for every binary.

use std::error::Error;

use crate::shutdown::Unfinished;

/// Somebody who was asked said no, for good; asking again is useless.
pub const REFUSED: u8 = 1;
/// A mistake in configuration or on the command line; starting again without a change is useless.
pub const USAGE: u8 = 64;
/// A defect of this software: a task that must not end has ended.
pub const SOFTWARE: u8 = 70;
/// Something outside was not there (an address in use, a peer out of reach); later it may be.
pub const TEMPORARY: u8 = 75;

/// What each code means, as `--help` and the page for operators tell it.
pub const TABLE: [(u8, &str); 5] = [
    (0, "done; or told to end, and ended well"),
    (REFUSED, "a core refused what was asked; asking again is of no use"),
    (USAGE, "a mistake on the command line, in the configuration, or in a file or store that these name"),
    (SOFTWARE, "a defect: a part of this process ended that must not, or did not end in time"),
    (TEMPORARY, "something is missing now: an address is in use, a core or store is out of reach"),
];

/// The table, for `--help`.
#[must_use]
pub fn help() -> String {
    let lines = TABLE.map(|(code, meaning)| format!("{code:>4}  {meaning}"));
    format!("Exit codes:\n{}", lines.join("\n"))
}

/// The code of a server that could not start or did not end well.
pub fn of_failure<'a>(mut causes: impl Iterator<Item = &'a (dyn Error + 'static)>) -> u8 {
    if causes.any(<dyn Error>::is::<Unfinished>) { SOFTWARE } else { TEMPORARY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_operators_has_the_same_table() {
        let page = include_str!("../../../docs/operations.md");
        for (code, meaning) in TABLE {
            let row = format!("| {code} | {meaning} |");
            assert!(page.contains(&row), "docs/operations.md lacks: {row}");
        }
    }
}
