//! `presence`: what a person types.

mod args;
mod dev;
mod drain;
mod evict;
mod explain;
mod keys;
mod outcome;
mod paint;
mod probe;
mod remote;
mod revoke;
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
    let done = match command {
        Command::Dev(args) => dev::run(args),
        Command::Keys(args) => keys::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Watch(args) => watch::run(args),
        Command::Room(args) => room::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Evict(args) => evict::run(args),
        Command::Revoke(args) => revoke::run(args),
        Command::Drain(args) => drain::run(args),
    };
    match done {
        Ok(code) => code,
        // Whoever reads has enough, as `head` has.
        Err(error) if outcome::is_hung_up(&error) => ExitCode::SUCCESS,
        Err(error) => {
            paint::error(&error);
            if outcome::is_taken(&error) {
                paint::hint(
                    "is another `presence dev` running? --listen, --grpc and --admin take other addresses",
                );
            }
            ExitCode::from(outcome::code(&error))
        }
    }
}
