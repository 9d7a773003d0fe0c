//! Bounds of what every binary shares, each with its reason.

use std::time::Duration;

/// Keys of a JWKS file: a rotation needs two, a federation of issuers a few dozen.
pub const JWKS_KEYS_MAX: usize = 64;
/// A longer JWKS file is refused unread: 64 RSA keys with certificates fit.
pub const JWKS_BYTES_MAX: u64 = 256 * 1024;
/// A shorter HS256 secret is weaker than its hash (RFC 7518, 3.2).
pub const HS256_SECRET_BYTES_MIN: usize = 32;
/// The year 9999 in seconds: an `exp` above it is in milliseconds by mistake, and would never end.
pub const NUMERIC_DATE_MAX: u64 = 253_402_300_799;
/// How often key files are looked at for changes.
pub const RELOAD_LOOK: Duration = Duration::from_secs(2);
/// Connections the kernel completes before they are accepted: a reconnect storm arrives in one burst.
pub const LISTEN_BACKLOG: u32 = 4096;
/// Pause before the next accept when descriptors or memory ran out, so that the loop does not spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections on the admin address: a scraper or two, probes, a curious person.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Within what an admin request must have arrived.
pub const ADMIN_HEADER_WITHIN: Duration = Duration::from_secs(5);
/// How long open admin requests may take to finish at shutdown.
pub const ADMIN_DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// A larger configuration file is refused unread.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
