//! The reader of WebSocket frames: what comes out depends on the bytes, never on the portions they come in.

use presence_edge::ws::{Decoder, Event, Violation};

/// Messages are short here, so that the limit is met.
const MESSAGE_BYTES_MAX: usize = 512;

/// The first byte says how large the portions are, the rest is what a client sends.
pub(super) fn run(bytes: &[u8]) {
    let Some((portion, sent)) = bytes.split_first() else { return };
    let whole = read(sent, sent.len().max(1));
    let portioned = read(sent, usize::from(*portion).max(1));
    // Who is cut off early was told the same until then.
    assert_eq!(whole, portioned, "in portions of {portion}");
    let (events, _) = whole;
    for event in events {
        match event {
            Event::Text(text) => assert!(text.len() <= MESSAGE_BYTES_MAX),
            Event::Binary(message) => assert!(message.len() <= MESSAGE_BYTES_MAX),
            Event::Ping(payload) => assert!(payload.len() <= 125),
            Event::Close(code) => assert!(code.is_none_or(|code| (1000..5000).contains(&code))),
            Event::Part | Event::Pong => {}
        }
    }
}

fn read(sent: &[u8], portion: usize) -> (Vec<Event>, Option<Violation>) {
    let mut decoder = Decoder::new(MESSAGE_BYTES_MAX);
    let mut events = Vec::new();
    for mut bytes in sent.chunks(portion) {
        while !bytes.is_empty() {
            match decoder.feed(&mut bytes) {
                Ok(event) => events.extend(event),
                Err(violation) => return (events, Some(violation)),
            }
        }
    }
    (events, None)
}

/// A frame as clients send it.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 255, 1];
    let mut frame = vec![first];
    match u8::try_from(payload.len()) {
        Ok(short) if short < 126 => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&u16::try_from(payload.len()).expect("a short seed").to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let long = vec![b'x'; MESSAGE_BYTES_MAX];
    let said: [&[(u8, &[u8])]; 8] = [
        &[(0x81, b"{\"t\":\"ping\"}"), (0x89, b"1"), (0x8a, b"")],
        &[(0x01, b"{\"t\":"), (0x89, b""), (0x00, b"\"pi"), (0x80, b"ng\"}")],
        &[(0x82, b"\x3a\x00"), (0x88, b"\x03\xe8bye")],
        &[(0x81, &long), (0x81, b"x")],
        &[(0x01, &long[1..]), (0x80, b"xx")],
        &[(0x81, "é😀".as_bytes()), (0x88, b"")],
        &[(0x01, b"\xf0\x9f"), (0x80, b"\x98\x80")],
        &[(0x81, b"\xff")],
    ];
    let of = |(number, frames): (usize, &&[(u8, &[u8])])| {
        let frames = frames.iter().flat_map(|(first, payload)| frame(*first, payload));
        std::iter::once(u8::try_from(number + 1).expect("a few")).chain(frames).collect()
    };
    said.iter().enumerate().map(of).collect()
}
