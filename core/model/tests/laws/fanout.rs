//! Receivers of two edges that see one roster at different moments: whoever has read all there is has
//! exactly what its edge shows, and every cursor it was ever given is true.

use bytes::Bytes;
use presence_model::cursor::Cursor;
use presence_model::fanout::{Flushed, FrameCache, Next, Receiver};
use presence_model::id::{RegionId, UserId};
use presence_model::replica::Freshness;
use presence_model::time::{Mono, StoreTime};
use presence_model::view::{RegionEvent, View, ViewDelta, ViewRevision};
use proptest::prelude::*;

use crate::oracle::{Edits, History, List, apply_view, config, edits, list};

const EDGES: usize = 2;
const CLIENTS: usize = 4;
const HELD: Freshness = Freshness::Held { since: StoreTime(1) };

#[derive(Debug, Clone)]
enum Step {
    Commit(Edits),
    /// To an edge, all or at most so many commits.
    Deliver(usize, u64),
    Snapshot {
        edge: usize,
        held: bool,
    },
    Live(usize),
    Flush(usize),
    Epoch(u8),
    /// A client takes one frame, with pages of so many members.
    Read(usize, usize),
    Resync(usize),
    /// A client comes back to an edge with what it kept.
    Move(usize, usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => edits().prop_map(Step::Commit),
        4 => (0..EDGES, 1..5u64).prop_map(|(edge, span)| Step::Deliver(edge, span)),
        1 => (0..EDGES, any::<bool>()).prop_map(|(edge, held)| Step::Snapshot { edge, held }),
        1 => (0..EDGES).prop_map(Step::Live),
        4 => (0..EDGES).prop_map(Step::Flush),
        1 => any::<u8>().prop_map(Step::Epoch),
        12 => (0..CLIENTS, 1..3usize).prop_map(|(client, size)| Step::Read(client, size)),
        1 => (0..CLIENTS).prop_map(Step::Resync),
        2 => (0..CLIENTS, 0..EDGES).prop_map(|(client, edge)| Step::Move(client, edge)),
        1 => (0..EDGES).prop_map(Step::Forget),
    ]
}

struct Edge {
    view: View,
    cache: FrameCache,
    flushed: Flushed,
    /// Encoded frames, by the number that stands for their bytes.
    frames: Vec<ViewDelta>,
}

/// A client that follows the rules of the protocol, and knows nothing else.
struct Client {
    edge: usize,
    receiver: Receiver,
    list: List,
    rev: Option<ViewRevision>,
    cursor: Cursor,
    /// Pages of a snapshot under way, and its `rev`.
    pages: Option<(ViewRevision, List)>,
}

struct Bench {
    region: RegionId,
    histories: Vec<History>,
    edges: Vec<Edge>,
    clients: Vec<Client>,
    now: Mono,
}

impl Bench {
    fn new() -> Self {
        let edge = || Edge {
            view: View::new(),
            cache: FrameCache::new(2),
            flushed: Flushed::default(),
            frames: Vec::new(),
        };
        let client = |at| Client {
            edge: at % EDGES,
            receiver: Receiver::new(None),
            list: List::new(),
            rev: None,
            cursor: Cursor::default(),
            pages: None,
        };
        Self {
            region: RegionId::new("eu").unwrap(),
            histories: vec![History::new(1, 0, List::new())],
            edges: (0..EDGES).map(|_| edge()).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            now: Mono::from_millis(0),
        }
    }

