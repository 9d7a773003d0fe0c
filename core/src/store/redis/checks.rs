//! What must be true of servers before the first lease is kept there: found out at start, said in one line.

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value, from_redis_value};

use super::keys::Keys;
use super::lanes::{Lane, Lanes};
use super::script::PROBE;
use super::settings::{RedisSettings, TlsFiles, Topology};
use presence_model::lease::Shard;

/// Number of the layout of keys: another one is not read.
const LAYOUT: &str = "1";
/// Oldest version that has every command used here.
const VERSION_MIN: (u32, u32) = (7, 0);

/// Why a core does not start on a store. Each is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedisRefusal {
    /// Nobody is there; later somebody may be.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// Only one side speaks TLS, or the certificates do not fit.
    #[error("the store and TLS do not fit: {0}; rediss:// speaks TLS, redis:// does not")]
    Tls(String),
    /// User or password are not taken.
    #[error("the store refuses store.user or the password in store.password_file: {0}")]
    Credentials(String),
    /// The ACL user may not do something that is needed.
    #[error("the store's user lacks a permission: {0}; docs/redis.md has the ACL that is needed")]
    Permission(String),
    /// Too old.
    #[error("the store runs Redis {0}: 7.0 is the oldest that is supported")]
    Version(String),
    /// Takes no writes.
    #[error("the store is a read-only replica: give the address of its master, or of its Sentinels")]
    Replica,
    /// The URL names another kind of servers.
    #[error("store.url and the servers do not fit: {0}")]
    Topology(String),
    /// Forgets leases when memory is short.
    #[error(
        "the store's maxmemory-policy is {0}: set it to noeviction, or leases vanish when memory is short"
    )]
    Evicts(String),
    /// Its data are laid out for another number of shards.
    #[error("the store has {stored} shards, and store.shards is {given}: they are fixed at the first start")]
    Shards {
        /// Of the data.
        stored: String,
        /// Of the settings.
        given: u16,
    },
    /// Its data are of another layout.
    #[error("the store's data have layout {0}, and this release reads layout {LAYOUT}")]
    Layout(String),
    /// A key of ours is something else.
    #[error("the store has something else than a hash at {0}: remove it, or give another store.prefix")]
    Foreign(String),
    /// Certificates, or other settings that the client library does not take.
    #[error("the settings of the store are not good: {0}")]
    Settings(String),
}

impl RedisRefusal {
    /// Whether it may be otherwise soon, without anybody changing a setting.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

impl From<RedisError> for RedisRefusal {
    fn from(error: RedisError) -> Self {
        let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        match (error.kind(), error.code()) {
            (_, Some("WRONGPASS" | "NOAUTH")) | (ErrorKind::AuthenticationFailed, _) => {
                Self::Credentials(text)
            }
            (ErrorKind::Server(ServerErrorKind::NoPerm), _) => Self::Permission(text),
            // A script says with an error of its own what its user may not do.
            (ErrorKind::Server(_), _)
                if text.contains("permission") || text.contains("can't run this command") =>
            {
                Self::Permission(text)
            }
            (ErrorKind::InvalidClientConfig, _) => Self::Settings(text),
            (ErrorKind::RESP3NotSupported, _) => Self::Version("before 6".to_owned()),
            (ErrorKind::Parse, _) => Self::Tls(text),
            (ErrorKind::Io, _) if is_tls(&text) => Self::Tls(text),
            _ => Self::Unreachable(text),
        }
    }
}

/// What the TLS library says of a peer that speaks something else, or is not trusted, or does not trust us.
fn is_tls(text: &str) -> bool {
    ["certificate", "corrupt message", "fatal alert", "handshake", "InvalidContentType"]
        .iter()
        .any(|word| text.contains(word))
}

/// Connects, once.
pub(super) async fn connect(settings: &RedisSettings) -> Result<Lanes, RedisRefusal> {
    let error = match Lanes::connect(settings).await {
        Ok(lanes) => return Ok(lanes),
        Err(error) => error,
    };
    // A server that speaks TLS ends plain connections without a word, as a network does; one that does not
    // waits for the end of what it takes for a command.
    if !error.is_connection_refusal() && (error.is_connection_dropped() || error.is_timeout()) {
        let other = settings.access.tls.is_none().then(TlsFiles::default);
        let words = if other.is_some() { "it speaks TLS" } else { "it does not speak TLS" };
        let answered = Lanes::knock(settings, other).await.map_err(RedisRefusal::from);
        if matches!(answered, Ok(()) | Err(RedisRefusal::Tls(_) | RedisRefusal::Credentials(_))) {
            return Err(RedisRefusal::Tls(words.to_owned()));
        }
    }
    Err(match (error.into(), &settings.topology) {
        (RedisRefusal::Unreachable(why) | RedisRefusal::Settings(why), Topology::Cluster { nodes })
            if why.contains("cluster support disabled") =>
        {
            RedisRefusal::Topology(format!(
                "redis+cluster:// is for a Cluster, and {} is none",
                nodes.join(", ")
            ))
        }
        (
            RedisRefusal::Unreachable(why) | RedisRefusal::Settings(why),
            Topology::Sentinel { sentinels, .. },
        ) if why.contains("not point to a sentinel") => {
            let sentinels = sentinels.join(", ");
            RedisRefusal::Topology(format!("redis+sentinel:// is for Sentinels, and {sentinels} is none"))
        }
        (RedisRefusal::Unreachable(why), topology) => RedisRefusal::Unreachable(format!("{topology}: {why}")),
        (refusal, _) => refusal,
    })
}

/// What becomes of data that do not say yet how they are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstStart {
    /// They are left alone.
    Look,
    /// What is fixed from now on is written.
    Fix,
}

