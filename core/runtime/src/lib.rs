//! What every binary shares.