    fn newest(&self) -> &History {
        self.histories.last().unwrap()
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Commit(edits) => self.histories.last_mut().unwrap().commit(&edits),
            Step::Deliver(edge, span) => self.deliver(edge, span),
            Step::Snapshot { edge, held } => {
                let freshness = if held { HELD } else { Freshness::Live };
                let pages = self.newest().pages(self.newest().revision(), 2, freshness);
                pages.into_iter().for_each(|page| self.apply(edge, RegionEvent::Page(page)));
            }
            Step::Live(edge) => self.apply(edge, RegionEvent::Freshness(Freshness::Live)),
            Step::Flush(edge) => {
                let edge = &mut self.edges[edge];
                edge.flushed.flush(&edge.view);
                edge.cache.bound(edge.view.revision());
            }
            Step::Epoch(keep) => {
                let kept = self.newest().now().clone().into_iter().enumerate();
                let kept = kept.filter(|(at, _)| keep >> (at % 8) & 1 == 1).map(|(_, entry)| entry).collect();
                self.histories.push(History::new(self.histories.len() as u64 + 1, 2, kept));
            }
            Step::Read(client, size) => {
                self.read(client, size);
            }
            Step::Resync(client) => self.clients[client].receiver.resync(),
            Step::Move(client, edge) => {
                let client = &mut self.clients[client];
                // What is given to a new connection has been through the wire.
                let since = Cursor::decode(&client.cursor.encode()).unwrap();
                let receiver = Receiver::new(Some(since));
                (client.edge, client.receiver, client.rev, client.pages) = (edge, receiver, None, None);
            }
            Step::Forget(edge) => {
                self.now = self.now + std::time::Duration::from_secs(400);
                self.edges[edge].view.compact(self.now);
            }
        }
    }

    fn deliver(&mut self, edge: usize, span: u64) {
        let own = self.edges[edge].view.region(&self.region).and_then(|copy| copy.position());
        match own.filter(|own| own.epoch == self.newest().epoch) {
            None => self.run(Step::Snapshot { edge, held: false }),
            Some(own) => {
                let to = self.newest().revision().min(own.revision.0.saturating_add(span));
                let delta = self.newest().delta(own.revision.0, to);
                self.apply(edge, RegionEvent::Delta(delta));
            }
        }
    }

    fn apply(&mut self, edge: usize, event: RegionEvent) {
        self.edges[edge].view.apply(&self.region, event, self.now);
    }

    /// Gives a client its next frame; false if there is none.
    fn read(&mut self, client: usize, size: usize) -> bool {
        let at = self.clients[client].edge;
        let (edge, client) = (&mut self.edges[at], &mut self.clients[client]);
        match client.receiver.next(&edge.view) {
            Next::Nothing => return false,
            Next::Shared { .. } if client.receiver.skips(&edge.flushed) => {}
            Next::Shared { sent, from, to } => {
                let delta = edge.shared((sent, from), to);
                client.receiver.sent(to);
                client.delta(&delta);
            }
            Next::Answer(delta) => {
                client.receiver.sent(delta.to);
                client.delta(&delta);
            }
            Next::Page { revision, after } => {
                let members = edge.view.page(after.as_ref(), size);
                let last: Option<UserId> = members.last().map(|member| member.user.clone());
                let more = last.as_ref().is_some_and(|last| !edge.view.page(Some(last), 1).is_empty());
                client.receiver.page_sent(revision, last, more);
                client.page(revision, list(&members), edge.view.cursor_of(revision), more);
            }
            Next::CatchUp(_) => {
                client.receiver.asked();
                self.deliver(at, u64::MAX);
                return true;
            }
        }
        self.check(client_index(&self.clients, at));
        true
    }

    fn check(&self, clients: impl Iterator<Item = usize>) {
        for client in clients.map(|at| &self.clients[at]) {
            let view = &self.edges[client.edge].view;
            if client.receiver.at() == Some(view.revision()) && client.pages.is_none() {
                assert_eq!(
                    client.list,
                    list(&view.page(None, usize::MAX)),
                    "has read all, shows another list"
                );
            }
            if let Some(position) = client.cursor.get(&self.region) {
                let history = self.histories.iter().find(|history| history.epoch == position.epoch).unwrap();
                assert_eq!(client.list, *history.at(position.revision.0), "the cursor is not true");
            }
        }
    }

    fn converge(&mut self) {
        for edge in 0..EDGES {
            self.deliver(edge, u64::MAX);
            self.run(Step::Live(edge));
        }
        for client in 0..CLIENTS {
            let frames = (0..1_000).take_while(|_| self.read(client, 2)).count();
            assert!(frames < 10, "{frames} frames to catch up");
            assert_eq!(self.clients[client].list, *self.newest().now());
        }
    }
}

fn client_index(clients: &[Client], edge: usize) -> impl Iterator<Item = usize> {
    clients.iter().enumerate().filter(move |(_, client)| client.edge == edge).map(|(at, _)| at)
}

