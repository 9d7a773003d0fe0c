//! People, each in one room of some region at a time, or on the way to another.

use std::time::Duration;

use presence_model::cursor::Cursor;
use presence_model::id::{ConnectionId, Generation, SessionId, UserId};
use presence_model::lease::LeaseId;
use presence_model::link::{GrantDown, JoinUp, LinkUp, RequestId};
use presence_model::position::Position;
use presence_model::profile::{Profile, Status};
use presence_model::reason::{LeaveReason, ReleaseReason};
use rand::RngExt as _;

use super::edges::token;
use super::{Event, Lands, Parting};
use crate::sim::chance::{Chance, Purpose, chance};
use crate::sim::faults::Move;

/// Who comes to another region stays where it was for so long, before it says goodbye there.
const GOODBYE_AFTER: Duration = Duration::from_millis(900);
/// Whoever was told that it is over is back then.
const BACK_AFTER: Duration = Duration::from_millis(500);

/// Somebody.
pub(super) struct Person {
    pub(super) user: UserId,
    pub(super) room: usize,
    chance: Chance,
    session: SessionId,
    generation: u64,
    /// What it plans counts only until it plans something else.
    plans: u64,
    stay: Option<Stay>,
    busy: bool,
}

/// Where somebody is, or asks to be.
struct Stay {
    land: usize,
    request: RequestId,
    lease: Option<LeaseId>,
    /// Where it was, and how it parts from there once it is in.
    leaves: Option<((usize, LeaseId), Parting, Duration)>,
}

impl Person {
    pub(super) fn new(seed: u64, number: usize, rooms: usize) -> Self {
        Self {
            user: UserId::new(format!("u{number}")).expect("a name"),
            room: number % rooms,
            chance: chance(seed, Purpose::Tab, number as u64),
            session: SessionId::new(format!("session-of-u{number:0>6}")).expect("a name"),
            generation: 0,
            plans: 0,
            stay: None,
            busy: false,
        }
    }
}

impl Lands {
    pub(super) fn return_after(&mut self, person: usize, delay: Duration) {
        self.people[person].plans += 1;
        let number = self.people[person].plans;
        self.after(delay, Event::Return(person, number));
    }

    pub(super) fn come_back(&mut self, person: usize, number: u64) {
        let lands = self.regions.len();
        let somebody = &mut self.people[person];
        if somebody.plans == number && somebody.stay.is_none() {
            let land = somebody.chance.random_range(0..lands);
            self.enter(person, land, None);
        }
    }

    /// Somebody asks to be let in.
    fn enter(&mut self, person: usize, land: usize, leaves: Option<((usize, LeaseId), Parting, Duration)>) {
        self.people[person].plans += 1;
        self.people[person].generation += 1;
        let from = leaves.as_ref().map(|((from, _), ..)| *from);
        let cursor = self.cursor_of(person, land, from);
        self.account.comes(person, land, from.is_some());
        let mut join = self.join_of(person, RequestId(0), cursor);
        let request = self.say(land, person, |request| {
            join.request = request;
            LinkUp::Join(Box::new(join))
        });
        self.people[person].stay = Some(Stay { land, request, lease: None, leaves });
    }

    /// What somebody says who wants in, as the attempt that it is.
    fn join_of(&self, person: usize, request: RequestId, cursor: Cursor) -> JoinUp {
        let somebody = &self.people[person];
        JoinUp {
            request,
            room: self.rooms[somebody.room].clone(),
            token: token(person),
            session: somebody.session.clone(),
            generation: Some(Generation(somebody.generation)),
            connection: ConnectionId(somebody.generation << 16 | person as u64),
            profile: Profile::default(),
            client: "sim".into(),
            rejoin: None,
            cursor,
        }
    }

    /// What a client says that it has seen: of where it was. Now and then it has forgotten, where the core that it comes
    /// to sees it elsewhere by itself.
    fn cursor_of(&mut self, person: usize, land: usize, from: Option<usize>) -> Cursor {
        let Some(from) = from else { return Cursor::default() };
        let forgets = self.people[person].chance.random_bool(0.4);
        if forgets && self.is_long_seen(person, (land, from)) {
            return Cursor::default();
        }
        Cursor::new([(self.regions[from].clone(), Position::default())].into())
    }

    pub(super) fn answered_join(
        &mut self,
        person: usize,
        (land, request): (usize, RequestId),
        outcome: Option<GrantDown>,
    ) {
        let is_wanted = |stay: &&mut Stay| (stay.land, stay.request) == (land, request);
        if self.people[person].stay.as_mut().filter(is_wanted).is_some() {
            self.account.came(person, land);
        }
        let Some(grant) = outcome else {
            // Refused: it is known there by something later, and tries again as that.
            if self.people[person].stay.as_mut().filter(is_wanted).is_some() {
                self.people[person].stay = None;
                self.return_after(person, BACK_AFTER);
            }
            return;
        };
        self.note("in", &format!("u{person} in region {land}, g{}", grant.generation));
        match self.people[person].stay.as_mut().filter(is_wanted) {
            Some(stay) => {
                stay.lease = Some(grant.lease);
                let leaves = stay.leaves.take();
                self.edges[land].leases.insert(grant.lease, person);
                if let Some((from, how, span)) = leaves {
                    self.after(span, Event::Part(person, from, how));
                }
            }
            // It has gone meanwhile.
            None => self.part_from(person, (land, grant.lease), Parting::Drop),
        }
    }

