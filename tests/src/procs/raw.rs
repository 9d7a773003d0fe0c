//! A peer that keeps to nothing: writes whatever bytes it is given, and reads frames as they come.

use std::time::Duration;

use anyhow::Context as _;
use presence_runtime::network::{Network, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A peer is answered, or closed, within this; every limit in time is below it.
const WITHIN: Duration = Duration::from_secs(20);

/// A masked frame of a client; the mask is zero.
#[must_use]
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short), _) if short < 126 => frame.push(0x80 | short),
        (_, Ok(medium)) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&medium.to_be_bytes());
        }
        (_, Err(_)) => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// One transport to an edge.
pub struct Raw {
    stream: Stream,
}

impl Raw {
    /// Connects, and says nothing. `url` is that of the WebSocket.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let target = url.trim_start_matches("ws://").split('/').next().context("no host")?;
        Ok(Self { stream: Network::tcp().connect(target).await? })
    }

    /// Connects, and has its handshake accepted and the hello read.
    ///
    /// # Errors
    /// When the edge refuses.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let mut raw = Self::connect(url).await?;
        let status = raw.request(&Self::handshake("")).await?;
        anyhow::ensure!(status == 101, "{status}");
        let hello = raw.read_frame().await?;
        anyhow::ensure!(hello.1.starts_with(b"{\"t\":\"hello\""), "{hello:?}");
        Ok(raw)
    }

    /// A good handshake with these lines added.
    #[must_use]
    pub fn handshake(more: &str) -> String {
        format!(
            "GET /v1/ws HTTP/1.1\r\nHost: edge\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        )
    }

    /// Says this, and reads an answer of HTTP with its body; its status.
    ///
    /// # Errors
    /// When the transport ends first.
    pub async fn request(&mut self, text: &str) -> anyhow::Result<u16> {
        self.write(text.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tokio::time::timeout(WITHIN, self.stream.read_u8()).await??);
        }
        let head = String::from_utf8(head)?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(Ok(0), str::parse)?];
        self.stream.read_exact(&mut body).await?;
        head.get(9..12).context("no status")?.parse().context("no status")
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// When the transport has ended, or takes nothing for long.
    pub async fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(tokio::time::timeout(WITHIN, self.stream.write_all(bytes)).await.context("nobody reads")??)
    }

    /// The next frame of the edge: its first byte, and its payload.
    ///
    /// # Errors
    /// When the transport ends first.
    pub async fn read_frame(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let read = async {
            let first = self.stream.read_u8().await?;
            let length = match self.stream.read_u8().await? {
                126 => u64::from(self.stream.read_u16().await?),
                127 => self.stream.read_u64().await?,
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length)?];
            self.stream.read_exact(&mut payload).await?;
            anyhow::Ok((first, payload))
        };
        tokio::time::timeout(WITHIN, read).await.context("nothing comes")?
    }

    /// The code of the close frame; everything before it is skipped.
    ///
    /// # Errors
    /// When the transport ends without one.
    pub async fn close_code(&mut self) -> anyhow::Result<u16> {
        loop {
            let (first, payload) = self.read_frame().await?;
            if first == 0x88 {
                let code = payload.get(..2).context("no code")?;
                return Ok(u16::from_be_bytes([code[0], code[1]]));
            }
        }
    }

    /// Waits for the end of the transport; everything before it is skipped.
    ///
    /// # Errors
    /// When it goes on.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; 4096];
        let read = async { while self.stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {} };
        tokio::time::timeout(WITHIN, read).await.context("it goes on")
    }
}
