//! The name and version this software gives in greetings, logs and `--version`.

/// The version of all packages, which are released together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// `name/version`, as in `presence-edge/0.1.0`.
#[must_use]
pub fn release(name: &str) -> String {
    format!("{name}/{VERSION}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_the_version() {
        let release = super::release("presence-edge");
        let (name, version) = release.split_once('/').unwrap();
        assert_eq!(name, "presence-edge");
        assert_eq!(version.split('.').count(), 3, "{version}");
    }
}
