//! Where a client is: the peer of its transport, or what a proxy that is trusted says of it.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

use crate::limits::PROXY_HOPS_MAX;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// Who tells the address of a client. Exactly one does: a proxy that sets one header passes on whatever a client
/// has written into another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The transport itself: there is no proxy.
    Peer,
    /// A PROXY header, version 1 or 2, before anything else on each transport.
    ProxyProtocol,
    /// The header `X-Forwarded-For`.
    XForwardedFor,
    /// The header `Forwarded` (RFC 7239).
    Forwarded,
}

impl Source {
    /// All words, as a setting takes them.
    pub const WORDS: [&str; 4] = ["peer", "proxy-protocol", "x-forwarded-for", "forwarded"];

    /// By its word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let sources = [Self::Peer, Self::ProxyProtocol, Self::XForwardedFor, Self::Forwarded];
        Self::WORDS.iter().position(|known| *known == word).map(|place| sources[place])
    }
}

/// How the addresses of clients are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whence {
    /// Who tells.
    pub source: Source,
    /// Proxies that are believed. Their own addresses have no limit.
    pub trusted: Vec<IpNet>,
}

impl Default for Whence {
    fn default() -> Self {
        Self { source: Source::Peer, trusted: Vec::new() }
    }
}

impl Whence {
    /// Whether this is a proxy of ours.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The client's address, if the transport's peer alone tells it.
    pub(crate) fn of_peer(&self, peer: IpAddr) -> Option<IpAddr> {
        (self.source == Source::Peer || !self.trusts(peer)).then_some(peer)
    }

    /// The client's address as the headers of a request from a trusted proxy tell it: the nearest that is no proxy
    /// of ours. None if they tell of nobody else, or in a way that cannot be read.
    pub(crate) fn of_headers(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let hops: Vec<Option<IpAddr>> = match self.source {
            Source::Peer | Source::ProxyProtocol => return None,
            Source::XForwardedFor => {
                nearest_first(headers, X_FORWARDED_FOR).map(address).take(PROXY_HOPS_MAX).collect()
            }
            Source::Forwarded => {
                nearest_first(headers, FORWARDED.as_str()).map(forwarded_for).take(PROXY_HOPS_MAX).collect()
            }
        };
        for hop in hops {
            let hop = hop?;
            if !self.trusts(hop) {
                return Some(hop);
            }
        }
        None
    }
}

/// What a header that lists says, the last first.
fn nearest_first<'h>(headers: &'h HeaderMap, name: &'static str) -> impl Iterator<Item = &'h [u8]> {
    let values: Vec<&[u8]> = headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    values.into_iter().rev().flat_map(|value| {
        let mut elements = split_unquoted(value, b',');
        elements.reverse();
        elements
    })
}

/// Splits where the separator is not part of a quoted string, looking from the end: what a client left open before is
/// no part of what its proxy has added behind.
fn split_unquoted(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut parts, mut end, mut place, mut quoted) = (Vec::new(), text.len(), text.len(), false);
    while place > 0 {
        place -= 1;
        match text[place] {
            b'"' if !quoted || !is_escaped(text, place) => quoted = !quoted,
            byte if byte == separator && !quoted => {
                parts.push(&text[place + 1..end]);
                end = place;
            }
            _ => {}
        }
    }
    parts.push(&text[..end]);
    parts.reverse();
    parts
}

/// Whether a byte within a quoted string is meant literally.
fn is_escaped(text: &[u8], place: usize) -> bool {
    text[..place].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// An address with or without port and brackets.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let found = bare.parse::<IpAddr>().ok();
    found.or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip())).map(|found| found.to_canonical())
}

