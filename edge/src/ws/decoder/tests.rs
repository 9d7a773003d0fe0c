use proptest::prelude::*;

use super::*;

const MAX: usize = 1000;
const MASK: [u8; 4] = [0xA1, 0x02, 0xF3, 0x44];

/// A masked frame with the given first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().enumerate().map(|(i, byte)| byte ^ MASK[i % 4]));
    bytes
}

/// All events of `bytes` given in portions of `portion`, and the violation that ended it.
fn decode(bytes: &[u8], portion: usize, max: usize) -> (Vec<Event>, Option<Violation>) {
    let mut decoder = Decoder::new(max);
    let mut events = Vec::new();
    for mut input in bytes.chunks(portion) {
        loop {
            match decoder.feed(&mut input) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(violation) => return (events, Some(violation)),
            }
        }
        assert!(input.is_empty());
    }
    (events, None)
}

fn violation_of(bytes: &[u8]) -> Violation {
    let whole = decode(bytes, bytes.len(), MAX).1.expect("a violation");
    assert_eq!(decode(bytes, 1, MAX).1, Some(whole), "the same byte by byte");
    whole
}

#[test]
fn messages_are_the_same_in_any_portions() {
    let mut bytes = frame(0x81, b"hello");
    bytes.extend(frame(0x01, "gr\u{fc}".as_bytes()));
    bytes.extend(frame(0x89, b"ping"));
    bytes.extend(frame(0x00, &"\u{df}e".as_bytes()[..1]));
    bytes.extend(frame(0x8A, b""));
    bytes.extend(frame(0x80, &"\u{df}e".as_bytes()[1..]));
    bytes.extend(frame(0x82, &[0xFF; 300]));
    bytes.extend(frame(0x81, b""));
    bytes.extend(frame(0x88, b"\x03\xE8bye"));
    bytes.extend(b"anything");
    let expected = vec![
        Event::Text("hello".into()),
        Event::Part,
        Event::Ping(Bytes::from_static(b"ping")),
        Event::Part,
        Event::Pong,
        Event::Text("gr\u{fc}\u{df}e".into()),
        Event::Binary(vec![0xFF; 300]),
        Event::Text(String::new()),
        Event::Close(Some(1000)),
    ];
    for portion in 1..=bytes.len() {
        assert_eq!(decode(&bytes, portion, MAX), (expected.clone(), None), "portions of {portion}");
    }
}

#[test]
fn each_violation_is_found() {
    for bit in [0x40, 0x20, 0x10] {
        assert_eq!(violation_of(&frame(0x81 | bit, b"x")), Violation::ReservedBits);
    }
    for opcode in [0x3, 0x7, 0xB, 0xF] {
        assert_eq!(violation_of(&frame(0x80 | opcode, b"x")), Violation::Opcode);
    }
    assert_eq!(violation_of(b"\x81\x01x"), Violation::NotMasked);
    for opcode in [0x8, 0x9, 0xA] {
        assert_eq!(violation_of(&frame(opcode, b"")), Violation::ControlFragmented);
        assert_eq!(violation_of(&frame(0x80 | opcode, &[0; 126])), Violation::ControlTooLong);
    }
    assert_eq!(violation_of(&frame(0x80, b"x")), Violation::NothingToContinue);
    assert_eq!(violation_of(&frame(0x00, b"x")), Violation::NothingToContinue);
    for second in [0x81, 0x01, 0x82, 0x02] {
        let bytes = [frame(0x01, b"a"), frame(second, b"b")].concat();
        assert_eq!(violation_of(&bytes), Violation::Interleaved);
    }
    let after_end = [frame(0x01, b"a"), frame(0x80, b"b"), frame(0x80, b"c")].concat();
    assert_eq!(violation_of(&after_end), Violation::NothingToContinue);
}

#[test]
fn lengths_must_be_written_shortest() {
    let with_length = |length: &[u8]| [&[0x82][..], length, &MASK].concat();
    assert_eq!(violation_of(&with_length(&[0xFE, 0, 125])), Violation::Length);
    assert_eq!(violation_of(&with_length(&[0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF])), Violation::Length);
    assert_eq!(violation_of(&with_length(&[0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0])), Violation::Length);
    assert_eq!(violation_of(&with_length(&[0xFF, 0, 0, 0, 0, 0, 1, 0, 0])), Violation::TooLarge);
}

