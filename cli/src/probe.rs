//! `presence probe`: somebody joins a room by an edge, is seen, goes, and is seen to be gone, and how long that took.
//!
//! It is a client like any other, so that what it tells is what people have: for a test after a deploy, and for whoever
//! is to be called when presence is wrong.

mod part;
mod report;
mod socket;

use std::fmt;
use std::process::ExitCode;

use anyhow::Context as _;
use presence_model::id::RoomId;
use presence_model::time::{Mono, spoken};
use presence_runtime::clock::Clock;
use presence_runtime::network::Network;
use presence_runtime::shutdown::{Hangup, Shutdown};
use presence_runtime::tls::{ClientFiles, ClientTls, Protocol};
use presence_runtime::tokens::subject_of;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use self::part::{Goes, Part, Told};
use self::report::Report;
pub(crate) use self::socket::EdgeAddress;
use self::socket::Socket;
use crate::args::ProbeArgs;
use crate::outcome::Mistake;

/// Why a probe failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeError {
    /// Nobody answers there, or not any more.
    Unreachable(String),
    /// It answers, and as no edge does.
    NotAnEdge(String),
    /// It takes nobody now, or sends its clients away.
    Busy(String),
    /// It does not want this client.
    Refused(String),
    /// What was waited for has not come in time.
    TimedOut(String),
    /// The user was in the room before.
    AlreadyThere(String),
    /// Others are told another reason than they should be.
    WrongReason(String),
}

impl ProbeError {
    /// Whether another time may end better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Busy(_) | Self::TimedOut(_) | Self::AlreadyThere(_) => true,
            Self::NotAnEdge(_) | Self::Refused(_) | Self::WrongReason(_) => false,
        }
    }

    fn at(self, address: &EdgeAddress) -> Self {
        let named = |why: String| format!("{address}: {why}");
        match self {
            Self::Unreachable(why) => Self::Unreachable(named(why)),
            Self::NotAnEdge(why) => Self::NotAnEdge(named(why)),
            Self::Busy(why) => Self::Busy(named(why)),
            Self::Refused(why) => Self::Refused(named(why)),
            Self::TimedOut(why) => Self::TimedOut(named(why)),
            Self::AlreadyThere(why) => Self::AlreadyThere(named(why)),
            Self::WrongReason(why) => Self::WrongReason(named(why)),
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no edge is reached: {why}"),
            Self::NotAnEdge(why) => write!(f, "no edge answers: {why}"),
            Self::Busy(why) => write!(f, "not now: {why}"),
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::TimedOut(why) => write!(f, "not in time: {why}"),
            Self::AlreadyThere(why) | Self::WrongReason(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ProbeError {}

/// Probes once.
pub(crate) fn run(args: ProbeArgs) -> anyhow::Result<ExitCode> {
    let room = RoomId::new(&args.room)?;
    let wrong = || Mistake(format!("--token {}", args.token.display()));
    let token = std::fs::read_to_string(&args.token).with_context(wrong)?.trim().to_owned();
    let user = subject_of(&token).ok_or_else(|| {
        Mistake(format!("--token {} holds no token; `presence token` signs one", args.token.display()))
    })?;
    let network = network(&args)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::new();
        shutdown.end_on_signals(Hangup::Ends)?;
        let clock = Clock::system();
        let end = clock.now() + args.within;
        let goes = if args.drop { Goes::Drop } else { Goes::Goodbye };
        let (tells, told) = mpsc::unbounded_channel();
        let report = Report::new(&args, &user, goes);
        let probe = Probe { args, room, token, user, goes, network, clock, end, tells, told, report };
        tokio::select! {
            biased;
            () = shutdown.token().cancelled_owned() => anyhow::bail!("told to end before it was done"),
            done = probe.go() => done,
        }
    })
}

fn network(args: &ProbeArgs) -> anyhow::Result<Network> {
    let network = Network::tcp();
    if !args.edges.iter().any(EdgeAddress::is_tls) {
        return Ok(network);
    }
    let files = ClientFiles { authority: args.ca.clone(), identity: None };
    let tls = ClientTls::read(&files, Protocol::Http1).map_err(|bad| Mistake(bad.to_string()))?;
    Ok(network.with_tls(tls))
}

struct Probe {
    args: ProbeArgs,
    room: RoomId,
    token: String,
    user: String,
    goes: Goes,
    network: Network,
    clock: Clock,
    /// Until then it is to be done.
    end: Mono,
    tells: mpsc::UnboundedSender<Told>,
    told: mpsc::UnboundedReceiver<Told>,
    report: Report,
}

impl Probe {
    async fn go(mut self) -> anyhow::Result<ExitCode> {
        for number in 0..self.args.edges.len() {
            let socket = self.open(number).await?;
            let watch =
                json!({ "t": "watch", "room": self.room.as_str(), "token": self.token, "level": "members" });
            tokio::spawn(self.part(Some(number)).watch(socket, watch));
        }
        self.until("nobody has a list of the room", Report::is_listed).await?;
        self.report.nobody_is_there_yet()?;
        let socket = self.open(0).await?;
        let session = format!("probe-{:032x}", rand::random::<u128>());
        let join = json!({
            "t": "join", "room": self.room.as_str(), "token": self.token, "session": session, "level": "members",
            "client": concat!("presence-probe/", env!("CARGO_PKG_VERSION")),
        });
        let (go, goes) = oneshot::channel();
        self.report.comes(self.clock.now());
        let staying = tokio::spawn(self.part(None).stay(socket, join, goes));
        self.until("it is not let in, or not shown to everybody", Report::is_seen).await?;
        self.report.goes(self.clock.now())?;
        // Whoever does not hear it has failed, which is told.
        let _ = go.send(self.goes);
        self.until("it is not shown as gone to everybody", Report::is_gone).await?;
        let _ = staying.await;
        self.report.end()?;
        Ok(ExitCode::SUCCESS)
    }

    fn part(&self, by: Option<usize>) -> Part {
        Part { by, user: self.user.clone(), clock: self.clock.clone(), tells: self.tells.clone() }
    }

    async fn open(&self, number: usize) -> Result<Socket, ProbeError> {
        let at = &self.args.edges[number];
        tokio::select! {
            biased;
            opened = Socket::open(&self.network, at) => opened.map_err(|error| error.at(at)),
            () = self.clock.sleep_until(self.end) => Err(ProbeError::TimedOut("it does not answer".into()).at(at)),
        }
    }

    /// Hears what is told until that is so.
    async fn until(&mut self, waits: &str, is_so: impl Fn(&Report) -> bool) -> anyhow::Result<()> {
        while !is_so(&self.report) {
            let told = tokio::select! {
                biased;
                // Never over: a way to tell is kept for parts to come.
                Some(told) = self.told.recv() => told,
                () = self.clock.sleep_until(self.end) => {
                    let within = spoken(self.args.within);
                    let missing = self.report.missing();
                    return Err(ProbeError::TimedOut(format!("{waits} within {within}{missing}")).into());
                }
            };
            self.report.take(told)?;
        }
        Ok(())
    }
}
