//! Secure by default: what is not protected listens on loopback only.

use std::net::{IpAddr, SocketAddr};

use crate::telemetry::Metrics;

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

impl Protection {
    /// Of a listener that is protected or not, beside what the operator has written out.
    #[must_use]
    pub const fn of(is_protected: bool, insecure: bool) -> Self {
        match (is_protected, insecure) {
            (true, _) => Self::Protected,
            (false, true) => Self::Insecure,
            (false, false) => Self::Missing,
        }
    }
}

/// What a permitted listener is exposed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// Nothing to say.
    Safe,
    /// Open to the network without protection: to be said at start and in a metric.
    Insecure,
}

/// A kind of listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarded {
    /// What it is called: `the gRPC listener`.
    pub what: &'static str,
    /// What would protect it, with the flags for it.
    pub missing: &'static str,
    /// What may happen without: `anybody who reaches it is trusted`.
    pub risk: &'static str,
}

/// A listener was refused; the sentence says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} must not listen on {address} without {}: listen on 127.0.0.1, configure that, \
     or write `insecure = true` (--insecure) to accept that {}", .what.what, .what.missing, .what.risk
)]
pub struct Exposed {
    /// What wanted to listen.
    pub what: Guarded,
    /// Where.
    pub address: SocketAddr,
}

impl Guarded {
    /// Permits an address if it is loopback, protected, or insecure by the operator's own word.
    ///
    /// # Errors
    /// [`Exposed`], whose message is for the operator.
    pub fn permit(self, protection: Protection, address: SocketAddr) -> Result<Exposure, Exposed> {
        let is_loopback = address.ip().to_canonical().is_loopback();
        match protection {
            Protection::Protected => Ok(Exposure::Safe),
            Protection::Insecure if !is_loopback => Ok(Exposure::Insecure),
            Protection::Missing if !is_loopback => Err(Exposed { what: self, address }),
            Protection::Insecure | Protection::Missing => Ok(Exposure::Safe),
        }
    }

    /// Says at start what a listener is exposed to, and shows it as `presence_<component>_insecure`.
    pub fn tell(self, exposure: Exposure, address: SocketAddr, (component, metrics): (&str, &Metrics)) {
        let name = format!("presence_{component}_insecure");
        let gauge = metrics.gauge(&name, "1: a listener is open to the network without protection");
        match exposure {
            Exposure::Safe => {}
            Exposure::Insecure => {
                gauge.set(1);
                tracing::warn!(%address, "insecure: {} has no {}: {}", self.what, self.missing, self.risk);
            }
        }
    }
}

/// Whether a host, by its name or its address without brackets, is this machine and no other.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRPC: Guarded =
        Guarded { what: "the gRPC listener", missing: "TLS (--tls-cert)", risk: "everybody is trusted" };

    fn judge(protection: Protection, address: &str) -> Result<Exposure, Exposed> {
        GRPC.permit(protection, address.parse().unwrap())
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
    fn what_is_protected_needs_no_word_and_what_is_not_needs_one() {
        assert_eq!(Protection::of(true, true), Protection::Protected);
        assert_eq!(Protection::of(true, false), Protection::Protected);
        assert_eq!(Protection::of(false, true), Protection::Insecure);
        assert_eq!(Protection::of(false, false), Protection::Missing);
    }

    #[test]
    fn the_refusal_says_what_to_do() {
        let sentence = judge(Protection::Missing, "0.0.0.0:4711").unwrap_err().to_string();
        for part in ["the gRPC listener", "0.0.0.0:4711", "127.0.0.1", "TLS", "--tls-cert", "--insecure"] {
            assert!(sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn what_is_insecure_shows() {
        for (exposure, shown) in [(Exposure::Safe, "0"), (Exposure::Insecure, "1")] {
            let metrics = Metrics::new();
            GRPC.tell(exposure, "0.0.0.0:1".parse().unwrap(), ("test", &metrics));
            assert!(metrics.encode().contains(&format!("presence_test_insecure {shown}\n")));
        }
    }
}