#[test]
fn close_frames_are_judged() {
    assert_eq!(decode(&frame(0x88, b""), 1, MAX), (vec![Event::Close(None)], None));
    assert_eq!(violation_of(&frame(0x88, b"\x03")), Violation::CloseFrame);
    for code in [0_u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
        assert_eq!(violation_of(&frame(0x88, &code.to_be_bytes())), Violation::CloseFrame, "{code}");
    }
    for code in [1000_u16, 1001, 1002, 1003, 1007, 1014, 3000, 4999] {
        let (events, violation) = decode(&frame(0x88, &code.to_be_bytes()), 1, MAX);
        assert_eq!((events, violation), (vec![Event::Close(Some(code))], None));
    }
    assert_eq!(violation_of(&frame(0x88, b"\x03\xE8\xFF")), Violation::Utf8);
}

#[test]
fn text_must_be_utf8_over_all_fragments() {
    assert_eq!(violation_of(&frame(0x81, b"\xC0\xAF")), Violation::Utf8);
    assert_eq!(violation_of(&frame(0x81, b"\xED\xA0\x80")), Violation::Utf8, "a surrogate");
    let cut = [frame(0x01, b"ok\xC3"), frame(0x80, b"")].concat();
    assert_eq!(violation_of(&cut), Violation::Utf8, "half a character at the end");
}

#[test]
fn the_cap_counts_all_fragments_and_includes_its_last_byte() {
    let whole = |bytes: usize| decode(&frame(0x82, &vec![7; bytes]), 64, MAX);
    assert_eq!(whole(MAX - 1).1, None);
    assert_eq!(whole(MAX), (vec![Event::Binary(vec![7; MAX])], None));
    assert_eq!(whole(MAX + 1), (vec![], Some(Violation::TooLarge)));
    let parts = |last: usize| {
        let mut bytes = frame(0x02, &[7; 400]);
        bytes.extend(frame(0x00, &[7; 400]));
        bytes.extend(frame(0x80, &vec![7; last]));
        decode(&bytes, 64, MAX).1
    };
    assert_eq!(parts(199), None);
    assert_eq!(parts(200), None);
    assert_eq!(parts(201), Some(Violation::TooLarge));
}

#[test]
fn a_promise_of_many_bytes_takes_no_memory() {
    let mut decoder = Decoder::new(MAX);
    let header = frame(0x82, &[0; MAX]);
    assert_eq!(decoder.feed(&mut &header[..8]), Ok(None));
    assert_eq!(decoder.message.capacity(), 0);
    assert!(decoder.is_midway());
}

#[test]
fn nothing_is_kept_between_messages() {
    let mut decoder = Decoder::new(MAX);
    let bytes = [frame(0x81, &[b'a'; 900]), frame(0x8A, &[b'b'; 125]), frame(0x89, b"c")].concat();
    let mut input = &bytes[..];
    while let Ok(Some(_)) = decoder.feed(&mut input) {}
    assert_eq!((decoder.message.capacity(), decoder.control.capacity()), (0, 0));
    assert!(!decoder.is_midway());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_portions_do_not_matter(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        portion in 1_usize..50,
    ) {
        let whole = decode(&bytes, bytes.len().max(1), 64);
        prop_assert_eq!(decode(&bytes, portion, 64), whole);
    }

    #[test]
    fn near_frames_never_panic_and_portions_do_not_matter(
        frames in proptest::collection::vec(
            (prop::sample::select(vec![0x00_u8, 0x80, 0x01, 0x81, 0x02, 0x82, 0x88, 0x89, 0x8A, 0xC1]),
             proptest::collection::vec(any::<u8>(), 0..200)),
            0..6,
        ),
        cut in 0_usize..50,
        portion in 1_usize..50,
    ) {
        let mut bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| frame(*first, payload)).collect();
        bytes.truncate(bytes.len().saturating_sub(cut));
        let whole = decode(&bytes, bytes.len().max(1), 300);
        prop_assert_eq!(decode(&bytes, portion, 300), whole);
    }
}
