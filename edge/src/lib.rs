//! The presence edge: terminates WebSockets, marks sessions alive, shows rooms.
//!
//! The data's way: [`ws`] reads frames, a [`connection`] task parses them into [`protocol`] messages and
//! verifies tokens, the [`hub`] decides, [`link`] carries its words to a core, and the connection task
//! writes what the hub hands it. The hub holds no lease logic and no I/O.

pub mod connection;
pub mod http;
pub mod hub;
pub mod limits;
pub mod link;
pub mod protocol;
pub mod settings;
pub mod shell;
pub mod ws;
