//! Protobuf contracts and their conversion to the model.

/// Package `presence.v1`: services and their messages, as the `.proto` files document them.
#[expect(missing_docs, reason = "generated; documented in the .proto files where they have a comment")]
pub mod v1 {
    tonic::include_proto!("presence.v1");
}

/// Descriptors of every contract, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/presence.bin"));
