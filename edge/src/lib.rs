//! The presence edge: terminates WebSockets, marks sessions alive, shows rooms.
//!
//! The data's way: [`http`] accepts, [`ws`] reads frames, a connection's task parses them into [`protocol`]
//! messages and verifies tokens, the [`hub`] decides, a link carries its words to a core, and the
//! connection's task writes what the hub hands it. The hub holds no lease logic and no I/O; the shell
//! around it is the one task that owns it. Begin with [`start::start`].

mod admission;
mod connection;
pub mod http;
pub mod hub;
pub mod limits;
mod link;
#[cfg(test)]
mod logs;
mod metrics;
pub mod protocol;
pub mod settings;
mod shell;
pub mod start;
pub mod ws;
