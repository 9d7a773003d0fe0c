//! Says back what it is told, over the WebSocket stack of the edge: for conformance cases, which want an echo and
//! messages of 16 MiB. The first line of standard output is its address; it ends with its standard input.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use presence_edge::ws::handshake::{self, Accepted, Origins};
use presence_edge::ws::{Event, ReadEnd, Socket};
use presence_runtime::network::{Network, Stream};

/// What the largest of the cases says at once.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A peer that does not close after us is cut.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let listener = Network::tcp().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    writeln!(std::io::stdout(), "{}", listener.local_addr())?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let serving = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service_fn(|request| async { answer(request) }))
            .with_upgrades();
        tokio::spawn(serving);
    }
}

type Body = Either<Empty<Bytes>, Full<Bytes>>;

fn answer(mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    Ok(match handshake::accept(&mut request, &Origins::Any) {
        Ok(Accepted { response, upgrade, .. }) => {
            tokio::spawn(async {
                if let Err(error) = echo(upgrade).await {
                    writeln!(std::io::stderr(), "{error}").expect("standard error is there");
                }
            });
            response.map(Either::Left)
        }
        Err(refused) => {
            let mut response = Response::new(Either::Right(Full::from(refused.to_string())));
            *response.status_mut() = refused.status();
            response
        }
    })
}

/// As the edge's own connections do: a close is answered, a breach told, and the peer seen off.
async fn echo(upgrade: OnUpgrade) -> anyhow::Result<()> {
    let upgraded = upgrade.await?.downcast::<TokioIo<Stream>>();
    let parts = upgraded.map_err(|_| anyhow::anyhow!("not the transport that was accepted"))?;
    let mut socket = Socket::new(parts.io.into_inner(), &parts.read_buf, MESSAGE_BYTES_MAX);
    loop {
        match poll_fn(|cx| socket.poll_event(cx)).await {
            Ok(Event::Text(text)) => socket.writer().text(text.into()),
            Ok(Event::Binary(bytes)) => socket.writer().binary(bytes.into()),
            Ok(Event::Part | Event::Ping(_) | Event::Pong) => {}
            Ok(Event::Close(code)) => {
                socket.writer().close(code, "");
                break;
            }
            Err(ReadEnd::Violation(violation)) => {
                socket.writer().close(Some(violation.close_code()), &violation.to_string());
                break;
            }
            Err(ReadEnd::Eof | ReadEnd::Io(_)) => return Ok(()),
        }
        poll_fn(|cx| socket.poll_flush(cx)).await?;
    }
    poll_fn(|cx| socket.poll_flush(cx)).await?;
    poll_fn(|cx| socket.poll_shutdown(cx)).await?;
    let _ = tokio::time::timeout(CLOSE_WITHIN, poll_fn(|cx| socket.poll_discard(cx))).await;
    Ok(())
}
