//! `presence token`: one signed token on standard output.

use std::process::ExitCode;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_model::id::{RoomId, UserId};
use presence_model::time::{StoreTime, millis};
use presence_runtime::clock::Clock;
use presence_runtime::tokens::{Grant, Issuer, ScopedGrant};

use crate::args::{Act, TokenArgs};
use crate::outcome::Mistake;
use crate::paint;

/// Signs and prints.
pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    let wrong = || Mistake(format!("--key {}", args.key.display()));
    let pem = std::fs::read_to_string(&args.key).with_context(wrong)?;
    let issuer = Issuer::from_pem(&pem).with_context(wrong)?.with_audience(&args.audience);
    let ends = StoreTime((Clock::system().wall_ms() + millis(args.ttl)).next_multiple_of(1_000));
    paint::line(&signed(args, &issuer, ends)?)?;
    Ok(ExitCode::SUCCESS)
}

fn signed(args: &TokenArgs, issuer: &Issuer, ends: StoreTime) -> anyhow::Result<String> {
    let user = UserId::new(&args.user)?;
    let Some(room) = &args.room else {
        if args.rooms.len() > 1 && args.rooms.iter().any(String::is_empty) {
            // Easily typed by a comma too many.
            return Err(Mistake(
                "--rooms has an empty prefix, which stands for all rooms: give it alone".into(),
            )
            .into());
        }
        let (subject, scopes) = (user.as_str().into(), args.scope.clone());
        let rooms = args.rooms.iter().map(Into::into).collect();
        let token_id = args.id.clone().map(Into::into);
        let grant = ScopedGrant { subject, scopes, rooms, ends, token_id };
        return Ok(issuer.sign_scoped(&grant));
    };
    let action = match args.act {
        Act::Join => Action::Join,
        Act::Watch => Action::Watch,
    };
    let token_id = args.id.clone().map(Into::into);
    let grant = Grant { user, room: RoomId::new(room)?, action, ends, not_before: None, token_id };
    Ok(issuer.sign(&grant))
}
