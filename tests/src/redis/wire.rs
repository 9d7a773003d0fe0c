//! Where one command or answer ends, without looking into it.

/// The length of the first whole frame of RESP2 or RESP3; none: it is not all there yet.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let line = line(bytes)?;
    let (kind, rest) = bytes[..line - 2].split_first()?;
    let number = || std::str::from_utf8(rest).ok()?.parse::<i64>().ok();
    match kind {
        b'$' | b'=' | b'!' => match usize::try_from(number()?) {
            Ok(length) => Some(line + length + 2).filter(|end| *end <= bytes.len()),
            Err(_) => Some(line),
        },
        b'*' | b'~' | b'>' => items(bytes, line, number()?.max(0)),
        b'%' | b'|' => items(bytes, line, number()?.max(0) * 2),
        _ => Some(line),
    }
}

/// The words of a command that came as a whole frame; none: not an array of strings.
pub(super) fn words(mut frame_bytes: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let Some(head) = line(frame_bytes) else { return words };
    frame_bytes = &frame_bytes[head..];
    while let (Some(head), Some(end)) = (line(frame_bytes), frame(frame_bytes)) {
        words.push(frame_bytes.get(head..end - 2).unwrap_or_default());
        frame_bytes = &frame_bytes[end..];
    }
    words
}

/// A command of these words.
pub(super) fn command<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut body, mut count) = (Vec::new(), 0);
    for word in words {
        count += 1;
        body.extend(format!("${}\r\n", word.len()).bytes());
        body.extend(word);
        body.extend(b"\r\n");
    }
    [format!("*{count}\r\n").into_bytes(), body].concat()
}

fn line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair == b"\r\n").map(|at| at + 2)
}

fn items(bytes: &[u8], start: usize, count: i64) -> Option<usize> {
    (0..count).try_fold(start, |at, _| Some(at + frame(bytes.get(at..)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_it_ends() {
        for whole in [
            "+OK\r\n",
            ":12\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*2\r\n$3\r\nGET\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n*1\r\n,1.5\r\n",
        ] {
            let bytes = whole.as_bytes();
            assert_eq!(frame(bytes), Some(bytes.len()), "{whole:?}");
            assert_eq!(frame(format!("{whole}+more\r\n").as_bytes()), Some(bytes.len()), "{whole:?}");
            for cut in 0..bytes.len() {
                assert_eq!(frame(&bytes[..cut]), None, "{:?}", &whole[..cut]);
            }
        }
    }

    #[test]
    fn words_of_a_command() {
        assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n"), [b"GET".as_slice(), b"a\r\nb"]);
        assert!(words(b"PING\r\n").is_empty());
        let said = [b"GET".as_slice(), b"a\r\nb", b""];
        assert_eq!(words(&command(said.into_iter())), said);
    }
}
