//! Names of things, each a type of its own, checked once where they enter.

use std::fmt;

use smol_str::SmolStr;

use crate::limits::{GENERATION_MAX, NAME_BYTES_MAX, SESSION_CHARS_MAX, SESSION_CHARS_MIN};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Rooms, users, regions and edges have at least one byte.
    #[error("{kind} must not be empty")]
    Empty {
        /// What was being named.
        kind: &'static str,
    },
    /// Nothing of it can be seen: white space, control and invisible characters alone.
    #[error("{kind} {name:?} must have a character that can be seen")]
    Blank {
        /// What was being named.
        kind: &'static str,
        /// As given.
        name: SmolStr,
    },
    /// Longer than [`NAME_BYTES_MAX`] bytes of UTF-8.
    #[error("{kind} has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")]
    TooLong {
        /// What was being named.
        kind: &'static str,
        /// Length as given, in bytes.
        bytes: usize,
    },
    /// A session id is 16 to 64 characters of printable ASCII without spaces.
    #[error(
        "a session id is {SESSION_CHARS_MIN} to {SESSION_CHARS_MAX} printable ASCII characters, got {bytes} bytes"
    )]
    Session {
        /// Length as given, in bytes.
        bytes: usize,
    },
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(SmolStr);

        impl $type {
            /// Checks a name: 1 to 255 bytes of UTF-8, any characters, one of which can be seen.
            ///
            /// # Errors
            /// [`NameError`] when empty, too long or blank.
            pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
                let name = name.as_ref();
                match name.len() {
                    0 => Err(NameError::Empty { kind: $kind }),
                    bytes if bytes > NAME_BYTES_MAX => Err(NameError::TooLong { kind: $kind, bytes }),
                    _ if name.chars().all(is_invisible) => {
                        Err(NameError::Blank { kind: $kind, name: SmolStr::new(name) })
                    }
                    _ => Ok(Self(SmolStr::new(name))),
                }
            }

            /// The name as given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        // Names come from clients: control characters are escaped wherever a person reads them.
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                escape_into(&self.0, f)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.0.as_str(), f)
            }
        }
    };
}

name!(
    /// What members are present in; the unit of watching.
    RoomId,
    "room"
);
name!(
    /// A user: the subject of a token.
    UserId,
    "user"
);
name!(
    /// Where an edge runs. A roster belongs to one (region, room).
    RegionId,
    "region"
);
name!(
    /// The configured name of an edge.
    EdgeName,
    "edge"
);

/// Writes text so that it is harmless in a terminal or a log line: control, bidi and other invisible
/// formatting characters become `\u{…}`.
///
/// # Errors
/// Only those of the formatter.
pub fn escape_into(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write as _;
    for c in text.chars() {
        if is_unsafe_to_print(c) {
            write!(f, "\\u{{{:x}}}", u32::from(c))?;
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

/// Whether a character may act on a terminal instead of being shown: control, bidi and other invisible ones.
#[must_use]
pub fn is_unsafe_to_print(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Whether a character shows nothing by itself. The list is of those that names were blank by, not of all that
/// Unicode may add: a name is told apart by its bytes, whatever it looks like.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || is_unsafe_to_print(c)
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'
                ..='\u{180f}'
        )
        || matches!(c, '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

/// One tab, device or process of a user in a room; keeps its id over reconnects.
///
/// Never identifies anything by itself: a session is (room, user, session id).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(SmolStr);

impl SessionId {
    /// Checks a session id: 16 to 64 printable ASCII characters, no space.
    ///
    /// # Errors
    /// [`NameError::Session`].
    pub fn new(id: impl AsRef<str>) -> Result<Self, NameError> {
        let id = id.as_ref();
        let fits = (SESSION_CHARS_MIN..=SESSION_CHARS_MAX).contains(&id.len());
        if fits && id.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(SmolStr::new(id)))
        } else {
            Err(NameError::Session { bytes: id.len() })
        }
    }

    /// The id as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $type:ident, $format:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(pub u64);

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// One transport, minted at random by its edge. Evidence, not authority.
    ConnectionId,
    "{:016x}"
);
number!(
    /// One run of an edge process, minted at random at its start.
    Incarnation,
    "{:016x}"
);
number!(
    /// Counts the links of one edge incarnation, over all cores: the higher is the newer.
    LinkNumber,
    "{}"
);
number!(
    /// Attempt counter of a session, raised by the client at each connect.
    ///
    /// A lower or equal one never displaces a higher one (G6). At most [`GENERATION_MAX`].
    Generation,
    "{}"
);

impl Generation {
    /// The highest there is.
    pub const MAX: Self = Self(GENERATION_MAX);

    /// The next attempt; none after [`Self::MAX`].
    #[must_use]
    pub fn next(self) -> Option<Self> {
        (self < Self::MAX).then_some(Self(self.0.saturating_add(1)))
    }
}

impl ConnectionId {
    /// Reads the 16 hexadecimal digits that [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

/// The authoritative membership of one room in one region; one history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Roster {
    /// Whose sessions it lists.
    pub region: RegionId,
    /// The room.
    pub room: RoomId,
}

impl fmt::Display for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.region, self.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_seen_and_fits() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for good in [
            "a",
            " a ",
            "\u{200b}a",
            "\u{e9}",
            "e\u{301}",
            "__proto__",
            "\u{1f469}\u{200d}\u{1f680}",
            &longest,
        ] {
            assert_eq!(UserId::new(good).map(|name| name.as_str().to_owned()), Ok(good.to_owned()));
        }
        for blank in
            [" ", "\t\n", "\u{a0}", "\u{3000}", "\u{200b}\u{feff}", "\0", "\u{3164}", "\u{2800} \u{ad}"]
        {
            let told = UserId::new(blank).unwrap_err();
            assert_eq!(told, NameError::Blank { kind: "user", name: blank.into() });
            assert!(!told.to_string().chars().any(is_unsafe_to_print), "{told}");
        }
        assert_eq!(RoomId::new(""), Err(NameError::Empty { kind: "room" }));
        assert_eq!(RoomId::new(longest + "x"), Err(NameError::TooLong { kind: "room", bytes: 256 }));
    }

    #[test]
    fn a_session_id_is_neither_short_nor_long_and_can_be_printed() {
        for (chars, fits) in [
            (SESSION_CHARS_MIN - 1, false),
            (SESSION_CHARS_MIN, true),
            (SESSION_CHARS_MAX, true),
            (SESSION_CHARS_MAX + 1, false),
        ] {
            assert_eq!(SessionId::new("~".repeat(chars)).is_ok(), fits, "{chars}");
        }
        for odd in ["0123456789abcde ", "0123456789abcde\n", "0123456789abcd\u{e9}"] {
            assert!(SessionId::new(odd).is_err(), "{odd}");
        }
    }
}
