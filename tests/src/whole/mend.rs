//! What is to be done in a world at some time, and how what went wrong comes right again.

use std::time::Duration;

use rand::RngExt as _;

use super::faults::{Cut, Who, draw};
use super::host::Host;
use super::store::Way;
use super::world::{World, core_address, edge_address, tab_address};
use crate::history::{Place, What};

/// How long a process that was told to end may take: window and tail of an edge, notice and drain of a core.
pub(super) const DRAINED_AFTER_MS: u64 = 14_000;

/// What is to be done at some time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// Something happens.
    Draw,
    /// Something comes right again.
    Mend(Mend),
    /// A process that was told to end has ended.
    Drained(Who, u64),
}

/// What comes right again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mend {
    Start(Who),
    Light(Who),
    Resume(Who, u64),
    Tunnel(usize, Cut),
    Link(usize, usize, Cut),
    Wire(usize, Way),
    Store(u64),
    Writable,
    NothingLost,
    Fast,
}

impl World {
    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Draw => {
                let fault = draw(&self.plan, &mut self.chance);
                self.suffer(fault);
                self.plan_next();
            }
            Act::Mend(mend) => self.mend(mend),
            Act::Drained(who, life) => self.drained(who, life),
        }
    }

    pub(super) fn plan_next(&mut self) {
        let pause = self.plan.every.mul_f64(self.chance.random_range(0.1..1.9));
        self.plan_act(u64::try_from(pause.as_millis()).expect("short"), Act::Draw);
    }

    pub(super) fn plan_act(&mut self, after: u64, act: Act) {
        self.planned += 1;
        self.agenda.insert((self.now + after, self.planned), act);
    }

    /// Nothing happens any more, and everything comes right now.
    pub(super) fn mend_all(&mut self) {
        self.recorder.line("world", "everything is mended");
        for (when, act) in std::mem::take(&mut self.agenda) {
            match act {
                Act::Draw => {}
                Act::Mend(mend) => self.mend(mend),
                Act::Drained(..) => drop(self.agenda.insert(when, act)),
            }
        }
    }

    pub(super) fn place(&self, who: Who) -> Place {
        match who {
            Who::Core(core) => Place::Core(self.cores[core].name.clone()),
            Who::Edge(edge) => Place::Edge(self.edges[edge].name.clone()),
        }
    }

    pub(super) fn is_running(&self, who: Who) -> bool {
        match who {
            Who::Core(core) => self.cores[core].is_running(),
            Who::Edge(edge) => self.edges[edge].is_running(),
        }
    }

    pub(super) fn lives(&self, who: Who) -> u64 {
        match who {
            Who::Core(core) => self.cores[core].lives(),
            Who::Edge(edge) => self.edges[edge].lives(),
        }
    }

    pub(super) fn kill(&mut self, who: Who) {
        match who {
            Who::Core(core) => self.cores[core].kill(),
            Who::Edge(edge) => self.edges[edge].kill(),
        }
    }

    pub(super) fn darken(&mut self, who: Who, dark: bool) {
        let address = match who {
            Who::Core(core) => core_address(core),
            Who::Edge(edge) => edge_address(edge),
        };
        self.net.darken(address, dark);
    }

    fn mend(&mut self, mend: Mend) {
        self.recorder.line("world", format_args!("mended: {mend:?}"));
        match mend {
            Mend::Start(who) => self.start_again(who),
            Mend::Light(who) => {
                self.darken(who, false);
                self.start_again(who);
            }
            Mend::Resume(who, life) => self.resume(who, life),
            Mend::Tunnel(tab, cut) => {
                self.cut_tunnel(tab, cut, false);
                self.recorder.trouble(Place::Path(self.tab(tab)), false);
            }
            Mend::Link(edge, core, cut) => {
                self.cut_link(edge, core, cut, false);
                self.recorder.trouble(self.link(edge, core), false);
            }
            Mend::Wire(core, way) => {
                self.post.cut(core, way, false);
                self.recorder.trouble(self.place(Who::Core(core)), false);
            }
            Mend::Store(away_ms) => {
                self.post.store().set_weather(|weather| weather.unavailable = None);
                self.recorder.trouble(Place::Store, false);
                if Duration::from_millis(away_ms) > self.timings.lease_ttl / 3 + Duration::from_secs(1) {
                    self.recorder.event(What::StoreReturned);
                }
            }
            Mend::Writable => {
                self.post.store().set_weather(|weather| weather.read_only = false);
                self.recorder.trouble(Place::Store, false);
            }
            Mend::NothingLost => {
                self.post.lose(0, 0);
                self.recorder.trouble(Place::Store, false);
            }
            Mend::Fast => {
                self.net.slow(1);
                self.post.slow(1);
                self.recorder.trouble(Place::Store, false);
            }
        }
    }

    fn start_again(&mut self, who: Who) {
        let gone = match who {
            Who::Core(core) => self.cores[core].tenant().is_none(),
            Who::Edge(edge) => self.edges[edge].tenant().is_none(),
        };
        if gone {
            self.start(who);
        }
        let place = self.place(who);
        self.recorder.trouble(place, false);
    }

    fn resume(&mut self, who: Who, life: u64) {
        if self.lives(who) == life {
            match who {
                Who::Core(core) => self.cores[core].resume(),
                Who::Edge(edge) => self.edges[edge].resume(),
            }
        }
        if let Who::Core(core) = who {
            self.post.hold(core, false);
        }
        let place = self.place(who);
        self.recorder.trouble(place, false);
    }

    fn drained(&mut self, who: Who, life: u64) {
        if self.lives(who) != life {
            let place = self.place(who);
            return self.recorder.trouble(place, false);
        }
        if !self.is_running(who) && self.is_alive(who) {
            return self.plan_act(DRAINED_AFTER_MS, Act::Drained(who, life));
        }
        self.ended(who);
        self.start_again(who);
    }

    fn is_alive(&self, who: Who) -> bool {
        match who {
            Who::Core(core) => self.cores.get(core).and_then(Host::tenant).is_some(),
            Who::Edge(edge) => self.edges.get(edge).and_then(Host::tenant).is_some(),
        }
    }

    pub(super) fn link(&self, edge: usize, core: usize) -> Place {
        Place::Link(self.edges[edge].name.clone(), self.cores[core].name.clone())
    }

    pub(super) fn cut_tunnel(&mut self, tab: usize, cut: Cut, is_cut: bool) {
        for edge in 0..self.edges.len() {
            self.cut_between((tab_address(tab), edge_address(edge)), cut, is_cut);
        }
    }

    pub(super) fn cut_link(&mut self, edge: usize, core: usize, cut: Cut, is_cut: bool) {
        self.cut_between((edge_address(edge), core_address(core)), cut, is_cut);
    }

    fn cut_between(&mut self, (one, other): (std::net::IpAddr, std::net::IpAddr), cut: Cut, is_cut: bool) {
        if cut != Cut::Back {
            self.net.cut(one, other, is_cut);
        }
        if cut != Cut::There {
            self.net.cut(other, one, is_cut);
        }
    }
}
