//! The scripts, each of one purpose: called by hash, sent whole to a server that does not know them.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value};

use super::lanes::Lane;

const COMMON: &str = include_str!("scripts/common.lua");
const DIGEST: &str = include_str!("scripts/digest.lua");
const NAMED: &str = include_str!("scripts/named.lua");
const FORGET: &str = include_str!("scripts/forget.lua");
const SETTLE: &str = include_str!("scripts/settle.lua");
const TYPES: &str = include_str!("scripts/types.lua");

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// Runs one that writes, over the keys of one slot that `key` begins. It looks by itself whether all of
    /// them are on one server.
    pub(super) async fn run(&self, lane: &Lane, key: &str, arguments: &[Vec<u8>]) -> RedisResult<Value> {
        self.call(lane, ["EVALSHA", "EVAL"], &[key.to_owned()], arguments).await
    }

    /// Runs one that writes to these keys and no other; the first begins them all. While they are not all on
    /// one server, it is refused there.
    pub(super) async fn run_over(
        &self,
        lane: &Lane,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<Value> {
        self.call(lane, ["EVALSHA", "EVAL"], keys, arguments).await
    }

    /// Runs one that only reads: the server holds it to that, and may be one that takes no writes.
    pub(super) async fn read(&self, lane: &Lane, key: &str, arguments: &[Vec<u8>]) -> RedisResult<Value> {
        self.call(lane, ["EVALSHA_RO", "EVAL_RO"], &[key.to_owned()], arguments).await
    }

    async fn call(
        &self,
        lane: &Lane,
        [by_hash, whole]: [&str; 2],
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> RedisResult<Value> {
        let call = |verb: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(verb).arg(script).arg(keys.len()).arg(keys).arg(arguments);
            command
        };
        match lane.run(&call(by_hash, &self.hash)).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                lane.run(&call(whole, &self.text)).await
            }
            other => other,
        }
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = [$($part:expr),+];)+) => {
        $(
            $(#[$doc])*
            pub(super) static $name: LazyLock<Script> = LazyLock::new(|| Script::new(&[$($part),+]));
        )+

        /// All of them, with their names.
        #[cfg(test)]
        fn all() -> Vec<(&'static str, &'static Script)> {
            vec![$((stringify!($name), &*$name)),+]
        }
    };
}

scripts! {
    /// Applies changes of one roster as one revision.
    COMMIT = [TYPES, COMMON, DIGEST, NAMED, FORGET, SETTLE, include_str!("scripts/commit.lua")];
    /// The sweep's turn.
    TURN = [TYPES, COMMON, DIGEST, NAMED, FORGET, SETTLE, include_str!("scripts/turn.lua")];
    /// Renames leases to their grace names.
    RELEASE = [COMMON, include_str!("scripts/release.lua")];
    /// Removes ended leases that no record names.
    DISCARD = [COMMON, include_str!("scripts/discard.lua")];
    /// A page of an audit.
    AUDIT = [COMMON, NAMED, include_str!("scripts/audit.lua")];
    /// Removes leases that no record names.
    DISOWN = [COMMON, NAMED, include_str!("scripts/disown.lua")];
    /// Lets no epoch vouch for a torn roster.
    DISTRUST = [COMMON, DIGEST, NAMED, include_str!("scripts/distrust.lua")];
    /// Shortens the leases of a lost edge.
    LOSE = [COMMON, include_str!("scripts/lose.lua")];
    /// Writes a link number into a shard.
    LINK = [COMMON, include_str!("scripts/link.lua")];
    /// A few members at one point.
    MEMBERS = [COMMON, include_str!("scripts/members.lua")];
    /// A page of a roster.
    PAGE = [COMMON, include_str!("scripts/page.lua")];
    /// Commits of a roster.
    HISTORY = [COMMON, include_str!("scripts/history.lua")];
    /// Leases with their notes.
    LEASES = [COMMON, include_str!("scripts/leases.lua")];
    /// The note of one edge.
    EDGES = [TYPES, include_str!("scripts/edges.lua")];
    /// Who comes and goes.
    PEOPLE = [TYPES, include_str!("scripts/people.lua")];
    /// What is old of a shard of users.
    STALE = [TYPES, include_str!("scripts/stale.lua")];
    /// Removes false entries of the index by user.
    UNLIST = [TYPES, include_str!("scripts/unlist.lua")];
    /// A page of a sorted set.
    LISTING = [include_str!("scripts/listing.lua")];
    /// Which commands are refused to the user.
    PROBE = [include_str!("scripts/probe.lua")];
    /// Revokes.
    REVOKE = [TYPES, include_str!("scripts/revoke.lua")];
    /// A page of what is revoked.
    REVOKED = [include_str!("scripts/revoked.lua")];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_of_a_script_is_probed() {
        let commands = |text: &str, call: &str| -> BTreeSet<String> {
            let calls = text.split(call).skip(1).filter_map(|rest| rest.split('\'').next());
            calls.map(str::to_owned).collect()
        };
        let probed = commands(&PROBE.text, "may('");
        for (name, script) in all() {
            for call in ["redis.call('", "redis.pcall('", "try('"] {
                for command in commands(&script.text, call) {
                    assert!(probed.contains(&command), "{command} of {name}");
                }
            }
        }
    }

    #[test]
    fn each_script_has_its_own_hash_and_says_what_it_answers() {
        let hashes: BTreeSet<&str> = all().iter().map(|(_, script)| script.hash.as_str()).collect();
        assert_eq!(hashes.len(), all().len());
        for (name, script) in all() {
            assert!(script.text.contains("Answer: {"), "{name}");
        }
    }
}
