//! Protobuf contracts and their conversion to the model.
//!
//! Messages of other processes are parsed here, once: whatever leaves [`convert`] as a value of the model
//! is within its bounds, and whatever is not is a [`WireError`] that names the field and the rule. The one
//! table from errors to gRPC status is [`status`].

pub mod codec;
pub mod convert;
pub mod error;
pub mod limits;
pub mod status;
pub mod stored;

pub use error::WireError;
pub use status::ServiceError;

/// Package `presence.v1`: services and their messages, as the `.proto` files document them.
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated"
)]
pub mod v1 {
    tonic::include_proto!("presence.v1");
}

/// Request metadata of a watch by which a core says that it is one: its own region, in bytes of UTF-8.
pub const CROSSING_FROM: &str = "presence-from-region-bin";
/// The region it wants to watch: a core that does not keep that one, or does not know the other, refuses the stream.
pub const CROSSING_TO: &str = "presence-to-region-bin";

/// Descriptors of every contract, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/presence.bin"));
