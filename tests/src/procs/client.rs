//! A WebSocket client of the tests: keeps its list by the frames it is sent, and answers pings while read.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload, WebSocket};
use http_body_util::Empty;
use hyper::Request;
use hyper::header::{CONNECTION, HOST, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use presence_runtime::network::Network;
use serde_json::{Value, json};

/// Connects to `ws://host:port/v1/ws`, or by a network that knows whom to trust to `wss://…`.
pub(crate) async fn open_socket(
    network: &Network,
    url: &str,
) -> anyhow::Result<WebSocket<TokioIo<Upgraded>>> {
    let (scheme, rest) = url.split_once("://").context("no scheme")?;
    let target = rest.split('/').next().context("no host")?;
    let stream = match scheme {
        "wss" => network.connect_tls(target, target.rsplit_once(':').context("no port")?.0).await?,
        _ => network.connect(target).await?,
    };
    let request = Request::get(url)
        .header(HOST, target)
        .header(UPGRADE, "websocket")
        .header(CONNECTION, "upgrade")
        .header(SEC_WEBSOCKET_KEY, fastwebsockets::handshake::generate_key())
        .header(SEC_WEBSOCKET_VERSION, "13")
        .body(Empty::<Bytes>::new())?;
    Ok(fastwebsockets::handshake::client(&TokioExecutor::new(), request, stream).await?.0)
}

/// A connected client.
pub struct Client {
    socket: FragmentCollector<TokioIo<Upgraded>>,
    /// What the edge said first.
    pub hello: Value,
    /// Members by user, as the frames tell.
    pub members: BTreeMap<String, Value>,
    /// Revision of the list.
    pub revision: Option<u64>,
    /// What survives the connection.
    pub cursor: Option<String>,
    /// Removals seen: user and reason.
    pub removals: Vec<(String, String)>,
}

impl Client {
    /// Connects to `ws://host:port/v1/ws` and reads the hello.
    ///
    /// # Errors
    /// When the edge refuses.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        Self::connect_by(&Network::tcp(), url).await
    }

    /// The same by a network that knows whom to trust: to `wss://…` as well.
    ///
    /// # Errors
    /// When the edge refuses.
    pub async fn connect_by(network: &Network, url: &str) -> anyhow::Result<Self> {
        let socket = open_socket(network, url).await?;
        let mut client = Self {
            socket: FragmentCollector::new(socket),
            hello: Value::Null,
            members: BTreeMap::new(),
            revision: None,
            cursor: None,
            removals: Vec::new(),
        };
        client.hello = client.next().await?;
        anyhow::ensure!(client.hello["t"] == "hello", "{}", client.hello);
        Ok(client)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the connection is gone.
    pub async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let text = message.to_string().into_bytes();
        Ok(self.socket.write_frame(Frame::text(Payload::Owned(text))).await?)
    }

    /// Joins, and waits for the answer.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn join(
        &mut self,
        room: &str,
        token: &str,
        session: &str,
        generation: u64,
    ) -> anyhow::Result<Value> {
        let join = json!({
            "t": "join", "room": room, "token": token, "session": session, "generation": generation,
            "since": self.cursor,
        });
        self.send(&join).await?;
        loop {
            let frame = self.next().await?;
            anyhow::ensure!(frame["t"] != "error", "{frame}");
            if frame["t"] == "joined" {
                return Ok(frame);
            }
        }
    }

    /// Watches, and waits for the list.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn watch(&mut self, room: &str, token: &str) -> anyhow::Result<()> {
        self.send(&json!({ "t": "watch", "room": room, "token": token, "since": self.cursor })).await?;
        while self.revision.is_none() {
            let frame = self.next().await?;
            anyhow::ensure!(frame["t"] != "error", "{frame}");
        }
        Ok(())
    }

    /// The next frame, taken into the list.
    ///
    /// # Errors
    /// When the connection ends, or a frame does not follow.
    pub async fn next(&mut self) -> anyhow::Result<Value> {
        let value = self.frame().await?;
        self.take(&value)?;
        Ok(value)
    }

    /// Reads until the list shows so many: a first list may be of a moment before the last of them was told.
    ///
    /// # Errors
    /// As [`Client::next`]; more than that are shown.
    pub async fn until_shown(&mut self, members: usize) -> anyhow::Result<()> {
        while self.members.len() < members {
            self.next().await?;
        }
        anyhow::ensure!(self.members.len() == members, "{} members", self.members.len());
        Ok(())
    }

    /// The next frame, whatever room it is of.
    ///
    /// # Errors
    /// When the connection ends.
    pub async fn frame(&mut self) -> anyhow::Result<Value> {
        loop {
            let frame = self.socket.read_frame().await?;
            match frame.opcode {
                OpCode::Text => return Ok(serde_json::from_slice(&frame.payload)?),
                OpCode::Close => anyhow::bail!("closed"),
                OpCode::Binary | OpCode::Ping | OpCode::Pong | OpCode::Continuation => {}
            }
        }
    }

    /// Frames of a span.
    ///
    /// # Errors
    /// As [`Client::next`].
    pub async fn during(&mut self, span: Duration) -> anyhow::Result<Vec<Value>> {
        let end = tokio::time::Instant::now() + span;
        let mut frames = Vec::new();
        // A frame half read when the time is over desynchronises the stream: only the last call may be cut.
        while let Ok(frame) = tokio::time::timeout_at(end, self.next()).await {
            frames.push(frame?);
        }
        Ok(frames)
    }

    /// Reads and forgets until the connection ends: an idle client.
    pub async fn idle(mut self) {
        while self.next().await.is_ok() {}
    }

    fn take(&mut self, frame: &Value) -> anyhow::Result<()> {
        match frame["t"].as_str() {
            Some("snapshot") => {
                if self.revision != frame["rev"].as_u64() {
                    self.members.clear();
                }
                self.upsert(&frame["members"]);
                self.revision = frame["rev"].as_u64();
                self.cursor = frame["cursor"].as_str().map(str::to_owned);
            }
            Some("delta") => {
                if let (Some(prev), Some(own)) = (frame["prev"].as_u64(), self.revision) {
                    anyhow::ensure!(prev <= own, "a gap: own {own}, then {frame}");
                    if frame["rev"].as_u64() <= self.revision {
                        return Ok(());
                    }
                }
                self.upsert(&frame["upserts"]);
                for removal in frame["removals"].as_array().into_iter().flatten() {
                    let user = removal["user"].as_str().unwrap_or_default().to_owned();
                    let reason = removal["reason"].as_str().context("a removal has a reason")?;
                    if self.members.remove(&user).is_some() {
                        self.removals.push((user, reason.to_owned()));
                    }
                }
                self.revision = frame["rev"].as_u64();
                self.cursor = frame["cursor"].as_str().map(str::to_owned);
            }
            Some(_) | None => {}
        }
        Ok(())
    }

    fn upsert(&mut self, members: &Value) {
        for member in members.as_array().into_iter().flatten() {
            let user = member["user"].as_str().unwrap_or_default().to_owned();
            self.members.insert(user, member.clone());
        }
    }
}
