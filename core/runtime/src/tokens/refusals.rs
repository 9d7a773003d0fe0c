//! Refused tokens are counted by reason, and each reason is said now and then: nobody but the client is told
//! otherwise that, say, an edge and its core have different keys.

use std::fmt;

use presence_model::claim::TokenRefusal;
use prometheus::IntCounterVec;

use super::jwks::KeySet;
use crate::clock::Clock;
use crate::limits::REFUSAL_SAID_EVERY;
use crate::telemetry::Seldom;

/// Counts refusals. The label is the reason; every reason shows 0 from the start.
pub(super) struct Refusals {
    counter: IntCounterVec,
    clock: Clock,
    said: Seldom<{ TokenRefusal::ALL.len() }>,
}

impl Refusals {
    pub(super) fn new(counter: IntCounterVec, clock: Clock) -> Self {
        for refusal in TokenRefusal::ALL {
            let _ = counter.with_label_values(&[refusal.as_str()]);
        }
        Self { counter, clock, said: Seldom::new(REFUSAL_SAID_EVERY) }
    }

    /// One more, of this bearer; nothing of the token is told.
    pub(super) fn note(&self, refusal: TokenRefusal, bearer: &dyn fmt::Display, keys: &KeySet) {
        let counter = self.counter.with_label_values(&[refusal.as_str()]);
        counter.inc();
        if !self.said.is_due(refusal as usize, self.clock.now()) {
            return;
        }
        let (reason, refused) = (refusal.as_str(), counter.get());
        if refusal == TokenRefusal::UnknownKey {
            tracing::warn!(reason, %bearer, refused, in_force = ?keys, "a token names a key that is not in force here");
        } else {
            tracing::warn!(reason, %bearer, refused, "a token is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn each_reason_is_counted_and_said_now_and_then() {
        let metrics = Metrics::new();
        let (clock, hand) = Clock::manual();
        let refusals = Refusals::new(metrics.counter_vec("refused_total", "…", &["reason"]), clock.clone());
        let jwks = serde_json::json!({ "keys": [crate::tokens::tests::secret_jwk("dev")] }).to_string();
        let keys = KeySet::parse(jwks.as_bytes()).unwrap();
        for _ in 0..3 {
            refusals.note(TokenRefusal::UnknownKey, &"192.0.2.1", &keys);
        }
        let text = metrics.encode();
        assert!(text.contains(r#"refused_total{reason="unknown_key"} 3"#), "{text}");
        assert!(text.contains(r#"refused_total{reason="revoked"} 0"#), "{text}");
        let due = |refusal| refusals.said.is_due(refusal as usize, clock.now());
        assert!(!due(TokenRefusal::UnknownKey), "it was said a moment ago");
        assert!(due(TokenRefusal::Signature), "another reason was not");
        hand.advance(REFUSAL_SAID_EVERY);
        assert!(due(TokenRefusal::UnknownKey));
    }
}
