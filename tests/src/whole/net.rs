//! A simulated network: bytes between addresses, with delay, cuts that may be one-way, and resets.
//!
//! What TCP promises holds: bytes of one connection arrive in order, or it breaks. Between connections
//! nothing is ordered. What cannot pass waits, as it would be sent again, and goes on some time after the way
//! is free. Delays depend on seed, connection and time alone, so that one more packet here changes no delay
//! elsewhere.

mod stream;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use futures::future::{BoxFuture, poll_fn};
use presence_runtime::network::{Accept, Duplex, Network, Simulated};

use self::stream::NetStream;
use self::wire::{Holder, Packet, Wire};

/// First port that is picked for whoever asks for none.
const FIRST_PORT: u16 = 40_000;
/// The longest span after a way is free again until what waited passes: back-off of whoever sends again.
const SENT_AGAIN_WITHIN_MS: u64 = 3_000;
/// Delays are drawn from here, in milliseconds.
const DELAY_MS: std::ops::RangeInclusive<u64> = 1..=25;
/// One packet in so many is delayed by much more.
const LATE_OF: u64 = 97;
/// And that much, at most.
const LATE_MS: u64 = 400;

/// All addresses and connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Net(Arc<Mutex<State>>);

struct State {
    seed: u64,
    now: u64,
    slow: u64,
    machines: BTreeMap<IpAddr, Machine>,
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    wires: BTreeMap<u64, Wire>,
    wires_made: u64,
}

#[derive(Default)]
struct Machine {
    /// Nothing reaches it and nothing leaves it, not even the end of a connection.
    dark: bool,
    ports_given: u16,
    listeners: BTreeMap<u16, Listening>,
}

#[derive(Default)]
struct Listening {
    waiting: VecDeque<u64>,
    waker: Option<Waker>,
}

impl Net {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            seed,
            now: 0,
            slow: 1,
            machines: BTreeMap::new(),
            cuts: BTreeSet::new(),
            wires: BTreeMap::new(),
            wires_made: 0,
        })))
    }

    /// The network as the machine of that address has it.
    pub(super) fn at(&self, address: IpAddr) -> Network {
        Network::simulated(Arc::new(At { net: self.clone(), address }))
    }

    /// Lets time pass: what arrives by then is delivered.
    pub(super) fn tick(&self, now: u64) {
        let mut state = self.lock();
        state.now = now;
        state.deliver();
    }

    /// Packets from here to there do not pass, or do again.
    pub(super) fn cut(&self, from: IpAddr, to: IpAddr, is_cut: bool) {
        let mut state = self.lock();
        if is_cut {
            state.cuts.insert((from, to));
        } else {
            state.cuts.remove(&(from, to));
        }
    }

    /// The machine loses its power, or has it again. Its connections are not ended by that.
    pub(super) fn darken(&self, address: IpAddr, dark: bool) {
        self.lock().machines.entry(address).or_default().dark = dark;
    }

    /// Breaks every connection between the two.
    pub(super) fn reset(&self, one: IpAddr, other: IpAddr) {
        let mut state = self.lock();
        for wire in state.wires.values_mut().filter(|wire| wire.is_between(one, other)) {
            wire.break_now();
        }
    }

    /// Every packet takes so many times as long.
    pub(super) fn slow(&self, factor: u64) {
        self.lock().slow = factor;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with this lock")
    }
}

