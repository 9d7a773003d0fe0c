use std::os::unix::fs::PermissionsExt as _;

use presence_model::claim::{Action, TokenRefusal, judge_time};
use presence_model::id::{RoomId, UserId};
use presence_model::record::TokenRef;
use presence_model::time::StoreTime;

use super::*;
use crate::reload::Looked;

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

#[tokio::test]
async fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(JWKS_FILE);
    std::fs::write(&path, keys(1).jwks()).unwrap();
    let mut file = KeyFile::open(&path).await.unwrap();
    let verifier = file.verifier();
    let new = Issuer::from_pem(keys(2).key_pem()).unwrap().sign(&grant());
    assert!(matches!(file.look().await, Looked::Same));
    std::fs::write(&path, "{\"keys\":").unwrap();
    assert!(matches!(file.look().await, Looked::Kept(KeysError::Malformed { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(file.look().await, Looked::Kept(KeysError::Unreadable(_))));
    assert_eq!(verifier.keys().ids().collect::<Vec<_>>(), [keys(1).key_id()]);
    std::fs::write(&path, keys(2).jwks()).unwrap();
    assert!(matches!(file.look().await, Looked::Replaced));
    assert!(verifier.verify(&new).is_ok());
    assert!(KeyFile::open(directory.path().join("none")).await.is_err());
}

#[tokio::test]
async fn a_followed_file_is_looked_at_until_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(JWKS_FILE);
    std::fs::write(&path, keys(1).jwks()).unwrap();
    let file = KeyFile::open(&path).await.unwrap();
    let verifier = file.verifier();
    let (clock, hand) = crate::clock::Clock::manual();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn(file.follow(clock, stop.clone()));
    std::fs::write(&path, keys(2).jwks()).unwrap();
    while verifier.keys().ids().ne([keys(2).key_id()]) {
        hand.advance(crate::limits::RELOAD_LOOK);
        tokio::task::yield_now().await;
    }
    stop.cancel();
    task.await.unwrap();
}
