//! Tokens that must be refused, each with its reason: for the verifier, an edge and a core alike.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use presence_model::claim::{Action, TokenRefusal};
use presence_model::id::{RoomId, UserId};
use presence_model::time::StoreTime;
use presence_runtime::clock::Clock;
use presence_runtime::tokens::{GeneratedKeys, Grant, Issuer};
use serde_json::{Value, json};

/// Who bears the tokens that are good.
pub const USER: &str = "u1";
/// The room that they open.
pub const ROOM: &str = "lobby";
const SECRET: [u8; 32] = [0x5a; 32];
/// Tokens are good for so long.
const TTL_S: u64 = 3_600;

/// What is wrong with a token, the token, and the reason for which it is refused.
pub type Hostile = (&'static str, String, TokenRefusal);

/// Makes tokens that are good but for one thing. Its keys are always the same.
pub struct Forge {
    kid: String,
    good: String,
}

impl Forge {
    /// A forge whose good tokens are good for an hour.
    ///
    /// # Panics
    /// A defect: its own key is refused.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "its tokens begin when it is made")]
    pub fn new() -> Self {
        let pair = keys(1);
        let good = Issuer::from_pem(pair.key_pem()).expect("our key").sign(&grant());
        Self { kid: pair.key_id().to_owned(), good }
    }

    /// What verifies its good tokens: an EdDSA key, and a secret for development.
    #[must_use]
    pub fn jwks(&self) -> String {
        json!({ "keys": [jwk_of(&keys(1)), secret_jwk("dev")] }).to_string()
    }

    /// A good token.
    #[must_use]
    pub fn good(&self) -> &str {
        &self.good
    }

    /// A good token of somebody else.
    #[must_use]
    pub fn of(user: &str) -> String {
        Self::with_claim("sub", json!(user))
    }

    /// Tokens that are good though they look odd.
    #[must_use]
    pub fn odd(&self) -> Vec<String> {
        vec![
            self.good.clone(),
            Self::with_payload(Self::claims().to_string()),
            Self::with_header(r#"{"alg":"HS256","kid":"dev","typ":"JWT","x":1}"#),
            Self::with_claim("aud", json!(["a", "presence"])),
            Self::with_claim("exp", json!(ends_s() as f64 + 0.5)),
            Self::with_claim("more", json!({ "anything": [1, 2] })),
            Self::with_claim("more", json!("x".repeat(2800))),
        ]
    }

    /// What the signature alone tells: refused by whoever verifies.
    #[must_use]
    pub fn ill_made(&self) -> Vec<Hostile> {
        [malformed(self), forged(self), ill_said()].concat()
    }

    /// What is well made, and not for a join of [`USER`] in [`ROOM`] now.
    #[must_use]
    pub fn misused(&self) -> Vec<Hostile> {
        use TokenRefusal::{Action, Audience, Claim, Expired, NotYetValid, Room};
        let claim = Self::with_claim;
        let of_eddsa = |change: &dyn Fn(&mut Grant)| {
            let mut granted = grant();
            change(&mut granted);
            Issuer::from_pem(keys(1).key_pem()).expect("our key").sign(&granted)
        };
        let room = |name: &str| RoomId::new(name).expect("a name");
        vec![
            ("expired", claim("exp", json!(now_s() - 1)), Expired),
            ("expired in 1970", claim("exp", json!(0)), Expired),
            ("expired, of the other key", of_eddsa(&|granted| granted.ends = StoreTime(1_000)), Expired),
            ("not yet valid", claim("nbf", json!(now_s() + 600)), NotYetValid),
            ("valid from the year 9999", claim("nbf", json!(253_402_300_799_u64)), NotYetValid),
            ("another room", claim("room", json!("vault")), Room),
            ("another room, of the other key", of_eddsa(&|granted| granted.room = room("vault")), Room),
            ("room in capitals", claim("room", json!("Lobby")), Room),
            ("room with a look-alike letter", claim("room", json!("l\u{43e}bby")), Room),
            ("room with a space behind", claim("room", json!("lobby ")), Room),
            ("room with a width of nothing", claim("room", json!("lob\u{200b}by")), Room),
            ("room in wide letters", claim("room", json!("\u{ff4c}obby")), Room),
            ("room as a pattern", claim("room", json!("*")), Room),
            ("room up to a NUL", claim("room", json!("lobby\u{0}vault")), Room),
            ("another action", claim("act", json!("watch")), Action),
            ("action with a look-alike letter", claim("act", json!("j\u{43e}in")), Claim),
            ("action with a space", claim("act", json!("join ")), Claim),
            ("audience with a look-alike letter", claim("aud", json!("pr\u{435}sence")), Audience),
        ]
    }

    fn claims() -> Value {
        json!({ "sub": USER, "room": ROOM, "act": "join", "aud": "presence", "exp": ends_s() })
    }

    /// Header and payload as text, signed by the development secret whatever they say.
    fn signed(header: &str, payload: impl AsRef<[u8]>) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let key = EncodingKey::from_secret(&SECRET).expect("a defect of the forge");
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256)
            .expect("a defect of the forge");
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
            claims.as_object_mut().expect("a defect of the forge").remove(name);
        } else {
            claims[name] = value;
        }
        Self::with_payload(claims.to_string())
    }

    /// The good token with another header.
    fn re_headed(&self, header: &str) -> String {
        let (_, rest) = self.good.split_once('.').expect("a defect of the forge");
        format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header))
    }

    /// A token signed by HMAC under the *public* key of the EdDSA pair.
    fn confused(&self) -> String {
        let public = jwk_of(&keys(1))["x"].as_str().expect("a defect of the forge").to_owned();
        let key = EncodingKey::from_secret(&URL_SAFE_NO_PAD.decode(public).expect("a defect of the forge"))
            .expect("a defect of the forge");
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, self.kid));
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(Self::claims().to_string()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256)
            .expect("a defect of the forge");
        format!("{message}.{signature}")
    }

    fn signed_by_another(&self) -> String {
        let key = EncodingKey::from_ed_pem(keys(2).key_pem().as_bytes()).expect("a defect of the forge");
        let header = Header { kid: Some(self.kid.clone()), ..Header::new(Algorithm::EdDSA) };
        jsonwebtoken::encode(&header, &Self::claims(), &key).expect("a defect of the forge")
    }

    fn parts(&self) -> [&str; 3] {
        let parts: Vec<&str> = self.good.split('.').collect();
        parts.try_into().expect("a defect of the forge")
    }
}

