//! Watch rooms and query a presence core.
