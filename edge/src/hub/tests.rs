//! Stories of a hub, with link and watch driven by hand.

mod sessions;
mod world;
