//! What is revoked, as this core knows it: looked up twice a second, read in full every minute and at each new
//! epoch, and written again where the store lacks it, so that no loss of data brings back what was put out.
//! Edges are told of tokens, keys and subjects: all at the start of a link, news at once.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_model::limits::REVOCATIONS_MAX;
use presence_model::link::LinkDown;
use presence_model::revocation::{Revocation, Revocations};
use presence_model::time::{Mono, StoreTime};

use super::store_ops::Pending;
use super::{Answer, Driver, Effect, LinkKey, QueryKey, QueryRefusal};
use crate::limits::{REVOKED_LOOK, REVOKED_NEWS, REVOKED_PAGE, STORE_RETRY};
use crate::store::{Command, Outcome, StoreFault};

/// This core's copy.
#[derive(Debug, Default)]
pub(super) struct RevocationCopy {
    known: Revocations,
    /// How often there was news of tokens in it.
    learned: u64,
    /// When all is to be read.
    look_at: Mono,
    look: Option<Look>,
    /// When it is to be asked whether there is news: also while an answer is awaited, which may be lost.
    news_at: Mono,
    /// The number of news of what was read in full last.
    news: Option<u64>,
}

/// All is being read, page by page.
#[derive(Debug, Default)]
struct Look {
    /// The number of news that the first page told.
    news: Option<u64>,
    /// What was found in the store so far.
    stored: BTreeMap<Revocation, StoreTime>,
}

impl RevocationCopy {
    /// What is revoked.
    pub(super) fn known(&self) -> &Revocations {
        &self.known
    }

    /// When to ask the store next.
    pub(super) fn due(&self) -> Option<Mono> {
        Some(if self.look.is_none() { self.look_at.min(self.news_at) } else { self.news_at })
    }

    /// Something may be missing in the store, or here.
    pub(super) fn look_soon(&mut self, at: Mono) {
        self.look_at = self.look_at.min(at);
    }
}

/// What edges are told of: who was evicted is the affair of cores.
fn is_of_tokens(what: &Revocation) -> bool {
    match what {
        Revocation::Token(_) | Revocation::Key(_) | Revocation::Subject(_) => true,
        Revocation::Session { .. } => false,
    }
}

impl Driver {
    /// What this core knows to be revoked, and how often there was news of tokens in it.
    #[must_use]
    pub fn revoked(&self) -> (u64, &Revocations) {
        (self.revocations.learned, &self.revocations.known)
    }

    /// Whether this core has read in full what is revoked, since it started.
    pub(super) fn has_read_revoked(&self) -> bool {
        self.revocations.news.is_some()
    }

    /// An operator revokes something for so long; answered once that is written.
    pub(super) fn on_revoke(&mut self, key: QueryKey, what: Revocation, span: Duration) {
        let Some(now) = self.clock.latest(self.now) else { return self.refuse_revocation(key) };
        let until = now + span;
        self.learn(vec![(what.clone(), until)]);
        self.purge(&what);
        self.ask(Command::Revoke { revocations: vec![(what, until)] }, Pending::RevokeAsked(key, until));
    }

    /// What an operator revoked is written, or not: then a look soon writes it, and the operator asks again.
    pub(super) fn on_revoke_asked(
        &mut self,
        key: QueryKey,
        until: StoreTime,
        result: &Result<Outcome, StoreFault>,
    ) {
        self.on_revocations_written(result);
        match result {
            Ok(_) => self.out.push(Effect::Answer(key, Ok(Answer::Revoked { until }))),
            Err(_) => self.refuse_revocation(key),
        }
    }

    fn refuse_revocation(&mut self, key: QueryKey) {
        let retry_after = self.retry_after();
        self.out.push(Effect::Answer(key, Err(QueryRefusal::Unavailable { retry_after })));
    }

    /// Notes what is revoked, and tells edges what of it is news to them; that is given back.
    pub(super) fn learn(
        &mut self,
        revocations: Vec<(Revocation, StoreTime)>,
    ) -> Vec<(Revocation, StoreTime)> {
        let known = &mut self.revocations.known;
        let is_news = |(what, until): &(Revocation, StoreTime)| known.note(what.clone(), *until);
        let news = revocations.into_iter().filter(is_news).filter(|(what, _)| is_of_tokens(what));
        let news: Vec<_> = news.collect();
        self.revocations.learned += u64::from(!news.is_empty());
        for link in self.links.keys() {
            if !news.is_empty() {
                self.tell(link, LinkDown::Revoked { revocations: news.clone() });
            }
        }
        news
    }

