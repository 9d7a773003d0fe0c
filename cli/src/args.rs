//! The command line. Its help is the first documentation anybody reads.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use presence_model::limits::NAME_BYTES_MAX;
use presence_model::time::spoken;
use presence_runtime::config::{ConfigFlags, TimingFlags};
use presence_runtime::telemetry::LogFlags;
use presence_runtime::tls::{CertificateFiles, ClientFiles};
use presence_runtime::tokens::{AUDIENCE, Scope};

use crate::probe::EdgeAddress;

/// Presence: who is here, without flicker and without ghosts.
#[derive(Debug, Parser)]
#[command(
    name = "presence",
    version,
    after_help = "Start with:  presence dev\n\nThen open the page it names in two browser tabs, and in another terminal:\n  presence watch lobby"
)]
pub(crate) struct Presence {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a core, an edge and a playground in one process, on loopback, with an embedded store.
    Dev(DevArgs),
    /// Make a signing key and the key set that edges and cores verify with.
    Keys(KeysArgs),
    /// Sign a token for one user, room and action, and print it.
    Token(TokenArgs),
    /// Watch a room: who comes, who goes, and why.
    Watch(WatchArgs),
    /// List who is in a room now.
    Room(RoomArgs),
    /// Tell why a user is shown in a room, or why not.
    Explain(ExplainArgs),
    /// Try an edge as a client does: join, be seen, go, be seen to be gone, and how long it took.
    Probe(ProbeArgs),
    /// Put a user out of a room, at once.
    Evict(EvictArgs),
    /// Let tokens open nothing any more: all of a user, all of a key, or one.
    Revoke(RevokeArgs),
    /// Send an edge away: its clients come back elsewhere, then its process ends.
    Drain(DrainArgs),
}

/// Where to run.
#[derive(Debug, Args)]
#[command(
    after_help = "Timers default to heartbeat 3s, lease-ttl 12s, grace 5s, so that things happen while you watch.\nProduction defaults are 15s, 45s and 12s.\n\nExamples:\n  presence dev\n  presence dev --listen 127.0.0.1:0 --json\n  presence dev --heartbeat 1s --lease-ttl 3s --grace 1s\n\nA file given with --config may also have room classes:\n  [[class]]\n  name = \"trading\"\n  match = \"trading:*\"\n  heartbeat = \"1s\"\n  lease_ttl = \"3s\"\n  grace = \"1s\""
)]
pub(crate) struct DevArgs {
    /// Where browsers connect; also serves the playground (127.0.0.1:4700). Port 0 picks a free one.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Where services connect (gRPC) (127.0.0.1:4701).
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<String>,
    /// Where metrics and probes are (127.0.0.1:4702).
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<String>,
    /// Members up to which a room is shown as a list; above: its number (5000).
    #[arg(long, value_name = "COUNT")]
    pub(crate) list_members: Option<String>,
    /// Regions, each with a core, a store, an edge and a playground of its own; they watch each other (local).
    #[arg(long, value_name = "NAME[,NAME…]")]
    pub(crate) regions: Option<String>,
    /// Print one JSON object with the addresses in force once everything accepts, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) timings: DevTimings,
    #[command(flatten)]
    pub(crate) config: ConfigFlags,
    #[command(flatten)]
    pub(crate) logs: LogFlags,
}

/// Timers, shorter here than elsewhere.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DevTimings {
    /// How often a session is to be heard (3s)
    #[arg(long, value_name = "DURATION")]
    heartbeat: Option<String>,
    /// How long one renewal carries (12s)
    #[arg(long, value_name = "DURATION")]
    lease_ttl: Option<String>,
    /// How long a lost transport may take to come back (5s)
    #[arg(long, value_name = "DURATION")]
    grace: Option<String>,
    /// After how long an edge whose link broke is lost (4s)
    #[arg(long, value_name = "DURATION")]
    edge_lost: Option<String>,
    /// How often other regions are merged (20s)
    #[arg(long, value_name = "DURATION")]
    merge_interval: Option<String>,
}

