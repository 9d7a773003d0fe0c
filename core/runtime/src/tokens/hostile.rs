//! A table of tokens that must be refused, each with its reason.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use presence_model::claim::TokenRefusal;
use serde_json::{Value, json};

use super::tests::{NOW, SECRET, grant, jwk_of, keys, secret_jwk};
use super::*;

struct Forge {
    verifier: Verifier,
    kid: String,
    good: String,
}

impl Forge {
    fn new() -> Self {
        let pair = keys(1);
        let set = json!({ "keys": [jwk_of(&pair), secret_jwk("dev")] }).to_string();
        let good = Issuer::from_pem(pair.key_pem()).unwrap().sign(&grant());
        Self {
            verifier: Verifier::new(KeySet::parse(set.as_bytes()).unwrap()),
            kid: pair.key_id().to_owned(),
            good,
        }
    }

    fn claims() -> Value {
        json!({ "sub": "u1", "room": "lobby", "act": "join", "aud": "presence", "exp": NOW.0 / 1000 + 60 })
    }

    /// Header and payload as text, signed by the development secret whatever they say.
    fn signed(header: &str, payload: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let key = EncodingKey::from_secret(&SECRET).unwrap();
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{message}.{signature}")
    }

    fn with_payload(payload: impl AsRef<[u8]>) -> String {
        Self::signed(r#"{"alg":"HS256","kid":"dev"}"#, payload)
    }

    fn with_header(header: &str) -> String {
        Self::signed(header, Self::claims().to_string())
    }

    /// A token whose claims are as usual but for one; null takes it away.
    fn with_claim(name: &str, value: Value) -> String {
        let mut claims = Self::claims();
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value;
        }
        Self::with_payload(claims.to_string())
    }

    /// The good token with another header.
    fn re_headed(&self, header: &str) -> String {
        let (_, rest) = self.good.split_once('.').unwrap();
        format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header))
    }

    /// A token signed by HMAC under the *public* key of the EdDSA pair.
    fn confused(&self) -> String {
        let public = jwk_of(&keys(1))["x"].as_str().unwrap().to_owned();
        let key = EncodingKey::from_secret(&URL_SAFE_NO_PAD.decode(public).unwrap()).unwrap();
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.kid));
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(Self::claims().to_string()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
        format!("{message}.{signature}")
    }

    fn signed_by_another(&self) -> String {
        let key = EncodingKey::from_ed_pem(keys(2).key_pem().as_bytes()).unwrap();
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::EdDSA) };
        jsonwebtoken::encode(&header, &Self::claims(), &key).unwrap()
    }

    fn parts(&self) -> [&str; 3] {
        let parts: Vec<&str> = self.good.split('.').collect();
        parts.try_into().unwrap()
    }
}

