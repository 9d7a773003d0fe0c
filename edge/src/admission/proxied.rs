//! The PROXY header that a listener demands when proxies are to tell where clients are.
//!
//! Nothing behind the header is read: what follows is the client's, and somebody else's to read.

use std::net::IpAddr;

use ppp::HeaderResult;
use ppp::v1::Addresses as TextAddresses;
use ppp::v2::{Addresses, Command, PROTOCOL_PREFIX, Protocol};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::limits::PROXY_HEADER_BYTES_MAX;

/// The shortest header there is: `PROXY UNKNOWN`.
const SHORTEST: usize = 15;
/// A binary header up to and including its length.
const FIXED: usize = 16;
/// The longest line of version 1 there may be.
const LINE_MAX: usize = 107;

/// Why a transport has no good PROXY header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadHeader {
    /// It ended, or broke.
    #[error("the transport ended within its PROXY header: {0}")]
    Ended(#[from] std::io::Error),
    /// It begins with something else.
    #[error("no PROXY header")]
    Missing,
    /// It goes on for too long.
    #[error(
        "the PROXY header has more than {PROXY_HEADER_BYTES_MAX} bytes, or its line more than {LINE_MAX}"
    )]
    TooLong,
    /// It cannot be read.
    #[error("a malformed PROXY header")]
    Malformed,
}

/// Reads one header: the client's address, none if the proxy speaks for itself (a health check) or does not know.
/// Has no time-out of its own.
///
/// # Errors
/// [`BadHeader`]: the transport is of no use any more.
pub(crate) async fn read_header(
    transport: &mut (impl AsyncRead + Unpin),
) -> Result<Option<IpAddr>, BadHeader> {
    let mut bytes = vec![0; SHORTEST];
    transport.read_exact(&mut bytes).await?;
    if bytes.starts_with(PROTOCOL_PREFIX) {
        read_on(transport, &mut bytes, FIXED).await?;
        let rest = usize::from(u16::from_be_bytes([bytes[FIXED - 2], bytes[FIXED - 1]]));
        read_on(transport, &mut bytes, FIXED + rest).await?;
    } else if bytes.starts_with(b"PROXY ") {
        while !bytes.ends_with(b"\r\n") {
            let more = if bytes.ends_with(b"\r") { 1 } else { 2 };
            if bytes.len() + more > LINE_MAX {
                return Err(BadHeader::TooLong);
            }
            let end = bytes.len() + more;
            read_on(transport, &mut bytes, end).await?;
        }
        // Whoever reads a line up to its first end would leave the rest unread.
        if bytes.iter().position(|byte| *byte == b'\r') != Some(bytes.len() - 2) {
            return Err(BadHeader::Malformed);
        }
    } else {
        return Err(BadHeader::Missing);
    }
    source(&bytes)
}

async fn read_on(
    transport: &mut (impl AsyncRead + Unpin),
    bytes: &mut Vec<u8>,
    end: usize,
) -> Result<(), BadHeader> {
    if end > PROXY_HEADER_BYTES_MAX {
        return Err(BadHeader::TooLong);
    }
    let start = bytes.len();
    bytes.resize(end, 0);
    transport.read_exact(&mut bytes[start..]).await?;
    Ok(())
}

fn source(header: &[u8]) -> Result<Option<IpAddr>, BadHeader> {
    match HeaderResult::parse(header) {
        HeaderResult::V1(Ok(header)) => Ok(match header.addresses {
            TextAddresses::Tcp4(addresses) => Some(addresses.source_address.into()),
            TextAddresses::Tcp6(addresses) => Some(IpAddr::V6(addresses.source_address).to_canonical()),
            TextAddresses::Unknown => None,
        }),
        HeaderResult::V2(Ok(header)) => match (header.command, header.protocol) {
            (Command::Local, _) => Ok(None),
            (Command::Proxy, Protocol::Datagram) => Err(BadHeader::Malformed),
            (Command::Proxy, Protocol::Stream | Protocol::Unspecified) => Ok(match header.addresses {
                Addresses::IPv4(addresses) => Some(addresses.source_address.into()),
                Addresses::IPv6(addresses) => Some(IpAddr::V6(addresses.source_address).to_canonical()),
                Addresses::Unspecified | Addresses::Unix(_) => None,
            }),
        },
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Err(BadHeader::Malformed),
    }
}

#[cfg(test)]
mod tests;
