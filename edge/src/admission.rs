//! Who may come in: so many at once, so many from one address, so many a second. Whoever may not is told when to
//! come back, each at a moment of its own.
//!
//! Judged before a WebSocket is opened, when turning somebody away costs next to nothing. Who is in is never put out
//! for those who come.

mod address;
mod failed;
mod proxied;
mod whence;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use presence_model::crowd::{Crowd, Window};
use presence_model::gate::{Gate, Rate};
use presence_model::time::Mono;
use presence_runtime::telemetry::Seldom;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use self::address::Origin;
use self::failed::Failed;
pub(crate) use self::proxied::read_header;
pub use self::whence::{Source, Whence};
use crate::limits::{
    ADDRESS_AGAIN, COME_BACK_LEAST, COME_BACK_MOST, HANDSHAKES_MAX, HANDSHAKES_PER_SECOND_DEFAULT,
    TURNED_AWAY_TOLD_EVERY,
};
use crate::protocol::CloseCode;

/// How many may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// WebSockets at once.
    pub connections: usize,
    /// Transports at once that are not WebSockets yet; above zero.
    pub arriving: usize,
    /// Transports at once of one address, a /64 of IPv6 counting as one; none: no limit of its own.
    pub per_address: Option<u32>,
    /// WebSocket handshakes a second, and at once after a pause; above zero.
    pub handshakes_per_second: u32,
    /// Tokens of one address that may fail to verify a minute, and at once; above zero; none: any number.
    pub failed_tokens_per_minute: Option<u32>,
}

/// Why somebody is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// This edge has as many WebSockets as it may.
    Full,
    /// This address has as many transports as it may.
    Address,
    /// Too many handshakes a second.
    Rate,
    /// Too many tokens of this address did not verify.
    Tokens,
}

impl Cause {
    pub(crate) const ALL: [Self; 4] = [Self::Full, Self::Address, Self::Rate, Self::Tokens];

    /// Its word in metrics and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Address => "address",
            Self::Rate => "rate",
            Self::Tokens => "tokens",
        }
    }

    /// The code for whoever cannot see the status of a refused handshake.
    pub(crate) const fn close_code(self) -> CloseCode {
        match self {
            Self::Full | Self::Rate => CloseCode::Overloaded,
            Self::Address | Self::Tokens => CloseCode::RateLimited,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "this edge is full, try again later or elsewhere",
            Self::Address => "too many connections from this address",
            Self::Rate => "too many come at once, try again later",
            Self::Tokens => "too many tokens of this address do not verify, try again later",
        })
    }
}

/// Somebody who may not come in now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnedAway {
    pub(crate) cause: Cause,
    /// When to come back.
    pub(crate) after: Duration,
}

/// Judges who may come in.
#[derive(Debug)]
pub(crate) struct Admission {
    arriving: usize,
    state: Mutex<State>,
    crowded: Seldom<1>,
}

#[derive(Debug)]
struct State {
    limits: AdmissionLimits,
    /// WebSockets that are in.
    connections: usize,
    gate: Gate,
    crowd: Crowd,
    chance: Xoshiro256PlusPlus,
    /// Transports by address, none with 0: so never more addresses than transports.
    addresses: HashMap<Origin, u32, foldhash::fast::FixedState>,
    failed: Failed,
    /// When it was last logged that somebody was turned away.
    told: Option<Mono>,
    untold: [u64; Cause::ALL.len()],
}

impl Admission {
    /// Nobody is in yet. `seed` is to be unpredictable, so that addresses cannot be chosen to collide.
    pub(crate) fn new(limits: AdmissionLimits, seed: u64) -> Self {
        let state = State {
            limits,
            connections: 0,
            gate: Gate::default(),
            crowd: Crowd::default(),
            chance: Xoshiro256PlusPlus::seed_from_u64(seed),
            addresses: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            failed: Failed::new(seed),
            told: None,
            untold: Default::default(),
        };
        Self {
            arriving: limits.arriving,
            state: Mutex::new(state),
            crowded: Seldom::new(TURNED_AWAY_TOLD_EVERY),
        }
    }

    /// These are the limits from now on, but for the number of those who arrive. Who is in stays, and addresses that
    /// were not counted are counted from here on.
    pub(crate) fn set_limits(&self, limits: AdmissionLimits) {
        self.lock().limits = limits;
    }

