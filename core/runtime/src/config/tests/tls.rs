use std::path::PathBuf;

use super::*;
use crate::limits::TLS_CERTIFICATES_MAX;
use crate::tls::tests::Authority;
use crate::tls::{CertificateFiles, ClientFiles, Demand, ServerFiles};

fn settings() -> Vec<Setting> {
    [&TLS_SETTINGS[..], &CORE_TLS_SETTINGS].concat()
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Given {
    tls: TlsTable,
    core_tls: CoreTlsTable,
}

type Found = (Option<ServerFiles>, Option<ClientFiles>, String);

/// The files of a configuration and what is wrong with it; `is_spoken`: a core speaks TLS.
fn read(text: &str, is_spoken: bool) -> Found {
    let (file, settings) = (file(text), settings());
    let loader = Loader::new(&settings, "PRESENCE_TEST").file(Some(file.path()));
    let (given, mistakes): (Given, _) = loader.read();
    let mut checks = Checks::new(&loader, mistakes);
    let (tls, core_tls) = (checks.tls(&given.tls), checks.core_tls(&given.core_tls, is_spoken));
    (tls, core_tls, checks.mistakes().map(|mistakes| mistakes.to_string()).unwrap_or_default())
}

fn toml(table: &str, files: &CertificateFiles) -> String {
    format!("[{table}]\ncert_file = {:?}\nkey_file = {:?}\n", files.chain, files.key)
}

#[test]
fn files_of_both_directions_are_read() {
    let authority = Authority::new();
    let (server, client) = (authority.sign("server", &["a.test"]), authority.sign("client", &["b.test"]));
    let ca = format!("client_ca_file = {0:?}\n", authority.path());
    let text = toml("tls", &server)
        + &ca
        + &toml("core_tls", &client)
        + &format!("ca_file = {:?}", authority.path());
    let (tls, core_tls, mistakes) = read(&text, true);
    assert_eq!(mistakes, "");
    let expected = ServerFiles { certificates: vec![server], clients: authority.clients(Demand::Required) };
    assert_eq!(tls, Some(expected));
    assert_eq!(core_tls, Some(ClientFiles { authority: Some(authority.path()), identity: Some(client) }));
}

#[test]
fn nothing_given_is_plain_and_trusts_the_system() {
    let (tls, core_tls, mistakes) = read("", false);
    assert_eq!((tls, core_tls, mistakes.as_str()), (None, None, ""));
    // Whether this machine trusts anybody is its own business.
    let (_, core_tls, mistakes) = read("", true);
    assert!(
        core_tls == Some(ClientFiles::default()) || mistakes.starts_with("core_tls.ca_file = (not set): ")
    );
}

#[test]
fn all_mistakes_are_told_where_they_were_made() {
    let authority = Authority::new();
    let (one, other) = (authority.sign("one", &["a.test"]), authority.sign("other", &["a.test"]));
    let mixed = CertificateFiles { chain: one.chain.clone(), key: other.key.clone() };
    let nowhere = CertificateFiles { chain: "/nowhere/a".into(), key: "/nowhere/b".into() };
    for (text, is_spoken, told) in [
        (toml("tls", &mixed), false, vec!["tls.key_file = "]),
        (
            toml("tls", &nowhere) + "client_ca_file = \"/nowhere/c\"",
            false,
            vec![
                "tls.cert_file = \"/nowhere/a\": cannot be read",
                "tls.client_ca_file = \"/nowhere/c\": cannot",
            ],
        ),
        (
            "[tls]\ncert_file = \"a\"".into(),
            false,
            vec!["tls.key_file = []: must be as many as tls.cert_file, which are 1"],
        ),
        ("[tls]\nkey_file = \"a\"".into(), false, vec!["tls.key_file = [\"a\"]: must be as many"]),
        (
            "[tls]\nclient_ca_file = \"a\"".into(),
            false,
            vec!["tls.client_ca_file = \"a\": is of no use without tls.cert_file"],
        ),
        (
            toml("tls", &one) + "client_auth = \"optional\"",
            false,
            vec!["tls.client_auth = \"optional\": is of no use without tls.client_ca_file"],
        ),
        (
            "[tls]\nclient_auth = \"maybe\"".into(),
            false,
            vec!["tls.client_auth = \"maybe\": must be one of required, optional"],
        ),
        (toml("core_tls", &one), false, vec!["core_tls.cert_file = ", "core_tls.key_file = "]),
        (
            toml("core_tls", &mixed) + "ca_file = \"/nowhere\"",
            true,
            vec!["core_tls.key_file = ", "core_tls.ca_file = \"/nowhere\": cannot"],
        ),
        (
            format!("[core_tls]\nca_file = {:?}\ncert_file = \"a\"", authority.path()),
            true,
            vec!["core_tls.key_file = (not set): must be given with core_tls.cert_file"],
        ),
        (
            format!("[core_tls]\nca_file = {:?}\nkey_file = \"a\"", authority.path()),
            true,
            vec!["core_tls.cert_file = (not set): must be given with core_tls.key_file"],
        ),
    ] {
        let (tls, core_tls, mistakes) = read(&text, is_spoken);
        assert!(tls.is_none() || !text.contains("[tls]"), "{text}");
        assert!(core_tls.is_none() || !text.contains("[core_tls]"), "{text}");
        let lines: Vec<&str> = mistakes.lines().collect();
        assert_eq!(lines.len(), told.len(), "{text}\n{mistakes}");
        for (line, told) in lines.iter().zip(told) {
            assert!(line.starts_with(told) && line.contains("; example: "), "{mistakes}");
        }
    }
}

#[test]
fn a_listener_has_so_many_certificates_and_no_more() {
    let authority = Authority::new();
    let one = authority.sign("one", &["a.test"]);
    for (count, is_good) in
        [(TLS_CERTIFICATES_MAX - 1, true), (TLS_CERTIFICATES_MAX, true), (TLS_CERTIFICATES_MAX + 1, false)]
    {
        let many = |path: &PathBuf| format!("{:?}", vec![path; count]);
        let text = format!("[tls]\ncert_file = {}\nkey_file = {}\n", many(&one.chain), many(&one.key));
        let (tls, _, mistakes) = read(&text, false);
        assert_eq!((tls.is_some(), mistakes.is_empty()), (is_good, is_good), "{count}: {mistakes}");
    }
}

#[test]
fn what_is_in_force_is_shown_and_empty_tables_are_not() {
    let shown = |given: &Given| render(&settings(), given);
    let ca = || Some(PathBuf::from("/ca.pem"));
    let table = TlsTable { cert_file: vec!["/a.pem".into()], client_ca_file: ca(), ..TlsTable::default() };
    assert!(table.asks_everybody());
    let text = shown(&Given { tls: table.clone().in_force(), core_tls: CoreTlsTable::default() });
    assert!(text.contains("client_auth = \"required\"") && text.contains("[\"/a.pem\"]"), "{text}");
    let optional = TlsTable { client_auth: Some("optional".into()), ..table };
    assert!(optional.is_wanted() && optional.asks_everybody());
    let quiet = TlsTable { client_ca_file: None, ..optional };
    assert!(!quiet.asks_everybody());
    assert!(TlsTable::default().is_empty() && CoreTlsTable::default().is_empty());
}
