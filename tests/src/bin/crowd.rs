//! Idle clients in a process of their own: `crowd URL KEY FIRST COUNT [AUTHORITY]` connects and joins them in rooms of
//! ten, says `ready`, answers pings, and ends with its standard input.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use presence_model::claim::Action;
use presence_model::id::{RoomId, UserId};
use presence_model::time::{StoreTime, millis};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::tls::{ClientFiles, ClientTls, Protocol};
use presence_runtime::tokens::{Grant, Issuer};
use presence_tests::procs::Client;
use tokio::task::JoinSet;

const ROOM_OF: usize = 10;
const TOKEN_TTL: Duration = Duration::from_secs(3_600);
/// Handshakes at once: more only wait in the kernel.
const AT_ONCE: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (url, key, first, count, authority) = match arguments.as_slice() {
        [url, key, first, count] => (url, key, first, count, None),
        [url, key, first, count, authority] => (url, key, first, count, Some(authority.into())),
        _ => anyhow::bail!("crowd URL KEY FIRST COUNT [AUTHORITY]"),
    };
    let tls = ClientTls::read(&ClientFiles { authority, identity: None }, Protocol::Http1)?;
    let network = Network::tcp().with_tls(tls);
    let issuer = Issuer::from_pem(&std::fs::read_to_string(key)?)?;
    let (first, count): (usize, usize) = (first.parse()?, count.parse()?);
    let mut idle = JoinSet::new();
    let mut index = first;
    while index < first + count {
        let portion = index..(index + AT_ONCE).min(first + count);
        index = portion.end;
        let mut joining = JoinSet::new();
        for index in portion {
            let (url, network) = (url.clone(), network.clone());
            let (room, user) = (format!("room-{}", index / ROOM_OF), format!("user-{index}"));
            let ends = StoreTime(Clock::system().wall_ms() + millis(TOKEN_TTL));
            let token = issuer.sign(&Grant {
                user: UserId::new(&user)?,
                room: RoomId::new(&room)?,
                action: Action::Join,
                ends,
                not_before: None,
                token_id: Some(format!("token-{index:024}").into()),
            });
            joining.spawn(async move {
                let mut client = Client::connect_by(&network, &url).await?;
                client.join(&room, &token, &format!("session-of-user-{index:08}"), 1).await?;
                anyhow::Ok(client)
            });
        }
        while let Some(joined) = joining.join_next().await {
            idle.spawn(joined?.context("a client")?.idle());
        }
    }
    writeln!(std::io::stdout(), "ready")?;
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    std::process::exit(0);
}
