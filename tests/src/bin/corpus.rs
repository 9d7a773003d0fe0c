//! The corpus of a fuzz target for a fuzzer that wants files: `corpus unpack|pack TARGET FOLDER`, and
//! `corpus most TARGET`, the length that inputs have at most.

use std::io::Write as _;
use std::path::Path;

use presence_tests::fuzz::{corpus, target};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let of = |name: &str| target(name).ok_or_else(|| anyhow::anyhow!("no target {name}"));
    match wanted.as_slice() {
        ["unpack", name, folder] => corpus::unpack(of(name)?, Path::new(folder)),
        ["pack", name, folder] => {
            let kept = corpus::pack(of(name)?, Path::new(folder))?;
            Ok(writeln!(std::io::stdout(), "{name}: {kept} inputs are kept beside the seeds")?)
        }
        ["most", name] => Ok(writeln!(std::io::stdout(), "{}", of(name)?.bytes_max)?),
        _ => anyhow::bail!("corpus unpack|pack TARGET FOLDER, or corpus most TARGET"),
    }
}