    /// A transport from this address; none: there is no limit for it.
    ///
    /// # Errors
    /// The address has as many as it may, or its tokens fail too often.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<Option<Arc<AddressPlace>>, TurnedAway> {
        let mut state = self.lock();
        let (most, failed) = (state.limits.per_address, state.limits.failed_tokens());
        let Some(address) = address.filter(|_| most.is_some() || failed.is_some()) else { return Ok(None) };
        let origin = Origin::from(address);
        if let Some(wait) = failed.and_then(|rate| state.failed.wait(origin, rate, now)) {
            let away = state.turn_away(Cause::Tokens, Some(address), now);
            return Err(TurnedAway { after: away.after.max(wait), ..away });
        }
        let count = state.addresses.entry(origin).or_insert(0);
        if most.is_some_and(|most| *count >= most) {
            return Err(state.turn_away(Cause::Address, Some(address), now));
        }
        *count += 1;
        Ok(Some(Arc::new(AddressPlace { origin, admission: Arc::clone(self) })))
    }

    /// One more WebSocket.
    ///
    /// # Errors
    /// There are as many as may be, or too many come at once. Whoever is refused as one too many costs nobody else a
    /// handshake.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        now: Mono,
    ) -> Result<ConnectionPlace, TurnedAway> {
        let mut state = self.lock();
        if state.connections >= state.limits.connections {
            return Err(state.turn_away(Cause::Full, address, now));
        }
        let rate = state.limits.rate();
        if state.gate.admit(rate, now).is_err() {
            return Err(state.turn_away(Cause::Rate, address, now));
        }
        state.connections += 1;
        Ok(ConnectionPlace { admission: Arc::clone(self) })
    }

    /// Transports at once that are not WebSockets yet.
    pub(crate) fn arriving(&self) -> usize {
        self.arriving
    }

    /// Whoever comes has to wait: as many transports as may be are not WebSockets yet.
    pub(crate) fn crowded(&self, now: Mono) {
        if self.crowded.is_due(0, now) {
            tracing::warn!("clients wait to be accepted: too many transports are no WebSockets yet");
        }
    }

    /// Logs how many were turned away since that was logged last, if anybody was and it is time.
    pub(crate) fn tell(&self, now: Mono) {
        self.lock().tell(None, now);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn tracked(&self) -> usize {
        self.lock().addresses.len()
    }
}

impl AdmissionLimits {
    /// So many WebSockets at once, and otherwise as an edge has it that is told nothing.
    #[must_use]
    pub const fn of(connections: usize) -> Self {
        Self {
            connections,
            arriving: HANDSHAKES_MAX,
            per_address: None,
            handshakes_per_second: HANDSHAKES_PER_SECOND_DEFAULT,
            failed_tokens_per_minute: None,
        }
    }

    fn rate(&self) -> Rate {
        let burst = self.handshakes_per_second.max(1);
        Rate { interval: Duration::from_secs(1) / burst, burst }
    }

    fn failed_tokens(&self) -> Option<Rate> {
        let burst = self.failed_tokens_per_minute?.max(1);
        Some(Rate { interval: Duration::from_secs(60) / burst, burst })
    }
}

impl State {
    fn turn_away(&mut self, cause: Cause, address: Option<IpAddr>, now: Mono) -> TurnedAway {
        let chance = self.chance.random_range(0.0..1.0);
        let window = |least| Window { least, most: COME_BACK_MOST };
        let after = match cause {
            // They come back as fast as they may be taken, if there is room by then.
            Cause::Full | Cause::Rate => {
                self.crowd.hint(self.limits.rate().interval, window(COME_BACK_LEAST), chance, now)
            }
            // No crowd of the whole edge: one address.
            Cause::Address | Cause::Tokens => {
                Crowd::default().hint(Duration::ZERO, window(ADDRESS_AGAIN), chance, now)
            }
        };
        self.untold[cause as usize] += 1;
        self.tell(address, now);
        TurnedAway { cause, after }
    }

    fn tell(&mut self, last: Option<IpAddr>, now: Mono) {
        let is_time = self.told.is_none_or(|told| now.since(told) >= TURNED_AWAY_TOLD_EVERY);
        if is_time && self.untold.iter().any(|count| *count > 0) {
            self.told = Some(now);
            let [full, of_address, rate, tokens] = std::mem::take(&mut self.untold);
            let last = last.map(tracing::field::display);
            tracing::warn!(full, address = of_address, rate, tokens, last, "clients are turned away");
        }
    }
}

/// One WebSocket's place; given back when dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    admission: Arc<Admission>,
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        self.admission.lock().connections -= 1;
    }
}

/// One transport of an address; given back when dropped.
#[derive(Debug)]
pub(crate) struct AddressPlace {
    origin: Origin,
    admission: Arc<Admission>,
}

