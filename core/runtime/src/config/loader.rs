//! Merging file, environment and flags, and holding each value against its rule.

mod lists;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use config::{Config, Environment, File, FileFormat, Value, ValueKind};
use serde::de::DeserializeOwned;

pub(super) use self::lists::entry;
use self::lists::{key_of, whole};
use super::kind::scalar;
use super::mistake::{Mistake, Mistakes};
use super::{Kind, Setting};
use crate::limits::CONFIG_BYTES_MAX;

const SEPARATOR: &str = "__";

/// Reads a configuration. Later sources win: file, environment, flags.
#[derive(Debug)]
pub struct Loader<'a> {
    settings: &'a [Setting],
    prefix: &'static str,
    file: Option<PathBuf>,
    environment: BTreeMap<String, String>,
    /// Variables of ours whose value is not text.
    unreadable: Vec<String>,
    flags: BTreeMap<&'static str, (&'static str, String)>,
}

impl<'a> Loader<'a> {
    /// Reads these settings; `prefix` begins each variable (`PRESENCE_CORE`, as in `PRESENCE_CORE__STORE__URL`).
    #[must_use]
    pub fn new(settings: &'a [Setting], prefix: &'static str) -> Self {
        let (environment, flags) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, prefix, file: None, environment, unreadable: Vec::new(), flags }
    }

    /// Reads this file, if there is one.
    #[must_use]
    pub fn file(mut self, path: Option<&Path>) -> Self {
        self.file = path.map(Path::to_owned);
        self
    }

    /// Takes variables of the environment; `main` gives `std::env::vars_os()`. Others than ours are left alone.
    #[must_use]
    pub fn environment(mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let prefix = format!("{}{SEPARATOR}", self.prefix);
        for (name, value) in variables {
            let name = name.to_string_lossy();
            if !name.starts_with(&prefix) {
                continue;
            }
            match value.into_string() {
                Ok(value) => drop(self.environment.insert(name.into_owned(), value)),
                Err(_) => self.unreadable.push(name.into_owned()),
            }
        }
        self
    }

    /// Takes the value of a flag, if it was given: `flag("store.url", "--store", args.store)`.
    #[must_use]
    pub fn flag(mut self, path: &'static str, flag: &'static str, value: Option<impl Into<String>>) -> Self {
        if let Some(value) = value {
            self.flags.insert(path, (flag, value.into()));
        }
        self
    }

    /// The configuration; what is given nowhere is left to the defaults of `T`.
    ///
    /// # Errors
    /// All [`Mistakes`] at once: unreadable file, unknown keys, values that break their rule.
    pub fn load<T: DeserializeOwned + Default>(&self) -> Result<T, Mistakes> {
        let (value, mistakes) = self.read();
        Mistakes::of(mistakes).map_or(Ok(value), Err)
    }

    /// The configuration as far as it is good, and all mistakes: what breaks its rule is left to its
    /// default, so that rules over several settings can be checked as well.
    #[must_use]
    pub fn read<T: DeserializeOwned + Default>(&self) -> (T, Vec<Mistake>) {
        let mistakes = self.unreadable.iter().map(|name| self.of_variable(name)).collect();
        let mut walk = Walk { loader: self, table: toml::Table::new(), mistakes };
        let file = self.read_file().unwrap_or_else(|mistake| {
            walk.mistakes.push(mistake);
            None
        });
        match self.merge(file) {
            Ok(merged) => walk.visit("", &merged),
            Err(mistake) => walk.mistakes.push(mistake),
        }
        let Walk { table, mut mistakes, .. } = walk;
        let value = table.try_into().unwrap_or_else(|error: toml::de::Error| {
            mistakes.push(self.whole(error.message()));
            T::default()
        });
        (value, mistakes)
    }

    fn of_variable(&self, name: &str) -> Mistake {
        let path = name.trim_start_matches(self.prefix).trim_start_matches(SEPARATOR);
        let path = path.to_ascii_lowercase().replace(SEPARATOR, ".");
        Mistake {
            value: "(bytes)".to_owned(),
            rule: "must be UTF-8".to_owned(),
            example: self.example(&path),
            found_in: Some(name.to_owned()),
            path,
        }
    }

    fn read_file(&self) -> Result<Option<String>, Mistake> {
        let Some(path) = &self.file else { return Ok(None) };
        let unreadable = |error: std::io::Error| self.of_file(&format!("cannot be read: {error}"));
        let length = std::fs::metadata(path).map_err(unreadable)?.len();
        if length > CONFIG_BYTES_MAX {
            return Err(self.of_file(&format!("has more than {CONFIG_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        match text.parse::<toml::Table>() {
            Ok(_) => Ok(Some(text)),
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
                Err(self.of_file(&format!("is not TOML: line {line}: {}", error.message())))
            }
        }
    }

    fn merge(&self, file: Option<String>) -> Result<Value, Mistake> {
        let environment = Environment::with_prefix(self.prefix)
            .prefix_separator(SEPARATOR)
            .separator(SEPARATOR)
            .source(Some(self.environment.clone().into_iter().collect()));
        let mut builder = Config::builder();
        if let Some(text) = file {
            builder = builder.add_source(File::from_str(&text, FileFormat::Toml));
        }
        builder = builder.add_source(environment);
        for (path, (_, value)) in &self.flags {
            builder = builder
                .set_override(*path, value.as_str())
                .map_err(|error| self.whole(&error.to_string()))?;
        }
        Ok(builder.build().map_err(|error| self.whole(&error.to_string()))?.cache)
    }

    /// What would hold for a setting, as it stands in a file.
    pub(super) fn example(&self, path: &str) -> Option<String> {
        let setting = self.setting(path)?;
        Some(match setting.path.split_once("[].") {
            Some((list, key)) => format!("[[{list}]] {key} = {}", setting.example),
            None => format!("{} = {}", setting.path, setting.example),
        })
    }

    fn setting(&self, path: &str) -> Option<&'a Setting> {
        let path = whole(path);
        self.settings.iter().find(|setting| setting.path == path)
    }

    /// Why a path is no setting: where one of that name is, and what there is at its place.
    fn no_such_setting(&self, path: &str) -> String {
        let path = whole(path);
        let within = inside(self.settings, &path);
        if !within.is_empty() {
            return format!("is a table of {}", within.join(", "));
        }
        let (parent, leaf) = path.rsplit_once('.').unwrap_or(("", &path));
        let is_namesake = |setting: &&Setting| setting.path.rsplit('.').next() == Some(leaf);
        let elsewhere = self.settings.iter().find(is_namesake).map_or_else(String::new, |setting| {
            let variable = format!("{}{SEPARATOR}{}", self.prefix, setting.path.replace('.', SEPARATOR));
            match setting.path.split_once("[].") {
                Some((list, key)) => format!("; each [[{list}]] has its {key}"),
                None => {
                    format!("; {} is one (as a variable {})", setting.path, variable.to_ascii_uppercase())
                }
            }
        });
        let beside = match inside(self.settings, parent) {
            none if none.is_empty() => inside(self.settings, ""),
            beside => beside,
        };
        format!("there is no such setting{elsewhere}; there are {}", beside.join(", "))
    }

    /// The variable, flag or file that a setting was given by, if there is a file or it was.
    #[must_use]
    pub fn found_in(&self, path: &str) -> Option<String> {
        if let Some((flag, _)) = self.flags.get(path) {
            return Some((*flag).to_owned());
        }
        let mut names = self.environment.keys();
        if let Some((list, _)) = path.split_once('[') {
            let variables = format!("{}{SEPARATOR}{list}{SEPARATOR}", self.prefix).to_uppercase();
            if names.any(|name| name.to_uppercase().starts_with(&variables)) {
                return Some(format!("{variables}…"));
            }
        }
        let variable = format!("{}{SEPARATOR}{}", self.prefix, path.replace('.', SEPARATOR));
        let mut names = self.environment.keys();
        if let Some(name) = names.find(|name| name.eq_ignore_ascii_case(&variable)) {
            return Some(name.clone());
        }
        self.file.as_ref().map(|path| path.display().to_string())
    }

    fn of_file(&self, rule: &str) -> Mistake {
        let value = format!("{:?}", self.file.as_deref().unwrap_or(Path::new("")));
        Mistake { path: "--config".into(), value, rule: rule.into(), example: None, found_in: None }
    }

    fn whole(&self, rule: &str) -> Mistake {
        let rule = rule.replace('\n', " ");
        Mistake { path: self.prefix.into(), value: "…".into(), rule, example: None, found_in: None }
    }
}

