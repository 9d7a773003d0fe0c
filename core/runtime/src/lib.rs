//! What every binary shares: the parts that touch the world, each behind a small door.
//!
//! | module | what it is for | start here |
//! |---|---|---|
//! | [`clock`] | the only place that reads a clock | [`clock::Clock`], [`clock::ManualClock`] in tests |
//! | [`network`] | the only place sockets are made | [`network::Network::tcp`], `listen`, `connect` |
//! | [`tls`] | certificates, handshakes, names of peers | [`tls::ServerTls`], [`tls::ClientTls`], [`tls::Door`] |
//! | [`tokens`] | who a bearer is | [`tokens::Verifier`], [`tokens::Issuer`], [`tokens::GeneratedKeys`] |
//! | [`rpc`] | shells of a gRPC server and client | [`rpc::serve`], [`rpc::connect`] |
//! | [`admin`] | metrics, liveness, readiness over HTTP | [`admin::serve`], [`admin::Readiness`] |
//! | [`shutdown`] | owned tasks, signals, a bounded end | [`shutdown::Shutdown`] |
//! | [`config`] | file, environment and flags, all mistakes at once | [`config::ConfigFlags`], [`config::Loader`], [`config::TimingFlags`] |
//! | [`command_line`] | command-line mistakes as one line and exit code 64 | [`command_line::parse_or_exit`] |
//! | [`telemetry`] | logs on standard error, a registry of metrics | [`telemetry::install`], [`telemetry::Metrics`] |
//! | [`reload`] | files that may change under a running process | [`reload::Files`] |
//! | [`json`] | JSON that is read everywhere | [`json::is_read_everywhere`] |
//! | [`descriptors`] | how many connections this process may have | [`descriptors::raise`], [`descriptors::budget`] |
//! | [`exposure`] | loopback only, unless protected | [`exposure::Guarded`] |
//! | [`release`] | name and version of this software | [`release::release`] |
//!
//! Nothing here is process-global except what says so ([`telemetry::install`],
//! [`shutdown::Shutdown::end_on_signals`], [`command_line::parse_or_exit`], [`descriptors::raise`]): those are for
//! `main` alone.

pub mod admin;
pub mod clock;
pub mod command_line;
pub mod config;
pub mod descriptors;
pub mod exit;
pub mod exposure;
pub mod json;
pub mod limits;
pub mod network;
pub mod release;
pub mod reload;
pub mod rpc;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod tokens;
