//! What nights do: transitions of the world, each a line that a person can read.

use std::fmt;
use std::time::Duration;

use presence_model::time::millis;

/// Which directions of a way are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Both.
    Both,
    /// From the one named first.
    There,
    /// To the one named first.
    Back,
}

/// How a process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The process: its machine resets what was connected.
    Process,
    /// The machine: nobody hears anything any more.
    Machine,
}

/// What a core falls asleep over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Renewals.
    Renewals,
    /// A commit.
    Commit,
    /// That an edge is lost.
    Loss,
}

/// How somebody moves from one region to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// In there, then goodbye here.
    Clean,
    /// The connection here is lost, then in there within the grace.
    Drop,
    /// In there, and the connection here goes on for a while.
    Both,
    /// In there, and nobody says anything of the session here any more.
    Behind,
    /// As cleanly, and what was asked for here before is heard once more, later.
    Late,
}

/// One transition. Places are numbers; what befalls somebody who is not there has no effect.
#[expect(missing_docs, reason = "the line of a fault says what its places and spans are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Fault {
    /// A tab's socket is closed and it comes back.
    Blip { tab: usize },
    /// A tab goes without goodbye, and comes back much later.
    Go { tab: usize, span: Duration },
    /// A tab's process starts again; whether it has forgotten its session.
    Reload { tab: usize, span: Duration, forgets: bool },
    /// A tab stands still.
    NapTab { tab: usize, span: Duration },
    /// Bytes stop between a tab and all edges.
    CutTab { tab: usize, way: Way, span: Duration },
    /// Goodbye in its first room, and back after a while.
    Leave { tab: usize, span: Duration },
    /// Says something new in all its rooms.
    Update { tab: usize },
    /// A tab is duplicated: it comes with session and generation of another one of the same user.
    Copy { tab: usize, of: usize },
    /// A tab tries what is not its own: session and room of another one.
    Trespass { tab: usize, of: usize },
    /// A tab does not read.
    Deaf { tab: usize, span: Duration },
    /// A tab does not fetch the next token.
    Forgetful { tab: usize },
    /// All sockets of an edge are closed at once.
    Storm { edge: usize },
    /// An edge dies and starts again; whether with the identity of before, as a machine that was copied.
    CrashEdge { edge: usize, span: Duration, death: Death, same: bool },
    /// An edge stands still.
    NapEdge { edge: usize, span: Duration },
    /// An edge is told to go, and starts again.
    DrainEdge { edge: usize, span: Duration },
    /// The link of a living edge is reset.
    BreakLink { edge: usize },
    /// The watch of a living edge is reset.
    BreakWatch { edge: usize },
    /// Bytes stop between an edge and a core.
    CutEdge { edge: usize, core: usize, way: Way, span: Duration },
    /// Renewals, releases and goodbyes that an edge says in this span are heard twice: again later, over the link it
    /// has then.
    Echo { edge: usize, span: Duration },
    /// A core dies and starts again.
    CrashCore { core: usize, span: Duration, death: Death },
    /// A core stands still; whether with what it had decided not yet sent.
    NapCore { core: usize, span: Duration, holding: bool },
    /// The core that decides this next stands still before that is sent.
    DozeCore { over: Over, span: Duration },
    /// A core is told to go, and starts again.
    DrainCore { core: usize, span: Duration },
    /// Bytes stop between a core and the store; whether what was under way is lost with the connection.
    CutStore { core: usize, way: Way, span: Duration, loses: bool },
    /// Everything takes so many times as long.
    Slow { span: Duration, factor: u32 },
    /// The store stands still.
    StopStore { span: Duration },
    /// The store refuses connections.
    CloseStore { span: Duration },
    /// The store takes no writes.
    ReadOnly { span: Duration },
    /// Each command takes so much longer.
    SlowStore { span: Duration, by: Duration },
    /// Of so many writes the answer to one is lost, though they are carried out.
    LoseAnswers { span: Duration, of: u32 },
    /// Of so many commands one is lost.
    LoseCommands { span: Duration, of: u32 },
    /// Another store process with the same data.
    Restart,
    /// Another store process without data.
    Empty,
    /// A replica takes over that lacks so many commits; its clock is ahead by so much.
    FailOver { commits: usize, ahead_ms: i64 },
    /// A shard moves to another server.
    Move { shard: u8 },
    /// The store's clock steps.
    Step { by_ms: i64 },
    /// An operator puts a user out of a room.
    Evict { user: usize, room: usize },
    /// An operator revokes all tokens of a user for a while.
    RevokeUser { user: usize, span: Duration },
    /// An operator revokes the token that a tab was given last.
    RevokeToken { tab: usize },
    /// An operator revokes the key that signs; another one signs from there on.
    RevokeKey,
    /// A person moves to another region, or to the next one if it is there.
    Cross { tab: usize, region: usize, how: Move, span: Duration },
    /// Bytes stop between two regions.
    CutRegions { from: usize, to: usize, way: Way, span: Duration },
}

