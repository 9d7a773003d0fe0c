//! Files that may change under a running process.
//!
//! Contents are compared, not times: a `ConfigMap` swaps a symlink, and clocks of file systems lie.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::limits::RELOAD_LOOK;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It cannot be.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// It is longer than anything good.
    #[error("has more than {0} bytes")]
    TooLarge(u64),
    /// Whoever reads it may wait for ever, or never come to its end.
    #[error("is no regular file")]
    NoFile,
}

/// What is made of the contents of some files.
pub trait Reload: Send + 'static {
    /// Why contents are bad. Shown in the log, so it must not quote secrets.
    type Fault: Display + Send;

    /// What they are, in the plural: `token keys`.
    const WHAT: &'static str;
    /// A longer file is refused unread.
    const BYTES_MAX: u64;

    /// One of them was not read.
    fn unread(path: &Path, unread: Unread) -> Self::Fault;

    /// Takes new contents over, in the order of the paths, or leaves everything as it is.
    ///
    /// # Errors
    /// They are bad.
    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), Self::Fault>;

    /// Says what is in force now.
    fn announce(&self, paths: &[PathBuf]);
}

/// Files, and what follows them.
pub struct Files<R> {
    paths: Vec<PathBuf>,
    seen: Vec<Vec<u8>>,
    fault_seen: Option<String>,
    reload: R,
}

/// What a look at the files found.
#[derive(Debug)]
pub enum Looked<F> {
    /// As before.
    Same,
    /// What is new is in force.
    Replaced,
    /// They are bad and what was before stays in force.
    Kept(F),
}

impl<R: Reload> Files<R> {
    /// Reads them for the first time; `make` makes of them what will follow them.
    ///
    /// # Errors
    /// They cannot be read, or are bad.
    pub async fn open(
        paths: Vec<PathBuf>,
        make: impl FnOnce(&[Vec<u8>]) -> Result<R, R::Fault>,
    ) -> Result<Self, R::Fault> {
        let seen = read_all::<R>(&paths).await?;
        let reload = make(&seen)?;
        Ok(Self::from_read(paths, seen, reload))
    }

    /// Follows what was read, and taken over, before.
    pub fn from_read(paths: Vec<PathBuf>, seen: Vec<Vec<u8>>, reload: R) -> Self {
        reload.announce(&paths);
        Self { paths, seen, fault_seen: None, reload }
    }

    /// What follows them.
    pub fn reload(&self) -> &R {
        &self.reload
    }

    /// Looks at them once, and has new contents taken over if they are good.
    pub async fn look(&mut self) -> Looked<R::Fault> {
        let contents = match read_all::<R>(&self.paths).await {
            Ok(contents) => contents,
            Err(fault) => return Looked::Kept(fault),
        };
        if contents == self.seen {
            return Looked::Same;
        }
        match self.reload.take(&contents) {
            Ok(()) => {
                self.seen = contents;
                Looked::Replaced
            }
            Err(fault) => Looked::Kept(fault),
        }
    }

    /// Looks every [`RELOAD_LOOK`] until `stop`; says what it found, a lasting fault once.
    pub async fn follow(mut self, clock: Clock, stop: CancellationToken) {
        while stop.run_until_cancelled(clock.sleep(RELOAD_LOOK)).await.is_some() {
            let looked = self.look().await;
            self.report(looked);
        }
    }

    fn report(&mut self, looked: Looked<R::Fault>) {
        match looked {
            Looked::Same => {
                if self.fault_seen.take().is_some() {
                    tracing::info!(paths = %Shown(&self.paths), "{} are good again, and as before", R::WHAT);
                }
            }
            Looked::Replaced => {
                self.fault_seen = None;
                self.reload.announce(&self.paths);
            }
            Looked::Kept(fault) => {
                let fault = fault.to_string();
                if self.fault_seen.as_ref() != Some(&fault) {
                    let paths = Shown(&self.paths);
                    tracing::error!(%paths, %fault, "cannot take over new {}, the old ones stay in force", R::WHAT);
                }
                self.fault_seen = Some(fault);
            }
        }
    }
}

impl<R> fmt::Debug for Files<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in them may be secret.
        f.debug_tuple("Files").field(&self.paths).finish()
    }
}

/// Paths as a log line has them.
pub struct Shown<'a>(pub &'a [PathBuf]);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if place == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}

/// Reads a file once, for whoever only wants to know whether it is good. Blocks.
///
/// # Errors
/// [`Unread`].
pub fn read_now(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unread> {
    fits(&std::fs::metadata(path).map_err(Unread::Unreadable)?, bytes_max)?;
    std::fs::read(path).map_err(Unread::Unreadable)
}

fn fits(metadata: &std::fs::Metadata, bytes_max: u64) -> Result<(), Unread> {
    if !metadata.is_file() {
        return Err(Unread::NoFile);
    }
    if metadata.len() > bytes_max { Err(Unread::TooLarge(bytes_max)) } else { Ok(()) }
}

async fn read_all<R: Reload>(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>, R::Fault> {
    let mut contents = Vec::new();
    for path in paths {
        contents.push(read(path, R::BYTES_MAX).await.map_err(|unread| R::unread(path, unread))?);
    }
    Ok(contents)
}

/// Reads a file once.
pub(crate) async fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Unread> {
    fits(&tokio::fs::metadata(path).await.map_err(Unread::Unreadable)?, bytes_max)?;
    tokio::fs::read(path).await.map_err(Unread::Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads these waits for ever, or never comes to their end.
    #[tokio::test]
    async fn what_is_no_regular_file_is_not_read() {
        for path in ["/dev/zero", "/dev/tty", "/"] {
            let path = Path::new(path);
            assert!(matches!(read_now(path, 10), Err(Unread::NoFile)), "{path:?}");
            assert!(matches!(read(path, 10).await, Err(Unread::NoFile)), "{path:?}");
        }
    }
}
