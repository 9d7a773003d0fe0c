//! Cursors: what is read is written the same again, and nothing else is one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use presence_model::cursor::{Cursor, Entry};
use presence_model::id::RegionId;
use presence_model::limits::CURSOR_REGIONS_MAX;
use presence_model::position::{Epoch, Position, Revision};

/// As text, and as what text stands for.
pub(super) fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check(text);
    }
    check(&URL_SAFE_NO_PAD.encode(bytes));
}

fn check(text: &str) {
    if let Ok(cursor) = Cursor::decode(text) {
        assert!(cursor.len() <= CURSOR_REGIONS_MAX);
        assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let position = |revision| Position {
        epoch: Epoch { minted_ms: 1_790_000_000_000, random: 7 },
        revision: Revision(revision),
    };
    let regions = |most: usize, entry: fn(Position) -> Entry| {
        let of = |number: usize| {
            let region = RegionId::new(format!("region-{number}")).expect("a name");
            (region, entry(position(number as u64)))
        };
        (0..most).map(of).collect::<Cursor>()
    };
    let written = [
        regions(0, Entry::Equal),
        regions(1, Entry::Equal),
        regions(3, Entry::Seen),
        regions(CURSOR_REGIONS_MAX, Entry::Seen),
    ]
    .map(|cursor| cursor.encode());
    let plain = written.iter().map(|text| URL_SAFE_NO_PAD.decode(text).expect("what was written"));
    plain.chain(written.iter().map(|text| text.clone().into_bytes())).collect()
}
