//! One suite for every adapter of the store port: each guarantee of [`presence_core::store`] has a case,
//! and each fault that a store may suffer is provoked by one.
//!
//! An adapter is plugged in by a [`Harness`] and one line: `presence_tests::conformance!(make)`, where
//! `make()` gives a harness over a fresh store. Every case gets its own.

pub mod audits;
pub mod bench;
pub mod commits;
pub mod edges;
pub mod faults;
pub mod guards;
pub mod history;
pub mod holds;
pub mod leases;
pub mod people;
pub mod reads;
pub mod retention;
pub mod revocations;
pub mod tails;
pub mod torn;
pub mod turns;
pub mod users;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use presence_core::store::LeaseStore;
use presence_core::store::memory::Tampering;

pub use bench::Bench;

/// A fresh store, and a hand on everything around it.
pub trait Harness: Send + Sync {
    /// The store, without data, all of whose shards have an epoch and no hold.
    fn store(&self) -> Arc<dyn LeaseStore>;

    /// Smallest ttl of the cases; all their spans follow from it. Long enough that what the cases do
    /// between two steps is short against a tenth of it.
    fn ttl(&self) -> Duration;

    /// How long the store remembers what ended; short if time is real.
    fn remembers(&self) -> Duration;

    /// How long the store remembers when a user was seen last; short if time is real.
    fn remembers_seen(&self) -> Duration {
        self.remembers()
    }

    /// How long an entry of the index of a user's rooms is left alone; short if time is real.
    fn remembers_listing(&self) -> Duration {
        self.remembers()
    }

    /// Lets time pass on the store's clock and on that of its callers.
    fn advance(&self, span: Duration) -> BoxFuture<'_, ()>;

    /// Lets something go wrong.
    fn provoke(&self, fault: Fault) -> BoxFuture<'_, ()>;
}

/// A case that takes longer hangs: a tail that nobody wakes must fail, not wait.
pub const CASE_MAX: Duration = Duration::from_secs(60);

/// What can go wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The server restarts with its data: a new run id.
    Restart,
    /// The server restarts and nothing is left.
    RestartEmpty,
    /// A replica takes over that lacks the last so many commits and all writes after the first of them.
    FailOver {
        /// How many commits.
        lost_commits: usize,
    },
    /// The store's clock steps against that of its callers.
    StepClock {
        /// Forward or back.
        by_ms: i64,
    },
    /// The next write is carried out and its answer lost.
    LoseAnswer,
    /// The next write is lost; nobody can tell that from a lost answer.
    LoseCommand,
    /// The store takes no writes, or takes them again.
    ReadOnly(bool),
    /// The store has no memory left for what is written, or has it again.
    Full(bool),
    /// The store cannot be reached, or can again.
    Unavailable(bool),
    /// Each command takes so long to arrive.
    Slow(Duration),
    /// Somebody's hand parts what belongs together.
    Tamper(Tampering),
}

