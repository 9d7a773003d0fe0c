use super::*;

pub(super) fn roots(path: &std::path::Path) -> Arc<rustls::RootCertStore> {
    super::super::files::authority(path, &std::fs::read(path).unwrap()).unwrap()
}

fn fault(files: &CertificateFiles) -> (Role, String) {
    let bad = files.check().unwrap_err();
    (bad.role, bad.to_string())
}

#[test]
fn what_is_wrong_with_a_file_is_told_and_nothing_of_what_is_in_it() {
    let authority = Authority::new();
    let (good, other) = (authority.sign("good", &["a.test"]), authority.sign("other", &["a.test"]));
    good.check().unwrap();
    let empty = authority.folder.path().join("empty.pem");
    std::fs::write(&empty, "-----BEGIN SECRET hunter2\n").unwrap();
    let nowhere = authority.folder.path().join("nowhere.pem");
    let with =
        |chain: &PathBuf, key: &PathBuf| fault(&CertificateFiles { chain: chain.clone(), key: key.clone() });
    for ((role, told), expected, words) in [
        (with(&nowhere, &good.key), Role::Chain, "cannot be read"),
        (with(&good.chain, &nowhere), Role::Key, "cannot be read"),
        (with(&empty, &good.key), Role::Chain, "has no certificate"),
        (with(&good.key, &good.key), Role::Chain, "has no certificate"),
        (with(&good.chain, &empty), Role::Key, "has no private key"),
        (with(&good.chain, &good.chain), Role::Key, "has no private key"),
        (with(&good.chain, &other.key), Role::Key, "is not the key of the certificate in"),
    ] {
        assert_eq!(role, expected, "{told}");
        assert!(told.contains(words) && !told.contains("hunter2"), "{told}");
    }
    let bad = check_authority(&empty).unwrap_err();
    assert_eq!(bad.role, Role::Authority);
}

#[test]
fn a_certificate_that_nobody_would_take_is_refused() {
    let authority = Authority::new();
    authority.sign_for_days("good", (-1, 1)).check().unwrap();
    for (days, words) in [((-2, -1), "that ended at"), ((1, 2), "that does not begin before")] {
        let (role, told) = fault(&authority.sign_for_days("bad", days));
        assert_eq!(role, Role::Chain);
        assert!(told.contains(words) && told.contains('T'), "{told}");
    }
}

#[tokio::test]
async fn when_the_first_certificate_ends_is_a_metric_that_follows_the_files() {
    let authority = Authority::new();
    let files = authority.sign_for_days("server", (-1, 10));
    let server =
        ServerFiles { certificates: vec![files.clone(), authority.sign("b", &["b.test"])], clients: None };
    let (tls, mut followed) = ServerTls::open(server, Protocol::Http2).await.unwrap();
    let metrics = Metrics::new();
    let _door = Door::new(("core", "gRPC"), Some(tls), &metrics, Clock::system());
    let days_left = || {
        let text = metrics.encode();
        let line = text
            .lines()
            .find(|line| line.starts_with("presence_tls_certificate_ends_seconds{shown_to=\"clients\"}"));
        let ends: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        (ends - Clock::system().wall_ms() as f64 / 1_000.0) / 86_400.0
    };
    assert!((9.9..10.1).contains(&days_left()));
    authority.sign_for_days("server", (-1, 20));
    assert!(matches!(followed.look().await, Looked::Replaced));
    assert!((19.9..20.1).contains(&days_left()));
    authority.sign_for_days("server", (-2, -1));
    assert!(matches!(followed.look().await, Looked::Kept(_)), "one that has ended is not taken over");
    assert!((19.9..20.1).contains(&days_left()));
}

#[test]
fn a_chain_and_a_file_have_their_bounds() {
    let authority = Authority::new();
    let good = authority.sign("good", &["a.test"]);
    let one = std::fs::read_to_string(&good.chain).unwrap();
    for (certificates, is_good) in
        [(TLS_CHAIN_MAX - 1, true), (TLS_CHAIN_MAX, true), (TLS_CHAIN_MAX + 1, false)]
    {
        std::fs::write(&good.chain, one.repeat(certificates)).unwrap();
        assert_eq!(good.check().is_ok(), is_good, "{certificates}");
    }
    let limit = usize::try_from(TLS_FILE_BYTES_MAX).unwrap();
    for (bytes, is_good) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
        // What stands before a certificate is a comment.
        std::fs::write(&good.chain, format!("{}{one}", "\n".repeat(bytes - one.len()))).unwrap();
        assert_eq!(good.check().is_ok(), is_good, "{bytes}");
    }
}

#[tokio::test]
async fn new_files_count_for_new_connections_and_bad_ones_change_nothing() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = old.server(&["core.test"]);
    let (tls, mut followed) = ServerTls::open(files.clone(), Protocol::Http2).await.unwrap();
    let house = House::new(Some(tls));
    let (far, near) = house.meets(old.client(None), "core.test").await;
    let (mut far, mut near) = (far.unwrap(), near.unwrap());

    let replaced = new.sign("new", &["core.test"]);
    std::fs::copy(&replaced.chain, &files.certificates[0].chain).unwrap();
    assert!(
        matches!(followed.look().await, Looked::Kept(BadFile { role: Role::Key, .. })),
        "its key is missing"
    );
    let (still, _) = house.meets(old.client(None), "core.test").await;
    assert!(still.is_ok(), "the old one stays in force");

    std::fs::copy(&replaced.key, &files.certificates[0].key).unwrap();
    assert!(matches!(followed.look().await, Looked::Replaced));
    assert!(matches!(followed.look().await, Looked::Same));
    let (far_new, _) = house.meets(new.client(None), "core.test").await;
    assert!(far_new.is_ok());
    let (far_old, _) = house.meets(old.client(None), "core.test").await;
    assert!(far_old.is_err());

    near.write_all(b"still here").await.unwrap();
    near.flush().await.unwrap();
    let mut said = [0; 10];
    far.stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"still here");
}

#[tokio::test]
async fn whoever_connects_follows_its_files_as_well() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let files = ServerFiles { clients: theirs.clients(Demand::Required), ..theirs.server(&["core.test"]) };
    let house = House::tls(files).await;
    let mine = ours.sign("edge", &["edge.test"]);
    let client = ours.client(Some(mine.clone()));
    let (tls, mut followed) = ClientTls::open(client, Protocol::Http2).await.unwrap();
    let meet = async || {
        let near = async { tls.connect("core.test", house.dial().await).await };
        let far = async {
            let (stream, peer) = house.listener.accept().await.unwrap();
            house.door.enter(stream, peer.ip()).await
        };
        let (near, far) = tokio::join!(near, far);
        near.is_ok() && far.is_ok()
    };
    assert!(!meet().await, "it trusts another authority, and so does the server");
    let signed = theirs.sign("edge", &["edge.test"]);
    for (from, to) in [(&signed.chain, &mine.chain), (&signed.key, &mine.key), (&theirs.path(), &ours.path())]
    {
        std::fs::copy(from, to).unwrap();
    }
    assert!(matches!(followed.look().await, Looked::Replaced));
    assert!(meet().await);
}
