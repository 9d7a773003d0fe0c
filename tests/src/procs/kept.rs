//! What processes write while everything is tested, and what they must not write: kept where the last step of the
//! whole run searches the one for the other.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Names the folder; none: nothing is kept.
const FOLDER: &str = "PRESENCE_TEST_LOGS";
/// A process that stands still tells no metrics.
const METRICS_WITHIN: Duration = Duration::from_millis(500);

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A fresh file for what a process writes.
pub(super) fn place(binary: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?).join("written");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Some(folder.join(format!("{binary}-{}-{number}", std::process::id())))
}

/// Keeps what a process has written elsewhere.
pub(super) fn log(binary: &str, path: &Path) {
    if let Some(kept) = place(binary) {
        // It may be gone with its folder already.
        let _ = std::fs::copy(path, kept);
    }
}

/// Keeps what a process exports, if it still does.
pub(super) fn metrics(binary: &str, admin: &str) {
    let (Some(kept), Ok(address)) = (place(binary), admin.parse()) else { return };
    let page = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, METRICS_WITHIN)?;
        stream.set_read_timeout(Some(METRICS_WITHIN))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        Ok(text)
    };
    if let Ok(text) = page() {
        let _ = std::fs::write(kept, text);
    }
}

/// A token must not be seen anywhere: neither what it says nor its signature.
pub(super) fn token(token: String) -> String {
    let parts: Vec<&str> = token.split('.').skip(1).collect();
    secret(&parts.join("\n"));
    token
}

/// Texts that must not be seen anywhere, one a line.
fn secret(lines: &str) {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let path = PathBuf::from(folder).join("secrets").join(std::process::id().to_string());
    let written = OpenOptions::new().create(true).append(true).open(path);
    // Several threads of a test write whole lines.
    let _ = written.and_then(|mut file: File| file.write_all(format!("{lines}\n").as_bytes()));
}
