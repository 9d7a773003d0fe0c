//! Arguments of a script, one after the other.

use presence_model::time::millis;

use crate::store::Retention;

/// Arguments being written.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Vec<u8>>);

impl Arguments {
    pub(super) fn text(&mut self, text: &str) {
        self.0.push(text.as_bytes().to_vec());
    }

    pub(super) fn bytes(&mut self, bytes: Vec<u8>) {
        self.0.push(bytes);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.push(number.to_string().into_bytes());
    }

    /// A number of 64 bits whose order as text is its order.
    pub(super) fn hex(&mut self, number: u64) {
        self.0.push(format!("{number:016x}").into_bytes());
    }

    /// How many, then each.
    pub(super) fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        for item in items {
            write(self, item);
        }
    }

    pub(super) fn retention(&mut self, retention: &Retention) {
        self.number(millis(retention.history));
        self.number(retention.history_bytes as u64);
        self.number(millis(retention.tombstones));
        self.number(millis(retention.rosters));
    }

    pub(super) fn as_slice(&self) -> &[Vec<u8>] {
        &self.0
    }
}
