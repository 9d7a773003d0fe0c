//! The corpus: one file a target, one input a line, in base64.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::Target;

fn file(target: &Target) -> PathBuf {
    let name = format!("corpus/{}.txt", target.name);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// An input as its line.
#[must_use]
pub fn line(input: &[u8]) -> String {
    STANDARD.encode(input)
}

/// The inputs that are kept, and the seeds.
///
/// # Errors
/// The file is not there, or a line of it is no base64.
pub fn read(target: &Target) -> anyhow::Result<Vec<Vec<u8>>> {
    let path = file(target);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let kept = text.lines().map(|line| STANDARD.decode(line).with_context(|| format!("{path:?}: {line}")));
    let mut inputs = (target.seeds)();
    inputs.extend(kept.collect::<anyhow::Result<Vec<_>>>()?);
    Ok(inputs)
}

/// Writes all inputs as files of a folder, as coverage-guided fuzzers want them.
///
/// # Errors
/// Those of reading and of the file system.
pub fn unpack(target: &Target, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    for (number, input) in read(target)?.iter().enumerate() {
        std::fs::write(folder.join(format!("{number:05}")), input)?;
    }
    Ok(())
}

/// Keeps the files of a folder instead of what was kept; the seeds are in the code.
///
/// # Errors
/// Those of the file system.
pub fn pack(target: &Target, folder: &Path) -> anyhow::Result<usize> {
    let seeds: BTreeSet<Vec<u8>> = (target.seeds)().into_iter().collect();
    let mut lines = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let input = std::fs::read(entry?.path())?;
        if !seeds.contains(&input) && !input.is_empty() {
            lines.insert((input.len(), line(&input)));
        }
    }
    let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    std::fs::write(file(target), text)?;
    Ok(lines.len())
}
