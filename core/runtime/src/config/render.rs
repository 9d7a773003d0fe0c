//! Showing the configuration in force.

use serde::Serialize;

use super::Setting;

const HIDDEN: &str = "(hidden)";

/// The effective configuration as TOML, secrets hidden: what `--print-config` writes.
///
/// `config` is the struct that [`Loader`](super::Loader) filled, defaults included.
#[must_use]
pub fn render<T: Serialize>(settings: &[Setting], config: &T) -> String {
    let mut table = toml::Table::try_from(config).expect("a configuration is a table of plain values");
    for setting in settings.iter().filter(|setting| setting.secret) {
        hide(&mut table, setting.path);
    }
    toml::to_string(&table).expect("a table of plain values is TOML")
}

fn hide(table: &mut toml::Table, path: &str) {
    match path.split_once('.') {
        None => {
            if let Some(value) = table.get_mut(path) {
                *value = HIDDEN.into();
            }
        }
        Some((head, rest)) => {
            if let Some(toml::Value::Table(below)) = table.get_mut(head) {
                hide(below, rest);
            }
        }
    }
}
