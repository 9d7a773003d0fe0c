//! Stories of a hub, with link and watch driven by hand.

mod chaos;
mod classes;
mod cores;
mod drain;
mod link;
mod liveness;
mod rooms;
mod sessions;
mod world;