/// Holds every server that has a shard against what is needed, and the data against the settings.
pub(super) async fn start_checks(
    lanes: &Lanes,
    settings: &RedisSettings,
    first: FirstStart,
) -> Result<(), RedisRefusal> {
    let keys = Keys::new(&settings.prefix);
    let shards = (0..settings.shards).filter_map(|number| u8::try_from(number).ok()).map(Shard);
    let mut seen = Vec::new();
    for shard in shards {
        for key in [keys.shard(shard), keys.people(shard)] {
            let info = text(lanes.scripts.run_on(&key, &words(&["INFO"])).await?)?;
            let run = field(&info, "run_id").unwrap_or_default().to_owned();
            if !seen.contains(&run) {
                check_mode(&info, &settings.topology)?;
                check_server(&info)?;
                seen.push(run);
            }
        }
        try_permissions(lanes, &keys, shard).await?;
    }
    check_layout(&lanes.scripts, &keys, settings.shards, first).await
}

fn check_mode(info: &str, topology: &Topology) -> Result<(), RedisRefusal> {
    match (field(info, "redis_mode"), topology) {
        (Some("sentinel"), _) => Err(RedisRefusal::Topology(format!(
            "{topology} is a Sentinel, and redis+sentinel:// is for those"
        ))),
        (Some("cluster"), Topology::Standalone { .. } | Topology::Sentinel { .. }) => Err(
            RedisRefusal::Topology(format!("{topology} is of a Cluster, and redis+cluster:// is for those")),
        ),
        (Some(_) | None, _) => Ok(()),
    }
}

fn check_server(info: &str) -> Result<(), RedisRefusal> {
    let version = field(info, "redis_version").unwrap_or_default();
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < VERSION_MIN {
        return Err(RedisRefusal::Version(version.to_owned()));
    }
    if field(info, "role") != Some("master") {
        return Err(RedisRefusal::Replica);
    }
    match field(info, "maxmemory_policy") {
        None | Some("noeviction") => Ok(()),
        Some(policy) => Err(RedisRefusal::Evicts(policy.to_owned())),
    }
}

