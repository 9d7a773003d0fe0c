//! The table of peers: what the names in certificates stand for. A file of its own, followed while running.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use presence_model::id::{EdgeName, RegionId};
use presence_model::limits::NAME_BYTES_MAX;
use presence_runtime::clock::Clock;
use presence_runtime::reload::{Files, Looked, Reload, Shown, Unread, read_now};
use presence_runtime::tls::PeerNames;
use presence_runtime::tokens::Scope;
use serde::Deserialize;
use smol_str::SmolStr;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::{PEERS_BYTES_MAX, PEERS_MAX};

/// What names in certificates stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(BTreeMap<SmolStr, Named>);

/// What one name stands for, or all names of one certificate together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    /// Edges it may speak for.
    pub edges: Vec<EdgeRule>,
    /// What it may do as a service.
    pub grants: Vec<Grant>,
    /// Regions whose cores it may speak for.
    pub cores: Vec<RegionId>,
}

/// Edges that one certificate speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeRule {
    /// Their names; one that ends in `*` stands for all that begin so.
    names: Vec<SmolStr>,
    /// Regions they may be of.
    regions: Vec<RegionId>,
}

/// Some scopes over some rooms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub scopes: Vec<Scope>,
    /// In rooms whose names begin with one of these.
    pub rooms: Vec<SmolStr>,
}

impl Grant {
    /// Whether a room, or all rooms with a prefix, are in it.
    #[must_use]
    pub fn covers(&self, scope: Scope, asked: &str) -> bool {
        self.scopes.contains(&scope) && self.rooms.iter().any(|prefix| asked.starts_with(prefix.as_str()))
    }
}

impl Grant {
    /// Whether others together have each of its scopes in each of its rooms.
    fn is_within(&self, others: &[Self]) -> bool {
        let is_covered =
            |scope, prefix: &SmolStr| others.iter().any(|other| other.covers(scope, prefix.as_str()));
        self.scopes.iter().all(|scope| self.rooms.iter().all(|prefix| is_covered(*scope, prefix)))
    }
}

impl EdgeRule {
    /// Whether others together have each of its names in each of its regions.
    fn is_within(&self, others: &[Self]) -> bool {
        let is_covered = |name: &SmolStr, region: &RegionId| {
            let of_region = others.iter().filter(|other| other.regions.contains(region));
            of_region.flat_map(|other| &other.names).any(|other| match other.strip_suffix('*') {
                Some(head) => name.starts_with(head),
                None => other == name,
            })
        };
        self.names.iter().all(|name| self.regions.iter().all(|region| is_covered(name, region)))
    }

    /// Whether an edge of that name may link for that region.
    #[must_use]
    pub fn permits(&self, edge: &EdgeName, region: &RegionId) -> bool {
        self.names(edge) && self.regions.contains(region)
    }

    /// Whether it is for an edge of that name.
    #[must_use]
    pub fn names(&self, edge: &EdgeName) -> bool {
        self.names.iter().any(|name| match name.strip_suffix('*') {
            Some(head) => edge.as_str().starts_with(head),
            None => edge.as_str() == name,
        })
    }
}

impl Named {
    /// Whether nothing is lost from this to another one, however either is written.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.edges.iter().all(|rule| rule.is_within(&other.edges))
            && self.grants.iter().all(|grant| grant.is_within(&other.grants))
            && self.cores.iter().all(|region| other.cores.contains(region))
    }
}

/// Why a table was refused: each mistake.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PeersFault(Vec<String>);