    /// Tells an edge all that is in force.
    pub(super) fn tell_revoked(&mut self, link: LinkKey, now: StoreTime) {
        let known = self.revocations.known.in_force(now);
        let all: Vec<_> = known.filter(|(what, _)| is_of_tokens(what)).collect();
        for page in all.chunks(REVOKED_PAGE) {
            let revocations = page.iter().map(|(what, until)| ((*what).clone(), *until)).collect();
            self.out.push(Effect::Link(link, LinkDown::Revoked { revocations }));
        }
    }

    /// Revokes: here at once, and in the store.
    pub(super) fn revoke(&mut self, revocations: Vec<(Revocation, StoreTime)>) {
        self.learn(revocations.clone());
        self.write_revocations(revocations);
    }

    fn write_revocations(&mut self, mut revocations: Vec<(Revocation, StoreTime)>) {
        while !revocations.is_empty() {
            let rest = revocations.split_off(revocations.len().min(REVOKED_PAGE));
            self.ask(Command::Revoke { revocations }, Pending::Revoke);
            revocations = rest;
        }
    }

    /// Revocations are written, or not: then a look soon finds that.
    pub(super) fn on_revocations_written(&mut self, result: &Result<Outcome, StoreFault>) {
        if result.is_err() {
            self.revocations.look_soon(self.now + STORE_RETRY);
        }
    }

    /// Asks whether something was revoked, and reads all that is, as far as either is due.
    pub(super) fn look_up_revoked(&mut self) {
        let copy = &mut self.revocations;
        let reads = copy.look.is_none() && copy.look_at <= self.now;
        if reads {
            copy.look_at = self.now + REVOKED_LOOK;
            copy.look = Some(Look::default());
        }
        let asks = !reads && copy.news_at <= self.now;
        if reads || asks {
            copy.news_at = self.now + REVOKED_NEWS;
        }
        let unless = copy.news;
        if reads {
            self.read_revoked(None);
        } else if asks {
            self.ask(Command::Revoked { after: None, count: REVOKED_PAGE, unless }, Pending::RevokedNews);
        }
    }

    fn read_revoked(&mut self, after: Option<(Revocation, StoreTime)>) {
        self.ask(Command::Revoked { after, count: REVOKED_PAGE, unless: None }, Pending::Revoked);
    }

    /// There is news, or none. What there is, is more often than not on the page.
    pub(super) fn on_revoked_news(&mut self, result: Result<Outcome, StoreFault>) {
        let Ok(Outcome::Revoked { now, news, revocations, more }) = result else { return };
        if self.revocations.news == Some(news) {
            return;
        }
        self.take_page(revocations.clone());
        if more {
            self.revocations.look_soon(self.now);
        } else {
            self.all_is_read(news, &revocations.into_iter().collect(), now);
        }
    }

    /// A page of all that is revoked.
    pub(super) fn on_revoked(&mut self, result: Result<Outcome, StoreFault>) {
        let copy = &mut self.revocations;
        let Some(mut look) = copy.look.take() else { return };
        let Ok(Outcome::Revoked { now, news, revocations, more }) = result else {
            return copy.look_soon(self.now + STORE_RETRY);
        };
        let news = *look.news.get_or_insert(news);
        let last = revocations.last().cloned().filter(|_| more && look.stored.len() < REVOCATIONS_MAX);
        look.stored.extend(revocations.iter().cloned());
        self.take_page(revocations);
        if last.is_some() {
            self.revocations.look = Some(look);
            return self.read_revoked(last);
        }
        self.all_is_read(news, &look.stored, now);
    }

    /// Whoever revoked something may have died over that: what rests on it is looked for by all who hear of it. What
    /// was in force before this core was is long over.
    fn take_page(&mut self, revocations: Vec<(Revocation, StoreTime)>) {
        let is_first = self.revocations.news.is_none();
        for (what, _) in self.learn(revocations) {
            if !is_first {
                self.purge(&what);
            }
        }
    }

    /// What is known here and not there is written again.
    fn all_is_read(&mut self, news: u64, stored: &BTreeMap<Revocation, StoreTime>, now: StoreTime) {
        let copy = &mut self.revocations;
        let is_first = copy.news.replace(news).is_none();
        copy.known.forget(now);
        let is_missing =
            |(what, until): &(&Revocation, StoreTime)| stored.get(*what).is_none_or(|stored| stored < until);
        let missing = copy.known.in_force(now).filter(is_missing);
        let missing = missing.map(|(what, until)| (what.clone(), until)).collect();
        self.write_revocations(missing);
        if is_first {
            self.open_the_door();
        }
    }
}
