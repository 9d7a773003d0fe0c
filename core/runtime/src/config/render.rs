//! Showing the configuration in force.

use serde::Serialize;

use super::{Kind, Setting};

const HIDDEN: &str = "(hidden)";

/// The effective configuration as TOML, secrets hidden: what `--print-config` writes. Of a URL only user and
/// password are.
///
/// `config` is the struct that [`Loader`](super::Loader) filled, defaults included.
#[must_use]
pub fn render<T: Serialize>(settings: &[Setting], config: &T) -> String {
    let mut table = toml::Table::try_from(config).expect("a configuration is a table of plain values");
    for setting in settings.iter().filter(|setting| setting.secret) {
        hide(&mut table, setting, setting.path);
    }
    toml::to_string(&table).expect("a table of plain values is TOML")
}

fn hide(table: &mut toml::Table, setting: &Setting, path: &str) {
    match path.split_once('.') {
        None => {
            if let Some(value) = table.get_mut(path) {
                *value = hidden(setting.kind, value);
            }
        }
        Some((head, rest)) => {
            if let Some(toml::Value::Table(below)) = table.get_mut(head) {
                hide(below, setting, rest);
            }
        }
    }
}

/// Of texts that may be addresses, and of lists of them, only user and password are.
fn hidden(kind: Kind, value: &toml::Value) -> toml::Value {
    match (kind, value) {
        (Kind::Url(_), toml::Value::String(url)) => without_user(url).into(),
        (Kind::List(_), toml::Value::Array(urls)) => {
            let urls = urls.iter().filter_map(toml::Value::as_str).map(without_user);
            urls.collect::<Vec<_>>().into()
        }
        _ => HIDDEN.into(),
    }
}

/// Without what stands before the last `@`, wherever that is: a password may hold what ends an authority.
pub(super) fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    match rest.rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_user_and_password_are_hidden() {
        for (url, shown) in [
            ("memory", "memory"),
            ("redis://host:6379/1", "redis://host:6379/1"),
            ("redis://user:secret@host/1", "redis://(hidden)@host/1"),
            ("rediss://:se@cret@host?x=1", "rediss://(hidden)@host?x=1"),
            ("keys/jwks.json", "keys/jwks.json"),
            ("https://me:pw@id.example/keys", "https://(hidden)@id.example/keys"),
            ("redis://user:se/cr?e#t@host", "redis://(hidden)@host"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }
}