impl fmt::Display for PeersFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeers {
    #[serde(default)]
    edge: Vec<RawEdge>,
    #[serde(default)]
    service: Vec<RawService>,
    #[serde(default)]
    core: Vec<RawCore>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCore {
    certificate: String,
    regions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEdge {
    certificate: String,
    names: Vec<String>,
    regions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawService {
    certificate: String,
    scopes: Vec<String>,
    rooms: Vec<String>,
}

impl Peers {
    /// Reads a table: TOML, with `[[edge]]`, `[[service]]` and `[[core]]` entries.
    ///
    /// # Errors
    /// All that is wrong with it; of what is no such TOML the first.
    pub fn parse(text: &str) -> Result<Self, PeersFault> {
        let raw: RawPeers = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let line = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            PeersFault(vec![format!("{line}{}", error.message())])
        })?;
        let mut reader = Reader { peers: Self::default(), mistakes: Vec::new() };
        for (place, edge) in raw.edge.into_iter().enumerate() {
            reader.edge(place, edge);
        }
        for (place, service) in raw.service.into_iter().enumerate() {
            reader.service(place, service);
        }
        for (place, core) in raw.core.into_iter().enumerate() {
            reader.core(place, core);
        }
        if reader.peers.0.is_empty() && reader.mistakes.is_empty() {
            // A file that is just being written is empty as well, and would cut everybody off.
            reader.mistakes.push("names nobody: give an [[edge]], a [[service]] or a [[core]]".to_owned());
        }
        if reader.peers.0.len() > PEERS_MAX {
            reader.mistakes.push(format!("there are more than {PEERS_MAX} certificates"));
        }
        if reader.mistakes.is_empty() { Ok(reader.peers) } else { Err(PeersFault(reader.mistakes)) }
    }

    /// Reads a file once, for whoever only wants to know whether it is good. Blocks.
    ///
    /// # Errors
    /// [`PeersFault`].
    pub fn read(path: &Path) -> Result<Self, PeersFault> {
        parse_bytes(&read_now(path, PEERS_BYTES_MAX).map_err(unread)?)
    }

    /// What the names of a certificate stand for, together; none: nobody knows them.
    #[must_use]
    pub fn named(&self, names: &PeerNames) -> Option<Named> {
        let mut all: Option<Named> = None;
        for name in names.iter() {
            if let Some(named) = self.0.get(&normal(name)) {
                let all = all.get_or_insert_default();
                all.edges.extend(named.edges.iter().cloned());
                all.grants.extend(named.grants.iter().cloned());
                all.cores.extend(named.cores.iter().cloned());
            }
        }
        all
    }
}

/// Collects entries and mistakes.
struct Reader {
    peers: Peers,
    mistakes: Vec<String>,
}

impl Reader {
    fn edge(&mut self, place: usize, edge: RawEdge) {
        let path = format!("edge[{place}]");
        let is_name = |name: &String| {
            let head = name.strip_suffix('*').unwrap_or(name);
            if head.is_empty() && name == "*" { Ok(()) } else { EdgeName::new(head).map(drop) }
        };
        self.check_all(
            &format!("{path}.names"),
            &edge.names,
            "edge-1, or edge-* for all that begin so",
            is_name,
        );
        let regions = self.regions(&path, &edge.regions);
        let rule = EdgeRule { names: edge.names.into_iter().map(SmolStr::from).collect(), regions };
        if let Some(named) = self.named(&path, &edge.certificate) {
            named.edges.push(rule);
        }
    }

    fn core(&mut self, place: usize, core: RawCore) {
        let path = format!("core[{place}]");
        let regions = self.regions(&path, &core.regions);
        if let Some(named) = self.named(&path, &core.certificate) {
            named.cores.extend(regions);
        }
    }

    fn regions(&mut self, path: &str, given: &[String]) -> Vec<RegionId> {
        self.check_all(&format!("{path}.regions"), given, "eu-west", |region| {
            RegionId::new(region).map(drop)
        });
        given.iter().filter_map(|region| RegionId::new(region).ok()).collect()
    }

