//! What is to be decided about one roster, in two lines: what presses goes first, and a user's own order is kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use presence_model::id::UserId;
use presence_model::time::Mono;

use super::{Stage, Waiting};
use crate::limits::COMMIT_MEMBERS_MAX;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Those whose time runs, and all that was begun already.
    pressing: VecDeque<Waiting>,
    patient: VecDeque<Waiting>,
    /// Of whom something waits that others have to know of.
    users: BTreeMap<UserId, OfUser>,
    pub(super) stage: Stage,
    /// Nothing is read before: the store could not be reached.
    pub(super) not_before: Option<Mono>,
}

/// What others have to know of one user.
#[derive(Debug, Default, PartialEq, Eq)]
struct OfUser {
    /// How much waits in the patient line.
    patient: usize,
    /// Joins that press: of sessions that were there before.
    returns: usize,
}

impl Queue {
    /// One more. Whatever a user wanted before comes before it.
    pub(super) fn push(&mut self, waiting: Waiting) {
        let is_behind = self.users.get(&waiting.user).is_some_and(|of_user| of_user.patient > 0);
        if waiting.work.is_pressing() && !is_behind {
            self.count(&waiting);
            self.pressing.push_back(waiting);
        } else {
            self.users.entry(waiting.user.clone()).or_default().patient += 1;
            self.patient.push_back(waiting);
        }
    }

    /// Puts back what was begun, in the order it had: before everything else.
    pub(super) fn put_back(&mut self, begun: Vec<Waiting>) {
        for waiting in begun.into_iter().rev() {
            self.count(&waiting);
            self.pressing.push_front(waiting);
        }
    }

    /// Notes one more of the pressing line.
    fn count(&mut self, waiting: &Waiting) {
        if waiting.work.is_return() {
            self.users.entry(waiting.user.clone()).or_default().returns += 1;
        }
    }

    /// Up to a commit's worth of work, the first of each user.
    pub(super) fn take_batch(&mut self) -> Vec<Waiting> {
        let (mut taken, mut batch) = (BTreeSet::new(), Vec::new());
        take(&mut self.pressing, &mut taken, &mut batch);
        let pressing = batch.len();
        take(&mut self.patient, &mut taken, &mut batch);
        for (place, waiting) in batch.iter().enumerate() {
            let Some(of_user) = self.users.get_mut(&waiting.user) else { continue };
            if place >= pressing {
                of_user.patient -= 1;
            } else if waiting.work.is_return() {
                of_user.returns -= 1;
            }
            if *of_user == OfUser::default() {
                self.users.remove(&waiting.user);
            }
        }
        batch
    }

    /// How much waits.
    pub(super) fn len(&self) -> usize {
        self.pressing.len() + self.patient.len()
    }

    /// Since when the first waits.
    pub(super) fn first(&self) -> Option<Mono> {
        let fronts = [&self.pressing, &self.patient].into_iter().filter_map(VecDeque::front);
        fronts.map(|waiting| waiting.since).min()
    }

    /// How much presses, and since when the first of it waits.
    pub(super) fn pressing(&self) -> (usize, Option<Mono>) {
        (self.pressing.len(), self.pressing.front().map(|waiting| waiting.since))
    }

    /// Whether a session of this user that was there before wants in again.
    pub(super) fn returns(&self, user: &UserId) -> bool {
        self.users.get(user).is_some_and(|of_user| of_user.returns > 0)
    }
}

/// Takes the first of each user who is not in the batch yet.
fn take(line: &mut VecDeque<Waiting>, taken: &mut BTreeSet<UserId>, batch: &mut Vec<Waiting>) {
    let mut passed = VecDeque::new();
    while batch.len() < COMMIT_MEMBERS_MAX
        && let Some(waiting) = line.pop_front()
    {
        if taken.insert(waiting.user.clone()) {
            batch.push(waiting);
        } else {
            passed.push_back(waiting);
        }
    }
    passed.append(line);
    *line = passed;
}

#[cfg(test)]
mod tests {
    use presence_model::lease::Shard;
    use presence_model::link::RequestId;
    use presence_model::member;
    use presence_model::profile::Status;

    use super::*;
    use crate::driver::LinkKey;
    use crate::driver::commits::{FoundBy, Work};

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn waiting(name: &str, work: Work, at: u64) -> Waiting {
        Waiting { user: user(name), work, since: Mono::from_millis(at), tries: 0, in_doubt: false }
    }

    fn expire() -> Work {
        Work::Expire { shard: Shard(0), due: Vec::new(), by: FoundBy::Sweep }
    }

    fn update() -> Work {
        let lease = presence_model::lease::LeaseId::mint(std::time::Duration::from_secs(9), Shard(0), 1);
        let update = member::Update { lease, status: Some(Status::Away), state: None, token: None };
        Work::Update { link: LinkKey(1), request: RequestId(1), update: Box::new(update), claims: None }
    }

    fn order(batch: &[Waiting]) -> Vec<(&str, bool)> {
        batch.iter().map(|waiting| (waiting.user.as_str(), waiting.work.is_pressing())).collect()
    }

    #[test]
    fn what_presses_goes_before_what_does_not() {
        let mut queue = Queue::default();
        queue.push(waiting("ann", update(), 1));
        queue.push(waiting("bob", expire(), 2));
        assert_eq!((queue.len(), queue.first()), (2, Some(Mono::from_millis(1))));
        assert_eq!(queue.pressing(), (1, Some(Mono::from_millis(2))));
        assert_eq!(order(&queue.take_batch()), [("bob", true), ("ann", false)]);
        assert!(queue.users.is_empty() && queue.take_batch().is_empty());
    }

    #[test]
    fn of_one_user_the_first_comes_first_whatever_presses() {
        let mut queue = Queue::default();
        queue.push(waiting("ann", update(), 1));
        queue.push(waiting("ann", expire(), 2));
        queue.push(waiting("ann", update(), 3));
        let taken: Vec<_> = (0..3).map(|_| queue.take_batch()).collect();
        let taken: Vec<_> = taken.iter().map(|batch| order(batch)).collect();
        assert_eq!(taken, [[("ann", false)], [("ann", true)], [("ann", false)]]);
        assert!(queue.users.is_empty());
    }

    #[test]
    fn what_was_begun_is_finished_before_what_came_meanwhile() {
        let mut queue = Queue::default();
        queue.push(waiting("ann", update(), 1));
        let begun = queue.take_batch();
        queue.push(waiting("ann", expire(), 2));
        queue.put_back(begun);
        assert_eq!(order(&queue.take_batch()), [("ann", false)]);
        assert_eq!(order(&queue.take_batch()), [("ann", true)]);
        assert!(queue.users.is_empty());
    }

    #[test]
    fn a_batch_has_a_commits_worth_and_the_rest_keeps_its_place() {
        for beyond in [0, 1, 2] {
            let mut queue = Queue::default();
            let count = COMMIT_MEMBERS_MAX - 1 + beyond;
            for n in 0..count {
                queue.push(waiting(&format!("user-{n}"), if n % 2 == 0 { update() } else { expire() }, 1));
            }
            assert_eq!(queue.take_batch().len(), count.min(COMMIT_MEMBERS_MAX));
            assert_eq!(queue.take_batch().len(), count.saturating_sub(COMMIT_MEMBERS_MAX));
        }
    }
}
