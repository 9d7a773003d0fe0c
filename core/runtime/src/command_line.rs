//! The command line: a mistake is one line on standard error and exit code 64. For `main` only.

use std::fmt::Display;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Command, Parser};

use crate::exit;

/// Parses the arguments of the process. Help, which ends with the exit codes, and version are printed and end it
/// well; a mistake ends it with [`exit::USAGE`].
#[must_use]
pub fn parse_or_exit<T: Parser>() -> T {
    let parsed = with_exit_codes(T::command()).try_get_matches();
    match parsed.and_then(|matches| T::from_arg_matches(&matches)) {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // Nobody is left to tell if standard error is closed.
            let _ = error.print();
            std::process::exit(exit::USAGE.into());
        }
        Err(error) if error.use_stderr() => {
            complain(&one_line(&error));
            std::process::exit(exit::USAGE.into());
        }
        Err(help) => {
            // Nobody is left to tell if standard output is closed.
            let _ = help.print();
            std::process::exit(0);
        }
    }
}

fn with_exit_codes(command: Command) -> Command {
    let before = command.get_after_help().map_or_else(String::new, |help| format!("{help}\n\n"));
    command.after_help(before + &exit::help())
}

/// Writes mistakes to standard error, one line each, and gives the exit code for `main` to return.
#[must_use]
pub fn refuse(mistakes: &impl Display) -> ExitCode {
    for line in mistakes.to_string().lines() {
        complain(line);
    }
    ExitCode::from(exit::USAGE)
}

/// What was typed may be quoted: it is made harmless for a terminal.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        presence_model::id::escape_into(self.0, f)
    }
}

fn complain(line: &str) {
    // Nobody is left to tell if standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {}", Escaped(line));
}

/// What clap says in several lines, as one: the mistake, and its tip if there is one.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(join);
    let mistake = paragraphs.next().unwrap_or_default();
    let tips = paragraphs.filter(|paragraph| paragraph.starts_with("tip:"));
    let line = std::iter::once(mistake).chain(tips).collect::<Vec<_>>().join("; ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

fn join(paragraph: &str) -> String {
    paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        /// Who
        #[arg(long)]
        user: String,
        /// Where
        #[arg(long)]
        room: String,
        #[command(flatten)]
        timing: crate::config::TimingFlags,
    }

    fn mistake(arguments: &[&str]) -> String {
        let arguments = std::iter::once("presence").chain(arguments.iter().copied());
        one_line(&Arguments::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn a_mistake_is_one_line_with_its_tip() {
        assert_eq!(
            mistake(&[]),
            "the following required arguments were not provided: --user <USER> --room <ROOM>"
        );
        let unknown = mistake(&["--user", "u", "--room", "r", "--heartbeet", "1s"]);
        assert!(unknown.starts_with("unexpected argument '--heartbeet' found; tip: "), "{unknown}");
        assert!(unknown.contains("--heartbeat"), "{unknown}");
        for line in [mistake(&["--user"]), mistake(&["--user", "a", "--user", "b"])] {
            assert!(!line.contains('\n') && !line.is_empty(), "{line}");
        }
    }

    #[test]
    fn the_help_ends_with_the_exit_codes() {
        let help =
            with_exit_codes(Arguments::command().after_help("Example: none")).render_help().to_string();
        let (_, end) = help.split_once("Example: none\n\n").unwrap();
        assert_eq!(end.trim_end(), exit::help());
        assert!(end.contains("  64  a mistake") && end.lines().count() == 6, "{end}");
    }

    #[test]
    fn a_bad_duration_is_left_to_the_settings() {
        let arguments = ["presence", "--user", "u", "--room", "r", "--grace", "soon"];
        let parsed = Arguments::try_parse_from(arguments).unwrap();
        assert_eq!((parsed.user.as_str(), parsed.room.as_str()), ("u", "r"));
        assert_eq!(parsed.timing.grace.as_deref(), Some("soon"));
    }
}