/// What is not a token by its form, or names an algorithm that its key has not.
fn malformed(forge: &Forge) -> Vec<(&'static str, String, TokenRefusal)> {
    use TokenRefusal::{Algorithm, Malformed, Signature};
    let [header, payload, signature] = forge.parts();
    let none = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"none","kid":"{}"}}"#, forge.kid));
    vec![
        ("empty", String::new(), Malformed),
        ("no dots", "token".into(), Malformed),
        ("dots only", "..".into(), Malformed),
        ("two parts", format!("{header}.{payload}"), Malformed),
        ("four parts", format!("{}.x", forge.good), Malformed),
        ("truncated", forge.good[..forge.good.len() - 6].into(), Signature),
        ("padded base64", format!("{header}=.{payload}.{signature}"), Malformed),
        ("white space", format!(" {}", forge.good), Malformed),
        ("a line break at the end", format!("{}\n", forge.good), Malformed),
        ("not ASCII", format!("é{}", forge.good), Malformed),
        ("header is no JSON", forge.re_headed("nothing"), Malformed),
        ("header is an array", forge.re_headed("[]"), Malformed),
        ("no algorithm", forge.re_headed(&format!(r#"{{"kid":"{}"}}"#, forge.kid)), Malformed),
        ("algorithm twice", forge.re_headed(r#"{"alg":"EdDSA","alg":"none","kid":"dev"}"#), Malformed),
        ("key id is a number", forge.re_headed(r#"{"alg":"EdDSA","kid":1}"#), Malformed),
        ("alg none, signature empty", format!("{none}.{payload}."), Algorithm),
        ("alg none, signature kept", format!("{none}.{payload}.{signature}"), Algorithm),
        ("alg NONE", forge.re_headed(r#"{"alg":"NONE","kid":"dev"}"#), Algorithm),
        ("alg nOnE", forge.re_headed(r#"{"alg":"nOnE"}"#), Algorithm),
        ("unknown alg", forge.re_headed(r#"{"alg":"HS257","kid":"dev"}"#), Algorithm),
        ("HMAC under the public key", forge.confused(), Algorithm),
        ("EdDSA said for a secret", forge.re_headed(r#"{"alg":"EdDSA","kid":"dev"}"#), Algorithm),
        ("HS512 for an HS256 key", Forge::with_header(r#"{"alg":"HS512","kid":"dev"}"#), Algorithm),
        (
            "critical extension",
            Forge::with_header(r#"{"alg":"HS256","kid":"dev","crit":["exp"]}"#),
            Malformed,
        ),
        ("unencoded payload", Forge::with_header(r#"{"alg":"HS256","kid":"dev","b64":false}"#), Malformed),
        ("huge", Forge::with_claim("more", json!("x".repeat(3000))), Malformed),
    ]
}

/// What names a key it is not signed with.
fn forged(forge: &Forge) -> Vec<(&'static str, String, TokenRefusal)> {
    use TokenRefusal::{Malformed, Signature, UnknownKey};
    let [header, payload, signature] = forge.parts();
    let other = Issuer::from_pem(keys(2).key_pem()).unwrap().sign(&grant());
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[10] ^= 1;
    let malleable = malleable(signature);
    let grown = Forge::claims().to_string().replace("lobby", "vault");
    vec![
        ("no key id", forge.re_headed(r#"{"alg":"EdDSA"}"#), UnknownKey),
        ("key id null", forge.re_headed(r#"{"alg":"EdDSA","kid":null}"#), UnknownKey),
        ("unknown key id", other, UnknownKey),
        ("key id as a path", forge.re_headed(r#"{"alg":"HS256","kid":"../../dev/null"}"#), UnknownKey),
        (
            "key brought along",
            Forge::with_header(r#"{"alg":"HS256","kid":"x","jwk":{"kty":"oct","k":"AA"}}"#),
            UnknownKey,
        ),
        ("foreign key under our id", forge.signed_by_another(), Signature),
        ("payload lengthened", format!("{header}.{payload}AAAA.{signature}"), Signature),
        ("payload changed", format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(grown)), Signature),
        ("no signature", format!("{header}.{payload}."), Signature),
        ("signature changed", format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(flipped)), Signature),
        ("signature doubled", format!("{header}.{payload}.{signature}{signature}"), Signature),
        ("signature malleable", format!("{header}.{payload}.{malleable}"), Signature),
        ("signature not base64", format!("{header}.{payload}.***"), Malformed),
    ]
}

/// The signature with the group's order added to its second half: the same for a careless verifier.
fn malleable(signature: &str) -> String {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let mut carry = 0u16;
    for (byte, order) in bytes[32..].iter_mut().zip(ORDER) {
        carry += u16::from(*byte) + u16::from(order);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is signed by us but does not say what it must.
fn ill_said() -> Vec<(&'static str, String, TokenRefusal)> {
    use TokenRefusal::{Audience, Claim, Malformed};
    let claim = Forge::with_claim;
    let twice = |extra: &str| Forge::with_payload(Forge::claims().to_string().replacen('{', extra, 1));
    vec![
        ("payload is no JSON", Forge::with_payload("hello"), Malformed),
        ("payload is empty", Forge::with_payload(""), Malformed),
        ("payload is not UTF-8", Forge::with_payload(b"{\"sub\":\"\xff\"}"), Malformed),
        ("payload is an array", Forge::with_payload("[]"), Claim),
        ("payload is null", Forge::with_payload("null"), Claim),
        ("payload is trailed", Forge::with_payload(format!("{} x", Forge::claims())), Malformed),
        ("no subject", claim("sub", Value::Null), Claim),
        ("empty subject", claim("sub", json!("")), Claim),
        ("subject is a number", claim("sub", json!(7)), Claim),
        ("subject too long", claim("sub", json!("u".repeat(256))), Claim),
        ("subject twice", twice(r#"{"sub":"admin","#), Claim),
        ("no room", claim("room", Value::Null), Claim),
        ("empty room", claim("room", json!("")), Claim),
        ("rooms as a list", claim("room", json!(["lobby"])), Claim),
        ("room twice", twice(r#"{"room":"vault","#), Claim),
        ("no action", claim("act", Value::Null), Claim),
        ("unknown action", claim("act", json!("admin")), Claim),
        ("action in capitals", claim("act", json!("JOIN")), Claim),
        ("no end", claim("exp", Value::Null), Claim),
        ("end as text", claim("exp", json!("1790000060")), Claim),
        ("end before 1970", claim("exp", json!(-1)), Claim),
        ("end in milliseconds", claim("exp", json!(NOW.0)), Claim),
        ("end beyond all numbers", claim("exp", json!(u64::MAX)), Claim),
        (
            "end beyond all floats",
            Forge::with_payload(Forge::claims().to_string().replace("1790000060", "1e999")),
            Malformed,
        ),
        ("end twice", twice(r#"{"exp":9999999999,"#), Claim),
        ("start as text", claim("nbf", json!("now")), Claim),
        ("token id is a number", claim("jti", json!(1)), Claim),
        ("token id too long", claim("jti", json!("j".repeat(256))), Claim),
        ("no audience", claim("aud", Value::Null), Claim),
        ("another audience", claim("aud", json!("payments")), Audience),
        ("audience almost", claim("aud", json!("presence ")), Audience),
        ("other audiences", claim("aud", json!(["a", "b"])), Audience),
        ("no audience in the list", claim("aud", json!([])), Audience),
        ("audience is a number", claim("aud", json!(1)), Claim),
    ]
}

#[test]
fn hostile_tokens_are_refused_for_their_reason() {
    let forge = Forge::new();
    let rows: Vec<_> = [malformed(&forge), forged(&forge), ill_said()].concat();
    assert!(rows.len() >= 60, "{} rows", rows.len());
    let wrong: Vec<_> = rows
        .iter()
        .filter_map(|(what, token, reason)| {
            let verified = forge.verifier.verify(token);
            (verified.as_ref().err() != Some(reason)).then_some((what, reason, verified))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_forge_makes_good_tokens_unless_told_otherwise() {
    let forge = Forge::new();
    let good = [
        forge.good.clone(),
        Forge::with_payload(Forge::claims().to_string()),
        Forge::with_header(r#"{"alg":"HS256","kid":"dev","typ":"JWT","x":1}"#),
        Forge::with_claim("aud", json!(["a", "presence"])),
        Forge::with_claim("exp", json!(1_790_000_060.5)),
        Forge::with_claim("sub", json!("u".repeat(255))),
        Forge::with_claim("more", json!({ "anything": [1, 2] })),
        Forge::with_claim("more", json!("x".repeat(2800))),
        Forge::with_claim("room", json!("räume/\u{202e}\n")),
    ];
    for token in good {
        assert!(forge.verifier.verify(&token).is_ok(), "{token}");
    }
}

#[test]
fn every_prefix_and_every_flipped_character_is_refused() {
    let forge = Forge::new();
    for end in 0..forge.good.len() {
        assert!(forge.verifier.verify(&forge.good[..end]).is_err(), "cut at {end}");
    }
    for at in 0..forge.good.len() {
        let mut bytes = forge.good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let token = String::from_utf8(bytes).unwrap();
        assert!(forge.verifier.verify(&token).is_err(), "flipped at {at}");
    }
}