struct Walk<'l, 'a> {
    loader: &'l Loader<'a>,
    table: toml::Table,
    mistakes: Vec<Mistake>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, path: &str, value: &Value) {
        if let Some(setting) = self.loader.setting(path) {
            return self.take(setting, path, value);
        }
        if self.loader.is_list(path) {
            return self.visit_list(path, value);
        }
        match &value.kind {
            ValueKind::Table(table) => {
                // In the order of the keys, so that mistakes come in the same order each time.
                let sorted: BTreeMap<_, _> = table.iter().collect();
                for (key, value) in sorted {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.visit(&path, value);
                }
            }
            ValueKind::Nil
            | ValueKind::Boolean(_)
            | ValueKind::I64(_)
            | ValueKind::I128(_)
            | ValueKind::U64(_)
            | ValueKind::U128(_)
            | ValueKind::Float(_)
            | ValueKind::String(_)
            | ValueKind::Array(_) => self.mistakes.push(self.unknown(path)),
        }
    }

    fn take(&mut self, setting: &Setting, path: &str, value: &Value) {
        match setting.kind.read(value) {
            Some(read) => insert(&mut self.table, key_of(setting.path), read),
            None => self.mistakes.push(Mistake {
                path: path.to_owned(),
                value: shown(setting, value),
                rule: format!("must be {}", setting.kind.rule()),
                example: self.loader.example(path),
                found_in: self.loader.found_in(path),
            }),
        }
    }

    fn unknown(&self, path: &str) -> Mistake {
        Mistake {
            path: path.to_owned(),
            // Whoever mistypes the name of a secret still gives its value.
            value: "…".into(),
            rule: self.loader.no_such_setting(path),
            example: None,
            found_in: self.loader.found_in(path),
        }
    }
}