/// What is not a token by its form, or names an algorithm that its key has not.
fn malformed(forge: &Forge) -> Vec<Hostile> {
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
fn forged(forge: &Forge) -> Vec<Hostile> {
    use TokenRefusal::{Malformed, Signature, UnknownKey};
    let [header, payload, signature] = forge.parts();
    let other = Issuer::from_pem(keys(2).key_pem()).expect("a defect of the forge").sign(&grant());
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).expect("a defect of the forge");
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
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).expect("a defect of the forge");
    let mut carry = 0u16;
    for (byte, order) in bytes[32..].iter_mut().zip(ORDER) {
        carry += u16::from(*byte) + u16::from(order);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is signed by us but does not say what it must.
fn ill_said() -> Vec<Hostile> {
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
        ("end as text", claim("exp", json!(ends_s().to_string())), Claim),
        ("end before 1970", claim("exp", json!(-1)), Claim),
        ("end in milliseconds", claim("exp", json!(ends_s() * 1_000)), Claim),
        ("end beyond all numbers", claim("exp", json!(u64::MAX)), Claim),
        (
            "end beyond all floats",
            Forge::with_payload(Forge::claims().to_string().replace(&ends_s().to_string(), "1e999")),
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

fn now_s() -> u64 {
    Clock::system().wall_ms() / 1_000
}

fn ends_s() -> u64 {
    now_s() + TTL_S
}

fn keys(seed: u8) -> GeneratedKeys {
    GeneratedKeys::from_seed([seed; 32])
}

fn grant() -> Grant {
    Grant {
        user: UserId::new(USER).expect("a name"),
        room: RoomId::new(ROOM).expect("a name"),
        action: Action::Join,
        ends: StoreTime(ends_s() * 1_000),
        not_before: None,
        token_id: None,
    }
}

fn jwk_of(keys: &GeneratedKeys) -> Value {
    let set: Value = serde_json::from_str(keys.jwks()).expect("ours");
    set["keys"][0].clone()
}

/// The key of HS256 tokens as a JWK.
fn secret_jwk(kid: &str) -> Value {
    json!({ "kty": "oct", "alg": "HS256", "kid": kid, "k": URL_SAFE_NO_PAD.encode(SECRET) })
}
