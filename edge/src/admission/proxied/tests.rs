use ppp::v2::Builder;
use tokio::io::AsyncReadExt as _;

use super::*;

/// What is told of these bytes, and what is left behind the header.
async fn read(bytes: &[u8]) -> (Result<Option<String>, BadHeader>, Vec<u8>) {
    let mut transport = bytes;
    let told = read_header(&mut transport).await;
    let mut rest = Vec::new();
    transport.read_to_end(&mut rest).await.unwrap();
    (told.map(|address| address.map(|address| address.to_string())), rest)
}

async fn told(bytes: &[u8]) -> Result<Option<String>, String> {
    read(bytes).await.0.map_err(|bad| bad.to_string())
}

fn binary(version_command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    Builder::new(version_command, family).write_payload(payload).unwrap().build().unwrap()
}

/// Source and destination of IPv4, with ports.
const FOUR: [u8; 12] = [198, 51, 100, 7, 10, 0, 0, 1, 0x12, 0x34, 1, 187];

fn six() -> [u8; 36] {
    let mut payload = [0; 36];
    payload[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
    payload[15] = 7;
    payload
}

#[tokio::test]
async fn a_line_of_version_1_tells_the_client_and_leaves_what_follows() {
    let cases: [(&[u8], Option<&str>); 6] = [
        (b"PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n", Some("198.51.100.7")),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n", Some("1.1.1.1")),
        (b"PROXY TCP6 2001:db8::7 fd00::1 4711 443\r\n", Some("2001:db8::7")),
        (b"PROXY TCP6 ::ffff:198.51.100.7 ::1 1 1\r\n", Some("198.51.100.7")),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN 198.51.100.7 whatever it likes\r\n", None),
    ];
    for (line, client) in cases {
        let (found, rest) = read(&[line, b"GET / HTTP/1.1\r\n\r\n"].concat()).await;
        assert_eq!(found.unwrap().as_deref(), client, "{}", line.escape_ascii());
        assert_eq!(rest, b"GET / HTTP/1.1\r\n\r\n", "{}", line.escape_ascii());
    }
}

#[tokio::test]
async fn a_header_of_version_2_tells_the_client_and_leaves_what_follows() {
    let with_more = [&FOUR[..], &[0x20, 0, 3, 1, 2, 3]].concat();
    let unix = [7; 216];
    let cases = [
        (binary(0x21, 0x11, &FOUR), Some("198.51.100.7")),
        (binary(0x21, 0x11, &with_more), Some("198.51.100.7")),
        (binary(0x21, 0x21, &six()), Some("2001:db8::7")),
        // A health check, whatever it names; families without addresses.
        (binary(0x20, 0x11, &FOUR), None),
        (binary(0x20, 0x00, &[]), None),
        (binary(0x21, 0x00, &[]), None),
        (binary(0x21, 0x31, &unix), None),
    ];
    for (header, client) in cases {
        let (found, rest) = read(&[&header[..], b"GET /"].concat()).await;
        assert_eq!(found.unwrap().as_deref(), client, "{}", header.escape_ascii());
        assert_eq!(rest, b"GET /", "{}", header.escape_ascii());
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    let mut short = binary(0x21, 0x11, &FOUR);
    short[15] = 11;
    let cases: [(Vec<u8>, &str); 17] = [
        (b"GET /v1/ws HTTP/1.1\r\n".to_vec(), "no PROXY header"),
        (vec![0x16; 64], "no PROXY header"),
        (b"proxy TCP4 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(), "no PROXY header"),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 65536\r\n".to_vec(), "a malformed"),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n".to_vec(), "a malformed"),
        (b"PROXY TCP4 ::1 ::1 1 1\r\n".to_vec(), "a malformed"),
        (b"PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(), "a malformed"),
        (b"PROXY UDP4 1.1.1.1 1.1.1.1 1 1\r\n".to_vec(), "a malformed"),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1 extra\r\n".to_vec(), "a malformed"),
        (b"PROXY TCP4 1.1.1.1\r1.1.1.1 1 1\r\n".to_vec(), "a malformed"),
        (b"PROXY \r\nGET / \r\n".to_vec(), "a malformed"),
        (b"PROXY UNKNOWN \xff\xfe\r\n".to_vec(), "a malformed"),
        (binary(0x11, 0x11, &FOUR), "a malformed"),
        (binary(0x22, 0x11, &FOUR), "a malformed"),
        (binary(0x21, 0x41, &FOUR), "a malformed"),
        (binary(0x21, 0x12, &FOUR), "a malformed"),
        (short, "a malformed"),
    ];
    for (bytes, refusal) in cases {
        let found = told(&bytes).await.expect_err("refused");
        assert!(found.starts_with(refusal), "{}: {found}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn what_ends_early_is_refused_wherever_it_ends() {
    for whole in [b"PROXY TCP4 198.51.100.7 10.0.0.1 4711 443\r\n".to_vec(), binary(0x21, 0x11, &FOUR)] {
        for end in 0..whole.len() {
            let found = told(&whole[..end]).await.expect_err("cut");
            assert!(found.starts_with("the transport ended"), "{end}: {found}");
        }
        assert!(told(&whole).await.is_ok());
    }
}

#[tokio::test]
async fn a_header_is_no_longer_than_it_may_be() {
    let line = |length: usize| [&b"PROXY UNKNOWN "[..], &vec![b'x'; length - 16], b"\r\n"].concat();
    for (length, is_read) in [(LINE_MAX - 1, true), (LINE_MAX, true), (LINE_MAX + 1, false)] {
        assert_eq!(told(&line(length)).await.is_ok(), is_read, "{length}");
    }
    let endless = told(&[b'P', b'R', b'O', b'X', b'Y', b' '].repeat(1_000)).await.unwrap_err();
    assert!(endless.starts_with("the PROXY header has more than"), "{endless}");
    // One value of a kind without meaning fills the rest.
    let header = |length: usize| {
        let value = length - FIXED - FOUR.len() - 3;
        let [high, low] = u16::try_from(value).unwrap().to_be_bytes();
        binary(0x21, 0x11, &[&FOUR[..], &[0x04, high, low], &vec![0; value]].concat())
    };
    for (length, is_read) in [
        (PROXY_HEADER_BYTES_MAX - 1, true),
        (PROXY_HEADER_BYTES_MAX, true),
        (PROXY_HEADER_BYTES_MAX + 1, false),
    ] {
        assert_eq!(header(length).len(), length);
        assert_eq!(told(&header(length)).await.is_ok(), is_read, "{length}");
    }
}