/// Makes one test of each case of the suite, on harnesses that `$make` gives.
#[macro_export]
macro_rules! conformance {
    ($make:expr) => {
        $crate::conformance! { @cases $make,
            reads::the_clock_passes,
            reads::somebody_unknown_reads_as_absent,
            reads::a_read_has_records_leases_and_tombstones,
            reads::pages_make_the_whole_roster,
            reads::pages_and_history_make_one_point,
            reads::count_and_digest_are_those_of_the_members,
            reads::rooms_are_listed_by_prefix,
            reads::a_shard_there_is_not_is_a_fault,
            commits::a_commit_is_one_revision,
            commits::a_commit_tells_what_shows,
            commits::a_changed_record_is_refused_alone,
            commits::a_member_has_one_value_at_a_revision,
            commits::presence_is_an_expectation,
            commits::different_members_do_not_conflict,
            commits::a_new_tombstone_refuses_a_late_join,
            commits::a_tombstone_can_forbid_who_never_came,
            commits::a_lease_id_is_granted_once,
            commits::a_refused_commit_leaves_nothing,
            commits::another_epoch_is_refused,
            commits::a_takeover_removes_the_older_lease,
            guards::silence_ends_only_the_overdue,
            guards::a_renewal_wins_over_a_decision,
            guards::guards_are_judged_one_by_one,
            guards::grace_runs_out_like_any_lease,
            guards::a_token_end_is_a_guard_of_its_own,
            guards::a_hold_stops_silence_and_nothing_else,
            guards::a_late_command_ends_nobody,
            guards::an_absent_lease_is_a_guard,
            leases::a_grant_runs_for_its_ttl,
            leases::a_renewal_never_shortens,
            leases::a_renewal_never_creates,
            leases::leases_of_several_ttl_are_renewed_together,
            leases::a_release_starts_a_grace,
            leases::a_release_is_final,
            leases::a_release_never_lengthens,
            leases::an_edge_releases_only_its_own,
            leases::a_lost_edge_may_come_back,
            leases::losing_an_edge_is_repeatable,
            leases::a_lost_edge_leaves_each_the_grace_of_its_ttl,
            leases::a_loss_never_lengthens,
            leases::only_the_silent_are_lost,
            leases::a_newer_link_keeps_an_edge,
            leases::a_release_after_a_loss_has_its_whole_grace,
            leases::a_new_token_moves_its_end,
            leases::only_the_ended_are_discarded,
            audits::what_belongs_together_is_no_finding,
            audits::a_lost_lease_leaves_a_remnant,
            audits::a_lost_record_leaves_a_stray,
            audits::a_lease_of_nobody_is_a_stray,
            audits::a_lease_of_a_record_is_never_disowned,
            audits::a_finding_is_judged_anew,
            audits::a_hold_stops_the_audit,
            audits::a_walk_looks_at_everything,
            audits::a_lost_record_is_made_good,
            audits::a_changed_shard_is_not_audited,
            audits::the_oldest_overdue_is_told,
            torn::a_commit_left_half_way_is_made_whole,
            torn::the_next_commit_finds_what_was_left_half_way,
            torn::a_turn_that_is_refused_half_way_goes_on,
            torn::a_torn_roster_is_found_and_made_whole,
            torn::a_commit_that_finds_a_hand_is_refused,
            torn::a_roster_without_position_and_digest_is_not_read,
            torn::a_digest_that_fits_nobody_is_distrusted,
            torn::an_index_that_is_none_is_written_anew,
            torn::leases_without_owners_do_not_outlive_their_roster,
            torn::a_roster_that_was_mended_is_not_torn,
            torn::a_shard_that_lost_its_own_hash_goes_on,
            turns::one_core_has_the_turn,
            turns::only_the_holder_is_told_what_is_due,
            turns::a_sweep_counts_from_its_start,
            turns::a_sleeper_cannot_finish_a_lost_turn,
            turns::due_leases_come_oldest_first,
            turns::grace_is_due_with_its_note,
            turns::a_token_end_is_due,
            turns::deadlines_too_far_ahead_are_clamped,
            turns::shards_have_turns_of_their_own,
            holds::a_fresh_shard_is_not_held,
            holds::a_sweep_gap_starts_a_hold,
            holds::a_slow_sweep_is_a_gap,
            holds::a_hold_lasts_one_ttl,
            holds::a_hold_lasts_as_long_as_each_lease,
            holds::short_gaps_add_up,
            holds::takeovers_do_not_add_up,
            holds::a_reported_step_starts_a_hold,
            holds::a_past_that_lies_ahead_starts_a_hold,
            holds::a_step_forward_ends_nobody,
            holds::a_known_epoch_is_never_repeated,
            holds::a_hold_keeps_edges,
            edges::the_newest_link_is_known,
            edges::a_broken_link_keeps_its_time,
            edges::a_run_of_an_edge_has_one_name,
            edges::a_late_end_is_ignored,
            edges::an_end_may_come_before_its_begin,
            edges::a_goodbye_forgets_an_edge,
            edges::leases_are_counted_by_edge,
            edges::an_edge_is_sent_away_by_name_or_by_run,
            edges::a_word_to_go_stays_with_its_edge,
            history::history_is_contiguous,
            history::commits_tell_the_number_of_members,
            history::positions_that_never_were_are_told_so,
            history::a_copy_of_an_empty_roster_misses_nothing,
            tails::a_tail_starts_now,
            tails::a_tail_is_in_order,
            tails::a_tail_waits_for_a_commit,
            tails::a_tail_answers_in_time,
            tails::an_unknown_place_is_a_break,
            retention::an_emptied_roster_keeps_its_position,
            retention::a_position_is_never_repeated,
            retention::a_forgotten_roster_tells_an_old_copy,
            retention::rosters_that_come_and_go_never_repeat,
            retention::old_history_is_compacted,
            retention::a_tail_behind_history_is_broken,
            retention::tombstones_are_kept_for_their_time,
            retention::tombstones_are_bounded,
            users::coming_and_going_is_seen,
            users::last_seen_is_kept_for_its_time,
            users::rooms_of_a_user_are_complete,
            users::who_came_again_stays_listed,
            users::a_refused_departure_takes_nobody_from_the_list,
            users::rooms_of_a_user_come_in_pages,
            users::an_entry_is_removed_only_as_it_was_read,
            revocations::what_is_revoked_is_told_until_its_time,
            revocations::a_revocation_is_never_shortened,
            revocations::revocations_come_in_pages,
            revocations::news_of_revocations_are_told_by_their_number,
            faults::a_restart_keeps_data_under_a_new_epoch,
            faults::a_changed_shard_is_settled_before_it_is_read,
            faults::a_changed_shard_loses_no_edge,
            faults::a_restart_refuses_what_was_decided_before,
            faults::a_restart_breaks_tails,
            faults::a_restart_ends_nobody,
            faults::an_empty_restart_forgets_everything,
            faults::an_empty_restart_with_a_clock_behind,
            faults::a_fail_over_loses_its_tail,
            faults::a_fail_over_changes_the_clock,
            faults::a_lost_answer_was_carried_out,
            faults::a_lost_command_was_not_carried_out,
            faults::repeating_is_harmless,
            faults::a_read_only_store_says_so,
            faults::a_full_store_takes_no_turn_and_nobody_in,
            faults::an_unreachable_store_does_nothing,
            faults::a_slow_store_is_late_and_right,
        }
    };
    (@cases $make:expr, $($part:ident :: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $case() -> anyhow::Result<()> {
                let harness: Box<dyn $crate::conformance::Harness> = Box::new($make);
                let bench = $crate::conformance::Bench::new(harness);
                let case = $crate::conformance::$part::$case(&bench);
                tokio::time::timeout($crate::conformance::CASE_MAX, case).await?
            }
        )*
    };
}
