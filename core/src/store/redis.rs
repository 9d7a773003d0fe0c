//! The Redis adapter: stand-alone, behind Sentinel, or a Cluster; commands of Redis 7.0 only.
//!
//! All keys of a shard share a hash tag, so one commit is one slot. What must be atomic is a small
//! script that knows expectations, guards and writes, and nothing of presence; renewals are plain
//! `ZADD … XX GT`. See `docs/redis.md` for every key.

mod lanes;
mod settings;

pub use settings::{RedisSettings, Topology};
