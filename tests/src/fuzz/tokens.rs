//! Tokens: none but those that were signed are good.

use std::sync::LazyLock;

use presence_model::claim::{Action, Claims};
use presence_model::id::{RoomId, UserId};
use presence_model::time::StoreTime;
use presence_runtime::tokens::{GeneratedKeys, Grant, Issuer, KeySet, Verifier};
use serde_json::{Value, json};

/// Both kinds of keys that a set may have, with the tokens they signed and what these say.
struct Signed {
    verifier: Verifier,
    good: Vec<(String, Claims)>,
}

static SIGNED: LazyLock<Signed> = LazyLock::new(|| {
    let keys = GeneratedKeys::from_seed([7; 32]);
    // The shared secret is "0123456789abcdef0123456789abcdef".
    let shared = json!({"kty": "oct", "kid": "shared", "alg": "HS256",
        "k": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"});
    let mut jwks: Value = serde_json::from_str(keys.jwks()).expect("what we wrote");
    jwks["keys"].as_array_mut().expect("a list").push(shared);
    let verifier = Verifier::new(KeySet::parse(jwks.to_string().as_bytes()).expect("keys of ours"));
    let grant = |action, token_id: Option<&str>| Grant {
        user: UserId::new("u1").expect("a name"),
        room: RoomId::new("r1").expect("a name"),
        action,
        ends: StoreTime(1_790_000_000_000),
        not_before: None,
        token_id: token_id.map(Into::into),
    };
    let issuers = [
        Issuer::from_pem(keys.key_pem()),
        Issuer::from_secret("shared", b"0123456789abcdef0123456789abcdef"),
    ];
    let mut good = Vec::new();
    for issuer in issuers.map(|issuer| issuer.expect("a key of ours")) {
        for grant in [grant(Action::Join, None), grant(Action::Watch, Some("id"))] {
            let token = issuer.sign(&grant);
            let claims = verifier.verify(&token).expect("each key signs what is verified");
            good.push((token, claims));
        }
    }
    Signed { verifier, good }
});

pub(super) fn run(bytes: &[u8]) {
    let Ok(token) = std::str::from_utf8(bytes) else { return };
    if let Ok(claims) = SIGNED.verifier.verify(token) {
        assert!(SIGNED.good.iter().any(|(_, good)| *good == claims), "nobody signed {claims:?}");
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    SIGNED.good.iter().map(|(token, _)| token.clone().into_bytes()).collect()
}
