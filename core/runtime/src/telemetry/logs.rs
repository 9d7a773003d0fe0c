//! Log lines: one event, one line, on standard error.

use std::fmt;
use std::io::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::time::FormatTime;

use crate::clock::Clock;

/// What is said unless asked otherwise; the transport's own chatter is not an operator's business, and peers that
/// break HTTP/2 would write the log.
const DEFAULT_FILTER: &str = "info,h2=error,hyper=warn,hyper_util=warn,tonic=warn,tower=warn";

/// Flags about logs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct LogFlags {
    /// What to log: a level, or targets with levels (`info,presence_core=debug`)
    #[arg(long, env = "PRESENCE_LOG", value_name = "FILTER", global = true)]
    pub log: Option<String>,
    /// How to log it
    #[arg(long, env = "PRESENCE_LOG_FORMAT", value_name = "FORMAT", global = true, default_value = "text")]
    pub log_format: LogFormat,
}

impl LogFlags {
    /// Warnings only, unless asked otherwise.
    #[must_use]
    pub fn quiet(&self) -> Self {
        Self { log: self.log.clone().or_else(|| Some("warn".to_owned())), ..self.clone() }
    }
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// A log filter was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--log = {filter:?}: is not a log filter ({cause}); example: --log info,presence_core=debug")]
pub struct BadFilter {
    /// As given.
    pub filter: String,
    /// What the reader said.
    pub cause: String,
}

/// Installs the subscriber of the process, which writes to standard error. For `main` only.
///
/// # Errors
/// [`BadFilter`]. Does nothing if a subscriber is installed already.
pub fn install(flags: &LogFlags, clock: &Clock) -> Result<(), BadFilter> {
    let subscriber = subscriber(flags, clock, io::stderr)?;
    // Only a second call in one process fails, and then the first one's settings stand.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

impl LogFlags {
    /// What to log.
    ///
    /// # Errors
    /// [`BadFilter`].
    pub fn filter(&self) -> Result<EnvFilter, BadFilter> {
        let filter = self.log.as_deref().unwrap_or(DEFAULT_FILTER);
        EnvFilter::try_new(filter)
            .map_err(|error| BadFilter { filter: filter.to_owned(), cause: error.to_string() })
    }
}

fn subscriber<W>(
    flags: &LogFlags,
    clock: &Clock,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, BadFilter>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(flags.filter()?)
        .with_timer(Timestamp(clock.clone()))
        .with_ansi(false)
        .with_writer(OneLine(writer));
    Ok(match flags.log_format {
        LogFormat::Text => Box::new(builder.fmt_fields(debug_fn(write_field).delimited(" ")).finish()),
        LogFormat::Json => Box::new(builder.json().finish()),
    })
}

/// Writes `name=value`. A value that could be taken for several fields is quoted: names are the choice of whoever
/// brings them.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    match field.name() {
        "message" => writer.write_str(&text),
        name if is_one_value(&text) => write!(writer, "{name}={text}"),
        name => write!(writer, "{name}={text:?}"),
    }
}

/// Whether a reader who splits a line at its spaces takes this for one value: a word, or a quoted text.
fn is_one_value(text: &str) -> bool {
    let is_word = !text.is_empty() && !text.contains([' ', '"', '=']);
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    is_word || inside.is_some_and(|inside| !inside.replace(r"\\", "").replace(r#"\""#, "").contains('"'))
}

struct Timestamp(Clock);

impl FormatTime for Timestamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = UNIX_EPOCH + Duration::from_millis(self.0.wall_ms());
        write!(writer, "{}", humantime::format_rfc3339_millis(now))
    }
}

/// Makes writers that keep an event on its line, whatever a client put into a name.
struct OneLine<W>(W);

struct OneLineWriter<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for OneLine<W> {
    type Writer = OneLineWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        OneLineWriter(self.0.make_writer())
    }
}

impl<W: Write> Write for OneLineWriter<W> {
    /// Takes one whole event, which is how the formatter hands them over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        // A line that cannot be written is dropped: told on, the subscriber would say so where it just
        // could not, and panic in the middle of whatever was logging.
        let _ = writeln!(self.0, "{}", Escaped(line));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        presence_model::id::escape_into(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(flags: &LogFlags, log: impl FnOnce()) -> String {
        let (sink, (clock, _hand)) = (Sink::default(), Clock::manual());
        let made = sink.clone();
        let subscriber = subscriber(flags, &clock, move || made.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const HOSTILE: &str = "u1\n2026 ERROR forged\r\x1b[31mred\u{202e}\u{85}\u{2028}";

    #[test]
    fn a_hostile_name_cannot_break_a_line_or_a_terminal() {
        for log_format in [LogFormat::Text, LogFormat::Json] {
            let flags = LogFlags { log: None, log_format };
            let text = logged(&flags, || tracing::info!(user = %HOSTILE, "joined {HOSTILE}"));
            assert_eq!(text.matches('\n').count(), 1, "{text:?}");
            assert!(text.ends_with('\n'));
            assert!(
                text.trim_end().chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{2028}'),
                "{text:?}"
            );
            assert!(text.contains("forged"), "{text:?}");
        }
    }

    #[test]
    fn a_name_cannot_say_other_fields() {
        let flags = LogFlags::default();
        for (user, told) in [
            ("u1", "user=u1 kind=\"joined\""),
            ("mallory user=admin", "user=\"mallory user=admin\" kind=\"joined\""),
            ("x\" kind=\"evicted", "user=\"x\\\" kind=\\\"evicted\" kind=\"joined\""),
            ("\"x\" kind=\"y\"", "user=\"\\\"x\\\" kind=\\\"y\\\"\" kind=\"joined\""),
            ("a=b", "user=\"a=b\" kind=\"joined\""),
            ("", "user=\"\" kind=\"joined\""),
        ] {
            let text = logged(&flags, || tracing::info!(%user, kind = "joined", "a transition of {user}"));
            assert!(text.contains(&format!("a transition of {user} {told}\n")), "{text}");
        }
    }

    #[test]
    fn json_lines_are_json_with_the_time_of_the_clock() {
        let flags = LogFlags { log: None, log_format: LogFormat::Json };
        let text = logged(&flags, || tracing::warn!(room = "lobby", "odd"));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["timestamp"], "2026-09-21T14:13:20.000Z");
        assert_eq!(line["fields"]["room"], "lobby");
        assert_eq!(line["level"], "WARN");
    }

    #[test]
    fn the_filter_filters_and_a_bad_one_is_told() {
        let flags = LogFlags { log: Some("warn,presence_runtime=debug".into()), log_format: LogFormat::Text };
        let text = logged(&flags, || {
            tracing::debug!("own");
            tracing::info!(target: "h2", "foreign");
        });
        assert!(text.contains("own") && !text.contains("foreign"), "{text}");
        let flags = LogFlags { log: Some("info,=,=".into()), ..LogFlags::default() };
        let told = install(&flags, &Clock::system()).unwrap_err().to_string();
        assert!(told.contains("info,=,=") && !told.contains('\n'), "{told}");
    }
}