    /// A session was told that it is over.
    pub(super) fn over(&mut self, person: usize, (land, lease): (usize, LeaseId)) {
        let stay = self.people[person].stay.as_ref();
        if stay.is_some_and(|stay| stay.land == land && stay.lease == Some(lease)) {
            self.people[person].stay = None;
            self.return_after(person, BACK_AFTER);
        }
    }

    pub(super) fn part(&mut self, person: usize, from: (usize, LeaseId), how: Parting) {
        // Whoever has come back to where it was stays.
        let stays = self.people[person]
            .stay
            .as_ref()
            .is_some_and(|stay| (stay.land, stay.lease) == (from.0, Some(from.1)));
        if !stays {
            self.part_from(person, from, how);
        }
    }

    fn part_from(&mut self, person: usize, (land, lease): (usize, LeaseId), how: Parting) {
        self.edges[land].leases.remove(&lease);
        let (room, user) = (self.rooms[self.people[person].room].clone(), self.people[person].user.clone());
        match how {
            Parting::Goodbye => {
                let reason = LeaveReason::Goodbye;
                self.say(land, person, |request| LinkUp::Leave { request, lease, room, user, reason });
            }
            Parting::Drop => {
                self.say(land, person, |request| LinkUp::Release {
                    request,
                    leases: vec![lease],
                    reason: ReleaseReason::TransportLost,
                    hint: Duration::ZERO,
                    unanswered: Vec::new(),
                });
            }
            Parting::Silence => {}
        }
    }

    /// Somebody goes, and comes back later.
    pub(super) fn go(&mut self, person: usize, (how, span): (Parting, Duration)) {
        if let Some(stay) = self.people[person].stay.take() {
            if let Some(lease) = stay.lease {
                self.part_from(person, (stay.land, lease), how);
            }
            if let Some((from, how, _)) = stay.leaves {
                self.part_from(person, from, how);
            }
        }
        self.return_after(person, span);
    }

    /// A connection is lost, and the next one is opened to the same region.
    pub(super) fn blip(&mut self, person: usize) {
        let Some((land, lease)) = self.is_in(person) else { return };
        self.part_from(person, (land, lease), Parting::Drop);
        self.enter(person, land, None);
    }

    /// Where somebody is in, and not on its way.
    pub(super) fn is_in(&self, person: usize) -> Option<(usize, LeaseId)> {
        let stay = self.people[person].stay.as_ref()?;
        Some((stay.land, stay.lease?))
    }

    /// Somebody moves to another region.
    pub(super) fn cross(&mut self, person: usize, land: usize, (how, span): (Move, Duration)) {
        let Some(from) = self.is_in(person) else { return };
        let land = if land == from.0 { (land + 1) % self.regions.len() } else { land };
        let (parting, after) = match how {
            Move::Clean => (Parting::Goodbye, GOODBYE_AFTER),
            Move::Drop => {
                self.part_from(person, from, Parting::Drop);
                (Parting::Silence, Duration::ZERO)
            }
            Move::Both => (Parting::Drop, span),
            Move::Behind => {
                self.edges[from.0].leases.remove(&from.1);
                (Parting::Silence, Duration::ZERO)
            }
            Move::Late => {
                self.say_late(person, from.0, span);
                (Parting::Goodbye, GOODBYE_AFTER)
            }
        };
        self.enter(person, land, Some((from, parting, after)));
    }

    /// What somebody had asked for before is heard once more, much later.
    fn say_late(&mut self, person: usize, land: usize, span: Duration) {
        // Nobody waits for the answer.
        let request = RequestId(u64::MAX / 2 + self.people[person].generation);
        let join = self.join_of(person, request, Cursor::default());
        self.after(GOODBYE_AFTER + span, Event::Delayed(land, Box::new(LinkUp::Join(Box::new(join)))));
    }

    /// Somebody says something new.
    pub(super) fn update(&mut self, person: usize) {
        let Some((land, lease)) = self.is_in(person) else { return };
        let somebody = &mut self.people[person];
        somebody.busy = !somebody.busy;
        let status = Some(if somebody.busy { Status::Busy } else { Status::Available });
        let (room, user) = (self.rooms[somebody.room].clone(), somebody.user.clone());
        self.say(land, person, |request| LinkUp::Update {
            request,
            lease,
            room,
            user,
            status,
            state: None,
            token: None,
        });
    }

    pub(super) fn person_called(&self, user: &UserId) -> Option<usize> {
        self.people.iter().position(|person| person.user == *user)
    }
}
