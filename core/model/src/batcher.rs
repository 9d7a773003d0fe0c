//! Collects items until a span has passed or enough are there; a later item of the same key replaces it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Mono;

/// A batch under way, keyed so that the newest of a key wins.
#[derive(Debug, Clone)]
pub struct Batcher<K: Ord, V> {
    items: BTreeMap<K, V>,
    since: Option<Mono>,
    span: Duration,
    full: usize,
}

impl<K: Ord + Clone, V> Batcher<K, V> {
    /// A batch is due `span` after its first item, or with `full` items (at least one).
    #[must_use]
    pub fn new(span: Duration, full: usize) -> Self {
        Self { items: BTreeMap::new(), since: None, span, full: full.max(1) }
    }

    /// Adds an item; the newest of a key wins.
    pub fn push(&mut self, key: K, value: V, now: Mono) {
        self.items.insert(key, value);
        self.since.get_or_insert(now);
    }

    /// Takes a key out of the waiting batch.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let value = self.items.remove(key);
        if self.items.is_empty() {
            self.since = None;
        }
        value
    }

    /// When the batch is due; none while empty.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        let since = self.since?;
        Some(if self.items.len() >= self.full { since } else { since + self.span })
    }

    /// Takes up to `full` items if due. What is left, in the order of keys, stays due with the first
    /// item: none waits longer than the span once its turn comes, so take until nothing is due.
    pub fn take(&mut self, now: Mono) -> Option<Vec<(K, V)>> {
        self.due().filter(|due| *due <= now)?;
        let mut batch = Vec::with_capacity(self.items.len().min(self.full));
        while batch.len() < self.full
            && let Some(item) = self.items.pop_first()
        {
            batch.push(item);
        }
        if self.items.is_empty() {
            self.since = None;
        }
        Some(batch)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(500);

    fn ms(ms: u64) -> Mono {
        Mono::from_millis(ms)
    }

    #[test]
    fn a_batch_is_due_a_span_after_its_first_item() {
        let mut batcher = Batcher::new(SPAN, 10);
        assert_eq!(batcher.due(), None);
        assert_eq!(batcher.take(ms(9_000)), None);
        batcher.push("b", 1, ms(100));
        batcher.push("a", 2, ms(400));
        assert_eq!(batcher.due(), Some(ms(600)));
        assert_eq!(batcher.take(ms(599)), None);
        assert_eq!(batcher.take(ms(600)), Some(vec![("a", 2), ("b", 1)]));
        assert_eq!((batcher.due(), batcher.is_empty()), (None, true));
    }

    #[test]
    fn the_newest_of_a_key_wins_and_does_not_delay() {
        let mut batcher = Batcher::new(SPAN, 10);
        batcher.push("a", 1, ms(0));
        batcher.push("a", 2, ms(400));
        assert_eq!((batcher.len(), batcher.due()), (1, Some(ms(500))));
        assert_eq!(batcher.take(ms(500)), Some(vec![("a", 2)]));
    }

    #[test]
    fn what_is_taken_out_is_not_sent() {
        let mut batcher = Batcher::new(SPAN, 10);
        batcher.push("a", 1, ms(0));
        assert_eq!(batcher.remove(&"a"), Some(1));
        assert_eq!(batcher.remove(&"a"), None);
        assert_eq!(batcher.due(), None);
        batcher.push("b", 2, ms(300));
        assert_eq!(batcher.due(), Some(ms(800)), "an emptied batch starts anew");
    }

    #[test]
    fn a_full_batch_is_due_at_once_and_nobody_left_behind_waits_longer() {
        let mut batcher = Batcher::new(SPAN, 2);
        for key in 0..5 {
            batcher.push(key, (), ms(key));
        }
        assert!(batcher.due() <= Some(ms(4)));
        assert_eq!(batcher.take(ms(4)).map(|b| b.len()), Some(2));
        assert_eq!(batcher.take(ms(4)).map(|b| b.len()), Some(2));
        assert_eq!(batcher.take(ms(4)), None);
        assert_eq!(batcher.due(), Some(ms(500)));
        assert_eq!(batcher.take(ms(500)).map(|b| b.len()), Some(1));
    }
}
