//! Stories on a small world: drivers over one memory store, edges that beat and renew, watchers that
//! keep copies; time is driven, and the store can be away, slow, lossy, emptied or set to another time.

mod arrivals;
mod audits;
mod classes;
mod cores;
mod counting;
mod doorstep;
mod edge_drains;
mod edges;
mod evictions;
mod foreign;
mod joins;
mod lands;
mod lowered;
mod outages;
mod owed;
mod peers;
mod queries;
mod refusals;
mod regions;
mod releases;
mod revocations;
mod silence;
mod strain;
mod tidying;
mod watching;
mod world;
