//! Hears what processes of a night log as errors: somebody would have to act.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::cast::Recorder;

/// Errors with their time. Cheap to clone.
#[derive(Clone)]
pub(super) struct Errors {
    recorder: Recorder,
    heard: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Errors {
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, heard: Arc::default() }
    }

    pub(super) fn note(&self, what: String) {
        self.recorder.line("ERROR", &what);
        self.heard.lock().expect("nobody panics with this lock").push((self.recorder.now(), what));
    }

    pub(super) fn take(&self) -> Vec<(Duration, String)> {
        std::mem::take(&mut self.heard.lock().expect("nobody panics with this lock"))
    }
}

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR && metadata.target().starts_with("presence")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::ERROR)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(event.metadata().target().to_owned());
        event.record(&mut text);
        self.note(text.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {field}={value:?}");
    }
}
