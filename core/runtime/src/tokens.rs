//! Who a bearer is: tokens are verified against key files, issued for development, and never printed.
//!
//! A key's algorithm is fixed by the key file and never taken from a token. The library's checks of time
//! are off: [`judge_time`](presence_model::claim::judge_time) decides by the store's clock. Tokens are
//! JWT with `sub`, `room`, `act` (`join` or `watch`), `exp`, `aud`, `kid`; optional `nbf`, `jti`.

mod file;
mod generate;
mod issue;
mod jwks;
mod refusals;
mod verify;

pub use self::file::KeyFile;
pub use self::generate::{GeneratedKeys, JWKS_FILE, KEY_FILE, WriteKeysError};
pub use self::issue::{Grant, Issuer, KeyUnusable};
pub use self::jwks::{KeyFault, KeySet, KeysError};
pub use self::verify::Verifier;

/// The audience every token must name.
pub const AUDIENCE: &str = "presence";

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
