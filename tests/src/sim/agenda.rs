//! What happens when: an event queue, and pipes that keep order within and lose it between them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use presence_model::time::Mono;

/// An event and when it happens; of the same time, the earlier written first.
#[derive(Debug)]
struct Planned<E> {
    at: Mono,
    number: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// The future.
#[derive(Debug)]
pub(super) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Planned<E>>>,
    number: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }

    pub(super) fn plan(&mut self, at: Mono, event: E) {
        self.number += 1;
        self.heap.push(Reverse(Planned { at, number: self.number, event }));
    }

    pub(super) fn next_before(&mut self, end: Mono) -> Option<(Mono, E)> {
        if self.heap.peek()?.0.at > end {
            return None;
        }
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}

/// One direction of a stream: what is sent later arrives later, whatever each is delayed by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pipe {
    pub(super) last: Mono,
}
