//! Who a bearer is: tokens are verified against key sets, issued for development, and never printed.
//!
//! A key's algorithm is fixed by the key set and never taken from a token. The library's checks of time
//! are off: [`judge_time`](presence_model::claim::judge_time) decides by the store's clock. Tokens are
//! JWT with `sub`, `room`, `act` (`join` or `watch`), `exp`, `aud`, `kid`; optional `nbf`, `jti`. Those of services have
//! `scope` and `rooms` instead of `room` and `act`: neither passes for the other.

mod fetch;
mod follow;
mod generate;
mod issue;
mod jwks;
mod refusals;
mod scoped;
mod source;
mod verify;

pub use self::fetch::FetchFault;
pub use self::follow::{BadKeys, KeySources, network_of};
pub use self::generate::{GeneratedKeys, JWKS_FILE, KEY_FILE, WriteKeysError};
pub use self::issue::{Grant, Issuer, KeyUnusable};
pub use self::jwks::{KeyFault, KeySet, KeysError};
pub use self::scoped::{Scope, Scoped, ScopedGrant};
pub use self::source::{BadKeyUrl, KeySource, KeyUrl};
pub use self::verify::{Verifier, subject_of};

/// The audience every token must name unless another is configured.
pub const AUDIENCE: &str = "presence";

#[cfg(test)]
mod tests;