    fn service(&mut self, place: usize, service: RawService) {
        let path = format!("service[{place}]");
        self.check_all(&format!("{path}.scopes"), &service.scopes, "presence.read", |word| {
            Scope::of(word).map(drop).ok_or_else(|| format!("is none of {}", Scope::WORDS.join(", ")))
        });
        self.check_all(
            &format!("{path}.rooms"),
            &service.rooms,
            "team-a:, or an empty text for all rooms",
            |prefix| {
                if prefix.len() > NAME_BYTES_MAX { Err("is longer than any room") } else { Ok(()) }
            },
        );
        let scopes = service.scopes.iter().filter_map(|word| Scope::of(word)).collect();
        let grant = Grant { scopes, rooms: service.rooms.into_iter().map(SmolStr::from).collect() };
        if let Some(named) = self.named(&path, &service.certificate) {
            named.grants.push(grant);
        }
    }

    fn check_all<E: fmt::Display>(
        &mut self,
        path: &str,
        given: &[String],
        example: &str,
        check: impl Fn(&String) -> Result<(), E>,
    ) {
        if given.is_empty() {
            self.mistakes.push(format!("{path} is empty: give at least one; example: {example}"));
        }
        for value in given {
            if let Err(rule) = check(value) {
                self.mistakes.push(format!("{path} = {value:?}: {rule}; example: {example}"));
            }
        }
    }

    fn named(&mut self, path: &str, certificate: &str) -> Option<&mut Named> {
        if certificate.is_empty() || certificate.len() > NAME_BYTES_MAX {
            self.mistakes.push(format!(
                "{path}.certificate = {certificate:?}: is a DNS name or a URI of 1 to {NAME_BYTES_MAX} bytes; \
                 example: edge-1.example"
            ));
            return None;
        }
        Some(self.peers.0.entry(normal(certificate)).or_default())
    }
}

/// DNS names count whatever their case; URIs as they are.
fn normal(name: &str) -> SmolStr {
    if name.contains(':') { name.into() } else { name.to_ascii_lowercase().into() }
}

fn parse_bytes(bytes: &[u8]) -> Result<Peers, PeersFault> {
    let text = std::str::from_utf8(bytes).map_err(|_| PeersFault(vec!["is no text".to_owned()]))?;
    Peers::parse(text)
}

fn unread(unread: Unread) -> PeersFault {
    PeersFault(vec![unread.to_string()])
}

/// A table that follows its file.
#[derive(Debug)]
pub struct PeersFile(Files<PeersReload>);

#[derive(Debug)]
struct PeersReload(watch::Sender<Arc<Peers>>);

impl PeersFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// [`PeersFault`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, PeersFault> {
        let files = Files::open(vec![path.into()], |contents| {
            let peers = parse_bytes(contents.first().map_or(&[][..], Vec::as_slice))?;
            Ok(PeersReload(watch::Sender::new(Arc::new(peers))))
        });
        Ok(Self(files.await?))
    }

    /// The table in force, as that changes.
    #[must_use]
    pub fn peers(&self) -> watch::Receiver<Arc<Peers>> {
        self.0.reload().0.subscribe()
    }

    /// Looks at the file once, and takes a new table over if it is good.
    pub async fn look(&mut self) -> Looked<PeersFault> {
        self.0.look().await
    }

    /// Looks now and then until `stop`; says what it found, a lasting fault once.
    pub async fn follow(self, clock: Clock, stop: CancellationToken) {
        self.0.follow(clock, stop).await;
    }
}

impl Reload for PeersReload {
    type Fault = PeersFault;

    const WHAT: &'static str = "peers";
    const BYTES_MAX: u64 = PEERS_BYTES_MAX;

    fn unread(_: &Path, fault: Unread) -> PeersFault {
        unread(fault)
    }

    fn take(&mut self, contents: &[Vec<u8>]) -> Result<(), PeersFault> {
        contents.iter().try_for_each(|bytes| {
            self.0.send_replace(Arc::new(parse_bytes(bytes)?));
            Ok(())
        })
    }

    fn announce(&self, paths: &[PathBuf]) {
        let certificates = self.0.borrow().0.len();
        tracing::info!(paths = %Shown(paths), certificates, "peers in force");
    }
}

#[cfg(test)]
mod tests;