impl DevTimings {
    /// The same, as every binary has them.
    pub(crate) fn flags(&self) -> TimingFlags {
        let Self { heartbeat, lease_ttl, grace, edge_lost, merge_interval } = self.clone();
        TimingFlags { heartbeat, lease_ttl, grace, edge_lost, merge_interval }
    }
}

/// Where keys go.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  presence keys ./keys\n  presence token --key ./keys/key.pem --user u1 --room lobby"
)]
pub(crate) struct KeysArgs {
    /// Directory to write key.pem (secret, mode 600) and jwks.json (public) to; made if absent.
    pub(crate) dir: PathBuf,
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Act {
    /// Be present, and watch.
    Join,
    /// Watch only.
    Watch,
}

/// What to sign.
#[derive(Debug, Args)]
#[command(
    after_help = "For a client, or with --scope for a service or an operator.\n\nExamples:\n  presence token --key ./keys/key.pem --user u1 --room lobby\n  presence token --key ./keys/key.pem --user billing --scope presence.read --rooms team-a:\n  presence token --key ./keys/key.pem --user anna --scope presence.read,presence.admin --rooms ''"
)]
pub(crate) struct TokenArgs {
    /// The signing key: key.pem of `presence keys`.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// The user the token speaks for, or the service.
    #[arg(long)]
    pub(crate) user: String,
    /// The one room it opens.
    #[arg(long, required_unless_present = "scope", conflicts_with = "scope")]
    pub(crate) room: Option<String>,
    /// What a service may do: presence.read, presence.feed, presence.admin; several, comma-separated.
    #[arg(long, value_delimiter = ',', value_parser = scope, requires = "rooms")]
    pub(crate) scope: Vec<Scope>,
    /// In rooms whose names begin so; several, comma-separated; '' stands for all rooms.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', requires = "scope")]
    pub(crate) rooms: Vec<String>,
    /// What its bearer may do there.
    #[arg(long, value_enum, default_value = "join", conflicts_with = "scope")]
    pub(crate) act: Act,
    /// Whom it is for: as edges and cores are told with --audience.
    #[arg(long, default_value = AUDIENCE)]
    pub(crate) audience: String,
    /// Its own id (jti), by which it can be revoked alone.
    #[arg(long, value_name = "JTI", value_parser = token_id)]
    pub(crate) id: Option<String>,
    /// How long it is good, at most ten years.
    #[arg(long, value_parser = some_time, default_value = "1h")]
    pub(crate) ttl: Duration,
}

/// As a token may carry it.
fn token_id(text: &str) -> Result<String, String> {
    match text.len() {
        1..=NAME_BYTES_MAX => Ok(text.to_owned()),
        bytes => Err(format!("an id has 1 to {NAME_BYTES_MAX} bytes, and this has {bytes}")),
    }
}

fn scope(word: &str) -> Result<Scope, String> {
    Scope::of(word).ok_or_else(|| format!("is none of {}", Scope::WORDS.join(", ")))
}

/// A token of the command line is good for at most so long: ten years, which no key should be.
const TOKEN_TTL_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A span above zero, since a token that has ended already is of no use, and at most [`TOKEN_TTL_MAX`].
fn some_time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if span.is_zero() => {
            Err("a token that has ended already is of no use; example: 1h".to_owned())
        }
        Ok(span) if span > TOKEN_TTL_MAX => {
            Err(format!("a token is good for at most {}; example: 1h", spoken(TOKEN_TTL_MAX)))
        }
        Ok(span) => Ok(span),
        Err(error) => Err(format!("{error}; example: 1h")),
    }
}

/// Which core to ask.
#[derive(Debug, Clone, Args)]
pub(crate) struct CoreArgs {
    /// The core's gRPC address, `https` for TLS; several, comma-separated, are tried in turn.
    #[arg(
        long,
        value_name = "URL",
        env = "PRESENCE_CORE",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:4701"
    )]
    pub(crate) core: Vec<String>,
    /// Who signs the certificates of cores, PEM (whom this system trusts).
    #[arg(long, value_name = "FILE", env = "PRESENCE_CORE_CA")]
    pub(crate) core_ca: Option<PathBuf>,
    /// Our certificate for cores and its chain, PEM.
    #[arg(long, value_name = "FILE", env = "PRESENCE_CORE_CERT", requires = "core_key")]
    pub(crate) core_cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, value_name = "FILE", env = "PRESENCE_CORE_KEY", requires = "core_cert")]
    pub(crate) core_key: Option<PathBuf>,
    /// A file with a token to show to cores: `presence token --scope presence.read --rooms team-a:` makes one.
    #[arg(long, value_name = "FILE", env = "PRESENCE_TOKEN_FILE")]
    pub(crate) token: Option<PathBuf>,
}

