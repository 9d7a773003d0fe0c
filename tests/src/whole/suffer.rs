//! How things go wrong in a world.

use super::faults::{Blow, Cutting, Fault, Upset, Who};
use super::mend::{Act, DRAINED_AFTER_MS, Mend};
use super::world::{World, core_address, edge_address};
use crate::history::{Place, What};

/// How long what was lost may stay unnoticed.
const LOSS_NOTICED_MS: u64 = 4_000;
/// How many times as long everything takes when it is slow.
const SLOW: u64 = 15;

impl World {
    /// Lets it happen, unless it strikes somebody who does not run.
    pub(super) fn suffer(&mut self, fault: Fault) {
        if let Fault::Strike(who, _) = fault
            && !self.is_running(who)
        {
            return;
        }
        self.recorder.line("world", format_args!("{fault:?}"));
        *self.faults.entry(fault.kind()).or_default() += 1;
        match fault {
            // A tab that has ended is missed at rest.
            Fault::Tab(tab, order) => {
                let _ = self.orders[tab].send(order);
            }
            Fault::Strike(who, blow) => self.strike(who, blow),
            Fault::Sever(cutting) => self.sever(cutting),
            Fault::Upset(upset) => self.upset(upset),
        }
    }

    /// A trouble that is over at once.
    fn shake(&mut self, place: &Place) {
        self.recorder.trouble(place.clone(), true);
        self.recorder.trouble(place.clone(), false);
    }

    fn strike(&mut self, who: Who, blow: Blow) {
        let place = self.place(who);
        self.recorder.trouble(place, true);
        match blow {
            Blow::Kill(span) => {
                self.kill(who);
                self.plan_act(span, Act::Mend(Mend::Start(who)));
            }
            Blow::Dark(span) => {
                self.darken(who, true);
                self.kill(who);
                self.plan_act(span, Act::Mend(Mend::Light(who)));
            }
            Blow::Pause(span) => {
                match who {
                    Who::Core(core) => {
                        self.cores[core].pause();
                        self.post.hold(core, true);
                    }
                    Who::Edge(edge) => self.edges[edge].pause(),
                }
                self.plan_act(span, Act::Mend(Mend::Resume(who, self.lives(who))));
            }
            Blow::Drain => {
                match who {
                    Who::Core(core) => self.cores[core].tenant().map(|run| run.shutdown.begin()),
                    Who::Edge(edge) => self.edges[edge].tenant().map(|run| run.shutdown.begin()),
                };
                self.plan_act(DRAINED_AFTER_MS, Act::Drained(who, self.lives(who)));
            }
        }
    }

    fn sever(&mut self, cutting: Cutting) {
        match cutting {
            Cutting::Tunnel(tab, cut, span) => {
                self.recorder.trouble(Place::Path(self.tab(tab)), true);
                self.cut_tunnel(tab, cut, true);
                self.plan_act(span, Act::Mend(Mend::Tunnel(tab, cut)));
            }
            Cutting::Link(edge, core, cut, span) => {
                self.recorder.trouble(self.link(edge, core), true);
                self.cut_link(edge, core, cut, true);
                self.plan_act(span, Act::Mend(Mend::Link(edge, core, cut)));
            }
            Cutting::Reset(edge, core) => {
                self.shake(&self.link(edge, core));
                self.net.reset(edge_address(edge), core_address(core));
            }
            Cutting::Wire(core, way, span) => {
                self.recorder.trouble(self.place(Who::Core(core)), true);
                self.post.cut(core, way, true);
                self.plan_act(span, Act::Mend(Mend::Wire(core, way)));
            }
        }
    }

    fn upset(&mut self, upset: Upset) {
        let store = self.post.store();
        match upset {
            Upset::Away(span) => {
                self.recorder.trouble(Place::Store, true);
                store.set_weather(|weather| weather.unavailable = Some("away".to_owned()));
                self.plan_act(span, Act::Mend(Mend::Store(span)));
            }
            Upset::ReadOnly(span) => {
                self.recorder.trouble(Place::Store, true);
                store.set_weather(|weather| weather.read_only = true);
                self.plan_act(span, Act::Mend(Mend::Writable));
            }
            Upset::Lose(commands, answers) => {
                self.recorder.trouble(Place::Store, true);
                self.post.lose(commands, answers);
                self.plan_act(LOSS_NOTICED_MS, Act::Mend(Mend::NothingLost));
            }
            Upset::Upheaval(upheaval) => {
                store.suffer(upheaval);
                self.shake(&Place::Store);
                self.recorder.event(What::StoreReturned);
            }
            Upset::StepClock(by) => {
                store.step_clock(by);
                self.shake(&Place::Store);
                self.recorder.event(What::StoreReturned);
            }
            Upset::Slow(span) => {
                self.recorder.trouble(Place::Store, true);
                self.net.slow(SLOW);
                self.post.slow(SLOW);
                self.plan_act(span, Act::Mend(Mend::Fast));
            }
        }
    }
}
