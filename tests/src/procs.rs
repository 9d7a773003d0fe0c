//! Real processes and real sockets, for what a simulation cannot know.

mod client;
mod process;

pub use client::Client;
pub use process::{
    CoreOptions, Crowd, Keys, Process, Timers, binary_path, core, core_on, core_with, core_with_file, edge,
};
