//! The list that a client keeps by the frames it is sent, as the page on the protocol says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use presence_model::cursor::Cursor;
use presence_model::id::RegionId;
use presence_model::position::Position;
use serde_json::Value;

use super::{Look, Members, Shown};

/// Somebody is in the list no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// Who.
    pub user: String,
    /// The reason as told; `not_listed` if a list just lacks them.
    pub reason: String,
}

/// A frame that does not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// Where the list is.
    pub own: Option<u64>,
    /// What came.
    pub frame: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "own revision {:?}, then {}", self.own, self.frame)
    }
}

/// A list. It outlives connections.
#[derive(Debug, Clone, Default)]
pub struct List {
    members: Members,
    unconfirmed: BTreeSet<String>,
    paging: Option<(u64, Members)>,
    revision: Option<u64>,
    cursor: Option<String>,
    live: bool,
}

impl List {
    /// What to resume from.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref().filter(|cursor| !cursor.is_empty())
    }

    /// The connection is gone; the list stays.
    pub fn disconnected(&mut self) {
        self.paging = None;
        self.revision = None;
        self.live = false;
    }

    /// Takes a frame; what is to be seen now, if that may have changed and the list is complete.
    ///
    /// # Errors
    /// [`Gap`].
    pub fn take(&mut self, frame: &Value, region: &RegionId) -> Result<Option<Look>, Gap> {
        let before = self.members.clone();
        let mut reasons = BTreeMap::new();
        match frame["t"].as_str() {
            // A region is live unless the edge of this connection says otherwise.
            Some("hello") => {
                self.live = true;
                return Ok(None);
            }
            Some("snapshot") => self.page(frame),
            Some("delta") => self.delta(frame, &mut reasons)?,
            Some("freshness") => {
                self.live = frame["state"] == "live";
                self.settle();
            }
            Some(_) | None => return Ok(None),
        }
        if self.paging.is_some() || self.revision.is_none() {
            return Ok(None);
        }
        let gone = before.keys().filter(|user| !self.members.contains_key(*user));
        let gone = gone.map(|user| Departure {
            user: user.clone(),
            reason: reasons.get(user).cloned().unwrap_or_else(|| "not_listed".to_owned()),
        });
        // A cursor speaks of what the edge sent; whom nobody has confirmed is this client's own.
        let position = if self.unconfirmed.is_empty() { self.position(region) } else { None };
        Ok(Some(Look {
            position,
            live: self.live,
            gone: gone.collect(),
            members: Arc::new(self.members.clone()),
        }))
    }

    fn position(&self, region: &RegionId) -> Option<Position> {
        Cursor::decode(self.cursor()?).ok()?.get(region)
    }

    fn page(&mut self, frame: &Value) {
        let revision = frame["rev"].as_u64().unwrap_or(0);
        let (_, mut listed) = self.paging.take().filter(|(of, _)| *of == revision).unwrap_or_default();
        listed.extend(frame["members"].as_array().into_iter().flatten().map(member));
        if frame["more"] == true {
            self.paging = Some((revision, listed));
            return;
        }
        self.revision = Some(revision);
        self.cursor = frame["cursor"].as_str().map(str::to_owned);
        self.unconfirmed = self.members.keys().filter(|user| !listed.contains_key(*user)).cloned().collect();
        self.members.extend(listed);
        self.settle();
    }

    /// Whom nobody has confirmed goes once the region is live.
    fn settle(&mut self) {
        if self.live && self.paging.is_none() && self.revision.is_some() {
            for user in std::mem::take(&mut self.unconfirmed) {
                self.members.remove(&user);
            }
        }
    }

    fn delta(&mut self, frame: &Value, reasons: &mut BTreeMap<String, String>) -> Result<(), Gap> {
        let gap = || Gap { own: self.revision, frame: frame.to_string() };
        let to = frame["rev"].as_u64().unwrap_or(0);
        if let Some(from) = frame["prev"].as_u64() {
            let own = self.revision.ok_or_else(gap)?;
            if to <= own {
                return Ok(());
            }
            if from > own {
                return Err(gap());
            }
        }
        for (user, shown) in frame["upserts"].as_array().into_iter().flatten().map(member) {
            self.unconfirmed.remove(&user);
            self.members.insert(user, shown);
        }
        for removal in frame["removals"].as_array().into_iter().flatten() {
            let user = text(&removal["user"]);
            self.unconfirmed.remove(&user);
            self.members.remove(&user);
            reasons.insert(user, text(&removal["reason"]));
        }
        self.revision = Some(to);
        self.cursor = frame["cursor"].as_str().map(str::to_owned);
        self.settle();
        Ok(())
    }
}

fn member(frame: &Value) -> (String, Shown) {
    let shown = Shown {
        status: text(&frame["status"]),
        state: frame["state"].to_string(),
        since: frame["since"].as_u64().unwrap_or(0),
    };
    (text(&frame["user"]), shown)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
