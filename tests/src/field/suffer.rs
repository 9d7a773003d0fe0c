//! How things go wrong in a world, and come right again.

use std::time::Duration;

use tokio::task::block_in_place;

use super::fate::{Between, Fault, Who};
use super::way::{Cut, Way};
use super::world::{Act, Turn, World, core_name, edge_name};
use crate::history::{Place, What};
use crate::procs::Process;
use crate::redis::Data;

/// Between two looks whether there is a store to start over.
const STORE_AWAITED: Duration = Duration::from_millis(200);
/// What is told to end has ended by then: the window of a drain, what it waits beyond that, and what else is in trouble.
const DRAINED_WITHIN: Duration = Duration::from_secs(25);

/// What comes right again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mend {
    Start(Who),
    Resume(Who),
    Pass(Between, Cut),
    /// It stood still for so long.
    ResumeStore(Duration),
    RestartStore(Data),
    Fast,
}

impl World {
    /// Lets it happen, unless it strikes somebody who is down already.
    pub(super) async fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        if self.is_moot(fault) {
            return Ok(());
        }
        self.recorder.line("world", format_args!("{fault:?}"));
        *self.faults.entry(fault.kind()).or_default() += 1;
        match fault {
            // A tab that has ended is missed at rest.
            Fault::Tab(tab, order) => drop(self.orders[tab].send(order)),
            Fault::Kill(who, span) => {
                self.recorder.trouble(place(who), true);
                if let Some(process) = self.process(who).take() {
                    process.signal("KILL")?;
                    block_in_place(|| drop(process));
                }
                self.mend_after(span, Mend::Start(who));
            }
            Fault::End(who, span) => {
                self.recorder.trouble(place(who), true);
                if let Some(process) = self.process(who).take() {
                    process.signal("TERM")?;
                    self.under_way.spawn(drained(process, (who, span)));
                }
            }
            Fault::Roll => {
                self.rolling.0 = self.all().collect();
                self.roll_on();
            }
            Fault::Stop(who, span) => {
                self.recorder.trouble(place(who), true);
                self.signal(who, "STOP")?;
                self.stopped.insert(who);
                self.mend_after(span, Mend::Resume(who));
            }
            Fault::Cut(between, cut, span) => {
                self.recorder.trouble(self.place_between(between), true);
                self.ways(between).for_each(|way| way.cut(cut, true));
                self.mend_after(span, Mend::Pass(between, cut));
            }
            Fault::Reset(edge, core) => {
                let place = self.place_between(Between::Link(edge, core));
                self.recorder.trouble(place.clone(), true);
                self.links[edge][core].reset();
                self.recorder.trouble(place, false);
            }
            Fault::StopStore(span) => {
                self.recorder.trouble(Place::Store, true);
                self.server.signal("STOP")?;
                self.mend_after(span, Mend::ResumeStore(span));
            }
            Fault::RestartStore(data, span) => {
                self.recorder.trouble(Place::Store, true);
                if data != Data::Saved {
                    self.server.kill()?;
                }
                self.mend_after(span, Mend::RestartStore(data));
            }
            Fault::Slow(span, delay) => {
                self.recorder.trouble(Place::Store, true);
                self.is_slow = true;
                self.all_ways().for_each(|way| way.delay(delay));
                self.mend_after(span, Mend::Fast);
            }
        }
        Ok(())
    }

    pub(super) async fn mend(&mut self, mend: Mend) -> anyhow::Result<()> {
        self.recorder.line("world", format_args!("mends: {mend:?}"));
        match mend {
            // A core that starts without its store ends again: whoever starts it waits until there is one.
            Mend::Start(who) if self.lacks_store(who) => self.mend_after(STORE_AWAITED, mend),
            Mend::Start(who) => self.start(who),
            Mend::Resume(who) => {
                self.stopped.remove(&who);
                self.signal(who, "CONT")?;
                self.recorder.trouble(place(who), false);
            }
            Mend::Pass(between, cut) => {
                self.ways(between).for_each(|way| way.cut(cut, false));
                self.recorder.trouble(self.place_between(between), false);
            }
            Mend::ResumeStore(span) => {
                self.server.signal("CONT")?;
                self.recorder.trouble(Place::Store, false);
                // Nobody swept for so long that a hold is due.
                if span > self.timings.lease_ttl / 3 + self.timings.takeover() {
                    self.recorder.event(What::StoreReturned);
                }
            }
            Mend::RestartStore(data) => {
                let began = self.recorder.now();
                self.server.restart(data).await?;
                self.recorder.trouble(Place::Store, false);
                // Whoever noticed before this line was there did not notice too early.
                self.recorder.event_at(began, What::StoreReturned);
            }
            Mend::Fast => {
                self.is_slow = false;
                self.all_ways().for_each(|way| way.delay(Duration::ZERO));
                self.recorder.trouble(Place::Store, false);
            }
        }
        Ok(())
    }

    /// Of those that are to be started over, the next one is told to end.
    pub(super) fn roll_on(&mut self) {
        while let Some(who) = self.rolling.0.pop_front() {
            let fault = Fault::End(who, Duration::ZERO);
            if !self.is_moot(fault) {
                self.rolling.1 = Some(who);
                return self.plan_act(self.recorder.now(), Act::Strike(fault));
            }
        }
    }

    pub(super) fn mend_after(&mut self, span: Duration, mend: Mend) {
        let at = self.recorder.now() + span;
        self.plan_act(at, Act::Mend(mend));
    }

    fn is_moot(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Kill(who, _) | Fault::Stop(who, _) | Fault::End(who, _) => {
                self.process(who).is_none() || self.stopped.contains(&who)
            }
            Fault::StopStore(_) | Fault::RestartStore(..) => self.recorder.is_in_trouble(&Place::Store),
            Fault::Slow(..) => self.is_slow,
            Fault::Tab(..) | Fault::Cut(..) | Fault::Reset(..) | Fault::Roll => false,
        }
    }

    fn lacks_store(&self, who: Who) -> bool {
        match who {
            Who::Core(core) => self.recorder.is_in_trouble(&Place::Store) || self.stores[core].is_cut(),
            Who::Edge(_) => false,
        }
    }

    fn process(&mut self, who: Who) -> &mut Option<Process> {
        match who {
            Who::Core(core) => &mut self.cores[core],
            Who::Edge(edge) => &mut self.edges[edge],
        }
    }

    fn signal(&mut self, who: Who, name: &str) -> anyhow::Result<()> {
        self.process(who).as_ref().map_or(Ok(()), |process| process.signal(name))
    }

    fn ways(&self, between: Between) -> impl Iterator<Item = &Way> {
        match between {
            Between::Tab(tab) => self.doors[tab].iter(),
            Between::Link(edge, core) => self.links[edge][core..=core].iter(),
            Between::Store(core) => self.stores[core..=core].iter(),
        }
    }

    fn all_ways(&self) -> impl Iterator<Item = &Way> {
        let between = self.links.iter().chain(&self.doors).chain(&self.desks).flatten();
        self.stores.iter().chain(between)
    }

    fn place_between(&self, between: Between) -> Place {
        match between {
            Between::Tab(tab) => Place::Path(self.plan.tab(tab)),
            Between::Link(edge, core) => Place::Link(edge_name(edge), core_name(core)),
            Between::Store(core) => Place::Core(core_name(core)),
        }
    }
}

/// Waits until a process that was told to end has done so, well.
async fn drained(mut process: Process, (who, span): (Who, Duration)) -> anyhow::Result<Turn> {
    let code = process.ended(DRAINED_WITHIN).await?;
    anyhow::ensure!(code == Some(0), "{who:?} was told to end, and ended with {code:?}");
    block_in_place(|| drop(process));
    Ok(Turn::Ended(who, span))
}

/// Where a process that is down is missed.
pub(super) fn place(who: Who) -> Place {
    match who {
        Who::Core(core) => Place::Core(core_name(core)),
        Who::Edge(edge) => Place::Edge(edge_name(edge)),
    }
}
