//! A link of an edge by hand.

use std::time::Duration;

use presence_model::claim::Action;
use presence_proto::v1;
use presence_proto::v1::link_request::Message as Up;
use presence_proto::v1::link_response::Message as Down;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::Keys;

/// Until it is answered, on a busy machine.
const WITHIN: Duration = Duration::from_secs(20);

/// What a link is answered, and which leases it was told are of another edge before.
pub type Answer = (Down, Vec<u64>);

/// A link by hand.
pub struct Peer {
    up: mpsc::Sender<v1::LinkRequest>,
    down: Streaming<v1::LinkResponse>,
    requests: u64,
}

impl Peer {
    /// Says hello.
    ///
    /// # Errors
    /// When nobody answers; inside, what the core answers.
    pub async fn link(channel: Channel, edge: &str, region: &str) -> anyhow::Result<Result<Self, Status>> {
        let (up, said) = mpsc::channel(64);
        let hello = v1::Hello {
            edge: edge.into(),
            incarnation: edge.bytes().fold(7, |run, byte| run * 31 + u64::from(byte)),
            link_number: 1,
            region: region.into(),
            release: "test".into(),
        };
        up.send(v1::LinkRequest { message: Some(Up::Hello(hello)) }).await?;
        let mut links = v1::edge_service_client::EdgeServiceClient::new(channel);
        let down = match links.link(ReceiverStream::new(said)).await {
            Ok(down) => down.into_inner(),
            Err(status) => return Ok(Err(status)),
        };
        let beats = up.clone();
        tokio::spawn(async move {
            for sequence in 1.. {
                let beat = v1::LinkRequest { message: Some(Up::Beat(v1::EdgeBeat { sequence })) };
                if beats.send(beat).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Ok(Ok(Self { up, down, requests: 0 }))
    }

    /// Says hello to a core that asks nobody who calls.
    ///
    /// # Errors
    /// When it does not take that.
    pub async fn of(channel: Channel) -> anyhow::Result<Self> {
        Ok(Self::link(channel, "by-hand", "local").await??)
    }

    /// Says something.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn say(&mut self, message: Up) -> anyhow::Result<()> {
        Ok(self.up.send(v1::LinkRequest { message: Some(message) }).await?)
    }

    /// Why the link ends.
    ///
    /// # Errors
    /// It does not, or without a word.
    pub async fn end(&mut self) -> anyhow::Result<Status> {
        let ended = async {
            loop {
                match self.down.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => anyhow::bail!("it ended without a word"),
                    Err(status) => return Ok(status),
                }
            }
        };
        tokio::time::timeout(WITHIN, ended).await?
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// The link ended, with its status if there is one, or nothing came.
    pub async fn hear<T>(&mut self, pick: impl Fn(Down) -> Option<T>) -> anyhow::Result<T> {
        let heard = async {
            while let Some(response) = self.down.message().await? {
                if let Some(picked) = response.message.and_then(&pick) {
                    return Ok(picked);
                }
            }
            anyhow::bail!("the link ended")
        };
        tokio::time::timeout(WITHIN, heard).await?
    }

    /// Says something, and hears the answer to it with the leases that were refused before.
    ///
    /// # Errors
    /// When that is not what it is answered.
    pub async fn ask(&mut self, message: impl FnOnce(u64) -> Up) -> anyhow::Result<Answer> {
        self.requests += 1;
        let request = self.requests;
        self.say(message(request)).await?;
        let mut foreign = Vec::new();
        loop {
            let answer = self
                .hear(|down| {
                    let is_answer = matches!(
                        &down,
                        Down::Join(v1::JoinResult { request: answered, .. })
                        | Down::Done(v1::Done { request: answered, .. })
                        | Down::Renew(v1::RenewResult { batch: answered, .. })
                            if *answered == request
                    );
                    (is_answer || matches!(down, Down::Foreign(_))).then_some(down)
                })
                .await?;
            if let Down::Foreign(refused) = answer {
                foreign.extend(refused.leases);
            } else {
                return Ok((answer, foreign));
            }
        }
    }

    /// Asks for a join.
    ///
    /// # Errors
    /// When that is not what is answered.
    pub async fn ask_join(
        &mut self,
        join: impl FnOnce(u64) -> v1::Join,
    ) -> anyhow::Result<v1::join_result::Outcome> {
        let answer = self.ask(|request| Up::Join(join(request))).await?.0;
        let Down::Join(v1::JoinResult { outcome: Some(outcome), .. }) = answer else {
            anyhow::bail!("{answer:?}")
        };
        Ok(outcome)
    }

    /// Joins a user with a token.
    ///
    /// # Errors
    /// When that is not what is answered.
    pub async fn join(
        &mut self,
        token: String,
        room: &str,
        user: &str,
    ) -> anyhow::Result<v1::join_result::Outcome> {
        self.ask_join(|request| v1::Join {
            request,
            room: room.into(),
            token,
            session: format!("session-of-{user:-<10}"),
            generation: Some(1),
            connection: request,
            ..v1::Join::default()
        })
        .await
    }

    /// Joins a user; its lease.
    ///
    /// # Errors
    /// When that is not what it is answered.
    pub async fn granted(&mut self, keys: &Keys, room: &str, user: &str) -> anyhow::Result<u64> {
        match self.join(keys.token(user, room, Action::Join)?, room, user).await? {
            v1::join_result::Outcome::Granted(granted) => Ok(granted.lease),
            v1::join_result::Outcome::Refused(refused) => anyhow::bail!("{refused:?}"),
        }
    }

    /// Renews leases; which are unknown, and which are of another edge.
    ///
    /// # Errors
    /// When that is not what it is answered.
    pub async fn renew(&mut self, leases: &[u64]) -> anyhow::Result<(Vec<u64>, Vec<u64>)> {
        let leases = leases.to_vec();
        let (answer, foreign) = self.ask(|batch| Up::Renew(v1::Renew { batch, leases })).await?;
        let Down::Renew(renewed) = answer else { anyhow::bail!("{answer:?}") };
        Ok((renewed.unknown, foreign))
    }
}
