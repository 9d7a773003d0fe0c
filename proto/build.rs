//! Compiles the contracts in pure Rust: no protoc is needed on the building machine.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["link", "watch", "admin", "types", "client"].map(|name| format!("presence/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("presence.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".presence.v1")
        .codec_path("crate::codec::Codec")
        // Three cursors: ten times as large as what is said beside it.
        .boxed(".presence.v1.WatchRequest.message.open")
        .compile_fds(descriptors)?;
    // Not for reflection: it is nobody's contract but the cores'.
    let stored = protox::compile(["presence/stored/v1/stored.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".presence.stored.v1")
        .extern_path(".presence.v1", "crate::v1")
        .compile_fds(stored)?;
    Ok(())
}