/// Sends each command that is used, in a form that changes nothing.
async fn try_permissions(lanes: &Lanes, keys: &Keys, shard: Shard) -> Result<(), RedisRefusal> {
    const IN_SCRIPTS: &str = "redis.call('INFO', 'server') return redis.call('TIME')[1]";
    const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";
    let (key, leases) = (keys.shard(shard), keys.leases(shard));
    let (history, rooms) = (keys.history(shard), keys.rooms(shard));
    for command in [
        words(&["HMGET", &key, "epoch"]),
        words(&["XREAD", "COUNT", "1", "STREAMS", &history, "$"]),
        words(&["ZRANGEBYLEX", &rooms, "-", "+", "LIMIT", "0", "1"]),
        words(&["ZADD", &leases, "XX", "GT", "CH", "0", "0000000000000000"]),
        words(&["ZMSCORE", &leases, "0000000000000000"]),
    ] {
        lanes.scripts.run(&command).await?;
    }
    for (by_hash, whole) in [("EVALSHA", "EVAL"), ("EVALSHA_RO", "EVAL_RO")] {
        lanes.scripts.run(&words(&[whole, IN_SCRIPTS, "1", &key])).await?;
        match lanes.scripts.run(&words(&[by_hash, NO_SCRIPT, "1", &key])).await {
            Err(error) if error.kind() != ErrorKind::Server(ServerErrorKind::NoScript) => {
                return Err(error.into());
            }
            Ok(_) | Err(_) => {}
        }
    }
    lanes.scripts.run_on(&key, &words(&["TIME"])).await?;
    let refused = PROBE.run(&lanes.scripts, &keys.probe(shard), &[]).await?;
    let refused: Vec<String> = from_redis_value(refused).map_err(|error| unreachable(&error))?;
    if refused.is_empty() {
        return Ok(());
    }
    Err(RedisRefusal::Permission(format!("it may not run {}", refused.join(", "))))
}

/// Holds the layout of the data against the settings.
pub(super) async fn check_layout(
    lane: &Lane,
    keys: &Keys,
    shards: u16,
    first: FirstStart,
) -> Result<(), RedisRefusal> {
    let meta = keys.meta();
    let given = shards.to_string();
    let foreign = |error: RedisError| match error.code() {
        Some("WRONGTYPE") => RedisRefusal::Foreign(meta.clone()),
        Some(_) | None => error.into(),
    };
    if first == FirstStart::Fix {
        for (name, value) in [("layout", LAYOUT), ("shards", &given)] {
            lane.run(&words(&["HSETNX", &meta, name, value])).await.map_err(foreign)?;
        }
    }
    let stored = lane.run(&words(&["HMGET", &meta, "layout", "shards"])).await.map_err(foreign)?;
    let (layout, stored): (Option<String>, Option<String>) =
        from_redis_value(stored).map_err(|error| RedisRefusal::Layout(error.to_string()))?;
    match (layout, stored) {
        (Some(layout), _) if layout != LAYOUT => Err(RedisRefusal::Layout(layout)),
        (_, Some(stored)) if stored != given => Err(RedisRefusal::Shards { stored, given: shards }),
        (_, _) => Ok(()),
    }
}

fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

fn text(value: Value) -> Result<String, RedisRefusal> {
    from_redis_value(value).map_err(|error| unreachable(&error))
}

fn unreachable(error: &impl std::fmt::Display) -> RedisRefusal {
    RedisRefusal::Unreachable(error.to_string())
}

/// A field of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(version: &str, role: &str, policy: &str) -> String {
        format!("# Server\r\nredis_version:{version}\r\nrole:{role}\r\nmaxmemory_policy:{policy}\r\n")
    }

    #[test]
    fn the_oldest_version_is_7_0() {
        for (version, is_good) in
            [("7.0.0", true), ("7.0.15", true), ("7.2.4", true), ("8.0.1", true), ("10.1", true)]
                .into_iter()
                .chain([("6.2.14", false), ("", false), ("six", false)])
        {
            let checked = check_server(&info(version, "master", "noeviction"));
            assert_eq!(checked.is_ok(), is_good, "{version}: {checked:?}");
        }
    }

    #[test]
    fn a_server_that_forgets_or_only_reads_is_refused() {
        let evicts = check_server(&info("7.0.15", "master", "allkeys-lru"));
        assert_eq!(evicts, Err(RedisRefusal::Evicts("allkeys-lru".into())));
        assert_eq!(check_server(&info("7.0.15", "slave", "noeviction")), Err(RedisRefusal::Replica));
    }

    #[test]
    fn each_refusal_is_one_line() {
        let error = RedisError::from((ErrorKind::Io, "a", "b\nc".to_owned()));
        assert_eq!(RedisRefusal::from(error).to_string().lines().count(), 1);
    }
}
