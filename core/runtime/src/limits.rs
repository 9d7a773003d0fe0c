//! Bounds of what every binary shares, each with its reason.

use std::time::Duration;

/// Keys of a JWKS file: a rotation needs two, a federation of issuers a few dozen.
pub const JWKS_KEYS_MAX: usize = 64;
/// A longer JWKS file is refused unread: 64 RSA keys with certificates fit.
pub const JWKS_BYTES_MAX: u64 = 256 * 1024;
/// How often a key set is fetched: identity providers keep a key for hours before they sign with it.
pub const JWKS_FETCH_EVERY: Duration = Duration::from_secs(60);
/// Not more often, however many tokens name a key that is not in it: whoever makes such tokens up must not make us fetch.
pub const JWKS_FETCH_LEAST: Duration = Duration::from_secs(5);
/// Within what a key set has arrived.
pub const JWKS_FETCH_WITHIN: Duration = Duration::from_secs(10);
/// For how long it is waited at start for an address that does not answer.
pub const JWKS_START_WITHIN: Duration = Duration::from_secs(30);
/// Between two tries at start.
pub const JWKS_FETCH_AGAIN: Duration = Duration::from_secs(1);
/// A shorter HS256 secret is weaker than its hash (RFC 7518, 3.2).
pub const HS256_SECRET_BYTES_MIN: usize = 32;
/// The year 9999 in seconds: an `exp` above it is in milliseconds by mistake, and would never end.
pub const NUMERIC_DATE_MAX: u64 = 253_402_300_799;
/// Prefixes of rooms in one token of a service: its bearer is one team's, or all teams'.
pub const TOKEN_PREFIXES_MAX: usize = 64;
/// A reason for which tokens are refused is said in the log once in this span: whoever sends bad tokens must not
/// write the log.
pub const REFUSAL_SAID_EVERY: Duration = Duration::from_secs(10);
/// How often key files are looked at for changes.
pub const RELOAD_LOOK: Duration = Duration::from_secs(2);
/// Connections the kernel completes before they are accepted: a reconnect storm arrives in one burst.
pub const LISTEN_BACKLOG: u32 = 4096;
/// Pause before the next accept when descriptors or memory ran out, so that the loop does not spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// One in so many pauses is logged, the first included: once in ten seconds while descriptors are short.
pub const ACCEPT_PAUSES_TOLD: u32 = 100;
/// Accepted in a row without a pause after which the next pause is news.
pub const ACCEPTS_WELL: u32 = 1_000;
/// Connections on the admin address: a scraper or two, probes, a curious person. For one more, the oldest is
/// cut: a probe must be answered whoever else is there.
pub const ADMIN_CONNECTIONS_MAX: usize = 64;
/// Within what an admin request must have arrived.
pub const ADMIN_HEADER_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection on the admin address may last, however slowly its peer reads: two scrapes.
pub const ADMIN_CONNECTION_WITHIN: Duration = Duration::from_secs(60);
/// Connections on a gRPC address: each edge, peer and service has one or two, so that a region has hundreds.
/// Beyond: one that has asked for nothing yet is cut, or else the new one.
pub const RPC_CONNECTIONS_MAX: usize = 4_096;
/// A gRPC peer has said that it speaks HTTP/2 within this span of being accepted. Beyond: it is cut.
pub const RPC_PREFACE_WITHIN: Duration = Duration::from_secs(5);
/// A gRPC peer has made its first request within this span. Beyond: it is cut, and connects again once it has
/// one. A pool that connects ahead of need does so twice a minute at most.
pub const RPC_REQUEST_WITHIN: Duration = Duration::from_secs(30);
/// A request has arrived in full and is answered, or its stream is opened, within this span: above what any
/// answer of ours is waited for. Beyond: CANCELLED.
pub const RPC_ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Requests and streams open at once on one gRPC connection: further ones wait at the client. An edge has two.
pub const RPC_STREAMS_MAX: u32 = 1_024;
/// What may be under way to the reader of one stream: enough for a region a continent away (2.5 MB/s at 100 ms),
/// little enough that a reader that does not keep up is noticed soon. Beyond: the writer waits.
pub const RPC_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The same for all streams of a connection. The HTTP/2 library ends a connection when small frames that nobody
/// has read yet weigh more than half of this, at 256 bytes each: so much that no stream alone gets there.
pub const RPC_CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;
/// Descriptors kept for what is no client: the store, cores, files, the admin address.
pub const DESCRIPTORS_KEPT: usize = 256;
/// A process that may hold fewer connections than this warns at start: a usual edge has more.
pub const CONNECTIONS_FEW: usize = 10_000;
/// Within what a client has said its first byte, and finished its handshake if it is to speak TLS. Beyond: it is cut.
pub const TLS_HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Handshakes under way at one listener: a storm's share of half a second, at most some 20 MB. For one more, the one
/// that has taken longest is cut: whoever is slow must not keep out who is not.
pub const TLS_HANDSHAKES_MAX: usize = 512;
/// How long whoever spoke the wrong thing may take to read what is said about it.
pub const TLS_PARTING_WITHIN: Duration = Duration::from_secs(1);
/// Why handshakes fail is said in the log once in this span, for each kind of failure.
pub const TLS_SAID_EVERY: Duration = Duration::from_secs(10);
/// A longer file of certificates or keys is refused unread: all authorities of a usual system fit.
pub const TLS_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Certificates of one chain. A browser looks no further either.
pub const TLS_CHAIN_MAX: usize = 10;
/// Certificates of one listener, for as many names: each handshake looks through them.
pub const TLS_CERTIFICATES_MAX: usize = 64;
/// How long open admin requests may take to finish at shutdown.
pub const ADMIN_DRAIN_WITHIN: Duration = Duration::from_secs(1);
/// A larger configuration file is refused unread.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// What the kernel takes of a connection's bytes that it has not sent yet: as much as is handed to one client at once.
/// Beyond: they wait in the process, where newer takes the place of older, while what is under way may grow as the
/// distance asks for.
pub const UNSENT_BYTES_MAX: u32 = 64 * 1024;