impl Fault {
    /// How long it lasts.
    #[must_use]
    pub fn span(&self) -> Duration {
        match *self {
            Self::Go { span, .. }
            | Self::Reload { span, .. }
            | Self::NapTab { span, .. }
            | Self::CutTab { span, .. }
            | Self::Leave { span, .. }
            | Self::Deaf { span, .. }
            | Self::CrashEdge { span, .. }
            | Self::NapEdge { span, .. }
            | Self::DrainEdge { span, .. }
            | Self::CutEdge { span, .. }
            | Self::Echo { span, .. }
            | Self::CrashCore { span, .. }
            | Self::NapCore { span, .. }
            | Self::DozeCore { span, .. }
            | Self::DrainCore { span, .. }
            | Self::CutStore { span, .. }
            | Self::Slow { span, .. }
            | Self::StopStore { span }
            | Self::CloseStore { span }
            | Self::ReadOnly { span }
            | Self::SlowStore { span, .. }
            | Self::LoseAnswers { span, .. }
            | Self::LoseCommands { span, .. }
            | Self::RevokeUser { span, .. }
            | Self::Cross { span, .. }
            | Self::CutRegions { span, .. } => span,
            Self::Blip { .. }
            | Self::Update { .. }
            | Self::Copy { .. }
            | Self::Trespass { .. }
            | Self::Forgetful { .. }
            | Self::Storm { .. }
            | Self::BreakLink { .. }
            | Self::BreakWatch { .. }
            | Self::Restart
            | Self::Empty
            | Self::FailOver { .. }
            | Self::Move { .. }
            | Self::Step { .. }
            | Self::Evict { .. }
            | Self::RevokeToken { .. }
            | Self::RevokeKey => Duration::ZERO,
        }
    }

    /// The same, lasting so long.
    #[must_use]
    pub fn lasting(mut self, lasts: Duration) -> Self {
        match &mut self {
            Self::Go { span, .. }
            | Self::Reload { span, .. }
            | Self::NapTab { span, .. }
            | Self::CutTab { span, .. }
            | Self::Leave { span, .. }
            | Self::Deaf { span, .. }
            | Self::CrashEdge { span, .. }
            | Self::NapEdge { span, .. }
            | Self::DrainEdge { span, .. }
            | Self::CutEdge { span, .. }
            | Self::Echo { span, .. }
            | Self::CrashCore { span, .. }
            | Self::NapCore { span, .. }
            | Self::DozeCore { span, .. }
            | Self::DrainCore { span, .. }
            | Self::CutStore { span, .. }
            | Self::Slow { span, .. }
            | Self::StopStore { span }
            | Self::CloseStore { span }
            | Self::ReadOnly { span }
            | Self::SlowStore { span, .. }
            | Self::LoseAnswers { span, .. }
            | Self::LoseCommands { span, .. }
            | Self::RevokeUser { span, .. }
            | Self::Cross { span, .. }
            | Self::CutRegions { span, .. } => *span = lasts,
            Self::Blip { .. }
            | Self::Update { .. }
            | Self::Copy { .. }
            | Self::Trespass { .. }
            | Self::Forgetful { .. }
            | Self::Storm { .. }
            | Self::BreakLink { .. }
            | Self::BreakWatch { .. }
            | Self::Restart
            | Self::Empty
            | Self::FailOver { .. }
            | Self::Move { .. }
            | Self::Step { .. }
            | Self::Evict { .. }
            | Self::RevokeToken { .. }
            | Self::RevokeKey => {}
        }
        self
    }

