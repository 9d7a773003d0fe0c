//! Which address a limit counts.

use std::net::{IpAddr, Ipv6Addr};

/// Who counts as one: an address of IPv4, or a /64 of IPv6, which is what one household or host is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Origin([u8; 16]);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).octets())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(address: &str) -> Origin {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn one_address_of_ipv4_and_one_network_of_ipv6_are_one() {
        assert_ne!(origin("192.0.2.1"), origin("192.0.2.2"));
        assert_eq!(origin("192.0.2.1"), origin("::ffff:192.0.2.1"));
        assert_eq!(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
        assert_ne!(origin("::"), origin("0.0.0.0"));
    }
}