/// The address in an element of `Forwarded`; none if it hides whom it speaks of.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    split_unquoted(element, b';')
        .into_iter()
        .find_map(|pair| {
            let (name, value) = str::from_utf8(pair).ok()?.trim().split_once('=')?;
            name.eq_ignore_ascii_case("for").then_some(value)
        })
        .and_then(|value| {
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            address(quoted.unwrap_or(value).as_bytes())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whence(source: Source) -> Whence {
        let trusted = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).to_vec();
        Whence { source, trusted }
    }

    fn told(source: Source, headers: &[(&'static str, &str)]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        whence(source).of_headers(&map).map(|address| address.to_string())
    }

    #[test]
    fn every_word_is_a_source() {
        let found: Vec<_> = Source::WORDS.iter().filter_map(|word| Source::of(word)).collect();
        assert_eq!(found.len(), Source::WORDS.len());
        assert_eq!(Source::of("proxy-protocol"), Some(Source::ProxyProtocol));
        assert_eq!(Source::of("x-real-ip"), None);
    }

    #[test]
    fn the_nearest_address_that_is_no_proxy_of_ours_is_the_clients() {
        let cases = [
            (&["198.51.100.7"][..], Some("198.51.100.7")),
            (&["203.0.113.1, 198.51.100.7, 10.1.1.1"], Some("198.51.100.7")),
            // What a client writes itself stands before what its proxy adds.
            (&["10.0.0.9, 1.1.1.1", "198.51.100.7"], Some("198.51.100.7")),
            (&["garbage, 198.51.100.7"], Some("198.51.100.7")),
            // As nginx and HAProxy write IPv6, and with ports as others do.
            (&["2001:db8::7"], Some("2001:db8::7")),
            (&["[2001:db8::7]:4711, 10.1.1.1:80"], Some("2001:db8::7")),
            (&["::ffff:198.51.100.7"], Some("198.51.100.7")),
            (&["198.51.100.7:99"], Some("198.51.100.7")),
            // Of nobody else, or unreadable where it counts.
            (&["10.2.2.2, 10.1.1.1"], None),
            (&["198.51.100.7, unknown"], None),
            (&["198.51.100.7, \u{e9}"], None),
            (&["198.51.100.7,"], None),
            // Whatever a client writes, what its proxy adds behind is read.
            (&["\u{e9}, 198.51.100.7"], Some("198.51.100.7")),
            (&["\", 198.51.100.7"], Some("198.51.100.7")),
            (&["\"\\, 1.1.1.1\", \\\", 198.51.100.7, 10.1.1.1"], Some("198.51.100.7")),
            (&["999.1.1.1"], None),
            (&[""], None),
            (&[], None),
        ];
        for (values, client) in cases {
            let headers: Vec<_> = values.iter().map(|value| (X_FORWARDED_FOR, *value)).collect();
            assert_eq!(told(Source::XForwardedFor, &headers).as_deref(), client, "{values:?}");
        }
    }

    #[test]
    fn forwarded_is_read_as_the_standard_has_it() {
        let cases = [
            ("for=198.51.100.7", Some("198.51.100.7")),
            ("for=203.0.113.1;proto=https, For=\"198.51.100.7:4711\";by=10.0.0.1", Some("198.51.100.7")),
            ("for=\"[2001:db8::7]:80\", for=10.1.1.1", Some("2001:db8::7")),
            ("for=\"[2001:db8::7]\"", Some("2001:db8::7")),
            ("by=1.1.1.1;for=198.51.100.7", Some("198.51.100.7")),
            // A separator inside quotes is none.
            ("for=\"1.1.1.1, for=2.2.2.2\"", None),
            ("for=\"\\\", for=2.2.2.2\", for=198.51.100.7", Some("198.51.100.7")),
            // Whatever a client leaves open, what its proxy adds behind is read.
            ("for=\"1.1.1.1, for=198.51.100.7", Some("198.51.100.7")),
            ("for=\", for=\"[2001:db8::7]:80\"", Some("2001:db8::7")),
            ("for=\"\\, for=\"198.51.100.7:80\";by=\"_\\\"x\"", Some("198.51.100.7")),
            ("\u{e9}=\u{e9};\", for=198.51.100.7;proto=http", Some("198.51.100.7")),
            ("for=198.51.100.7, for=_hidden", None),
            ("for=198.51.100.7, for=unknown", None),
            ("proto=https", None),
            ("for", None),
            ("", None),
        ];
        for (value, client) in cases {
            assert_eq!(told(Source::Forwarded, &[("forwarded", value)]).as_deref(), client, "{value}");
        }
    }

    #[test]
    fn only_the_header_that_was_named_is_read_and_only_so_far() {
        let both = [("forwarded", "for=1.1.1.1"), (X_FORWARDED_FOR, "198.51.100.7")];
        assert_eq!(told(Source::XForwardedFor, &both).as_deref(), Some("198.51.100.7"));
        assert_eq!(told(Source::Forwarded, &both).as_deref(), Some("1.1.1.1"));
        assert_eq!(told(Source::Peer, &both), None);
        assert_eq!(told(Source::ProxyProtocol, &both), None);
        let hops = |proxies: usize| format!("198.51.100.7{}", ", 10.1.1.1".repeat(proxies));
        for (proxies, is_found) in
            [(PROXY_HOPS_MAX - 2, true), (PROXY_HOPS_MAX - 1, true), (PROXY_HOPS_MAX, false)]
        {
            let found = told(Source::XForwardedFor, &[(X_FORWARDED_FOR, &hops(proxies))]);
            assert_eq!(found.is_some(), is_found, "{proxies} proxies");
        }
    }

    #[test]
    fn a_peer_that_is_no_proxy_of_ours_speaks_for_itself_only() {
        let (client, proxy) = ("198.51.100.7".parse().unwrap(), "::ffff:10.0.0.1".parse().unwrap());
        for source in [Source::Peer, Source::XForwardedFor, Source::Forwarded] {
            assert_eq!(whence(source).of_peer(client), Some(client));
        }
        assert_eq!(whence(Source::XForwardedFor).of_peer(proxy), None);
        assert!(whence(Source::ProxyProtocol).trusts("fd12::1".parse().unwrap()));
    }
}