    /// Whether it concerns tabs and operators alone: everything else goes on as on any day.
    #[must_use]
    pub fn is_everyday(&self) -> bool {
        match self {
            Self::Blip { .. }
            | Self::Go { .. }
            | Self::Reload { .. }
            | Self::NapTab { .. }
            | Self::CutTab { .. }
            | Self::Leave { .. }
            | Self::Update { .. }
            | Self::Copy { .. }
            | Self::Trespass { .. }
            | Self::Deaf { .. }
            | Self::Forgetful { .. }
            | Self::Storm { .. }
            | Self::Evict { .. }
            | Self::RevokeUser { .. }
            | Self::RevokeToken { .. }
            | Self::RevokeKey
            | Self::Cross { .. } => true,
            Self::CrashEdge { .. }
            | Self::NapEdge { .. }
            | Self::DrainEdge { .. }
            | Self::BreakLink { .. }
            | Self::BreakWatch { .. }
            | Self::CutEdge { .. }
            | Self::Echo { .. }
            | Self::CrashCore { .. }
            | Self::NapCore { .. }
            | Self::DozeCore { .. }
            | Self::DrainCore { .. }
            | Self::CutStore { .. }
            | Self::Slow { .. }
            | Self::StopStore { .. }
            | Self::CloseStore { .. }
            | Self::ReadOnly { .. }
            | Self::SlowStore { .. }
            | Self::LoseAnswers { .. }
            | Self::LoseCommands { .. }
            | Self::Restart
            | Self::Empty
            | Self::FailOver { .. }
            | Self::Move { .. }
            | Self::Step { .. }
            | Self::CutRegions { .. } => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Blip { tab } => write!(f, "tab{tab} closes its socket and comes back"),
            Self::Go { tab, .. } => write!(f, "tab{tab} goes without goodbye"),
            Self::Reload { tab, forgets: false, .. } => write!(f, "tab{tab} reloads"),
            Self::Reload { tab, forgets: true, .. } => write!(f, "tab{tab} reloads as another session"),
            Self::NapTab { tab, .. } => write!(f, "tab{tab} stands still"),
            Self::CutTab { tab, way, .. } => write!(f, "bytes stop between tab{tab} and the edges{way}"),
            Self::Leave { tab, .. } => write!(f, "tab{tab} says goodbye"),
            Self::Update { tab } => write!(f, "tab{tab} says something new"),
            Self::Copy { tab, of } => write!(f, "tab{tab} comes as a duplicate of tab{of}"),
            Self::Trespass { tab, of } => write!(f, "tab{tab} tries session and room of tab{of}"),
            Self::Deaf { tab, .. } => write!(f, "tab{tab} does not read"),
            Self::Forgetful { tab } => write!(f, "tab{tab} will not renew its token"),
            Self::Storm { edge } => write!(f, "all sockets of edge{edge} are closed"),
            Self::CrashEdge { edge, death, same, .. } => {
                write!(f, "edge{edge} dies{death}{}", if same { ", to come back as the same" } else { "" })
            }
            Self::NapEdge { edge, .. } => write!(f, "edge{edge} stands still"),
            Self::DrainEdge { edge, .. } => write!(f, "edge{edge} is told to go"),
            Self::BreakLink { edge } => write!(f, "the link of edge{edge} is reset"),
            Self::BreakWatch { edge } => write!(f, "the watch of edge{edge} is reset"),
            Self::CutEdge { edge, core, way, .. } => {
                write!(f, "bytes stop between edge{edge} and core{core}{way}")
            }
            Self::Echo { edge, .. } => write!(f, "what edge{edge} says is heard twice"),
            Self::CrashCore { core, death, .. } => write!(f, "core{core} dies{death}"),
            Self::NapCore { core, holding: true, .. } => {
                write!(f, "core{core} stands still between decision and command")
            }
            Self::NapCore { core, holding: false, .. } => write!(f, "core{core} stands still"),
            Self::DozeCore { over, .. } => write!(f, "the core of the next {over} stands still over it"),
            Self::DrainCore { core, .. } => write!(f, "core{core} is told to go"),
            Self::CutStore { core, way, loses, .. } => {
                let what = if loses { ", and what was under way is lost" } else { "" };
                write!(f, "bytes stop between core{core} and the store{way}{what}")
            }
            Self::Slow { factor, .. } => write!(f, "everything takes {factor} times as long"),
            Self::StopStore { .. } => write!(f, "the store stands still"),
            Self::CloseStore { .. } => write!(f, "the store refuses connections"),
            Self::ReadOnly { .. } => write!(f, "the store takes no writes"),
            Self::SlowStore { by, .. } => write!(f, "the store takes {} ms longer", by.as_millis()),
            Self::LoseAnswers { of, .. } => write!(f, "the store loses one answer of {of}"),
            Self::LoseCommands { of, .. } => write!(f, "one command of {of} is lost"),
            Self::Restart => write!(f, "the store restarts with its data"),
            Self::Empty => write!(f, "the store restarts without data"),
            Self::FailOver { commits, ahead_ms } => {
                write!(f, "a replica takes over without the last {commits} commits, {ahead_ms} ms ahead")
            }
            Self::Move { shard } => write!(f, "shard {shard} moves"),
            Self::Step { by_ms } => write!(f, "the store's clock steps by {by_ms} ms"),
            Self::Evict { user, room } => write!(f, "u{user} is put out of r{room}"),
            Self::RevokeUser { user, .. } => write!(f, "all tokens of u{user} are revoked"),
            Self::RevokeToken { tab } => write!(f, "the token of tab{tab} is revoked"),
            Self::RevokeKey => write!(f, "the key that signs is revoked"),
            Self::Cross { tab, region, how, .. } => write!(f, "tab{tab} moves to region {region}{how}"),
            Self::CutRegions { from, to, way, .. } => {
                write!(f, "bytes stop between regions {from} and {to}{way}")
            }
        }?;
        match millis(self.span()) {
            0 => Ok(()),
            span => write!(f, ", for {span} ms"),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "",
            Self::There => " (one way)",
            Self::Back => " (the way back)",
        })
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "",
            Self::Drop => " after a drop",
            Self::Both => ", and is in both",
            Self::Behind => ", and leaves a session behind",
            Self::Late => ", and what it said before is heard again",
        })
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Renewals => "renewal",
            Self::Commit => "commit",
            Self::Loss => "loss",
        })
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "",
            Self::Machine => " without a word",
        })
    }
}
