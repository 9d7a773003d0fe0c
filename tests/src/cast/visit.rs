//! One connection of a tab, from the handshake to whatever ends it.

use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, WebSocketWrite};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use presence_model::time::Mono;
use serde_json::{Value, json};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::tab::{Order, Tab};
use crate::history::{Sight, Step};
use crate::procs::open_socket;

/// From the first packet to the hello.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a ping may go unanswered.
const PONG_WITHIN: Duration = Duration::from_secs(3);
/// How long a message may wait to be written.
const WRITE_WITHIN: Duration = Duration::from_secs(5);

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It never came to a hello.
    Unlucky,
    /// The connection is over.
    Lost,
    /// Refused for now.
    Later(Duration),
    /// The session is somebody else's now.
    Mint,
    /// Nobody gives orders any more.
    Over,
}

/// What the reading half says.
enum Heard {
    Text(Value),
    /// To be written: a pong, an answer to a close.
    Owed(OpCode, Vec<u8>),
    End(String),
}

type Upgrade = TokioIo<Upgraded>;

struct Socket {
    write: WebSocketWrite<WriteHalf<Upgrade>>,
    heard: UnboundedReceiver<Heard>,
    reader: tokio::task::JoinHandle<()>,
    last: Mono,
    pinged: bool,
    joined: bool,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Tab {
    pub(super) async fn visit(
        &mut self,
        edge: &str,
        address: &str,
        orders: &mut UnboundedReceiver<Order>,
    ) -> End {
        let clock = self.settings.clock.clone();
        let url = format!("ws://{address}/v1/ws");
        let socket = tokio::select! {
            biased;
            socket = open_socket(&self.settings.network, &url) => socket,
            () = clock.sleep(CONNECT_WITHIN) => return End::Unlucky,
        };
        let Ok(socket) = socket else { return End::Unlucky };
        let (read, write) = socket.split(tokio::io::split);
        let (say, heard) = unbounded_channel();
        let reader = tokio::spawn(read_all(read, say));
        let mut socket = Socket { write, heard, reader, last: clock.now(), pinged: false, joined: false };
        let end = self.talk(edge, &mut socket, orders).await;
        let name = &self.settings.name;
        self.settings.recorder.sight(name, Sight::Closed);
        if !self.settings.only_looks {
            self.settings.recorder.step(name, &self.settings.user, Step::Lost);
        }
        self.list.disconnected();
        end
    }

    async fn talk(&mut self, edge: &str, socket: &mut Socket, orders: &mut UnboundedReceiver<Order>) -> End {
        let clock = self.settings.clock.clone();
        loop {
            let heartbeat = self.settings.timings.heartbeat;
            let due = socket.last + if socket.pinged { heartbeat + PONG_WITHIN } else { heartbeat };
            let end = tokio::select! {
                biased;
                order = orders.recv() => match order {
                    None => Some(End::Over),
                    Some(order) => self.obey(order, socket).await,
                },
                heard = socket.heard.recv() => {
                    socket.last = clock.now();
                    socket.pinged = false;
                    match heard {
                        Some(Heard::Text(frame)) => self.hear(edge, &frame, socket).await,
                        Some(Heard::Owed(opcode, payload)) => {
                            let frame = Frame::new(true, opcode, None, Payload::Owned(payload));
                            self.write(socket, frame).await
                        }
                        Some(Heard::End(why)) => {
                            self.settings.recorder.line(&self.settings.name, format_args!("< {why}"));
                            Some(End::Lost)
                        }
                        None => Some(End::Lost),
                    }
                }
                () = clock.sleep_until(due) => {
                    if socket.pinged {
                        Some(End::Lost)
                    } else {
                        socket.pinged = true;
                        self.say(socket, &json!({ "t": "ping" })).await
                    }
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    async fn obey(&mut self, order: Order, socket: &mut Socket) -> Option<End> {
        match order {
            Order::HangUp => Some(End::Lost),
            Order::Vanish(span) => {
                self.away_until = self.settings.clock.now() + span;
                Some(End::Lost)
            }
            Order::Close => {
                self.write(socket, Frame::close(1_001, b"")).await;
                Some(End::Lost)
            }
            Order::Update => {
                self.update();
                if !socket.joined {
                    return None;
                }
                let (status, state) = (self.status(), self.state());
                let update =
                    json!({ "t": "update", "room": self.settings.room, "status": status, "state": state });
                self.say(socket, &update).await
            }
            Order::Leave(span) if socket.joined => {
                self.away_until = self.settings.clock.now() + span;
                // Before it is said: what comes of it may be written down at once.
                self.settings.recorder.step(&self.settings.name, &self.settings.user, Step::Left);
                self.say(socket, &json!({ "t": "leave", "room": self.settings.room })).await;
                Some(End::Lost)
            }
            Order::Leave(_) => None,
        }
    }

    async fn hear(&mut self, edge: &str, frame: &Value, socket: &mut Socket) -> Option<End> {
        let (name, recorder) = (self.settings.name.clone(), self.settings.recorder.clone());
        recorder.line(&name, format_args!("< {frame}"));
        match frame["t"].as_str() {
            Some("hello") => {
                recorder.sight(&name, Sight::Opened { at: edge.to_owned() });
                drop(self.list.take(frame, &self.settings.region));
                return self.enter(edge, socket).await;
            }
            Some("joined") => {
                socket.joined = true;
                self.generation = self.generation.max(frame["generation"].as_u64().unwrap_or(0));
                recorder.step(&name, &self.settings.user, Step::Joined);
            }
            Some("error") if !socket.joined => return Some(refused(frame)),
            Some("ended") => {
                let minted = frame["reason"] == "superseded";
                return Some(if minted { End::Mint } else { End::Lost });
            }
            Some(_) | None => match self.list.take(frame, &self.settings.region) {
                Ok(Some(look)) => recorder.sight(&name, Sight::Shows(look)),
                Ok(None) => {}
                // The edge owes every client what follows.
                Err(gap) => {
                    recorder.line(&name, format_args!("GAP {gap}"));
                    recorder.sight(&name, Sight::Gap(gap));
                }
            },
        }
        None
    }

    async fn enter(&mut self, edge: &str, socket: &mut Socket) -> Option<End> {
        let (room, token, since) = (&self.settings.room, &self.settings.token, self.list.cursor());
        if self.settings.only_looks {
            let watch = json!({ "t": "watch", "room": room, "token": token, "since": since });
            return self.say(socket, &watch).await;
        }
        self.generation += 1;
        let join = json!({
            "t": "join", "room": room, "token": token, "session": self.session(), "since": since,
            "generation": self.generation, "status": self.status(), "state": self.state(), "watch": true,
        });
        let step = Step::Tries { edge: edge.to_owned() };
        self.settings.recorder.step(&self.settings.name, &self.settings.user, step);
        self.say(socket, &join).await
    }

    async fn say(&self, socket: &mut Socket, message: &Value) -> Option<End> {
        self.write(socket, Frame::text(Payload::Owned(message.to_string().into_bytes()))).await
    }

    async fn write(&self, socket: &mut Socket, frame: Frame<'_>) -> Option<End> {
        let clock = &self.settings.clock;
        tokio::select! {
            biased;
            written = socket.write.write_frame(frame) => written.is_err().then_some(End::Lost),
            () = clock.sleep(WRITE_WITHIN) => Some(End::Lost),
        }
    }
}

fn refused(frame: &Value) -> End {
    if frame["code"] == "stale_generation" {
        return End::Mint;
    }
    frame["retry_after_ms"].as_u64().map_or(End::Lost, |wait| End::Later(Duration::from_millis(wait)))
}

/// Reads until the connection ends. Has a task of its own, since a frame half read must not be dropped.
async fn read_all(read: fastwebsockets::WebSocketRead<ReadHalf<Upgrade>>, say: UnboundedSender<Heard>) {
    let mut read = fastwebsockets::FragmentCollectorRead::new(read);
    let mut owe = |frame: Frame<'_>| {
        let owed = Heard::Owed(frame.opcode, frame.payload.to_vec());
        std::future::ready(say.send(owed).map_err(|_| "nobody writes any more"))
    };
    loop {
        let heard = match read.read_frame(&mut owe).await {
            Ok(frame) if frame.opcode == OpCode::Text => match serde_json::from_slice(&frame.payload) {
                Ok(text) => Heard::Text(text),
                Err(error) => Heard::End(error.to_string()),
            },
            Ok(frame) if frame.opcode == OpCode::Close => {
                let code = frame.payload.first_chunk().map_or(0, |code| u16::from_be_bytes(*code));
                Heard::End(format!("closed: {code}"))
            }
            Ok(_) => continue,
            Err(error) => Heard::End(error.to_string()),
        };
        let is_end = matches!(heard, Heard::End(_));
        if say.send(heard).is_err() || is_end {
            return;
        }
    }
}