impl Edge {
    fn shared(&mut self, (sent, from): (ViewRevision, ViewRevision), to: ViewRevision) -> ViewDelta {
        let (view, frames) = (&self.view, &mut self.frames);
        let frame = self.cache.delta(view, (sent, from), |delta| {
            frames.push(delta.clone());
            Bytes::from((frames.len() - 1).to_string())
        });
        let number: usize = std::str::from_utf8(&frame.unwrap()).unwrap().parse().unwrap();
        let delta = self.frames[number].clone();
        assert!(delta.from.is_some_and(|start| start <= sent) && delta.to == to);
        delta
    }
}

impl Client {
    fn delta(&mut self, delta: &ViewDelta) {
        if let Some(from) = delta.from {
            let own = self.rev.expect("a delta with a start comes after what sets the revision");
            assert!(from <= own && own < delta.to, "a gap or a repetition");
        }
        apply_view(delta, &mut self.list);
        assert!(self.pages.is_none(), "a delta amid pages");
        (self.rev, self.cursor) = (Some(delta.to), delta.cursor.clone());
    }

    fn page(&mut self, revision: ViewRevision, members: List, cursor: Cursor, more: bool) {
        let begun = self.pages.take().filter(|(begun, _)| *begun == revision);
        let mut all = begun.map_or_else(List::new, |(_, all)| all);
        all.extend(members);
        if more {
            self.pages = Some((revision, all));
        } else {
            (self.list, self.rev, self.cursor) = (all, Some(revision), cursor);
        }
    }
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn who_reads_has_what_is_shown(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new();
        steps.into_iter().for_each(|step| bench.run(step));
        bench.converge();
    }
}

/// Commits to the newest history and brings it to the first edge, which flushes.
fn flush_after(bench: &mut Bench, commits: &[Edits]) {
    for edits in commits {
        bench.run(Step::Commit(edits.clone()));
        bench.run(Step::Deliver(0, 1));
    }
    bench.run(Step::Flush(0));
}

#[test]
fn who_is_as_before_at_the_flush_is_not_told_and_the_next_frame_follows() {
    let mut bench = Bench::new();
    flush_after(&mut bench, &[vec![(0, Some(1))]]);
    while bench.read(0, 9) {}
    let (rev, list) = (bench.clients[0].rev, bench.clients[0].list.clone());
    // More often than is remembered of flushes, and of touched users.
    for _ in 0..2_000 {
        flush_after(&mut bench, &[vec![(0, Some(2))], vec![(0, Some(1))]]);
        assert!(bench.read(0, 9), "its place moves on");
        assert!(!bench.read(0, 9));
    }
    assert!(bench.edges[0].frames.is_empty(), "nobody is told anything");
    assert_eq!((bench.clients[0].rev, &bench.clients[0].list), (rev, &list));
    flush_after(&mut bench, &[vec![(1, Some(1))]]);
    while bench.read(0, 9) {}
    let told = &bench.edges[0].frames;
    assert_eq!((told.len(), told[0].from, told[0].upserts.len()), (1, rev, 1), "one frame, of one user");
    bench.converge();
}

#[test]
fn who_came_in_between_is_told_what_came_back() {
    let mut bench = Bench::new();
    flush_after(&mut bench, &[vec![(0, Some(1))]]);
    while bench.read(0, 9) {}
    bench.run(Step::Commit(vec![(0, Some(2))]));
    bench.run(Step::Deliver(0, 1));
    bench.run(Step::Move(2, 0));
    while bench.read(2, 9) {}
    let between = bench.clients[2].list.clone();
    flush_after(&mut bench, &[vec![(0, Some(1))]]);
    while bench.read(2, 9) {}
    assert_ne!(bench.clients[2].list, between);
    assert_eq!(bench.clients[2].list, bench.clients[0].list);
}

#[test]
fn pages_of_several_moments_are_mended_also_if_all_is_as_when_they_began() {
    let mut bench = Bench::new();
    flush_after(&mut bench, &[vec![(0, Some(1)), (1, Some(1))]]);
    bench.read(0, 1);
    bench.run(Step::Commit(vec![(1, Some(2))]));
    bench.run(Step::Deliver(0, 1));
    bench.read(0, 1);
    flush_after(&mut bench, &[vec![(1, Some(1))]]);
    while bench.read(0, 1) {}
    assert_eq!(bench.clients[0].list, *bench.newest().now());
}
