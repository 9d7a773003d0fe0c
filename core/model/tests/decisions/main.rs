//! Decisions about members: examples, and laws over random lives against a naive oracle.

mod build;
mod endings;
mod joins;
mod laws;
mod lives;
mod oracle;
mod roster;
mod visible;
