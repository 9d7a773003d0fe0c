//! Lists of tables: `[[class]]` in a file, `…__CLASS__1__NAME` as variables.
//!
//! The settings of such a list are declared as `class[].name`. One entry is told of by its name, if it has a
//! good one, else by its number: `class[trading].heartbeat`, `class[2].heartbeat`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use config::{Value, ValueKind};
use presence_model::class::ClassName;

use super::{Loader, Walk};
use crate::config::kind::scalar;
use crate::config::mistake::Mistake;

/// The path of an entry's setting as it was declared: `class[trading].name` is one of `class[].name`.
pub(super) fn whole(path: &str) -> Cow<'_, str> {
    match (path.find('['), path.find(']')) {
        (Some(open), Some(close)) if open < close => {
            Cow::Owned(format!("{}{}", &path[..=open], &path[close..]))
        }
        _ => Cow::Borrowed(path),
    }
}

/// Where a setting lies within its table: that of one entry, for a list.
pub(super) fn key_of(path: &str) -> &str {
    path.split_once("[].").map_or(path, |(_, key)| key)
}

/// The path of an entry.
pub(in crate::config) fn entry(list: &str, name: &str, place: usize) -> String {
    match ClassName::new(name) {
        Ok(name) => format!("{list}[{name}]"),
        Err(_) => format!("{list}[{}]", place + 1),
    }
}

type Entry<'v> = Vec<(&'v String, &'v Value)>;

impl Loader<'_> {
    /// Whether settings of a list of tables are declared under this path.
    pub(super) fn is_list(&self, path: &str) -> bool {
        let is_of_it =
            |declared: &str| declared.strip_prefix(path).is_some_and(|rest| rest.starts_with("[]."));
        self.settings.iter().any(|setting| is_of_it(setting.path))
    }
}

impl Walk<'_, '_> {
    pub(super) fn visit_list(&mut self, path: &str, value: &Value) {
        let Some(entries) = entries(value) else {
            let keys = self.loader.settings.iter().map(|setting| setting.path);
            let keys =
                keys.filter(|declared| declared.split_once("[].").is_some_and(|(list, _)| list == path));
            let keys: Vec<&str> = keys.map(key_of).collect();
            return self.mistakes.push(Mistake {
                path: path.to_owned(),
                value: "…".to_owned(),
                rule: format!("must be a list of tables, each [[{path}]] with {}", keys.join(", ")),
                example: None,
                found_in: self.loader.found_in(path),
            });
        };
        let mut list = Vec::new();
        for (place, keys) in entries.into_iter().enumerate() {
            let named = keys.iter().find(|(key, _)| *key == "name").and_then(|(_, name)| scalar(name));
            let entry = entry(path, named.unwrap_or_default().trim(), place);
            let mut walk = Walk { loader: self.loader, table: toml::Table::new(), mistakes: Vec::new() };
            for (key, value) in keys {
                walk.visit(&format!("{entry}.{key}"), value);
            }
            self.mistakes.append(&mut walk.mistakes);
            list.push(toml::Value::Table(walk.table));
        }
        self.table.insert(path.to_owned(), list.into());
    }
}

/// The entries of a list, each in the order of its keys; none if it is no list of tables.
fn entries(value: &Value) -> Option<Vec<Entry<'_>>> {
    if let ValueKind::Array(values) = &value.kind {
        return values.iter().map(table).collect();
    }
    // Variables give a table whose keys are numbers.
    let ValueKind::Table(numbered) = &value.kind else { return None };
    let numbered = numbered.iter().map(|(number, value)| Some((number.parse::<u32>().ok()?, value)));
    let sorted: BTreeMap<u32, &Value> = numbered.collect::<Option<_>>()?;
    sorted.into_values().map(table).collect()
}

fn table(value: &Value) -> Option<Entry<'_>> {
    let ValueKind::Table(table) = &value.kind else { return None };
    let sorted: BTreeMap<&String, &Value> = table.iter().collect();
    Some(sorted.into_iter().collect())
}
