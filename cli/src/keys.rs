//! `presence keys`: a signing key and the key set to verify with.

use std::path::Path;
use std::process::ExitCode;

use presence_runtime::tokens::{GeneratedKeys, JWKS_FILE, KEY_FILE};

use crate::args::KeysArgs;
use crate::paint;

/// Writes both files and says where they are.
pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    GeneratedKeys::from_seed(rand::random()).write(&args.dir)?;
    let (key, jwks) = (args.dir.join(KEY_FILE), args.dir.join(JWKS_FILE));
    let said = |path: &Path, what: &str| {
        paint::line(&format!("{}  {what}", paint::harmless(&path.to_string_lossy())))
    };
    said(&key, "signs tokens: keep it secret")?;
    said(&jwks, "verifies them: give it to edges and cores with --jwks")?;
    Ok(ExitCode::SUCCESS)
}
