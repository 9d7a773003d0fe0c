//! The JSON encoding of the client protocol.
