//! What a setting takes, whether it comes as TOML or as the text of a variable or flag.

use std::net::SocketAddr;
use std::time::Duration;

use config::{Value, ValueKind};
use presence_model::time::spoken;

/// What a setting takes. Each kind knows its rule in words.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Text that is not empty.
    Text,
    /// `true` or `false`.
    Switch,
    /// A whole number within bounds, both included.
    Whole {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A duration with a unit, within bounds, both included.
    Span {
        /// The least.
        min: Duration,
        /// The most.
        max: Duration,
    },
    /// `host:port` of this machine, as digits.
    Address,
    /// One word of a list.
    OneOf(&'static [&'static str]),
    /// A URL of one of these schemes; a name without `://` counts as a word of its own (`memory`).
    Url(&'static [&'static str]),
    /// Several; as text, separated by commas.
    List(&'static Kind),
}

impl Kind {
    /// The value as the file would have it, or none if it breaks the rule.
    pub(super) fn read(&self, value: &Value) -> Option<toml::Value> {
        if let Self::List(kind) = self {
            return read_list(kind, value);
        }
        let text = scalar(value)?;
        let text = text.trim();
        match self {
            Self::Text => (!text.is_empty()).then(|| text.into()),
            Self::Switch => text.parse::<bool>().ok().map(toml::Value::from),
            Self::Whole { min, max } => {
                text.parse::<u32>().ok().filter(|n| (min..=max).contains(&n)).map(|n| i64::from(n).into())
            }
            Self::Span { min, max } => {
                let span = humantime::parse_duration(text).ok()?;
                (min..=max).contains(&&span).then(|| humantime::format_duration(span).to_string().into())
            }
            Self::Address => text.parse::<SocketAddr>().ok().map(|address| address.to_string().into()),
            Self::OneOf(words) => words.contains(&text).then(|| text.into()),
            Self::Url(schemes) => schemes.contains(&scheme(text)).then(|| text.into()),
            Self::List(_) => None,
        }
    }

    /// The rule in words: completes "must be …".
    pub(super) fn rule(&self) -> String {
        match self {
            Self::Text => "text that is not empty".to_owned(),
            Self::Switch => "true or false".to_owned(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Span { min, max } => {
                format!("a duration with a unit, from {} to {}", spoken(*min), spoken(*max))
            }
            Self::Address => "an address and a port, port 0 for a free one".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Url(schemes) => format!("a URL of {}", schemes.join(", ")),
            Self::List(kind) => format!("a list, each {}", kind.rule()),
        }
    }
}

fn scheme(text: &str) -> &str {
    match text.split_once("://") {
        Some((_, "")) => "",
        Some((scheme, _)) => scheme,
        None => text,
    }
}

fn read_list(kind: &Kind, value: &Value) -> Option<toml::Value> {
    let read: Option<Vec<toml::Value>> = match &value.kind {
        ValueKind::Array(values) => values.iter().map(|value| kind.read(value)).collect(),
        ValueKind::String(text) => {
            let parts = text.split(',').filter(|part| !part.trim().is_empty());
            parts.map(|part| kind.read(&Value::new(None, part))).collect()
        }
        ValueKind::Nil
        | ValueKind::Boolean(_)
        | ValueKind::I64(_)
        | ValueKind::I128(_)
        | ValueKind::U64(_)
        | ValueKind::U128(_)
        | ValueKind::Float(_)
        | ValueKind::Table(_) => None,
    };
    read.map(toml::Value::Array)
}

/// The text of a single value.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match &value.kind {
        ValueKind::String(text) => Some(text.clone()),
        ValueKind::Boolean(switch) => Some(switch.to_string()),
        ValueKind::I64(n) => Some(n.to_string()),
        ValueKind::I128(n) => Some(n.to_string()),
        ValueKind::U64(n) => Some(n.to_string()),
        ValueKind::U128(n) => Some(n.to_string()),
        ValueKind::Float(n) => Some(n.to_string()),
        ValueKind::Nil | ValueKind::Table(_) | ValueKind::Array(_) => None,
    }
}
