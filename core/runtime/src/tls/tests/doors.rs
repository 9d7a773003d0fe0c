use std::sync::Mutex;

use super::*;
use crate::limits::TLS_SAID_EVERY;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// What is logged by this thread from now on.
    fn of_this_thread() -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Self::default();
        let made = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || made.clone()).with_ansi(false).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_mistake_that_is_made_again_and_again_has_one_line_now_and_then() {
    let house = House::tls(Authority::new().server(&["core.test"])).await;
    let (lines, _guard) = Lines::of_this_thread();
    for round in 0..4 {
        if round == 3 {
            house.hand.advance(TLS_SAID_EVERY);
        }
        let mut near = house.dial().await;
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        near.shutdown().await.unwrap();
        let (stream, peer) = house.listener.accept().await.unwrap();
        assert_eq!(house.door.enter(stream, peer.ip()).await.unwrap_err(), Turned::Away);
        let said = lines.text();
        assert_eq!(said.matches("plain text came").count(), 1 + usize::from(round == 3), "{said}");
    }
    let said = lines.text();
    assert!(said.contains("count=1") && said.contains("count=4") && said.contains("https://"), "{said}");
}

/// All that a peer reads until its transport ends.
async fn words(stream: &mut Stream) -> String {
    let mut words = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut words)).await.unwrap();
    String::from_utf8_lossy(&words).into_owned()
}

#[tokio::test]
async fn plain_text_at_a_tls_door_is_told_so_and_ended() {
    let house = House::tls(Authority::new().server(&["core.test"])).await;
    for said in ["GET /v1/ws HTTP/1.1\r\nHost: here\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut near = house.dial().await;
        near.write_all(said.as_bytes()).await.unwrap();
        let (stream, peer) = house.listener.accept().await.unwrap();
        let door = house.door.clone();
        let entering = tokio::spawn(async move { door.enter(stream, peer.ip()).await.map(drop) });
        let told = words(&mut near).await;
        assert!(told.starts_with("HTTP/1.1 400 ") && told.ends_with("use https:// or wss://\n"), "{told}");
        drop(near);
        assert_eq!(entering.await.unwrap(), Err(Turned::Away));
    }
    assert_eq!(house.counted("plain"), 2);
}

#[tokio::test]
async fn tls_at_a_plain_door_is_ended_in_words_that_are_known_for_it() {
    let house = House::new(None);
    let tls = ClientTls::read(&Authority::new().client(None), Protocol::Http2).unwrap();
    let near = async { tls.connect("core.test", house.dial().await).await };
    let far = async {
        let (stream, peer) = house.listener.accept().await.unwrap();
        house.door.enter(stream, peer.ip()).await
    };
    let (near, far) = tokio::join!(near, far);
    let cause = near.unwrap_err();
    assert_eq!(cause.get_ref().unwrap().downcast_ref::<HostError>(), Some(&HostError::Plain));
    assert_eq!((far.unwrap_err(), house.counted("tls")), (Turned::Away, 1));
}

#[tokio::test]
async fn a_plain_door_lets_plain_text_in_unread() {
    let house = House::new(None);
    let mut near = house.dial().await;
    near.write_all(b"GET").await.unwrap();
    let (stream, peer) = house.listener.accept().await.unwrap();
    let mut entered = house.door.enter(stream, peer.ip()).await.unwrap();
    let mut said = [0; 3];
    entered.stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"GET");
    assert!(entered.names.is_empty());
}

#[tokio::test]
async fn whoever_goes_on_talking_to_the_wrong_door_is_cut() {
    let house = House::tls(Authority::new().server(&["core.test"])).await;
    let mut near = house.dial().await;
    near.write_all(b"GET").await.unwrap();
    let (stream, peer) = house.listener.accept().await.unwrap();
    let door = house.door.clone();
    let entering = tokio::spawn(async move { door.enter(stream, peer.ip()).await.map(drop) });
    let told = words(&mut near).await;
    assert!(told.contains("400"), "{told}");
    assert!(!entering.is_finished(), "it waits for the peer to go");
    house.hand.advance(TLS_PARTING_WITHIN);
    assert_eq!(entering.await.unwrap(), Err(Turned::Away));
}

#[tokio::test]
async fn nobody_takes_longer_than_a_handshake_may() {
    let authority = Authority::new();
    for (tls, said) in [(true, &b""[..]), (true, b"\x16\x03\x01"), (false, b"")] {
        let house = if tls { House::tls(authority.server(&["core.test"])).await } else { House::new(None) };
        let mut near = house.dial().await;
        near.write_all(said).await.unwrap();
        let (stream, peer) = house.listener.accept().await.unwrap();
        let door = house.door.clone();
        let entering = tokio::spawn(async move { door.enter(stream, peer.ip()).await.map(drop) });
        tokio::time::sleep(Duration::from_millis(20)).await;
        house.hand.advance(TLS_HANDSHAKE_WITHIN - Duration::from_millis(1));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!entering.is_finished());
        house.hand.advance(Duration::from_millis(1));
        assert_eq!(entering.await.unwrap(), Err(Turned::Late));
        assert_eq!(house.counted("late"), 1);
    }
}

#[tokio::test]
async fn at_the_most_handshakes_the_slowest_makes_room_and_others_get_in() {
    let authority = Authority::new();
    let house = House::tls(authority.server(&["core.test"])).await;
    let (mut slow, mut entering) = (Vec::new(), Vec::new());
    for _ in 0..TLS_HANDSHAKES_MAX {
        slow.push(house.dial().await);
        let (stream, peer) = house.listener.accept().await.unwrap();
        let door = house.door.clone();
        entering.push(tokio::spawn(async move { door.enter(stream, peer.ip()).await.map(drop) }));
        tokio::task::yield_now().await;
    }
    let finished =
        |entering: &[tokio::task::JoinHandle<_>]| entering.iter().filter(|task| task.is_finished()).count();
    assert_eq!(finished(&entering), 0, "as many as there may be");
    let (far, near) = house.meets(authority.client(None), "core.test").await;
    assert!(far.is_ok() && near.is_ok());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((finished(&entering), entering[0].is_finished()), (1, true), "the first of all");
    assert_eq!(house.counted("crowded"), 1);
}

#[tokio::test]
async fn whoever_only_looks_whether_somebody_listens_is_no_failure() {
    let house = House::tls(Authority::new().server(&["core.test"])).await;
    drop(house.dial().await);
    let (stream, peer) = house.listener.accept().await.unwrap();
    assert_eq!(house.door.enter(stream, peer.ip()).await.unwrap_err(), Turned::Away);
    assert_eq!((house.counted("gone"), house.counted("failed")), (1, 0));
}
