//! The two who take part: one comes and goes, the others watch it do so. Each has a connection of its own.

use std::time::Duration;

use presence_model::reason::RemovalReason;
use presence_model::time::Mono;
use presence_runtime::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::ProbeError;
use super::socket::Socket;

/// Waited for when an edge does not say how long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a part tells.
#[derive(Debug)]
pub(super) struct Told {
    /// Who: the number of the edge it watches; none: the one who comes and goes.
    pub(super) by: Option<usize>,
    pub(super) at: Mono,
    pub(super) what: What,
}

/// What has happened.
#[derive(Debug)]
pub(super) enum What {
    /// It has the list, of so many members.
    Listed(usize),
    /// It was let in.
    Joined,
    /// The one who comes and goes is shown.
    Seen,
    /// It is shown as gone, for this reason, after so much silence.
    Gone(String, Duration),
    /// How fresh a region is: live ones say so only once they were not.
    Fresh(String, String),
    /// It is over.
    Failed(ProbeError),
}

/// How the one who came goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goes {
    /// With a goodbye.
    Goodbye,
    /// Its connection is lost.
    Drop,
}

impl Goes {
    /// What others are to be told of it.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Goodbye => RemovalReason::Left.as_str(),
            Self::Drop => RemovalReason::ConnectionLost.as_str(),
        }
    }
}

/// One of them.
pub(super) struct Part {
    pub(super) by: Option<usize>,
    pub(super) user: String,
    pub(super) clock: Clock,
    pub(super) tells: mpsc::UnboundedSender<Told>,
}

impl Part {
    fn tell(&self, what: What) {
        // Nobody is left to be told once the probe is over.
        let _ = self.tells.send(Told { by: self.by, at: self.clock.now(), what });
    }

    /// Watches until its task ends.
    pub(super) async fn watch(self, mut socket: Socket, first: Value) {
        let failed = self.listen(&mut socket, &first).await;
        self.tell(What::Failed(failed));
    }

    /// Is there until it is told how to go.
    pub(super) async fn stay(self, mut socket: Socket, first: Value, mut go: oneshot::Receiver<Goes>) {
        let goes = tokio::select! {
            biased;
            goes = &mut go => goes,
            failed = self.listen(&mut socket, &first) => return self.tell(What::Failed(failed)),
        };
        match goes {
            Ok(Goes::Goodbye) => {
                let leave = json!({ "t": "leave", "room": first["room"] });
                match socket.say(&leave).await {
                    Ok(()) => socket.close().await,
                    Err(failed) => self.tell(What::Failed(failed)),
                }
            }
            // Without a word, as when a machine is gone; also when the probe is over before its time.
            Ok(Goes::Drop) | Err(_) => drop(socket),
        }
    }

    /// Says what it came for, again when it is told to wait, and tells what it hears, until the connection is over.
    async fn listen(&self, socket: &mut Socket, first: &Value) -> ProbeError {
        let mut list = List::default();
        if let Err(failed) = socket.say(first).await {
            return failed;
        }
        loop {
            let message = match socket.hear().await {
                Ok(message) => message,
                Err(failed) => return failed,
            };
            match self.take(&message, &mut list) {
                Ok(Heard::Fine) => {}
                Ok(Heard::Again(after)) => {
                    self.clock.sleep(after).await;
                    if let Err(failed) = socket.say(first).await {
                        return failed;
                    }
                }
                Err(failed) => return failed,
            }
        }
    }

    fn take(&self, message: &Value, list: &mut List) -> Result<Heard, ProbeError> {
        let text = |name: &str| message[name].as_str().unwrap_or_default();
        match text("t") {
            "joined" => self.tell(What::Joined),
            "snapshot" => {
                let is_there = has(&message["members"], &self.user);
                if let Some((members, was_there)) = list.page(message, is_there) {
                    self.shown(list, was_there, ("not in the list any more", Duration::ZERO));
                    self.tell(What::Listed(members));
                }
            }
            "delta" => {
                let gone = |removal: &&Value| removal["user"] == self.user.as_str();
                let removal = message["removals"].as_array().and_then(|all| all.iter().find(gone));
                if has(&message["upserts"], &self.user) {
                    self.shown(list, true, ("", Duration::ZERO));
                } else if let Some(removal) = removal {
                    let silent = Duration::from_millis(removal["silent_ms"].as_u64().unwrap_or_default());
                    self.shown(list, false, (removal["reason"].as_str().unwrap_or_default(), silent));
                }
            }
            "freshness" => {
                self.tell(What::Fresh(text("region").to_owned(), text("state").to_owned()));
            }
            "reconnect" => {
                let why = format!("it sends its clients away: {}", text("reason"));
                return Err(ProbeError::Busy(why));
            }
            "ended" => return Err(ProbeError::Refused(format!("the session is over: {}", text("reason")))),
            "error" => {
                let retry_ms = message["retry_after_ms"].as_u64();
                if retry_ms.is_none() && text("code") != "unavailable" {
                    return Err(ProbeError::Refused(format!("{}: {}", text("code"), text("message"))));
                }
                return Ok(Heard::Again(retry_ms.map_or(AGAIN_AFTER, Duration::from_millis)));
            }
            // What a later release says besides is of no interest here.
            _ => {}
        }
        Ok(Heard::Fine)
    }

