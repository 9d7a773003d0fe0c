//! The store conformance suite on the Redis adapter over a Redis Cluster of three masters: servers of its own for each case, in real
//! time. No case is left out.

use presence_tests::redis::{RedisBench, Shape};

presence_tests::conformance!(RedisBench::start(Shape::Cluster).await?);
