//! Deliberate faults of what passes between regions.

use std::collections::BTreeMap;
use std::time::Duration;

use presence_core::driver::WatchKey;
use presence_core::store::Command;
use presence_model::change::Removal;
use presence_model::delta::Delta;
use presence_model::digest::Digest;
use presence_model::position::Revision;
use presence_model::reason::RemovalReason;
use presence_model::replica::Freshness;
use presence_model::time::millis;
use presence_model::view::RegionEvent;
use presence_model::watch::WatchDown;

use super::streams::From;
use super::{Event, Lands};
use crate::sim::mutant::Mutant;

impl Lands {
    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.plan.mutant == Some(mutant)
    }

    /// Alters what a core writes.
    pub(super) fn spoil_command(&self, command: &mut Command) {
        if self.is_mutant(Mutant::MovesWait)
            && let Command::Commit(commit) = command
        {
            let transitions = commit.changes.iter_mut().flat_map(|change| &mut change.transitions);
            transitions.for_each(|transition| transition.moved = false);
        }
    }

    /// Alters what a core tells an onlooker; what is told later instead, and when.
    pub(super) fn spoil_told(
        &self,
        from: From,
        events: &mut Vec<WatchDown>,
    ) -> Option<(Duration, Vec<WatchDown>)> {
        let (From::Onlooker(number), Some(mutant)) = (from, self.plan.mutant) else { return None };
        let home = &self.regions[self.onlookers[number].land];
        let of_another =
            |event: &WatchDown| matches!(event, WatchDown::Region { region, .. } if region != home);
        for event in events.iter_mut().filter(|event| of_another(event)) {
            if let WatchDown::Region { event, .. } = event {
                spoil_freshness(mutant, event);
            }
        }
        if mutant != Mutant::HomeIsMerged {
            return None;
        }
        let waits = |event: &WatchDown| {
            !of_another(event) && matches!(event, WatchDown::Region { event: RegionEvent::Delta(_), .. })
        };
        let later: Vec<WatchDown> = events.extract_if(.., |event| waits(event)).collect();
        let merge = millis(self.timings.merge_interval);
        let left = Duration::from_millis(merge - millis(self.now.0) % merge);
        (!later.is_empty()).then_some((left, later))
    }

    /// A core that has another stream to a region begins with a list of nobody.
    pub(super) fn spoil_reconnect(&mut self, run: u64, land: usize) {
        if !self.is_mutant(Mutant::ReconnectForgets) {
            return;
        }
        let told: BTreeMap<WatchKey, usize> = self
            .watches
            .iter()
            .filter(|(_, stream)| stream.to.1 == run && stream.open_there)
            .filter_map(|(key, stream)| match stream.from {
                From::Onlooker(number) => Some((*key, number)),
                From::Core(..) => None,
            })
            .collect();
        for (key, number) in told {
            let events: Vec<WatchDown> =
                (0..self.rooms.len()).filter_map(|room| self.nobody(number, (land, room))).collect();
            self.after(Duration::ZERO, Event::WatchDown(key, events));
        }
    }

    /// That all whom somebody is shown of a region are gone.
    fn nobody(&self, number: usize, (land, room): (usize, usize)) -> Option<WatchDown> {
        let (room, region) = (self.rooms[room].clone(), self.regions[land].clone());
        let copy = self.onlookers[number].watcher.view(&room)?.region(&region)?;
        let at = copy.cursor()?;
        let removal = |member: &presence_model::profile::Member| {
            Removal::new(member.user.clone(), RemovalReason::Left, Duration::ZERO)
        };
        let delta = Delta {
            epoch: at.epoch,
            from: at.revision,
            to: Revision(at.revision.0 + 1),
            upserts: Vec::new(),
            removals: copy.members().map(removal).collect(),
            digest: Digest::default(),
        };
        Some(WatchDown::Region { room, region, event: RegionEvent::Delta(delta) })
    }
}

/// A region that cannot be heard is told as another.
fn spoil_freshness(mutant: Mutant, event: &mut RegionEvent) {
    match (mutant, &mut *event) {
        (Mutant::LosesRegionsEarly, RegionEvent::Freshness(Freshness::Stale { .. })) => {
            *event = RegionEvent::Lost
        }
        (Mutant::CutIsLive, RegionEvent::Freshness(told @ Freshness::Stale { .. })) => {
            *told = Freshness::Live
        }
        (Mutant::CutIsLive, RegionEvent::Page(page)) => page.freshness = Freshness::Live,
        _ => {}
    }
}
