//! Takes the answers of scripts apart.

use presence_model::digest::Digest;
use presence_model::lease::LeaseId;
use presence_model::position::{Epoch, Revision};
use presence_model::time::StoreTime;
use redis::Value;

use crate::store::StoreFault;

/// The values of one answer, in order.
#[derive(Debug)]
pub(super) struct Reader {
    values: std::vec::IntoIter<Value>,
}

impl Reader {
    /// # Errors
    /// Not a list.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever kinds of values there are: only a list is one"
    )]
    pub(super) fn new(value: Value) -> Result<Self, StoreFault> {
        match value {
            Value::Array(values) | Value::Set(values) => Ok(Self { values: values.into_iter() }),
            other => Err(unexpected(&format!("{other:?}"))),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.values.as_slice().is_empty()
    }

    fn next(&mut self) -> Result<Value, StoreFault> {
        self.values.next().ok_or_else(|| unexpected("too short"))
    }

    pub(super) fn list(&mut self) -> Result<Self, StoreFault> {
        Self::new(self.next()?)
    }

    /// A value that may be absent.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever kinds of values there are: only these are texts"
    )]
    pub(super) fn optional(&mut self) -> Result<Option<Vec<u8>>, StoreFault> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes)),
            Value::SimpleString(text) => Ok(Some(text.into_bytes())),
            Value::Int(number) => Ok(Some(number.to_string().into_bytes())),
            // Scores: whole numbers of ours.
            Value::Double(number) => Ok(Some(format!("{number:.0}").into_bytes())),
            other => Err(unexpected(&format!("{other:?}"))),
        }
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, StoreFault> {
        self.optional()?.ok_or_else(|| unexpected("nothing"))
    }

    pub(super) fn text(&mut self) -> Result<String, StoreFault> {
        String::from_utf8(self.bytes()?).map_err(|_| unexpected("no text"))
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreFault> {
        let text = self.text()?;
        number(&text)
    }

    pub(super) fn count(&mut self) -> Result<usize, StoreFault> {
        usize::try_from(self.number()?).map_err(|_| unexpected("a count too large"))
    }

    pub(super) fn time(&mut self) -> Result<StoreTime, StoreFault> {
        self.number().map(StoreTime)
    }

    pub(super) fn revision(&mut self) -> Result<Revision, StoreFault> {
        self.number().map(Revision)
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreFault> {
        self.text().map(|text| text == "1")
    }

    pub(super) fn lease(&mut self) -> Result<LeaseId, StoreFault> {
        hex(&self.text()?).map(LeaseId)
    }

    pub(super) fn digest(&mut self) -> Result<Digest, StoreFault> {
        hex(&self.text()?).map(Digest)
    }

    pub(super) fn epoch(&mut self) -> Result<Epoch, StoreFault> {
        epoch(&self.text()?)
    }
}

/// A decimal number.
pub(super) fn number(text: &str) -> Result<u64, StoreFault> {
    text.parse().map_err(|_| unexpected(text))
}

/// 16 hex digits.
pub(super) fn hex(text: &str) -> Result<u64, StoreFault> {
    u64::from_str_radix(text, 16).map_err(|_| unexpected(text))
}

/// An epoch as its shard's hash has it: minted and random part, both in hex, so that its order as text is
/// its order.
pub(super) fn epoch(text: &str) -> Result<Epoch, StoreFault> {
    let (minted, random) = text.split_once(':').ok_or_else(|| unexpected(text))?;
    Ok(Epoch { minted_ms: hex(minted)?, random: hex(random)? })
}

/// The text of an epoch.
pub(super) fn epoch_text(epoch: Epoch) -> String {
    format!("{:016x}:{:016x}", epoch.minted_ms, epoch.random)
}

/// An answer that no script of ours gives: a defect, or somebody else's key.
pub(super) fn unexpected(what: &str) -> StoreFault {
    let shown: String = what.chars().take(80).flat_map(char::escape_default).collect();
    StoreFault::Unavailable(format!("it answered something unexpected: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_as_written_and_ordered_as_text() {
        let old = Epoch { minted_ms: 999, random: u64::MAX };
        let new = Epoch { minted_ms: 1_000, random: 0 };
        assert_eq!(epoch(&epoch_text(old)), Ok(old));
        assert!(epoch_text(old) < epoch_text(new));
        assert!(epoch("1:2:3").is_err());
        assert!(epoch("x").is_err());
    }

    #[test]
    fn what_is_not_expected_is_a_fault_and_no_panic() {
        assert!(Reader::new(Value::Nil).is_err());
        let mut reader = Reader::new(Value::Array(vec![Value::Nil, Value::BulkString(vec![0xff])])).unwrap();
        assert!(reader.bytes().is_err());
        assert!(reader.text().is_err());
        assert!(reader.number().is_err(), "nothing is left");
        assert!(reader.is_done());
    }
}
