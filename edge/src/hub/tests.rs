//! Stories of a hub, with link and watch driven by hand.

mod chaos;
mod classes;
mod cores;
mod crowds;
mod drain;
mod encodings;
mod limits;
mod line;
mod link;
mod liveness;
mod refused;
mod regions;
mod rejoins;
mod revoked;
mod rooms;
mod sessions;
mod spread;
mod tokens;
mod world;