impl AddressPlace {
    /// One of its tokens did not verify. False: that is one too many.
    pub(crate) fn may_fail(&self, now: Mono) -> bool {
        let mut state = self.admission.lock();
        let rate = state.limits.failed_tokens();
        rate.is_none_or(|rate| state.failed.note(self.origin, rate, now))
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        if let Entry::Occupied(mut count) = state.addresses.entry(self.origin) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const NOW: Mono = Mono::from_millis(1_000);

    fn limits(connections: usize, per_address: Option<u32>, handshakes_per_second: u32) -> AdmissionLimits {
        AdmissionLimits { per_address, handshakes_per_second, ..AdmissionLimits::of(connections) }
    }

    fn admission(connections: usize, per_address: Option<u32>, handshakes_per_second: u32) -> Arc<Admission> {
        Arc::new(Admission::new(limits(connections, per_address, handshakes_per_second), 7))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn cause<T>(judged: Result<T, TurnedAway>) -> Option<Cause> {
        judged.err().map(|away| away.cause)
    }

    #[test]
    fn an_address_has_so_many_transports_and_no_more() {
        let admission = admission(100, Some(3), 100);
        let enter = |from: &str| admission.enter(address(from), NOW);
        let mut own: Vec<_> = (0..3).map(|_| enter("192.0.2.1").unwrap()).collect();
        assert_eq!(cause(enter("192.0.2.1")), Some(Cause::Address));
        assert_eq!(cause(enter("::ffff:192.0.2.1")), Some(Cause::Address), "the same in other words");
        let _other = enter("192.0.2.2").unwrap();
        own.pop();
        own.push(enter("192.0.2.1").unwrap());
        assert_eq!(cause(enter("192.0.2.1")), Some(Cause::Address));
        let network: Vec<_> = (1..=3).map(|host| enter(&format!("2001:db8::{host}")).unwrap()).collect();
        assert_eq!(cause(enter("2001:db8::ffff")), Some(Cause::Address), "a /64 is one");
        drop(network);
        assert!(enter("2001:db8::ffff").is_ok());
    }

    #[test]
    fn only_addresses_with_a_transport_are_remembered() {
        let limited = admission(100, Some(1), 100);
        for host in 0..=255 {
            for _ in 0..2 {
                let place = limited.enter(address(&format!("192.0.2.{host}")), NOW).unwrap();
                assert_eq!(limited.tracked(), 1);
                let shared = place.clone();
                drop(place);
                assert_eq!(limited.tracked(), 1, "the WebSocket has it still");
                drop(shared);
            }
            assert_eq!(limited.tracked(), 0);
        }
        assert_eq!(cause(limited.enter(None, NOW)), None);
        assert_eq!(limited.tracked(), 0, "a proxy's own address");
        let free = admission(100, None, 100);
        let _places: Vec<_> = (0..1_000).map(|_| free.enter(address("192.0.2.1"), NOW).unwrap()).collect();
        assert_eq!(free.tracked(), 0, "no limit, no memory");
    }

    #[test]
    fn an_address_whose_tokens_fail_too_often_is_let_in_no_more_until_it_may_fail_again() {
        let limits = AdmissionLimits { failed_tokens_per_minute: Some(3), ..AdmissionLimits::of(100) };
        let admission = Arc::new(Admission::new(limits, 7));
        let enter = |from: &str, now| admission.enter(address(from), now);
        let place = enter("192.0.2.1", NOW).unwrap().unwrap();
        let fails: Vec<bool> = (0..4).map(|_| place.may_fail(NOW)).collect();
        assert_eq!(fails, [true, true, true, false]);
        let away = enter("192.0.2.1", NOW).unwrap_err();
        assert_eq!(away.cause, Cause::Tokens);
        assert!(away.after >= Duration::from_secs(20), "{away:?}");
        assert!(enter("192.0.2.2", NOW).is_ok() && enter("192.0.2.1", NOW + away.after).is_ok());
        drop(place);
        assert_eq!(
            cause(enter("192.0.2.1", NOW)),
            Some(Cause::Tokens),
            "it is remembered without a transport"
        );
        let free = self::admission(100, Some(9), 100);
        let place = free.enter(address("192.0.2.1"), NOW).unwrap().unwrap();
        assert!((0..1_000).all(|_| place.may_fail(NOW)), "no limit of this kind");
    }

    #[test]
    fn so_many_are_in_at_once_and_no_more() {
        let admission = admission(2, None, 100);
        let first = admission.admit(None, NOW).unwrap();
        let _second = admission.admit(None, NOW).unwrap();
        assert_eq!(cause(admission.admit(None, NOW)), Some(Cause::Full));
        drop(first);
        assert!(admission.admit(None, NOW).is_ok());
    }

    #[test]
    fn other_limits_hold_from_now_on_and_put_nobody_out() {
        let admission = admission(3, None, 100);
        let mut places: Vec<_> = (0..3).map(|_| admission.admit(None, NOW).unwrap()).collect();
        let unseen = admission.enter(address("192.0.2.1"), NOW).unwrap();
        assert!(unseen.is_none(), "no limit, no memory");
        admission.set_limits(limits(2, Some(1), 100));
        assert_eq!(cause(admission.admit(None, NOW)), Some(Cause::Full));
        places.pop();
        assert_eq!(cause(admission.admit(None, NOW)), Some(Cause::Full), "there are two still");
        places.pop();
        let _second = admission.admit(None, NOW).unwrap();
        let _first = admission.enter(address("192.0.2.1"), NOW).unwrap();
        assert_eq!(cause(admission.enter(address("192.0.2.1"), NOW)), Some(Cause::Address));
        admission.set_limits(limits(4, None, 100));
        let more: Vec<_> = (0..3).map_while(|_| admission.admit(None, NOW).ok()).collect();
        assert_eq!(more.len(), 2);
        assert!(admission.enter(address("192.0.2.1"), NOW).is_ok());
    }

    #[test]
    fn so_many_come_a_second_and_whoever_finds_no_place_takes_nobodys_turn() {
        let admission = admission(1_000, None, 10);
        let at = |ms: u64, count: usize| {
            let now = Mono::from_millis(ms);
            (0..count).filter_map(|_| admission.admit(None, now).ok()).count()
        };
        assert_eq!([at(1_000, 9), at(1_000, 1), at(1_000, 5)], [9, 1, 0]);
        assert_eq!([at(1_099, 5), at(1_100, 5), at(1_500, 9)], [0, 1, 4]);
        assert_eq!(cause(admission.admit(None, Mono::from_millis(1_500))), Some(Cause::Rate));
        let full = super::tests::admission(1, None, 2);
        let _only = full.admit(None, NOW).unwrap();
        for _ in 0..10 {
            assert_eq!(cause(full.admit(None, NOW)), Some(Cause::Full));
        }
        drop(_only);
        assert!(full.admit(None, NOW).is_ok(), "its turn was not taken by those who found no place");
    }

    #[test]
    fn a_crowd_is_told_to_come_back_as_fast_as_it_may_be_taken() {
        let admission = admission(100_000, None, 100);
        let hints: Vec<_> =
            (0..1_100).filter_map(|_| admission.admit(None, NOW).err()).map(|away| away.after).collect();
        assert_eq!(hints.len(), 1_000);
        for second in 0..40 {
            let count = hints.iter().filter(|after| after.as_secs() == second).count();
            assert!(count <= 130, "{count} of 100 a second come back in second {second}");
        }
        assert!(hints.iter().all(|after| *after >= COME_BACK_LEAST && *after <= COME_BACK_MOST * 3 / 2));
    }

    #[test]
    fn what_is_turned_away_is_logged_at_a_bounded_rate() {
        let admission = admission(0, None, 1);
        let told = |now: Mono| {
            let _ = admission.admit(None, now);
            admission.lock().told
        };
        assert_eq!(told(NOW), Some(NOW));
        assert_eq!(told(NOW + TURNED_AWAY_TOLD_EVERY - Duration::from_millis(1)), Some(NOW));
        assert_eq!(admission.lock().untold, [1, 0, 0, 0], "to be told with the next");
        let later = NOW + TURNED_AWAY_TOLD_EVERY;
        assert_eq!((told(later), admission.lock().untold), (Some(later), [0; 4]));
        // The last of a burst are told as well, though nobody comes after them; and nothing is if there is nothing.
        let (soon, last) = (later + Duration::from_millis(1), later + TURNED_AWAY_TOLD_EVERY);
        assert_eq!((told(soon), admission.lock().untold), (Some(later), [1, 0, 0, 0]));
        for (now, expected) in [(soon, later), (last, last), (last + TURNED_AWAY_TOLD_EVERY, last)] {
            admission.tell(now);
            assert_eq!(admission.lock().told, Some(expected));
        }
        assert_eq!(admission.lock().untold, [0; 4]);
    }

    #[test]
    fn places_are_counted_over_threads() {
        let admission = admission(100, Some(50), 100);
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let admission = Arc::clone(&admission);
                thread::spawn(move || {
                    for _ in 0..1_000 {
                        let _place = admission.enter(address("192.0.2.1"), NOW).unwrap();
                        assert!(admission.tracked() <= 1);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(admission.tracked(), 0);
    }
}