    fn shown(&self, list: &mut List, is_there: bool, (reason, silent): (&str, Duration)) {
        match (std::mem::replace(&mut list.shows, is_there), is_there) {
            (false, true) => self.tell(What::Seen),
            (true, false) => self.tell(What::Gone(reason.to_owned(), silent)),
            (true, true) | (false, false) => {}
        }
    }
}

enum Heard {
    Fine,
    /// What was asked for is to be asked for again then.
    Again(Duration),
}

/// As much of a list as matters.
#[derive(Default)]
struct List {
    /// Whether the one who comes and goes is in it.
    shows: bool,
    /// Of a snapshot whose pages come: its revision, how many it has so far, and whether that one is among them.
    pages: Option<(Option<u64>, usize, bool)>,
}

impl List {
    /// Takes a page; with the last one how many there are in all, and whether the one who comes and goes is among them.
    fn page(&mut self, page: &Value, is_there: bool) -> Option<(usize, bool)> {
        let (revision, members) = (page["rev"].as_u64(), page["members"].as_array().map_or(0, Vec::len));
        let before = self.pages.take().filter(|(of, ..)| *of == revision);
        let (_, all, was_there) = before.unwrap_or((revision, 0, false));
        let (all, is_there) = (all + members, was_there || is_there);
        if page["more"] == true {
            self.pages = Some((revision, all, is_there));
            return None;
        }
        Some((all, is_there))
    }
}

fn has(members: &Value, user: &str) -> bool {
    members.as_array().is_some_and(|members| members.iter().any(|member| member["user"] == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hears(messages: &[Value]) -> (Vec<String>, Option<ProbeError>) {
        let (tells, mut told) = mpsc::unbounded_channel();
        let part = Part { by: None, user: "u1".into(), clock: Clock::system(), tells };
        let mut list = List::default();
        let failed = messages.iter().find_map(|message| part.take(message, &mut list).err());
        let mut heard = Vec::new();
        while let Ok(Told { what, .. }) = told.try_recv() {
            heard.push(format!("{what:?}"));
        }
        (heard, failed)
    }

    #[test]
    fn a_list_in_pages_is_told_once_and_who_comes_and_goes_in_it() {
        let page = |rev: u64, user: &str, more: bool| json!({ "t": "snapshot", "rev": rev, "members": [{ "user": user }], "more": more });
        let gone = json!({ "t": "delta", "removals": [{ "user": "u1", "reason": "left", "silent_ms": 7 }] });
        let (heard, failed) = hears(&[
            page(1, "u1", true),
            // Another list begins before the first one was whole.
            page(2, "u2", true),
            page(2, "u3", false),
            json!({ "t": "delta", "upserts": [{ "user": "u1" }] }),
            json!({ "t": "delta", "upserts": [{ "user": "u1" }] }),
            gone.clone(),
            gone,
            page(3, "u1", false),
            page(4, "u2", false),
        ]);
        let silent = Duration::from_millis(7);
        let expected = [
            "Listed(2)".to_owned(),
            "Seen".to_owned(),
            format!("Gone(\"left\", {silent:?})"),
            "Seen".to_owned(),
            "Listed(1)".to_owned(),
            "Gone(\"not in the list any more\", 0ns)".to_owned(),
            "Listed(1)".to_owned(),
        ];
        assert_eq!((heard, failed.is_none()), (expected.to_vec(), true));
    }

    #[test]
    fn what_an_edge_says_against_it_is_waited_out_or_told() {
        let error = |code: &str, retry: Option<u64>| json!({ "t": "error", "code": code, "message": "m", "retry_after_ms": retry });
        let (_, failed) =
            hears(&[error("unavailable", None), error("rate_limited", Some(5)), error("bad_token", None)]);
        assert!(matches!(failed, Some(ProbeError::Refused(why)) if why == "bad_token: m"));
        let (_, failed) = hears(&[json!({ "t": "reconnect", "after_ms": 1, "reason": "drain" })]);
        assert!(matches!(failed, Some(ProbeError::Busy(_))));
        let (heard, failed) = hears(&[
            json!({ "t": "freshness", "region": "eu", "state": "live" }),
            json!({ "t": "freshness", "region": "eu", "state": "stale" }),
            json!({ "t": "of a later release" }),
        ]);
        let expected = ["Fresh(\"eu\", \"live\")".to_owned(), "Fresh(\"eu\", \"stale\")".to_owned()];
        assert_eq!((heard, failed.is_none()), (expected.to_vec(), true));
    }
}
