//! The client against cores played by hand, over real sockets.

#[cfg(test)]
mod fake_core;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod watching;
