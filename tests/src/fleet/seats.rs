//! The sessions of a fleet.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use presence_model::claim::Action;
use presence_proto::v1;
use tokio::time::Instant;

use crate::procs::{Keys, Timers};

/// Somebody who is to be present.
#[derive(Debug, Clone)]
pub struct Person {
    /// Where.
    pub room: String,
    /// Who.
    pub user: String,
}

impl Person {
    /// `count` people called `name-FIRST…`, in rooms of `per_room` called `room-…`.
    #[must_use]
    pub fn crowd(name: &str, first: usize, count: usize, per_room: usize) -> Vec<Self> {
        let person = |index: usize| Self {
            room: format!("room-{}", index / per_room),
            user: format!("{name}-{index}"),
        };
        (first..first + count).map(person).collect()
    }

    /// `count` people in one room.
    #[must_use]
    pub fn gathering(room: &str, name: &str, first: usize, count: usize) -> Vec<Self> {
        let person = |index: usize| Self { room: room.to_owned(), user: format!("{name}-{index}") };
        (first..first + count).map(person).collect()
    }
}

#[derive(Debug)]
struct Seat {
    person: Person,
    token: String,
    lease: Option<u64>,
    since_ms: u64,
    renew_at: Instant,
    speaks: bool,
}

pub(super) struct Seats {
    keys: Arc<Keys>,
    timers: Timers,
    seats: Vec<Seat>,
    of_user: BTreeMap<String, Vec<usize>>,
    of_lease: BTreeMap<u64, usize>,
    renewals: BTreeSet<(Instant, usize)>,
    to_join: VecDeque<usize>,
    later: BTreeSet<(Instant, usize)>,
    joining: BTreeSet<usize>,
}

impl Seats {
    pub(super) fn new(keys: Arc<Keys>, timers: Timers) -> Self {
        Self {
            keys,
            timers,
            seats: Vec::new(),
            of_user: BTreeMap::new(),
            of_lease: BTreeMap::new(),
            renewals: BTreeSet::new(),
            to_join: VecDeque::new(),
            later: BTreeSet::new(),
            joining: BTreeSet::new(),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.of_lease.len()
    }

    pub(super) fn add(&mut self, people: Vec<Person>) {
        for person in people {
            let index = self.seats.len();
            self.of_user.entry(person.user.clone()).or_default().push(index);
            let (token, renew_at) = (String::new(), Instant::now());
            self.seats.push(Seat { person, token, lease: None, since_ms: 0, renew_at, speaks: true });
            self.to_join.push_back(index);
        }
    }

    /// Answers that were under way on a former link will not come.
    pub(super) fn forget_joins(&mut self) {
        self.to_join.extend(std::mem::take(&mut self.joining));
    }

    pub(super) fn next_join(&mut self, now: Instant) -> anyhow::Result<Option<(usize, v1::Join)>> {
        while let Some((at, index)) = self.later.first().copied()
            && at <= now
        {
            self.later.pop_first();
            self.to_join.push_back(index);
        }
        let index = loop {
            match self.to_join.pop_front() {
                None => return Ok(None),
                Some(index) if self.seats[index].speaks => break index,
                Some(_) => {}
            }
        };
        let seat = &mut self.seats[index];
        if seat.token.is_empty() {
            seat.token = self.keys.token(&seat.person.user, &seat.person.room, Action::Join)?;
        }
        self.joining.insert(index);
        let join = v1::Join {
            room: seat.person.room.clone(),
            token: seat.token.clone(),
            session: format!("session-of-seat-{index:08}-{}", seat.person.user.len()),
            generation: Some(1),
            connection: index as u64 + 1,
            rejoin_since_ms: (seat.since_ms > 0).then_some(seat.since_ms),
            ..v1::Join::default()
        };
        Ok(Some((index, join)))
    }

    pub(super) fn later(&mut self, index: usize, at: Instant) {
        self.joining.remove(&index);
        self.later.insert((at, index));
    }

    pub(super) fn granted(&mut self, index: usize, granted: &v1::Granted) {
        self.joining.remove(&index);
        let seat = &mut self.seats[index];
        seat.since_ms = granted.since_ms;
        if let Some(old) = seat.lease.replace(granted.lease) {
            self.of_lease.remove(&old);
        }
        if !seat.speaks {
            return;
        }
        self.of_lease.insert(granted.lease, index);
        self.renewals.remove(&(seat.renew_at, index));
        // The first renewal comes at a place of its own, so that those who came together do not stay so.
        let period = self.timers.heartbeat * 2 / 3;
        let share = u32::try_from(index * 7_919 % 1_000).unwrap_or(0);
        seat.renew_at = Instant::now() + period * share / 1_000;
        self.renewals.insert((seat.renew_at, index));
    }

    /// Leases whose renewal is due; each is due again two thirds of a heartbeat later.
    pub(super) fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((at, index)) = self.renewals.first().copied()
            && at <= now
        {
            self.renewals.pop_first();
            let seat = &mut self.seats[index];
            if let Some(lease) = seat.lease.filter(|_| seat.speaks) {
                due.push(lease);
                seat.renew_at = at.max(now - self.timers.heartbeat) + self.timers.heartbeat * 2 / 3;
                self.renewals.insert((seat.renew_at, index));
            }
        }
        due
    }

    pub(super) fn all(&self) -> Vec<u64> {
        self.of_lease.keys().copied().collect()
    }

    /// Leases that the store does not know: their sessions join again.
    pub(super) fn unknown(&mut self, leases: &[u64]) -> u64 {
        let mut count = 0;
        for lease in leases {
            if let Some(index) = self.of_lease.remove(lease) {
                self.seats[index].lease = None;
                self.to_join.push_back(index);
                count += 1;
            }
        }
        count
    }

    /// The core ended a lease; whose it was.
    pub(super) fn end(&mut self, lease: u64) -> Option<String> {
        let index = self.of_lease.remove(&lease)?;
        let seat = &mut self.seats[index];
        seat.lease = None;
        seat.speaks = false;
        Some(seat.person.user.clone())
    }

    pub(super) fn silence(&mut self, users: &[String]) {
        for index in self.indices(users) {
            self.silence_seat(index);
        }
    }

    pub(super) fn silence_seat(&mut self, index: usize) {
        self.joining.remove(&index);
        let seat = &mut self.seats[index];
        seat.speaks = false;
        if let Some(lease) = seat.lease {
            self.of_lease.remove(&lease);
        }
    }

    /// Leases, rooms and users of those who leave.
    pub(super) fn leave(&mut self, users: &[String]) -> Vec<(u64, String, String)> {
        let mut left = Vec::new();
        for index in self.indices(users) {
            self.silence_seat(index);
            let seat = &mut self.seats[index];
            if let Some(lease) = seat.lease.take() {
                left.push((lease, seat.person.room.clone(), seat.person.user.clone()));
            }
        }
        left
    }

    fn indices(&self, users: &[String]) -> Vec<usize> {
        users.iter().filter_map(|user| self.of_user.get(user)).flatten().copied().collect()
    }
}
