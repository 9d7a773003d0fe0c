//! The heart of presence: who is here, since when, why, and until when.
//!
//! Everything in this crate is pure. Input, `now` and randomness are arguments; decisions are values.
//! There is no I/O, no clock, no task and no wire format here, so one implementation of the semantics
//! runs in the core, in the edge, in clients and under the simulator.
//!
//! The data's way through the modules: a request meets the [`record`] as stored and [`member`] decides,
//! giving a refusal or a [`change`]; the change carries its own visible [`delta`]; deltas keep a
//! [`replica`]; the replicas of one room make a [`view`]; [`fanout`] turns a view into shared frames,
//! one cursor a receiver.

pub mod backoff;
pub mod batcher;
pub mod change;
pub mod claim;
pub mod class;
pub mod crowd;
pub mod cursor;
pub mod delta;
pub mod digest;
pub mod fanout;
pub mod gate;
pub mod hold;
pub mod id;
pub mod lease;
pub mod limits;
pub mod link;
pub mod member;
pub mod position;
pub mod profile;
pub mod reason;
pub mod record;
pub mod refusal;
pub mod replica;
pub mod revocation;
pub mod time;
pub mod timing;
pub mod view;
pub mod watch;
pub mod wheel;
