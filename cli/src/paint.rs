//! How text looks in a terminal: colours only where they are seen, names only where they are harmless.

use std::io::IsTerminal as _;

/// Colours of a terminal that has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    colours: bool,
}

impl Paint {
    /// Colours if standard output is a terminal and NO_COLOR is not set.
    pub(crate) fn for_stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    fn code(self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.code("32", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.code("31", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.code("33", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.code("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.code("1", text)
    }
}

/// Says what went wrong, with its causes, in one line on standard error.
pub(crate) fn error(error: &anyhow::Error) {
    complain(&format!("{error:#}"));
}

/// A command whose standard error has gone still ends as it should. What was typed may be quoted: it is escaped.
fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "presence: {}", harmless(text));
}

/// Says what may help, on standard error.
pub(crate) fn hint(text: &str) {
    complain(text);
}

/// A line on standard output. A closed pipe ends the command quietly.
pub(crate) fn line(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Text that somebody else chose, made harmless for a terminal.
pub(crate) fn harmless(text: &str) -> String {
    struct Escaped<'a>(&'a str);
    impl std::fmt::Display for Escaped<'_> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            presence_model::id::escape_into(self.0, f)
        }
    }
    Escaped(text).to_string()
}

/// JSON as one line in which every character that acts on a terminal is escaped; it reads back the same.
pub(crate) fn json_line(value: &serde_json::Value) -> std::io::Result<()> {
    use std::fmt::Write as _;
    let mut safe = String::new();
    for c in value.to_string().chars() {
        if presence_model::id::is_unsafe_to_print(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    line(&safe)
}
