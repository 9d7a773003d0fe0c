//! Both encodings say the same: whatever is written in one of them reads as in the other.

mod from_clients;
mod mirror;
mod to_clients;
