//! The source tree holds the project's rules: who may import whom, which words stand where, how long a
//! file may be. Each rule has a negative case, so that a rule that finds nothing is known to look.

use std::path::Path;

use presence_tests::tidy::{
    allowed_dependencies, banned_dependencies, constants, dependency_mistakes, limit_mistakes,
    scenario_mistakes, source_files, source_mistakes, tree_of,
};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let tree = tree_of(root()).expect("cargo metadata");
    let mistakes = dependency_mistakes(&tree, &allowed_dependencies(), &banned_dependencies());
    assert!(mistakes.is_empty(), "{mistakes:#?}");
}

#[test]
fn a_forbidden_dependency_is_found_near_and_far() {
    let mut tree = tree_of(root()).expect("cargo metadata");
    tree.direct.get_mut("presence-edge").expect("edge").insert("presence-core".into());
    tree.all.get_mut("presence-model").expect("model").insert("tokio".into());
    let mistakes = dependency_mistakes(&tree, &allowed_dependencies(), &banned_dependencies());
    assert_eq!(mistakes.len(), 2, "{mistakes:#?}");
}

#[test]
fn sources_keep_the_rules() {
    let files = source_files(root()).expect("git ls-files");
    assert!(files.len() > 50, "the tree was not read");
    let mistakes: Vec<String> = files.iter().flat_map(|(path, text)| source_mistakes(path, text)).collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn every_limit_has_its_test() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect("a file of the tree");
    let (edge, model) = (read("edge/src/limits.rs"), read("core/model/src/limits.rs"));
    let page = read("docs/hostile.md");
    let sources = source_files(root()).expect("git ls-files");
    let (limits, others) = (constants(&edge), constants(&model));
    assert!(limits.len() > 40, "{limits:?}");
    let mistakes = limit_mistakes(&page, &limits, &others, &sources);
    assert!(mistakes.is_empty(), "docs/hostile.md: {mistakes:#?}");
}

#[test]
fn a_limit_without_its_test_is_found() {
    let sources = [("x.rs".to_owned(), "async fn holds() {}".to_owned())];
    let page = "| `A_MAX` | `holds` |\n| `B_MAX` | `holds` |\n| `C_MAX` | `holds`, `gone` |\n| `D_MAX` | it holds |\n| `E` | `holds` |";
    let mistakes = limit_mistakes(page, &["A_MAX", "B_MAX", "C_MAX", "NEW_MAX"], &["D_MAX"], &sources);
    let expected = [
        "NEW_MAX has no row",
        "C_MAX names gone, which is no test",
        "D_MAX names no test",
        "E is no limit any more",
    ];
    assert_eq!(mistakes, expected);
    assert_eq!(constants("pub const A_MAX: usize = 1;\nconst B: u8 = 1;"), ["A_MAX"]);
}

#[test]
fn what_a_scenario_says_is_held_is_held_by_a_test_of_that_name() {
    let files = source_files(root()).expect("git ls-files");
    let page = files.iter().find(|(path, _)| path == "docs/scenarios.md").expect("the page");
    let run = files.iter().find(|(path, _)| path == "tests/run").expect("the command");
    let tiers =
        run.1.lines().find_map(|line| line.strip_prefix("all=(")?.strip_suffix(')')).expect("the tiers");
    let tiers: Vec<&str> = tiers.split(' ').collect();
    assert_eq!(scenario_mistakes(&page.1, &files, &tiers), Vec::<String>::new());
    let first = page.1.lines().find(|line| line.starts_with("| 1 |")).expect("a first row");
    for (right, wrong) in [
        ("| done | system | `the_only_core_sleeps", "| done | system | `the_only_cat_sleeps"),
        ("| done | browser, sim | `\"a duplicated tab", "| done | browser, sim | `\"a duplicated cat"),
        ("| done | system | `the_only_core_sleeps", "| done | model | `the_only_core_sleeps"),
        ("| done | system | `the_only_core_sleeps", "| done | model, system | `the_only_core_sleeps"),
        ("`the_only_core_sleeps_for_three_ttls`", "`scenario_mistakes`"),
        (first, "| 1 | what | how | done | | |"),
        (first, "| 1 | what | how | perhaps | | |"),
        ("| done | model | `after_a_freeze", "| not yet | model | `after_a_freeze"),
        ("| system, topologies |", "| system, topology |"),
        ("| 44 |", "| 45 |"),
    ] {
        let page = page.1.replacen(right, wrong, 1);
        assert_ne!(scenario_mistakes(&page, &files, &tiers), Vec::<String>::new(), "{wrong}");
    }
}

/// Whoever follows the README has a signing key in the clone, which must not be added to it.
#[test]
fn the_keys_that_the_readme_makes_are_ignored_by_git() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).expect("a file of the tree");
    let (readme, ignored) = (read("README.md"), read(".gitignore"));
    let mut folders = readme.lines().filter_map(|line| line.split_once("presence keys ./")).peekable();
    assert!(folders.peek().is_some(), "the README makes keys");
    for (_, folder) in folders {
        assert!(ignored.lines().any(|line| line == format!("/{}/", folder.trim())), "{folder}");
    }
}

#[test]
fn each_source_rule_finds_its_mistake() {
    let cases = [
        ("core/model/src/x.rs", "use std::time::Instant;".to_owned()),
        ("core/src/driver/x.rs", "let status = tonic::Status::ok(\"\");".to_owned()),
        ("core/src/driver/x.rs", "tokio::spawn(async {});".to_owned()),
        ("edge/src/hub/x.rs", "use fastwebsockets::Frame;".to_owned()),
        ("edge/src/hub/x.rs", "let started = clock.now();".to_owned()),
        ("cli/src/x.rs", "use redis::Client;".to_owned()),
        ("cli/src/x.rs", "tokio::select! {\n    () = a => {}\n}".to_owned()),
        ("edge/src/x.rs", "// TO".to_owned() + "DO: later"),
        ("edge/src/x.rs", "// =====================".to_owned()),
        ("edge/src/x.rs", "\n".repeat(601)),
        ("docs/x.md", format!("see /{}/main", "work")),
        ("docs/x.md", format!("https://static.{}.io", "crates")),
    ];
    for (path, text) in cases {
        assert_eq!(source_mistakes(path, &text).len(), 1, "{path}: {text}");
    }
}
