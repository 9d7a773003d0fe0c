use super::*;

fn names(entered: &Entered) -> Vec<&str> {
    entered.names.iter().collect()
}

#[tokio::test]
async fn a_client_that_knows_the_authority_gets_in_by_the_newest_version() {
    let authority = Authority::new();
    let house = House::tls(authority.server(&["core.test", "127.0.0.1"])).await;
    for host in ["core.test", "127.0.0.1"] {
        let (far, near) = house.meets(authority.client(None), host).await;
        assert!(far.unwrap().names.is_empty());
        assert_eq!(version_of(&near.unwrap()), Some(ProtocolVersion::TLSv1_3));
    }
    assert_eq!(house.counted("done"), 2);
}

#[tokio::test]
async fn version_1_2_is_good_enough_and_the_protocol_inside_is_agreed_upon() {
    let authority = Authority::new();
    let house = House::tls(authority.server(&["core.test"])).await;
    let roots = files::roots(&authority.path());
    let mut old = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    for (offered, is_in) in
        [(vec![b"h2".to_vec()], true), (vec![], true), (vec![b"http/1.1".to_vec()], false)]
    {
        old.alpn_protocols = offered;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(old.clone()));
        let near = async { connector.connect("core.test".try_into().unwrap(), house.dial().await).await };
        let far = async {
            let (stream, peer) = house.listener.accept().await.unwrap();
            house.door.enter(stream, peer.ip()).await
        };
        let (near, far) = tokio::join!(near, far);
        assert_eq!((near.is_ok(), far.is_ok()), (is_in, is_in), "{near:?}");
        if let Ok(entered) = far {
            assert_eq!(version_of(&entered.stream), Some(ProtocolVersion::TLSv1_2));
        }
    }
}

#[tokio::test]
async fn a_server_has_to_prove_the_name_it_was_called_by() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let house = House::tls(authority.server(&["core.test"])).await;
    for (files, host, told) in [
        (authority.client(None), "other.test", "not valid for name"),
        (stranger.client(None), "core.test", "UnknownIssuer"),
    ] {
        let (far, near) = house.meets(files, host).await;
        assert_eq!(far.unwrap_err(), Turned::Away);
        let told_near = near.unwrap_err().to_string();
        assert!(told_near.contains(told), "{told_near}");
    }
    assert_eq!(house.counted("failed"), 2);
}

#[tokio::test]
async fn a_certificate_is_chosen_by_name_and_the_first_is_for_everybody_else() {
    let (first, second) = (Authority::new(), Authority::new());
    let certificates = vec![first.sign("a", &["a.test"]), second.sign("b", &["b.test", "*.b.test"])];
    let house = House::tls(ServerFiles { certificates, clients: None }).await;
    for (files, host) in
        [(first.client(None), "a.test"), (second.client(None), "b.test"), (second.client(None), "x.b.test")]
    {
        let (far, near) = house.meets(files, host).await;
        assert!(far.is_ok() && near.is_ok(), "{host}: {near:?}");
    }
    let (_, near) = house.meets(second.client(None), "c.test").await;
    assert!(near.unwrap_err().to_string().contains("UnknownIssuer"), "that of the first one");
}

#[tokio::test]
async fn clients_are_known_by_the_names_in_their_certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let mut params = rcgen::CertificateParams::new(vec!["edge-1.test".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::URI("spiffe://test/edge-1".try_into().unwrap()));
    let known = authority.sign_params("edge-1", params);
    let foreign = stranger.sign("edge-2", &["edge-2.test"]);
    for demand in [Demand::Required, Demand::Optional] {
        let files = ServerFiles { clients: authority.clients(demand), ..authority.server(&["core.test"]) };
        let house = House::tls(files).await;
        let (far, near) = house.meets(authority.client(Some(known.clone())), "core.test").await;
        assert!(near.is_ok());
        assert_eq!(names(&far.unwrap()), ["edge-1.test", "spiffe://test/edge-1"], "not its common name");
        let (far, _) = house.meets(authority.client(Some(foreign.clone())), "core.test").await;
        assert_eq!(far.unwrap_err(), Turned::Away, "{demand:?}: signed by a stranger");
        let (far, _) = house.meets(authority.client(None), "core.test").await;
        match demand {
            Demand::Required => assert_eq!(far.unwrap_err(), Turned::Away),
            Demand::Optional => assert!(far.unwrap().names.is_empty()),
        }
    }
}
