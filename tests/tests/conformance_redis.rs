//! The store conformance suite on the Redis adapter over one Redis server: servers of its own for each case, in real
//! time. No case is left out.

use presence_tests::redis::{RedisBench, Shape};

presence_tests::conformance!(RedisBench::start(Shape::Standalone).await?);
