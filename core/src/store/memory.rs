//! The memory adapter: a full store for one process, in which everything a remote store does to us can be provoked.
