//! What is wrong with a message of another process: the field and the rule.

use presence_model::id::NameError;

/// A message that is not within the contract. Sending it again is of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is not set.
    #[error("{field} is missing")]
    Missing {
        /// `Message.field`.
        field: &'static str,
    },
    /// No part of the message is known here: it comes from a later version. May be skipped.
    #[error("{field} holds nothing that this version knows")]
    Unknown {
        /// `Message.field`.
        field: &'static str,
    },
    /// An enum is not set, or its value is not known here.
    #[error("{field} has the unknown value {value}")]
    UnknownValue {
        /// `Message.field`.
        field: &'static str,
        /// As sent.
        value: i32,
    },
    /// A name is out of bounds.
    #[error("{field}: {rule}")]
    Name {
        /// `Message.field`.
        field: &'static str,
        /// What it should be.
        rule: NameError,
    },
    /// Text or bytes are too long.
    #[error("{field} has {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// `Message.field`.
        field: &'static str,
        /// As sent.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// A list is too long.
    #[error("{field} has {count} entries, at most {max} are allowed")]
    TooMany {
        /// `Message.field`.
        field: &'static str,
        /// As sent.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// Another rule of the field is broken.
    #[error("{field} {rule}")]
    Rule {
        /// `Message.field`.
        field: &'static str,
        /// What it should be: "must be …".
        rule: &'static str,
    },
}

impl WireError {
    /// Whether a later version may have sent it in good faith, so that the message is to be skipped
    /// instead of ending the stream.
    #[must_use]
    pub fn may_skip(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}
