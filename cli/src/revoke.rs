//! `presence revoke`: tokens that open nothing any more.

use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use presence_model::id::UserId;
use presence_model::limits::NAME_BYTES_MAX;
use presence_model::revocation::Revocation;
use serde_json::json;

use crate::args::{REVOKED_FOR_DEFAULT, RevokeArgs, RevokeWhat};
use crate::outcome::Mistake;
use crate::paint;
use crate::remote::with_client;

/// Asks once and tells until when it is revoked.
pub(crate) fn run(args: RevokeArgs) -> anyhow::Result<ExitCode> {
    let (kind, name, what, span, asking) = match args.what {
        RevokeWhat::User { user, span, asking } => {
            let subject = Revocation::Subject(UserId::new(&user)?);
            ("user", user, subject, span, asking)
        }
        RevokeWhat::Key { kid, span, asking } => {
            let key = Revocation::Key(id("key", &kid)?.into());
            ("key", kid, key, span.unwrap_or(REVOKED_FOR_DEFAULT), asking)
        }
        RevokeWhat::Token { jti, span, asking } => {
            let token = Revocation::Token(id("token", &jti)?.into());
            ("token", jti, token, span.unwrap_or(REVOKED_FOR_DEFAULT), asking)
        }
    };
    let until = with_client(&asking.core, |client| async move { Ok(client.revoke(what, span).await?) })?;
    if asking.json {
        paint::json_line(&json!({ "revoked": kind, "name": name, "until": until.0 }))?;
    } else {
        let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(until.0));
        paint::line(&format!("{kind} {}: revoked until {date}", paint::harmless(&name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a token may carry as an id.
fn id<'a>(kind: &str, text: &'a str) -> Result<&'a str, Mistake> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) {
        return Ok(text);
    }
    Err(Mistake(format!("the id of a {kind} has 1 to {NAME_BYTES_MAX} bytes, and this has {}", text.len())))
}
