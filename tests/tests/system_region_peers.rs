//! Cores that are to watch each other and are told so wrongly, and that show each other certificates.

use std::time::Duration;

use presence_tests::certificates::Certificates;
use presence_tests::procs::{CoreOptions, Keys, Process, Timers, core_with};
use presence_tests::redis::free_port;

const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(1_500),
    lease_ttl: Duration::from_secs(6),
    grace: Duration::from_secs(3),
    edge_lost: Duration::from_secs(2),
};
const WITHIN: Duration = Duration::from_secs(30);

/// One end has forgotten the other: it is told, and never silently alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_know_us_is_counted_and_logged() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    let log = tempfile::NamedTempFile::new()?;
    let start = |more: &[&str], log_file| {
        let more = more.iter().map(|flag| (*flag).to_owned()).collect();
        core_with(&CoreOptions { more, log_file, ..CoreOptions::default() }, &keys, &TIMERS)
    };
    let forgetful = start(&["--region", "us"], None)?;
    let peer = format!("us=http://{}", forgetful.address("grpc"));
    let core = start(&["--region", "eu", "--peer", &peer], Some(log.path().to_owned()))?;
    reaches(&core, "presence_core_peer_failures_total{kind=\"refused\",peer=\"us\"}", 1.0).await?;
    assert!(core.metric("presence_core_peer_up{peer=\"us\"}").await? < 1.0);
    let said = std::fs::read_to_string(log.path())?;
    assert!(said.contains("does not let itself be watched") && said.contains("--peer"), "{said}");
    Ok(())
}

/// Who reads along on the way to another region reads who is where: that is said at the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_way_to_a_peer_without_tls_is_warned_of_beyond_this_machine() -> anyhow::Result<()> {
    let keys = Keys::generate()?;
    for (peer, warns) in [("us=http://192.0.2.1:4701", true), ("us=http://127.0.0.1:1", false)] {
        let log = tempfile::NamedTempFile::new()?;
        let more = ["--region", "eu", "--peer", peer].map(str::to_owned).to_vec();
        let log_file = Some(log.path().to_owned());
        let core = core_with(&CoreOptions { more, log_file, ..CoreOptions::default() }, &keys, &TIMERS)?;
        assert!(core.metric("presence_core_peer_up{peer=\"us\"}").await? < 1.0);
        let said = std::fs::read_to_string(log.path())?;
        assert_eq!(said.contains("is not encrypted"), warns, "{peer}: {said}");
    }
    Ok(())
}

/// Cores of two regions that ask each other for certificates; a third one shows one that is not for its region.
#[tokio::test(flavor = "multi_thread")]
async fn cores_watch_each_other_by_certificate_for_their_own_region_only() -> anyhow::Result<()> {
    let (keys, authority, folder) = (Keys::generate()?, Certificates::new()?, tempfile::tempdir()?);
    let ports = [free_port()?, free_port()?];
    let peers = folder.path().join("peers.toml");
    let entry =
        |name: &str| format!("[[core]]\ncertificate = \"core-{name}.test\"\nregions = [\"{name}\"]\n");
    std::fs::write(&peers, entry("eu") + &entry("us"))?;
    let start = |region: &str, certificate: &str, (to, port): (&str, u16), own: Option<u16>| {
        let signed = authority.sign(certificate)?;
        let (certificate, key) = (signed.certificate.display().to_string(), signed.key.display().to_string());
        let (ca, peers) = (authority.authority().display().to_string(), peers.display().to_string());
        let peer = format!("{to}=https://127.0.0.1:{port}");
        let more = [
            ["--region", region],
            ["--peer", &peer],
            ["--peers", &peers],
            ["--tls-cert", &certificate],
            ["--tls-key", &key],
            ["--tls-client-ca", &ca],
            ["--core-cert", &certificate],
            ["--core-key", &key],
            ["--core-ca", &ca],
        ];
        let more = more.into_iter().flatten().map(str::to_owned).collect();
        let grpc = own.map(|port| format!("127.0.0.1:{port}"));
        core_with(&CoreOptions { more, grpc, ..CoreOptions::default() }, &keys, &TIMERS)
    };
    let eu = start("eu", "core-eu.test", ("us", ports[1]), Some(ports[0]))?;
    let us = start("us", "core-us.test", ("eu", ports[0]), Some(ports[1]))?;
    reaches(&eu, "presence_core_peer_up{peer=\"us\"}", 1.0).await?;
    reaches(&us, "presence_core_peer_up{peer=\"eu\"}", 1.0).await?;
    // It says that it is of eu, and shows that it is of us.
    let impostor = start("eu", "core-us.test", ("us", ports[1]), None)?;
    reaches(&impostor, "presence_core_peer_failures_total{kind=\"refused\",peer=\"us\"}", 1.0).await?;
    reaches(&us, "presence_core_access_refusals_total{reason=\"region\"}", 1.0).await?;
    assert!(impostor.metric("presence_core_peer_up{peer=\"us\"}").await? < 1.0);
    Ok(())
}

async fn reaches(process: &Process, series: &str, least: f64) -> anyhow::Result<()> {
    let end = tokio::time::Instant::now() + WITHIN;
    while process.metric(series).await? < least {
        anyhow::ensure!(tokio::time::Instant::now() < end, "{series} has not reached {least}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
