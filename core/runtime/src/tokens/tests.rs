use std::os::unix::fs::PermissionsExt as _;

use presence_model::claim::{Action, TokenRefusal, judge_time};
use presence_model::id::{RoomId, UserId};
use presence_model::record::TokenRef;
use presence_model::time::StoreTime;

use super::*;

pub(super) const NOW: StoreTime = StoreTime(1_790_000_000_000);
pub(super) const SECRET: [u8; 32] = [0x5a; 32];

pub(super) fn grant() -> Grant {
    Grant {
        user: UserId::new("u1").unwrap(),
        room: RoomId::new("lobby").unwrap(),
        action: Action::Join,
        ends: StoreTime(NOW.0 + 60_000),
        not_before: None,
        token_id: None,
    }
}

pub(super) fn keys(seed: u8) -> GeneratedKeys {
    GeneratedKeys::from_seed([seed; 32])
}

fn verifier_of(jwks: &str) -> Verifier {
    Verifier::new(KeySet::parse(jwks.as_bytes()).unwrap())
}

/// The key of HS256 tokens as a JWK.
pub(super) fn secret_jwk(kid: &str) -> serde_json::Value {
    use base64::Engine as _;
    let k = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(SECRET);
    serde_json::json!({ "kty": "oct", "alg": "HS256", "kid": kid, "k": k })
}

pub(super) fn jwk_of(keys: &GeneratedKeys) -> serde_json::Value {
    let set: serde_json::Value = serde_json::from_str(keys.jwks()).unwrap();
    set["keys"][0].clone()
}

fn set_of(keys: &[serde_json::Value]) -> String {
    serde_json::json!({ "keys": keys }).to_string()
}

#[test]
fn a_token_says_what_it_was_issued_for() {
    let keys = keys(1);
    let issuer = Issuer::from_pem(keys.key_pem()).unwrap();
    assert_eq!(issuer.key_id(), keys.key_id());
    let granted = Grant {
        action: Action::Watch,
        not_before: Some(NOW),
        token_id: Some("t-1".into()),
        ends: StoreTime(NOW.0 + 60_999),
        ..grant()
    };
    let claims = verifier_of(keys.jwks()).verify(&issuer.sign(&granted)).unwrap();
    assert_eq!((claims.user, claims.room, claims.action), (granted.user, granted.room, Action::Watch));
    assert_eq!(claims.not_before, Some(NOW));
    assert_eq!(claims.token.ends, StoreTime(NOW.0 + 60_000), "never later than granted");
    assert_eq!(claims.token.key_id, keys.key_id());
    assert_eq!(claims.token.token_id, "t-1");
}

#[test]
fn a_shared_secret_works_as_well_and_is_known_for_one() {
    let verifier = verifier_of(&set_of(&[secret_jwk("dev")]));
    let issuer = Issuer::from_secret("dev", &SECRET).unwrap();
    assert!(verifier.verify(&issuer.sign(&grant())).is_ok());
    assert!(verifier.keys().has_shared_secret());
    assert!(!verifier_of(keys(1).jwks()).keys().has_shared_secret());
    assert_eq!(Issuer::from_secret("dev", &SECRET[..31]).unwrap_err(), KeyUnusable::ShortSecret);
}

#[test]
fn time_is_left_to_the_store() {
    let keys = keys(1);
    let issuer = Issuer::from_pem(keys.key_pem()).unwrap();
    let past = Grant { ends: StoreTime(1_000), ..grant() };
    let claims = verifier_of(keys.jwks()).verify(&issuer.sign(&past)).unwrap();
    assert_eq!(judge_time(&claims, NOW, std::time::Duration::ZERO), Err(TokenRefusal::Expired));
    let future = Grant { not_before: Some(StoreTime(NOW.0 * 2)), ..grant() };
    let claims = verifier_of(keys.jwks()).verify(&issuer.sign(&future)).unwrap();
    assert_eq!(judge_time(&claims, NOW, std::time::Duration::ZERO), Err(TokenRefusal::NotYetValid));
}

#[test]
fn rotation_keeps_old_tokens_until_their_key_is_gone() {
    let (old, new) = (keys(1), keys(2));
    let verifier = verifier_of(old.jwks());
    let (of_old, of_new) =
        [&old, &new].map(|keys| Issuer::from_pem(keys.key_pem()).unwrap().sign(&grant())).into();
    assert_eq!(verifier.verify(&of_new), Err(TokenRefusal::UnknownKey));
    verifier.replace(set_of(&[jwk_of(&old), jwk_of(&new)]).as_bytes()).unwrap();
    assert!(verifier.verify(&of_old).is_ok() && verifier.verify(&of_new).is_ok());
    verifier.replace(new.jwks().as_bytes()).unwrap();
    assert_eq!(verifier.clone().verify(&of_old), Err(TokenRefusal::UnknownKey));
    assert!(verifier.replace(b"{}").is_err());
    assert!(verifier.verify(&of_new).is_ok(), "a bad file changes nothing");
}

