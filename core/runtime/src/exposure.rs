//! Secure by default: what is not protected listens on loopback only.

use std::net::SocketAddr;

/// How a listener is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// By TLS, tokens, or both, as its protocol asks for.
    Protected,
    /// Not at all, and the operator has written that out.
    Insecure,
    /// Not at all.
    Missing,
}

/// What a permitted listener is exposed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Nothing to say.
    Safe,
    /// Open to the network without protection: to be said at start and in a metric.
    Insecure,
}

/// A listener was refused; the sentence says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} must not listen on {address} without {missing}: listen on 127.0.0.1, configure {missing}, \
     or write `insecure = true` (--insecure) to accept that anybody who reaches it is trusted"
)]
pub struct Exposed {
    /// What wanted to listen.
    pub what: &'static str,
    /// Where.
    pub address: SocketAddr,
    /// What would protect it.
    pub missing: &'static str,
}

/// Permits an address if it is loopback, protected, or insecure by the operator's own word.
///
/// `what` names the listener ("the gRPC listener"), `missing` what would protect it ("TLS").
///
/// # Errors
/// [`Exposed`], whose message is for the operator.
pub fn require_loopback_unless(
    protection: Protection,
    address: SocketAddr,
    what: &'static str,
    missing: &'static str,
) -> Result<Exposure, Exposed> {
    let loopback = address.ip().to_canonical().is_loopback();
    match protection {
        Protection::Protected => Ok(Exposure::Safe),
        Protection::Insecure if !loopback => Ok(Exposure::Insecure),
        Protection::Missing if !loopback => Err(Exposed { what, address, missing }),
        Protection::Insecure | Protection::Missing => Ok(Exposure::Safe),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(protection: Protection, address: &str) -> Result<Exposure, Exposed> {
        require_loopback_unless(protection, address.parse().unwrap(), "the gRPC listener", "TLS")
    }

    #[test]
    fn only_loopback_needs_no_protection() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(judge(Protection::Missing, address), Ok(Exposure::Safe), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "192.168.1.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(judge(Protection::Missing, address).is_err(), "{address}");
            assert_eq!(judge(Protection::Insecure, address), Ok(Exposure::Insecure), "{address}");
            assert_eq!(judge(Protection::Protected, address), Ok(Exposure::Safe), "{address}");
        }
        assert_eq!(judge(Protection::Insecure, "127.0.0.1:1"), Ok(Exposure::Safe));
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let sentence = judge(Protection::Missing, "0.0.0.0:4711").unwrap_err().to_string();
        for part in ["the gRPC listener", "0.0.0.0:4711", "127.0.0.1", "TLS", "--insecure"] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