impl CoreArgs {
    /// The files for TLS.
    pub(crate) fn files(&self) -> ClientFiles {
        let identity = self.core_cert.clone().zip(self.core_key.clone());
        let identity = identity.map(|(chain, key)| CertificateFiles { chain, key });
        ClientFiles { authority: self.core_ca.clone(), identity }
    }
}

/// Which room to watch.
#[derive(Debug, Args)]
#[command(
    after_help = "Signs: = is here, + has come, ~ has changed, - has gone (and why), · how fresh the list is.\nEnds on Ctrl-C, SIGTERM or SIGHUP, with exit code 0. With --json: one object a line, for pipes.\n\nExamples:\n  presence watch lobby\n  presence watch lobby --json | jq ."
)]
pub(crate) struct WatchArgs {
    /// The room.
    pub(crate) room: String,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

/// Which room to list.
#[derive(Debug, Args)]
pub(crate) struct RoomArgs {
    /// The room.
    pub(crate) room: String,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

/// Whom to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The room.
    pub(crate) room: String,
    /// The user.
    pub(crate) user: String,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

/// What to try.
#[derive(Debug, Args)]
#[command(
    after_help = "The token's user must be nobody else's: who is in the room already cannot be seen to come. Nobody else \
                  in the room notices more than that somebody came and went.\n\nWith several edges, of several regions \
                  perhaps, it joins at the first and is waited for at each.\n\nExit code: 0 all of it was seen; 75 nobody \
                  answers, or not in time: ask again; 1 refused, or something wrong was shown.\n\nExamples:\n  \
                  presence token --key ./keys/key.pem --user probe --room probes > probe.token\n  presence probe \
                  ws://127.0.0.1:4700 --room probes --token probe.token\n  presence probe wss://eu.example \
                  wss://us.example --room probes --token probe.token --drop --json"
)]
pub(crate) struct ProbeArgs {
    /// WebSocket addresses of edges; what comes after the host is /v1/ws unless it is given.
    #[arg(value_name = "URL", required = true, num_args = 1..=16)]
    pub(crate) edges: Vec<EdgeAddress>,
    /// The room to join.
    #[arg(long)]
    pub(crate) room: String,
    /// A file with a token that lets its user join that room.
    #[arg(long, value_name = "FILE")]
    pub(crate) token: PathBuf,
    /// Who signs the certificates of edges, PEM (whom this system trusts).
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Go without a goodbye: how long a lost connection is taken for somebody who comes back.
    #[arg(long)]
    pub(crate) drop: bool,
    /// How long all of it may take.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "60s")]
    pub(crate) within: Duration,
    /// One JSON object at the end instead of a line for each step.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whom to put out.
#[derive(Debug, Args)]
#[command(
    after_help = "Who is out may come back with a fresh session and a good token: to keep somebody out, have no more \
                  tokens signed and revoke those that are out (presence revoke user).\n\n\
                  Exit code: 0 done, also if nobody was there; 75 no core could, or could tell: ask again.\n\n\
                  Examples:\n  presence evict lobby u1\n  presence evict lobby u1 --json"
)]
pub(crate) struct EvictArgs {
    /// The room.
    pub(crate) room: String,
    /// The user.
    pub(crate) user: String,
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

/// What to revoke.
#[derive(Debug, Args)]
#[command(
    after_help = "Within two seconds no edge takes such a token, and every session that rests on one is over: its \
                  client is told `token_revoked` and closed with 4410. It cannot be taken back before its time.\n\n\
                  A key that is only to sign no more needs no revocation: take it out of the key set, and its tokens \
                  let nobody in any more, while who is in stays until their token ends.\n\n\
                  Exit code: 0 it is in force; 75 no core could, or could tell: ask again.\n\n\
                  Examples:\n  presence revoke user u1 --for 1h\n  presence revoke key 2026-11 --for 30d\n  \
                  presence revoke token 5f0c1b --for 1h"
)]
pub(crate) struct RevokeArgs {
    #[command(subcommand)]
    pub(crate) what: RevokeWhat,
}

