//! `presence keys`: a signing key and the key set to verify with.

use std::process::ExitCode;

use presence_runtime::tokens::{GeneratedKeys, JWKS_FILE, KEY_FILE};

use crate::args::KeysArgs;
use crate::paint;

/// Writes both files and says where they are.
pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<ExitCode> {
    GeneratedKeys::from_seed(rand::random()).write(&args.dir)?;
    let (key, jwks) = (args.dir.join(KEY_FILE), args.dir.join(JWKS_FILE));
    paint::line(&format!("{}  signs tokens: keep it secret", key.display()))?;
    paint::line(&format!("{}  verifies them: give it to edges and cores with --jwks", jwks.display()))?;
    Ok(ExitCode::SUCCESS)
}