fn fault(change: impl FnOnce(&mut serde_json::Value)) -> KeyFault {
    let mut jwk = jwk_of(&keys(1));
    change(&mut jwk);
    match KeySet::parse(set_of(&[secret_jwk("dev"), jwk]).as_bytes()) {
        Err(KeysError::Key { index: 1, fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bad_key_makes_the_file_bad() {
    let short = "AAAAAAAAAAAAAAAAAAAAAA";
    let small_order = format!("AQ{}", "A".repeat(41));
    assert_eq!(fault(|jwk| jwk["kid"] = "dev".into()), KeyFault::DuplicateKid);
    assert_eq!(fault(|jwk| jwk["kid"] = "".into()), KeyFault::MissingKid);
    assert_eq!(fault(|jwk| jwk["kid"] = "k".repeat(256).into()), KeyFault::MissingKid);
    assert_eq!(fault(|jwk| jwk["alg"] = "HS256".into()), KeyFault::WrongAlgorithm);
    assert_eq!(fault(|jwk| jwk["x"] = short.into()), KeyFault::Malformed, "the library would panic on it");
    assert_eq!(fault(|jwk| jwk["x"] = "not base64!".into()), KeyFault::Malformed);
    assert_eq!(fault(|jwk| drop(jwk.as_object_mut().unwrap().remove("x"))), KeyFault::Malformed);
    assert_eq!(fault(|jwk| jwk["x"] = small_order.clone().into()), KeyFault::Weak);
    assert_eq!(fault(|jwk| jwk["d"] = short.into()), KeyFault::Private);
    assert_eq!(fault(|jwk| *jwk = serde_json::json!({"kty":"oct","kid":"s","k":short})), KeyFault::Weak);
    let off_curve = serde_json::json!({"kty":"EC","crv":"P-256","kid":"e","x":small_order,"y":small_order});
    assert_eq!(fault(|jwk| *jwk = off_curve), KeyFault::Malformed);
    let small_rsa = serde_json::json!({"kty":"RSA","kid":"r","n":"AQAB".repeat(60),"e":"AQAB"});
    assert_eq!(fault(|jwk| *jwk = small_rsa), KeyFault::Weak);
}

#[test]
fn foreign_keys_are_left_out_and_a_file_needs_one_of_ours() {
    let foreign = [
        serde_json::json!({"kty":"OKP","crv":"X25519","x":"AAAA"}),
        serde_json::json!({"kty":"RSA","use":"enc","n":"AAAA","e":"AQAB"}),
        serde_json::json!({"kty":"RSA","alg":"RS512","n":"AAAA","e":"AQAB"}),
        serde_json::json!({"kty":"new","kid":"x"}),
        serde_json::json!({"kty":"oct","key_ops":["sign"],"k":"AAAA"}),
    ];
    assert!(matches!(KeySet::parse(set_of(&foreign).as_bytes()), Err(KeysError::Empty)));
    let mut all = foreign.to_vec();
    all.push(jwk_of(&keys(1)));
    let set = KeySet::parse(set_of(&all).as_bytes()).unwrap();
    assert_eq!((set.ignored(), set.ids().count()), (5, 1));
    let many = vec![secret_jwk("dev"); 65];
    assert!(matches!(KeySet::parse(set_of(&many).as_bytes()), Err(KeysError::TooMany { count: 65 })));
    assert!(matches!(KeySet::parse(&vec![b' '; 300_000]), Err(KeysError::TooLarge)));
    for text in [
        "",
        "[]",
        "{}",
        "{\"keys\":1}",
        "{\"keys\":[]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"top-secret\",\"k\":1}]}",
    ] {
        let error = KeySet::parse(text.as_bytes()).unwrap_err();
        assert!(matches!(error, KeysError::Malformed { .. } | KeysError::Empty), "{text}: {error}");
        assert!(!error.to_string().contains("top-secret"));
    }
}

/// Signed by another implementation, with keys whose private halves are gone.
const ES256: &str = include_str!("fixtures/es256.jwt");
const RS256: &str = include_str!("fixtures/rs256.jwt");
const ES256_FOR_ANOTHER: &str = include_str!("fixtures/es256_elsewhere.jwt");

#[test]
fn es256_and_rs256_tokens_of_others_verify_by_a_file_of_keys() {
    let verifier = verifier_of(include_str!("fixtures/jwks.json"));
    for (token, kid) in [(ES256, "es"), (RS256, "rs")] {
        let claims = verifier.verify(token.trim()).unwrap();
        let user = UserId::new("u1").unwrap();
        assert_eq!((claims.user, claims.room.as_str(), claims.action), (user, "lobby", Action::Join));
        let expected = (StoreTime(1_790_000_060_000), kid, "t-1");
        let TokenRef { ends, key_id, token_id } = &claims.token;
        assert_eq!((*ends, key_id.as_str(), token_id.as_str()), expected);
    }
    assert_eq!(verifier.verify(ES256_FOR_ANOTHER.trim()), Err(TokenRefusal::Audience));
}

#[test]
fn es256_and_rs256_tokens_that_were_changed_do_not_verify() {
    let verifier = verifier_of(include_str!("fixtures/jwks.json"));
    let parts = |token: &'static str| token.trim().rsplit_once('.').unwrap();
    let payload_of = |token: &'static str| parts(token).0.rsplit_once('.').unwrap().1;
    for token in [ES256, RS256] {
        let (signed, signature) = parts(token);
        let other = if signature.starts_with('A') { "B" } else { "A" };
        let changed = format!("{signed}.{other}{}", &signature[1..]);
        assert_eq!(verifier.verify(&changed), Err(TokenRefusal::Signature));
        // Good claims of another token under a good signature.
        let header = signed.split_once('.').unwrap().0;
        let spliced = format!("{header}.{}.{signature}", payload_of(ES256_FOR_ANOTHER));
        assert_eq!(verifier.verify(&spliced), Err(TokenRefusal::Signature));
        assert!(verifier.verify(&format!("{signed}.")).is_err(), "no signature at all");
    }
    // The algorithm is the key's, whatever the token says; one kind of key never takes the other's tokens.
    let header = |alg: &str, kid: &str| {
        use base64::Engine as _;
        let json = serde_json::json!({ "alg": alg, "kid": kid }).to_string();
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(json)
    };
    for (alg, kid) in [("RS256", "es"), ("ES256", "rs"), ("HS256", "rs"), ("none", "es"), ("PS256", "rs")] {
        let confused = format!("{}.{}.{}", header(alg, kid), payload_of(ES256), parts(RS256).1);
        assert_eq!(verifier.verify(&confused), Err(TokenRefusal::Algorithm), "{alg} with {kid}");
    }
}

#[test]
fn no_secret_is_ever_shown() {
    let keys = keys(7);
    let secret_lines: Vec<&str> = keys.key_pem().lines().filter(|line| !line.starts_with('-')).collect();
    let issuer = Issuer::from_pem(keys.key_pem()).unwrap();
    let verifier = verifier_of(&set_of(&[secret_jwk("dev"), jwk_of(&keys)]));
    let shown =
        format!("{keys:?} {issuer:?} {verifier:?} {:?}", Issuer::from_secret("dev", &SECRET).unwrap());
    assert!(shown.contains(keys.key_id()) && shown.contains("dev"), "{shown}");
    assert!(
        !shown.contains(secret_lines[0]) && !shown.contains("WlpaWlpa") && !shown.contains("90, 90"),
        "{shown}"
    );
    let garbage = format!("{}garbage", keys.key_pem());
    let refused = format!("{:?}", Issuer::from_pem(&garbage[..garbage.len() / 2]).unwrap_err());
    assert!(!refused.contains(secret_lines[0]));
}

#[test]
fn keys_are_written_for_their_owner_and_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("new/keys");
    keys(1).write(&directory).unwrap();
    let pem = std::fs::read_to_string(directory.join(KEY_FILE)).unwrap();
    let mode = std::fs::metadata(directory.join(KEY_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let jwks = std::fs::read(directory.join(JWKS_FILE)).unwrap();
    let token = Issuer::from_pem(&pem).unwrap().sign(&grant());
    assert!(Verifier::new(KeySet::parse(&jwks).unwrap()).verify(&token).is_ok());
    let refused = keys(2).write(&directory).unwrap_err();
    assert!(matches!(refused, WriteKeysError::Exists { .. }), "{refused}");
    std::fs::remove_file(directory.join(KEY_FILE)).unwrap();
    assert!(keys(2).write(&directory).is_err(), "half a pair is not overwritten either");
    assert!(!directory.join(KEY_FILE).exists());
}

#[test]
fn a_pem_with_its_public_half_is_taken_too() {
    use ed25519_dalek::pkcs8::EncodePrivateKey as _;
    let signing = ed25519_dalek::SigningKey::from_bytes(&[1; 32]);
    let pem = signing.to_pkcs8_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF).unwrap();
    let issuer = Issuer::from_pem(&pem).unwrap();
    assert_eq!(issuer.key_id(), keys(1).key_id());
    assert!(verifier_of(keys(1).jwks()).verify(&issuer.sign(&grant())).is_ok());
    assert_eq!(Issuer::from_pem("-----BEGIN").unwrap_err(), KeyUnusable::NotEd25519);
}

/// A file that changes, and an address that answers by what is put there.
struct Places {
    folder: tempfile::TempDir,
    answers: std::sync::Arc<std::sync::Mutex<(u16, String)>>,
    asked: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    port: u16,
}

impl Places {
    async fn set(of_file: &str, of_url: &str) -> Self {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(JWKS_FILE), of_file).unwrap();
        let listener = crate::network::Network::tcp().listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let this = Self {
            folder,
            answers: std::sync::Arc::new(std::sync::Mutex::new((200, of_url.to_owned()))),
            asked: std::sync::Arc::default(),
            port: listener.local_addr().port(),
        };
        let (answers, asked) = (this.answers.clone(), this.asked.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 1_024];
                let length = stream.read(&mut request).await.unwrap();
                assert!(request[..length].starts_with(b"GET /keys?v=1 HTTP/1.1\r\n"));
                let (status, body) = answers.lock().unwrap().clone();
                let head = format!("HTTP/1.1 {status} So\r\ncontent-length: {}\r\n\r\n", body.len());
                // Whoever has enough does not read the rest.
                let _ = stream.write_all((head + &body).as_bytes()).await;
                asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        this
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join(JWKS_FILE)
    }

    fn answer(&self, status: u16, body: &str) {
        *self.answers.lock().unwrap() = (status, body.to_owned());
    }

    fn asked(&self) -> usize {
        self.asked.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn sources(&self) -> Vec<KeySource> {
        let url = format!("http://127.0.0.1:{}/keys?v=1", self.port);
        vec![KeySource::File(self.file()), KeySource::parse(&url, false).unwrap()]
    }

    async fn open(&self, clock: &crate::clock::Clock) -> Result<KeySources, BadKeys> {
        KeySources::open(&self.sources(), AUDIENCE, (&crate::network::Network::tcp(), clock)).await
    }
}

fn ids(verifier: &Verifier) -> std::collections::BTreeSet<String> {
    verifier.keys().ids().map(str::to_owned).collect()
}

fn ids_of(pairs: &[u8]) -> std::collections::BTreeSet<String> {
    pairs.iter().map(|seed| keys(*seed).key_id().to_owned()).collect()
}

/// Lets time pass until something is true of the keys.
async fn until(hand: &crate::clock::ManualClock, verifier: &Verifier, wanted: &[u8]) {
    for _ in 0..10_000 {
        if ids(verifier) == ids_of(wanted) {
            return;
        }
        hand.advance(std::time::Duration::from_millis(50));
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{:?} and not {:?}", ids(verifier), ids_of(wanted));
}

#[tokio::test]
async fn keys_of_a_file_and_an_address_are_one_set_that_follows_both() {
    let places = Places::set(keys(1).jwks(), keys(2).jwks()).await;
    let (clock, hand) = crate::clock::Clock::manual();
    let sources = places.open(&clock).await.unwrap();
    let verifier = sources.verifier();
    assert_eq!(ids(&verifier), ids_of(&[1, 2]));
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(sources.follow(clock, stop.clone()));
    std::fs::write(places.file(), keys(3).jwks()).unwrap();
    until(&hand, &verifier, &[2, 3]).await;
    places.answer(200, keys(4).jwks());
    until(&hand, &verifier, &[3, 4]).await;
    // Of both, what is bad changes nothing: neither what is no key set nor an id that the other has.
    for (status, body) in [(500, keys(5).jwks()), (302, ""), (200, "{\"keys\":"), (200, keys(3).jwks())] {
        let asked = places.asked();
        places.answer(status, body);
        while places.asked() < asked + 2 {
            hand.advance(crate::limits::JWKS_FETCH_LEAST);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(ids(&verifier), ids_of(&[3, 4]), "{status} {body}");
    }
    std::fs::write(places.file(), "{").unwrap();
    hand.advance(crate::limits::RELOAD_LOOK);
    places.answer(200, keys(6).jwks());
    until(&hand, &verifier, &[3, 6]).await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn a_key_that_is_missing_is_fetched_soon_and_not_again_and_again() {
    let places = Places::set(keys(1).jwks(), keys(2).jwks()).await;
    let (clock, hand) = crate::clock::Clock::manual();
    let sources = places.open(&clock).await.unwrap();
    let verifier = sources.verifier();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(sources.follow(clock.clone(), stop.clone()));
    places.answer(200, keys(3).jwks());
    let token = Issuer::from_pem(keys(3).key_pem()).unwrap().sign(&grant());
    assert_eq!(verifier.verify(&token), Err(TokenRefusal::UnknownKey));
    let begun = clock.now();
    until(&hand, &verifier, &[1, 3]).await;
    let took = clock.now().since(begun);
    assert!(took < crate::limits::JWKS_FETCH_EVERY / 2, "{took:?}");
    assert!(verifier.verify(&token).is_ok());
    let (asked, begun) = (places.asked(), clock.now());
    let made_up = Issuer::from_pem(keys(9).key_pem()).unwrap().sign(&grant());
    for _ in 0..1_000 {
        assert!(verifier.verify(&made_up).is_err());
        hand.advance(std::time::Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
    let most = clock.now().since(begun).div_duration_f64(crate::limits::JWKS_FETCH_LEAST);
    assert!(((places.asked() - asked) as f64) <= most + 1.0, "{} in {most}", places.asked() - asked);
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn what_is_bad_at_start_is_told_with_its_place() {
    let clock = crate::clock::Clock::system();
    let places = Places::set(keys(1).jwks(), &" ".repeat(300_000)).await;
    let bad = places.open(&clock).await.unwrap_err();
    assert!(matches!(bad.error, KeysError::TooLarge), "{bad:?}");
    assert!(bad.to_string().contains(&format!("http://127.0.0.1:{}/keys", places.port)), "{bad}");
    places.answer(200, keys(1).jwks());
    let bad = places.open(&clock).await.unwrap_err();
    assert!(matches!(bad.error, KeysError::Key { fault: KeyFault::DuplicateKid, .. }), "{bad:?}");
    std::fs::remove_file(places.file()).unwrap();
    assert!(matches!(places.open(&clock).await.unwrap_err().error, KeysError::Unreadable(_)));
}

#[tokio::test]
async fn a_file_that_changes_while_an_address_is_waited_for_is_taken_over() {
    let places = Places::set(keys(1).jwks(), keys(2).jwks()).await;
    places.answer(503, "");
    let (clock, hand) = crate::clock::Clock::manual();
    let opening = places.open(&clock);
    let meanwhile = async {
        while places.asked() == 0 {
            tokio::task::yield_now().await;
        }
        std::fs::write(places.file(), keys(3).jwks()).unwrap();
        places.answer(200, keys(2).jwks());
        while places.asked() == 1 {
            hand.advance(std::time::Duration::from_millis(100));
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let (opened, ()) = tokio::join!(opening, meanwhile);
    let sources = opened.unwrap();
    let verifier = sources.verifier();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(sources.follow(clock, stop.clone()));
    until(&hand, &verifier, &[2, 3]).await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_waited_for_at_start_and_then_told() {
    let places = Places::set(keys(1).jwks(), keys(2).jwks()).await;
    places.answer(503, "");
    let (clock, hand) = crate::clock::Clock::manual();
    let time = tokio::spawn(async move {
        loop {
            hand.advance(std::time::Duration::from_millis(100));
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let bad = places.open(&clock).await.unwrap_err();
    assert!(bad.error.to_string().contains("503"), "{bad:?}");
    assert!(places.asked() >= 5, "{}", places.asked());
    let opening = places.open(&clock);
    let answering = async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        places.answer(200, keys(2).jwks());
    };
    let (opened, ()) = tokio::join!(opening, answering);
    assert_eq!(ids(&opened.unwrap().verifier()), ids_of(&[1, 2]));
    time.abort();
}

#[test]
fn tokens_are_for_the_audience_that_is_configured() {
    let set = KeySet::of_all(&[keys(1).jwks().as_bytes()], "chat").unwrap();
    let issuer = Issuer::from_pem(keys(1).key_pem()).unwrap();
    let verifier = Verifier::new(set);
    assert_eq!(verifier.verify(&issuer.sign(&grant())), Err(TokenRefusal::Audience));
    assert!(verifier.verify(&issuer.with_audience("chat").sign(&grant())).is_ok());
}