/// A well mixed number of these: whoever has the same gets the same.
pub(super) fn lot(seed: u64, parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(seed, |mixed, part| {
        let mut z = mixed.wrapping_add(part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A delay in milliseconds drawn by these.
pub(super) fn delay_ms(seed: u64, parts: [u64; 3]) -> u64 {
    let drawn = lot(seed, parts);
    let common = DELAY_MS.start() + drawn % (DELAY_MS.end() - DELAY_MS.start() + 1);
    if (drawn >> 32).is_multiple_of(LATE_OF) { common + (drawn >> 40) % LATE_MS } else { common }
}

impl State {
    fn delay(&self, wire: u64, way: usize) -> u64 {
        delay_ms(self.seed, [wire, way as u64, self.now]) * self.slow
    }

    fn send(&mut self, id: u64, way: usize, packet: Packet) {
        let arrives = self.now + self.delay(id, way);
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.ways[way].send(packet, arrives);
        }
    }

    fn is_blocked(&self, from: IpAddr, to: IpAddr) -> bool {
        self.cuts.contains(&(from, to)) || self.is_dark(to)
    }

    fn is_dark(&self, address: IpAddr) -> bool {
        self.machines.get(&address).is_some_and(|machine| machine.dark)
    }

    fn deliver(&mut self) {
        let ids: Vec<u64> = self.wires.keys().copied().collect();
        for id in ids {
            for way in 0..2 {
                while let Some(packet) = self.arrival(id, way) {
                    self.arrive(id, way, packet);
                }
            }
            if self.wires.get(&id).is_some_and(Wire::is_over) {
                self.wires.remove(&id);
            }
        }
    }

    /// The next packet that arrives now.
    fn arrival(&mut self, id: u64, way: usize) -> Option<Packet> {
        let (from, to) = self.wires.get(&id)?.route(way);
        let (now, seed, blocked) = (self.now, self.seed, self.is_blocked(from, to));
        let way_ = &mut self.wires.get_mut(&id)?.ways[way];
        if !way_.is_due(now) {
            return None;
        }
        if blocked {
            way_.blocked_since.get_or_insert(now);
            return None;
        }
        if let Some(since) = way_.blocked_since.take() {
            let most = (now - since).clamp(1, SENT_AGAIN_WITHIN_MS);
            way_.stalled_until = now + lot(seed, [id, way as u64, now]) % most;
        }
        way_.take_due(now)
    }

    fn arrive(&mut self, id: u64, way: usize, packet: Packet) {
        let back = 1 - way;
        if matches!(packet, Packet::Syn) {
            let answer = if self.is_listening(id) { Packet::Accepted } else { Packet::Reset };
            return self.send(id, back, answer);
        }
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if wire.land(way, packet).is_err() {
            self.send(id, back, Packet::Reset);
        }
    }

    /// Hands a new connection to whoever listens there.
    fn is_listening(&mut self, id: u64) -> bool {
        let Some(wire) = self.wires.get(&id) else { return false };
        let address = wire.ends[1].address;
        let listener = self
            .machines
            .get_mut(&address.ip())
            .and_then(|machine| machine.listeners.get_mut(&address.port()));
        let Some(listener) = listener else { return false };
        listener.waiting.push_back(id);
        if let Some(waker) = listener.waker.take() {
            waker.wake();
        }
        true
    }

    fn open(&mut self, from: IpAddr, to: SocketAddr) -> u64 {
        self.wires_made += 1;
        let id = self.wires_made;
        let machine = self.machines.entry(from).or_default();
        machine.ports_given = machine.ports_given % (u16::MAX - FIRST_PORT) + 1;
        let from = SocketAddr::new(from, FIRST_PORT + machine.ports_given);
        self.wires.insert(id, Wire::new(from, to));
        self.send(id, 0, Packet::Syn);
        id
    }

    /// Whoever held that end has dropped it.
    fn drop_end(&mut self, id: u64, end: usize) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let (last, at) = (wire.abandon(end), wire.ends[end].address.ip());
        if let Some(last) = last.filter(|_| !self.is_dark(at)) {
            self.send(id, end, last);
        }
    }
}

/// The network seen from one address.
struct At {
    net: Net,
    address: IpAddr,
}

impl Simulated for At {
    fn listen(&self, address: SocketAddr) -> io::Result<(SocketAddr, Box<dyn Accept>)> {
        let mut state = self.net.lock();
        let machine = state.machines.entry(self.address).or_default();
        let port = match address.port() {
            0 => (FIRST_PORT..).find(|port| !machine.listeners.contains_key(port)),
            port => Some(port).filter(|port| !machine.listeners.contains_key(port)),
        };
        let port = port.ok_or(io::ErrorKind::AddrInUse)?;
        machine.listeners.insert(port, Listening::default());
        let address = SocketAddr::new(self.address, port);
        Ok((address, Box::new(Acceptor { net: self.net.clone(), address })))
    }

    fn connect(&self, target: String) -> BoxFuture<'static, io::Result<Box<dyn Duplex>>> {
        let (net, from) = (self.net.clone(), self.address);
        Box::pin(async move {
            let to = target.parse().map_err(|_| io::ErrorKind::NotFound)?;
            let wire = net.lock().open(from, to);
            // Held from here on: a connection that nobody waits for any more is given up.
            let stream = NetStream::new(net.clone(), wire, 0);
            poll_fn(|cx| {
                let mut state = net.lock();
                let Some(wire) = state.wires.get_mut(&wire) else {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
                };
                wire.poll_accepted(cx)
            })
            .await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

struct Acceptor {
    net: Net,
    address: SocketAddr,
}

impl Accept for Acceptor {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Duplex>, SocketAddr)>> {
        Box::pin(poll_fn(|cx| {
            let mut state = self.net.lock();
            let State { machines, wires, .. } = &mut *state;
            let machine = machines.get_mut(&self.address.ip());
            let listener = machine.and_then(|machine| machine.listeners.get_mut(&self.address.port()));
            let Some(listener) = listener else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            while let Some(id) = listener.waiting.pop_front() {
                let Some(wire) = wires.get_mut(&id) else { continue };
                wire.ends[1].holder = Holder::Somebody;
                let peer = wire.ends[0].address;
                let stream = NetStream::new(self.net.clone(), id, 1);
                return Poll::Ready(Ok((Box::new(stream) as Box<dyn Duplex>, peer)));
            }
            listener.waker = Some(cx.waker().clone());
            Poll::Pending
        }))
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        let mut state = self.net.lock();
        let machine = state.machines.get_mut(&self.address.ip());
        let listener = machine.and_then(|machine| machine.listeners.remove(&self.address.port()));
        for id in listener.into_iter().flat_map(|listener| listener.waiting) {
            state.drop_end(id, 1);
        }
    }
}

#[cfg(test)]
mod tests;
