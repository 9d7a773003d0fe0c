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

use presence_client::ClientError;
use presence_model::id::NameError;
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
            if is_taken(&error) {
                paint::hint(
                    "is another `presence dev` running? --listen, --grpc and --admin take other addresses",
                );
            }
            if is_mistake(&error) { ExitCode::from(presence_runtime::exit::USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether what was typed is wrong, whatever the world is like.
fn is_mistake(error: &anyhow::Error) -> bool {
    error.is::<NameError>() || matches!(error.downcast_ref(), Some(ClientError::Address(_)))
}

/// Whether an address was in use.
fn is_taken(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::AddrInUse)
}
