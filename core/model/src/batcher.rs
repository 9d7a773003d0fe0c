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
    /// A batch is due `span` after its first item, or with `full` items.
    #[must_use]
    pub fn new(span: Duration, full: usize) -> Self {
        Self { items: BTreeMap::new(), since: None, span, full }
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

    /// Takes up to `full` items if due.
    pub fn take(&mut self, now: Mono) -> Option<Vec<(K, V)>> {
        self.due().filter(|due| *due <= now)?;
        let mut batch = Vec::with_capacity(self.items.len().min(self.full));
        while batch.len() < self.full
            && let Some(item) = self.items.pop_first()
        {
            batch.push(item);
        }
        self.since = (!self.items.is_empty()).then_some(now);
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