/// What is directly in a table (none: the file itself); a table in it as `timing.…`, a list as `[[class]]`.
fn inside(settings: &[Setting], table: &str) -> Vec<String> {
    let head = if table.is_empty() { String::new() } else { format!("{table}.") };
    let mut names: Vec<String> = Vec::new();
    for path in settings.iter().map(|setting| setting.path).filter(|path| path.starts_with(&head)) {
        let name = match path[head.len()..].split_once('.') {
            Some((list, _)) if list.ends_with("[]") => format!("[[{}]]", list.trim_end_matches("[]")),
            Some((table, _)) => format!("{head}{table}.…"),
            None => key_of(path).to_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn shown(setting: &Setting, value: &Value) -> String {
    if setting.secret {
        return "(hidden)".to_owned();
    }
    match (&value.kind, scalar(value)) {
        (ValueKind::Array(values), _) => {
            let values: Vec<String> = values.iter().map(|value| shown(setting, value)).collect();
            format!("[{}]", values.join(", "))
        }
        (_, Some(text)) if matches!(setting.kind, Kind::Whole { .. } | Kind::Switch) => text,
        (_, Some(text)) => format!("{text:?}"),
        (_, None) => "(a table)".to_owned(),
    }
}

fn insert(table: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((head, rest)) => {
            let below = table.entry(head).or_insert_with(|| toml::Table::new().into());
            if let toml::Value::Table(below) = below {
                insert(below, rest, value);
            }
        }
    }
}
