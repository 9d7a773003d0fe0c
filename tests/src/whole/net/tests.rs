use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Two machines, and a clock of the test.
struct Two {
    net: Net,
    now: u64,
    runtime: tokio::runtime::Runtime,
}

impl Two {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        Self { net: Net::new(7), now: 0, runtime }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1;
            self.net.tick(self.now);
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        }
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(task)
    }

    /// What an echo at machine 2 sends back to machine 1, word by word; ends with the connection.
    fn echo(&mut self) -> (tokio::sync::mpsc::UnboundedSender<&'static str>, Heard) {
        let (near, far) = (self.net.at(address(1)), self.net.at(address(2)));
        let listener = far.listen("10.0.0.2:80".parse().expect("an address")).expect("free");
        self.spawn(async move {
            let (stream, peer) = listener.accept().await.expect("somebody");
            assert_eq!(peer.ip(), address(1));
            let (mut read, mut write) = tokio::io::split(stream);
            drop(tokio::io::copy(&mut read, &mut write).await);
        });
        let (say, mut said) = tokio::sync::mpsc::unbounded_channel::<&'static str>();
        let heard = Arc::new(Mutex::new((String::new(), None)));
        let told = Arc::clone(&heard);
        self.spawn(async move {
            let (mut read, mut write) =
                tokio::io::split(near.connect("10.0.0.2:80").await.expect("accepted"));
            tokio::spawn(async move {
                while let Some(word) = said.recv().await {
                    drop(write.write_all(word.as_bytes()).await);
                }
                std::future::pending::<()>().await;
            });
            let mut buffer = [0; 64];
            loop {
                let read = read.read(&mut buffer).await;
                let mut told = told.lock().expect("fine");
                match read {
                    Ok(0) => break told.1 = Some(io::ErrorKind::UnexpectedEof),
                    Ok(count) => told.0.push_str(std::str::from_utf8(&buffer[..count]).expect("text")),
                    Err(error) => break told.1 = Some(error.kind()),
                }
            }
        });
        (say, heard)
    }
}

type Heard = Arc<Mutex<(String, Option<io::ErrorKind>)>>;

#[test]
fn bytes_arrive_in_order_and_later_than_they_were_sent() {
    let mut two = Two::new();
    let (say, heard) = two.echo();
    for word in ["one ", "two ", "three"] {
        say.send(word).expect("alive");
    }
    two.pass(3);
    assert_eq!(heard.lock().expect("fine").0, "");
    two.pass(1_000);
    assert_eq!(heard.lock().expect("fine").0, "one two three");
}

#[test]
fn a_cut_of_one_way_holds_the_answers_and_not_the_questions() {
    let mut two = Two::new();
    let (say, heard) = two.echo();
    say.send("before ").expect("alive");
    two.pass(1_000);
    two.net.cut(address(2), address(1), true);
    say.send("meanwhile").expect("alive");
    two.pass(5_000);
    assert_eq!(heard.lock().expect("fine").0, "before ");
    assert!(two.net.lock().wires[&1].ways[0].is_due(u64::MAX).eq(&false), "the question has arrived");
    two.net.cut(address(2), address(1), false);
    two.pass(SENT_AGAIN_WITHIN_MS + 100);
    assert_eq!(heard.lock().expect("fine").0, "before meanwhile");
}

#[test]
fn a_reset_is_noticed_by_both_ends_at_once() {
    let mut two = Two::new();
    let (say, heard) = two.echo();
    say.send("x").expect("alive");
    two.pass(1_000);
    two.net.reset(address(2), address(1));
    two.pass(1);
    assert_eq!(heard.lock().expect("fine").1, Some(io::ErrorKind::ConnectionReset));
    two.pass(1_000);
    assert!(two.net.lock().wires.len() <= 1);
}

#[test]
fn a_machine_without_power_is_silent_and_answers_with_a_reset_when_it_is_back() {
    let mut two = Two::new();
    let (say, heard) = two.echo();
    say.send("x").expect("alive");
    two.pass(1_000);
    two.net.darken(address(2), true);
    two.net.lock().drop_end(1, 1);
    say.send("anybody?").expect("alive");
    two.pass(10_000);
    assert_eq!(heard.lock().expect("fine").1, None);
    two.net.darken(address(2), false);
    two.pass(SENT_AGAIN_WITHIN_MS + 1_000);
    assert_eq!(heard.lock().expect("fine").1, Some(io::ErrorKind::ConnectionReset));
}

#[test]
fn nobody_listens_means_refused_after_a_round_trip() {
    let mut two = Two::new();
    let near = two.net.at(address(1));
    let refused = two.spawn(async move { near.connect("10.0.0.9:1").await.map(|_| ()) });
    two.pass(1);
    assert!(!refused.is_finished());
    two.pass(1_000);
    let refused = two.runtime.block_on(refused).expect("no panic").expect_err("refused");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}
