use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const TABLE: &str = r#"
[[edge]]
certificate = "Edges.EU.example"
names = ["edge-1", "edge-eu-*"]
regions = ["eu-west"]

[[edge]]
certificate = "edges.eu.example"
names = ["spare"]
regions = ["eu-west", "us-east"]

[[service]]
certificate = "spiffe://example/Billing"
scopes = ["presence.read"]
rooms = ["team-a:", "team-b:"]

[[service]]
certificate = "spiffe://example/Billing"
scopes = ["presence.admin"]
rooms = ["team-a:"]
"#;

fn named(name: &str) -> Option<Named> {
    Peers::parse(TABLE).unwrap().named(&PeerNames::from_iter([name]))
}

fn permits(edge: &str, region: &str) -> bool {
    let (edge, region) = (EdgeName::new(edge).unwrap(), RegionId::new(region).unwrap());
    let named = named("edges.eu.example").unwrap();
    named.edges.iter().any(|rule| rule.permits(&edge, &region))
}

#[test]
fn a_certificate_speaks_for_its_edges_and_their_regions_only() {
    assert!(
        permits("edge-1", "eu-west") && permits("edge-eu-7", "eu-west") && permits("edge-eu-", "eu-west")
    );
    assert!(permits("spare", "us-east"));
    for (edge, region) in [
        ("edge-1", "us-east"),
        ("edge-10", "eu-west"),
        ("edge-2", "eu-west"),
        ("edge-e", "eu-west"),
        ("EDGE-1", "eu-west"),
        ("edge-eu-7", "eu-west2"),
        ("spare-2", "us-east"),
    ] {
        assert!(!permits(edge, region), "{edge} of {region}");
    }
}

#[test]
fn dns_names_count_in_any_case_and_uris_as_they_are() {
    assert_eq!(named("EDGES.eu.Example").unwrap().edges.len(), 2);
    assert_eq!(named("spiffe://example/Billing").unwrap().grants.len(), 2);
    for unknown in ["spiffe://example/billing", "edges.eu.example.", "eu.example", "x.edges.eu.example"] {
        assert_eq!(named(unknown), None, "{unknown}");
    }
    assert_eq!(Peers::parse(TABLE).unwrap().named(&PeerNames::default()), None);
}

#[test]
fn scopes_of_one_entry_are_not_for_the_rooms_of_another() {
    let grants = named("spiffe://example/Billing").unwrap().grants;
    let covers = |scope, asked: &str| grants.iter().any(|grant| grant.covers(scope, asked));
    assert!(
        covers(Scope::Read, "team-a:x") && covers(Scope::Read, "team-b:") && covers(Scope::Admin, "team-a:")
    );
    assert!(!covers(Scope::Admin, "team-b:x") && !covers(Scope::Feed, "team-a:x"));
    assert!(!covers(Scope::Read, "team-a") && !covers(Scope::Read, "") && !covers(Scope::Read, "team-c:"));
}