/// What tokens rest on.
#[derive(Debug, Subcommand)]
pub(crate) enum RevokeWhat {
    /// All tokens of a user, those that are signed meanwhile included.
    User {
        /// The user: the token's `sub`.
        user: String,
        /// For how long: as long as the tokens live that are out.
        #[arg(long = "for", value_name = "DURATION", value_parser = revoked_for)]
        span: Duration,
        #[command(flatten)]
        asking: Asking,
    },
    /// All tokens that were signed with a key.
    Key {
        /// The key: the token's `kid`.
        kid: String,
        /// For how long: as long as such tokens live; ten years unless given.
        #[arg(long = "for", value_name = "DURATION", value_parser = revoked_for)]
        span: Option<Duration>,
        #[command(flatten)]
        asking: Asking,
    },
    /// One token.
    Token {
        /// The token's id: its `jti`.
        jti: String,
        /// For how long: as long as it lives; ten years unless given.
        #[arg(long = "for", value_name = "DURATION", value_parser = revoked_for)]
        span: Option<Duration>,
        #[command(flatten)]
        asking: Asking,
    },
}

/// Whom to ask, and how to say it.
#[derive(Debug, Args)]
pub(crate) struct Asking {
    /// One JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

/// What is revoked without a span stays so: no token of the command line lives longer.
pub(crate) const REVOKED_FOR_DEFAULT: Duration = TOKEN_TTL_MAX;

fn revoked_for(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if span < Duration::from_millis(1) => Err("it would end at once; example: 1h".to_owned()),
        Ok(span) if span > REVOKED_FOR_DEFAULT => {
            Err(format!("at most {}; example: 1h", spoken(REVOKED_FOR_DEFAULT)))
        }
        Ok(span) => Ok(span),
        Err(error) => Err(format!("{error}; example: 1h")),
    }
}

/// Which edge to send away.
#[derive(Debug, Args)]
#[command(
    after_help = "The edge does as if its process had been told to end; whoever starts it again is not this \
                  command. It waits until the edge has gone, and may be ended before without harm.\n\n\
                  All edges that are known under the name are sent away: give each edge a name of its own \
                  (`presence-edge --edge NAME`).\n\n\
                  Exit code: 0 it has gone, or was told to go (--no-wait); 1 no such edge is known; 75 no core \
                  answered, or it was still there when the time was over or this command was told to end.\n\n\
                  Examples:\n  presence drain edge-1\n  presence drain edge-1 --json --within 2m"
)]
pub(crate) struct DrainArgs {
    /// Name of the edge.
    pub(crate) edge: String,
    /// How long to wait until it has gone.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5m")]
    pub(crate) within: Duration,
    /// Only tell it to go.
    #[arg(long, conflicts_with = "within")]
    pub(crate) no_wait: bool,
    /// One JSON object a line instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) core: CoreArgs,
}

fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; example: 5m"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use presence_model::timing::{Timings, TimingsGiven};

    use super::*;

    #[test]
    fn the_help_of_dev_tells_its_own_timers() {
        let timings = Timings::derive(TimingsGiven::DEMO).unwrap();
        let command = Presence::command();
        let dev = command.find_subcommand("dev").unwrap();
        for (name, span) in [
            ("heartbeat", timings.heartbeat),
            ("lease_ttl", timings.lease_ttl),
            ("grace", timings.grace),
            ("edge_lost", timings.edge_lost),
            ("merge_interval", timings.merge_interval),
        ] {
            let argument = dev.get_arguments().find(|argument| argument.get_id() == name).unwrap();
            let help = argument.get_help().unwrap().to_string();
            assert!(help.ends_with(&format!("({})", humantime::format_duration(span))), "{help}");
        }
    }
}
