//! Who may import whom.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};

/// Dependencies of each of our crates, without those for tests and builds.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Named in the manifest.
    pub direct: BTreeMap<String, BTreeSet<String>>,
    /// All, however far.
    pub all: BTreeMap<String, BTreeSet<String>>,
}

/// Which of our crates each of our crates may name.
#[must_use]
pub fn allowed_dependencies() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("presence-model", &[] as &[_]),
        ("presence-proto", &["presence-model"]),
        ("presence-runtime", &["presence-model"]),
        ("presence-client", &["presence-model", "presence-proto", "presence-runtime"]),
        ("presence-core", &["presence-model", "presence-proto", "presence-runtime", "presence-client"]),
        ("presence-edge", &["presence-model", "presence-proto", "presence-runtime", "presence-client"]),
    ])
}

/// What must not be anywhere in a crate's tree, with the reason.
#[must_use]
pub fn banned_dependencies() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut banned: Vec<_> =
        ["tokio", "tonic", "prost", "redis", "hyper", "tracing", "rand", "getrandom", "chrono", "time"]
            .map(|name| ("presence-model", name, "the heart is pure: no I/O, no clock, no chance"))
            .to_vec();
    banned.push(("presence-edge", "redis", "an edge never talks to the store"));
    banned.push(("presence-edge", "presence-core", "an edge holds no lease logic"));
    banned
}

/// Reads the tree with `cargo metadata`.
///
/// # Errors
/// When cargo fails, or the metadata lacks its resolved graph.
pub fn tree_of(root: &Path) -> anyhow::Result<Tree> {
    let host = Command::new("rustc").args(["--print", "host-tuple"]).output()?;
    let platform = format!("--filter-platform={}", String::from_utf8(host.stdout)?.trim());
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(["--locked".into(), platform])
        .exec()?;
    let resolve = metadata.resolve.as_ref().ok_or_else(|| anyhow::anyhow!("no resolved graph"))?;
    let names: BTreeMap<&PackageId, &str> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let normal: BTreeMap<&PackageId, Vec<&PackageId>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let deps = node.deps.iter();
            let used =
                deps.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            (&node.id, used.map(|dep| &dep.pkg).collect())
        })
        .collect();
    let mut tree = Tree { direct: BTreeMap::new(), all: BTreeMap::new() };
    for id in &metadata.workspace_members {
        let direct = normal[id].iter().map(|dep| names[*dep].to_owned()).collect();
        let mut seen: BTreeSet<&PackageId> = BTreeSet::new();
        let mut open: Vec<&PackageId> = normal[id].clone();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(normal[next].iter());
            }
        }
        tree.direct.insert(names[id].to_owned(), direct);
        tree.all.insert(names[id].to_owned(), seen.into_iter().map(|dep| names[dep].to_owned()).collect());
    }
    Ok(tree)
}

/// What breaks the rules.
#[must_use]
pub fn dependency_mistakes(
    tree: &Tree,
    allowed: &BTreeMap<&str, &[&str]>,
    banned: &[(&str, &str, &str)],
) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (name, may) in allowed {
        let Some(direct) = tree.direct.get(*name) else {
            mistakes.push(format!("there is no crate {name}"));
            continue;
        };
        let ours = direct.iter().filter(|dep| dep.starts_with("presence"));
        for dep in ours.filter(|dep| !may.contains(&dep.as_str())) {
            mistakes.push(format!("{name} must not depend on {dep}"));
        }
    }
    for (name, dep, reason) in banned {
        if tree.all.get(*name).is_some_and(|all| all.contains(*dep)) {
            mistakes.push(format!("{name} must not have {dep} in its tree: {reason}"));
        }
    }
    mistakes
}
