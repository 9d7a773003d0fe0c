use super::*;

/// A stream that takes at most so many bytes at a time, and nothing when asked to stall.
struct Stream {
    taken: Vec<u8>,
    calls: usize,
    at_a_time: usize,
    stalls: bool,
}

impl Stream {
    fn new(at_a_time: usize) -> Self {
        Self { taken: Vec::new(), calls: 0, at_a_time, stalls: false }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(self.at_a_time);
        self.taken.extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.stalls {
            return Poll::Pending;
        }
        self.calls += 1;
        let mut left = self.at_a_time;
        for slice in slices {
            let count = slice.len().min(left);
            self.taken.extend_from_slice(&slice[..count]);
            left -= count;
        }
        Poll::Ready(Ok(self.at_a_time - left))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn flush(writer: &mut Writer, stream: &mut Stream) -> Poll<io::Result<()>> {
    writer.poll_flush(stream, &mut Context::from_waker(std::task::Waker::noop()))
}

fn is_done(poll: &Poll<io::Result<()>>) -> bool {
    matches!(poll, Poll::Ready(Ok(())))
}

#[test]
fn frames_leave_whole_however_little_the_stream_takes() {
    let mut expected = Vec::new();
    for (length, header) in [
        (0, vec![0x81, 0]),
        (125, vec![0x81, 125]),
        (126, vec![0x81, 126, 0, 126]),
        (65_535, vec![0x81, 126, 0xFF, 0xFF]),
        (65_536, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        expected.extend(header);
        expected.extend(vec![b'x'; length]);
    }
    for at_a_time in [1, 2, 3, 127, 4_096, 1_000_000] {
        let mut writer = Writer::new();
        for length in [0, 125, 126, 65_535, 65_536] {
            writer.text(Bytes::from(vec![b'x'; length]));
        }
        let mut stream = Stream::new(at_a_time);
        assert!(is_done(&flush(&mut writer, &mut stream)));
        assert!(stream.taken == expected, "at {at_a_time} bytes a time");
        assert!(writer.is_empty());
        assert_eq!(writer.frames.capacity(), 0, "no memory while idle");
    }
}

#[test]
fn many_frames_share_a_system_call() {
    let mut writer = Writer::new();
    for _ in 0..FRAMES_PER_WRITE_MAX + 1 {
        writer.text(Bytes::from_static(b"delta"));
    }
    let mut stream = Stream::new(usize::MAX / 2);
    assert!(is_done(&flush(&mut writer, &mut stream)));
    assert_eq!(stream.calls, 2);
    assert_eq!(stream.taken, b"\x81\x05delta".repeat(FRAMES_PER_WRITE_MAX + 1));
}

#[test]
fn control_frames_go_between_data_frames_once_each() {
    let mut writer = Writer::new();
    writer.text(Bytes::from_static(b"abcd"));
    writer.text(Bytes::from_static(b"e"));
    let mut stream = Stream::new(3);
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Ok(taken)) = writer.poll_write(&mut stream, &mut cx) else { panic!("pending") };
    writer.advance(taken);
    for payload in [&b"1"[..], b"2", b"3"] {
        writer.pong(Bytes::from_static(payload));
    }
    writer.ping();
    writer.ping();
    assert_eq!(writer.frames.len(), 4, "one pong, one ping");
    assert!(is_done(&flush(&mut writer, &mut stream)));
    assert_eq!(stream.taken, b"\x81\x04abcd\x89\x00\x8A\x013\x81\x01e");
}

#[test]
fn nothing_follows_a_close_frame() {
    let mut writer = Writer::new();
    writer.text(Bytes::from_static(b"last"));
    writer.close(Some(4409), "superseded");
    writer.close(Some(1000), "");
    writer.text(Bytes::from_static(b"late"));
    writer.ping();
    writer.pong(Bytes::new());
    let mut stream = Stream::new(5);
    assert!(is_done(&flush(&mut writer, &mut stream)));
    assert_eq!(stream.taken, b"\x81\x04last\x88\x0C\x11\x39superseded");
}

#[test]
fn a_close_reason_that_does_not_fit_is_left_out() {
    let mut writer = Writer::new();
    writer.close(Some(1002), &"x".repeat(CONTROL_BYTES_MAX - 1));
    let mut stream = Stream::new(500);
    assert!(is_done(&flush(&mut writer, &mut stream)));
    assert_eq!(stream.taken, b"\x88\x02\x03\xEA");
}

#[test]
fn a_stalled_stream_is_waited_for_and_a_dead_one_is_an_error() {
    let mut writer = Writer::new();
    writer.text(Bytes::from_static(b"x"));
    let mut stream = Stream { stalls: true, ..Stream::new(10) };
    assert!(flush(&mut writer, &mut stream).is_pending());
    stream = Stream::new(0);
    assert!(
        matches!(flush(&mut writer, &mut stream), Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::WriteZero)
    );
}
