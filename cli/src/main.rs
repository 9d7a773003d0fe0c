//! `presence`: what a person types.

mod args;
mod dev;
mod explain;
mod keys;
mod paint;
mod remote;
mod room;
mod token;
mod watch;

use std::process::ExitCode;

use presence_runtime::command_line::parse_or_exit;

use crate::args::{Command, Presence};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let Presence { command } = parse_or_exit();
    let outcome = match command {
        Command::Dev(args) => dev::run(args),
        Command::Keys(args) => keys::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Watch(args) => watch::run(args),
        Command::Room(args) => room::run(args),
        Command::Explain(args) => explain::run(args),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            paint::error(&error);
            ExitCode::FAILURE
        }
    }
}