#[test]
fn what_is_written_another_way_or_with_more_takes_nothing_away() {
    let named = |names: &str, scopes: &str, rooms: &str| {
        let text = format!(
            "[[edge]]\ncertificate = \"c\"\nnames = [{names}]\nregions = [\"eu\"]\n\
             [[service]]\ncertificate = \"c\"\nscopes = [{scopes}]\nrooms = [{rooms}]\n"
        );
        Peers::parse(&text).unwrap().named(&PeerNames::from_iter(["c"])).unwrap()
    };
    let before = named(r#""e-1", "e-2""#, r#""presence.read", "presence.admin""#, r#""team-a:", "team-b:""#);
    for (names, scopes, rooms, is_within) in [
        (r#""e-2", "e-1""#, r#""presence.admin", "presence.read""#, r#""team-b:", "team-a:""#, true),
        (r#""e-*""#, r#""presence.read", "presence.admin", "presence.feed""#, r#""team-""#, true),
        (r#""e-1""#, r#""presence.read", "presence.admin""#, r#""team-a:", "team-b:""#, false),
        (r#""e-1", "e-2""#, r#""presence.read""#, r#""team-a:", "team-b:""#, false),
        (r#""e-1", "e-2""#, r#""presence.read", "presence.admin""#, r#""team-a:""#, false),
        (r#""e-1", "e-2""#, r#""presence.read", "presence.admin""#, r#""team-a:x", "team-b:""#, false),
    ] {
        assert_eq!(before.is_within(&named(names, scopes, rooms)), is_within, "{names} {scopes} {rooms}");
    }
}

#[test]
fn every_mistake_is_told_at_once() {
    let bad = r#"
        [[edge]]
        certificate = ""
        names = []
        regions = ["eu west"]
        [[service]]
        certificate = "ops.example"
        scopes = ["presence.write"]
        rooms = []
    "#;
    let fault = Peers::parse(bad).unwrap_err().to_string();
    for part in [
        "edge[0].certificate = \"\"",
        "edge[0].names is empty",
        "service[0].scopes = \"presence.write\": is none of presence.read",
        "service[0].rooms is empty",
    ] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
    for (text, part) in [
        ("[[edge]]\nname = \"x\"", "line"),
        ("[[edges]]", "unknown field"),
        ("[[edge]]\ncertificate = 7", "line 2"),
        ("\u{0}", "line 1"),
        ("", "names nobody"),
        ("# being written", "names nobody"),
    ] {
        let fault = Peers::parse(text).unwrap_err().to_string();
        assert!(fault.contains(part), "{text}: {fault}");
    }
}

#[test]
fn a_table_has_a_bound() {
    let table =
        |count: usize| {
            (0..count).map(|place| {
            format!("[[service]]\ncertificate = \"s{place}\"\nscopes = [\"presence.read\"]\nrooms = [\"\"]\n")
        }).collect::<String>()
        };
    assert!(Peers::parse(&table(PEERS_MAX - 1)).is_ok() && Peers::parse(&table(PEERS_MAX)).is_ok());
    assert!(Peers::parse(&table(PEERS_MAX + 1)).is_err());
    let long = |bytes| {
        format!(
            "[[service]]\ncertificate = \"s\"\nscopes = [\"presence.read\"]\nrooms = [\"{}\"]\n",
            "x".repeat(bytes)
        )
    };
    assert!(Peers::parse(&long(NAME_BYTES_MAX)).is_ok() && Peers::parse(&long(NAME_BYTES_MAX + 1)).is_err());
}

#[tokio::test]
async fn a_new_table_is_taken_over_and_a_bad_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("peers.toml");
    std::fs::write(&path, TABLE).unwrap();
    let mut file = PeersFile::open(&path).await.unwrap();
    let peers = file.peers();
    let before = Arc::clone(&peers.borrow());
    std::fs::write(&path, "[[edge]]\n").unwrap();
    assert!(matches!(file.look().await, Looked::Kept(_)));
    assert_eq!(*peers.borrow(), before);
    std::fs::write(&path, "").unwrap();
    assert!(matches!(file.look().await, Looked::Kept(_)), "it is being written");
    assert_eq!(*peers.borrow(), before);
    let other = TABLE.replace("eu-west", "us-east");
    std::fs::write(&path, &other).unwrap();
    assert!(matches!(file.look().await, Looked::Replaced));
    assert_eq!(**peers.borrow(), Peers::parse(&other).unwrap());
}

proptest! {
    /// Whatever is asked about begins with a prefix of the grant, and all that does is in it.
    #[test]
    fn a_grant_is_for_what_begins_with_its_prefixes(
        prefixes in prop::collection::vec("[ab:é]{0,3}", 1..4),
        asked in "[ab:é]{0,6}",
    ) {
        let grant = Grant { scopes: vec![Scope::Read], rooms: prefixes.iter().map(SmolStr::from).collect() };
        let expected = prefixes.iter().any(|prefix| asked.as_bytes().starts_with(prefix.as_bytes()));
        prop_assert_eq!(grant.covers(Scope::Read, &asked), expected);
        prop_assert!(!grant.covers(Scope::Admin, &asked));
    }

    /// Text that is no table costs an error, never more.
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = Peers::parse(&text);
    }
}

#[test]
fn a_certificate_of_cores_has_their_regions_and_loses_nothing_unnoticed() {
    let table = |regions: &str| {
        Peers::parse(&format!("[[core]]\ncertificate = \"Core.example\"\nregions = {regions}\n"))
    };
    let named =
        |regions: &str| table(regions).unwrap().named(&PeerNames::from_iter(["core.example"])).unwrap();
    let (one, two) = (named("[\"us\"]"), named("[\"us\", \"eu\"]"));
    assert_eq!(one.cores, [RegionId::new("us").unwrap()]);
    assert!(one.is_within(&two) && !two.is_within(&one));
    for bad in ["[]", "[\"\"]"] {
        let fault = table(bad).unwrap_err().to_string();
        assert!(fault.starts_with("core[0].regions"), "{fault}");
    }
}
