//! Deliberate faults in the scripts of the Redis adapter, each put in on the way to the server: a case of
//! the conformance suite goes red for every one of them. A fault that nothing sees is a case that is missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use presence_tests::conformance::{self, Bench};
use presence_tests::redis::{Mutation, RedisBench};

/// Servers at once: they sleep most of the time.
const TOGETHER: usize = 8;
/// A fault may leave a case waiting for ever.
const WITHIN: Duration = Duration::from_secs(40);

struct Mutant {
    what: &'static str,
    script: &'static str,
    mutation: Mutation,
    case: &'static str,
    run: for<'a> fn(&'a Bench) -> BoxFuture<'a, anyhow::Result<()>>,
}

macro_rules! mutants {
    ($($script:literal: $(($what:literal, $find:literal, $replace:literal, $part:ident::$case:ident))+)+) => {
        &[$($(Mutant {
            what: $what,
            script: $script,
            mutation: Mutation { find: $find, replace: $replace },
            case: concat!(stringify!($part), "::", stringify!($case)),
            run: |bench| conformance::$part::$case(bench).boxed(),
        }),+),+]
    };
}

const MUTANTS: &[Mutant] = mutants! {
    "commit.lua":
        ("applies a change of a record that is not as read",
         "if touched ~= change.expect then return 'changed' end", "",
         commits::a_changed_record_is_refused_alone)
        ("does not look at tombstones",
         "if tombstone(change.user, expected[1]) ~= expected[2] then return 'changed' end", "",
         commits::a_new_tombstone_refuses_a_late_join)
        ("drops the guards",
         "if not holds(guard[1], guard[2]) then return 'guard' end", "",
         guards::silence_ends_only_the_overdue)
        ("grants a lease that exists",
         "or deadline_of(lease) then return 'lease'", "then return 'lease'",
         commits::a_lease_id_is_granted_once)
        ("grants a lease twice in one change",
         "granted[lease] or deadline_of", "deadline_of",
         commits::a_lease_id_is_granted_once)
        ("takes two changes of one member",
         "or (seen[change.user] and 'changed') or nil", "or nil",
         commits::a_member_has_one_value_at_a_revision)
        ("forgets the tombstone",
         "do bury(change.user, buried[1], buried[2]) end", "do end",
         commits::a_tombstone_can_forbid_who_never_came)
        ("leaves the lease that was taken over",
         "do remove_lease(revoked[1]) end", "do end",
         commits::a_takeover_removes_the_older_lease)
        ("leaves the old end of a token",
         "do redis.call('ZADD', UNTIL, 'XX', token[2], token[1]) end", "do end",
         leases::a_new_token_moves_its_end)
        ("forgets when the token ends",
         "redis.call('ZADD', UNTIL, grant[2], lease)", "",
         turns::a_token_end_is_due)
        ("forgets whose a lease is",
         "redis.call('HSET', OWNERS, lease, grant[3])", "",
         turns::due_leases_come_oldest_first)
        ("forgets through which edge a lease is held",
         "redis.call('SADD', edge, lease)", "",
         leases::a_release_starts_a_grace)
        ("grants for twice the ttl",
         "now + ttl_of(lease), lease", "now + ttl_of(lease) * 2, lease",
         leases::a_grant_runs_for_its_ttl)
        ("counts a member's digest twice",
         "if stored then roster.digest = plus", "if false then roster.digest = plus",
         reads::count_and_digest_are_those_of_the_members)
        ("forgets the count",
         "redis.call('ZREM', names, change.user)", "",
         reads::count_and_digest_are_those_of_the_members)
        ("raises no revision",
         "local revision = before + 1", "local revision = before",
         commits::a_commit_is_one_revision)
        ("raises the revision though nothing was applied",
         "if #told > 0 then", "if true then",
         commits::a_refused_commit_leaves_nothing)
        ("does not look at the epoch",
         "if state.epoch ~= epoch then", "if false then",
         commits::another_epoch_is_refused)
        ("starts a roster's history where the others are",
         "'from', int(from)", "'from', int(before)",
         history::a_copy_of_an_empty_roster_misses_nothing)
        ("loses the thread of a roster's history",
         "'before', int(roster.last)", "'before', '0'",
         history::history_is_contiguous)
        ("forgets the index of rooms",
         "if was_empty and not is_empty then", "if false then",
         reads::rooms_are_listed_by_prefix)
        ("never looks what of a roster is old",
         "set_wake(retention, region, room, roster)\n  answer[3]", "answer[3]",
         retention::tombstones_are_kept_for_their_time)
        ("keeps every tombstone",
         "if redis.call('ZCARD', endings) > tombstones_max then", "if false then",
         retention::tombstones_are_bounded)
        ("goes on where a name has no record",
         "if not records[i] and redis.call('ZSCORE', names, change.user) then return true end", "",
         audits::a_lost_record_is_made_good)
        ("does not say that it has begun",
         "begin(room_entry)\n", "\n",
         torn::a_commit_left_half_way_is_made_whole)
        ("goes on in a roster that has lost what all of it has",
         "if is_headless(roster, region, room) then return true end", "",
         torn::a_commit_that_finds_a_hand_is_refused)
        ("goes on from what is no record",
         "if records[i] and not (touched and touched <= revision_of(roster)) then", "if false then",
         torn::a_commit_that_finds_a_hand_is_refused)
    "types.lua":
        ("leaves a key of another type where it is",
         "redis.call('DEL', name)", "",
         torn::an_index_that_is_none_is_written_anew)
    "common.lua":
        ("takes whatever stands in a shard's hash",
         "if value and not is_ours(FIELDS[i], value) then return nil end", "",
         torn::a_shard_that_lost_its_own_hash_goes_on)
        ("does not compare the server's run id",
         "return state.epoch and state.server == server", "return state.epoch",
         faults::a_restart_keeps_data_under_a_new_epoch)
        ("does not see what was left half-way",
         "and not left_open", "",
         torn::a_commit_left_half_way_is_made_whole)
        ("is never held",
         "return since ~= nil and now < since + ttl and since <= now + ttl", "return false",
         guards::a_hold_stops_silence_and_nothing_else)
        ("is held for ever",
         "now < since + ttl and since", "since",
         holds::a_hold_lasts_one_ttl)
        ("believes a deadline that nobody watched",
         "return math.max(now - unwatched, 0) * 3 <= ttl", "return true",
         guards::a_late_command_ends_nobody)
        ("removes a lease under its plain name only",
         "redis.call('ZREM', LEASES, lease, grace_name(lease))", "redis.call('ZREM', LEASES, lease)",
         commits::a_takeover_removes_the_older_lease)
        ("leaves a lease with its edge",
         "if edge then try('SREM'", "if false then try('SREM'",
         edges::leases_are_counted_by_edge)
        ("does not know a lease by its grace name",
         "return grace and tonumber(grace) or nil, grace and true or false", "return nil, false",
         leases::a_release_starts_a_grace)
        ("ends who is not overdue",
         "(deadline == nil or deadline <= now) and", "",
         guards::silence_ends_only_the_overdue)
        ("ends a token that runs",
         "return ends and tonumber(ends) <= now", "return ends",
         guards::a_token_end_is_a_guard_of_its_own)
        ("ends a remnant in a hold",
         "return deadline_of(lease) == nil and not is_held(ttl_of(lease)) and", "return deadline_of(lease) == nil and",
         audits::a_hold_stops_the_audit)
        ("starts every roster at nought",
         "return roster and roster.revision or number('commits', 0)", "return roster and roster.revision or 0",
         retention::a_position_is_never_repeated)
    "settle.lua":
        ("mints no epoch above the one the caller knows",
         "known > stored and known or stored", "stored",
         holds::a_known_epoch_is_never_repeated)
        ("mints an epoch by its clock alone",
         "minted = math.max(minted, tonumber(string.sub(highest, 1, 16), 16) + 1)", "",
         faults::an_empty_restart_with_a_clock_behind)
        ("starts no hold at a new epoch",
         "start_hold('store_changed')\n", "\n",
         faults::a_restart_ends_nobody)
        ("keeps the history of a commit that was left half-way",
         "redis.call('DEL', key('history'))", "",
         torn::a_commit_left_half_way_is_made_whole)
        ("counts anew over a history that was counted before",
         "or not state.commits then", "then",
         torn::a_shard_that_lost_its_own_hash_goes_on)
        ("leaves a torn roster as it is",
         "if #left_open > 1 then make_whole", "if false then make_whole",
         torn::a_torn_roster_is_found_and_made_whole)
        ("forgets the digest of a roster that it makes whole",
         "digest = digest_of(region, room)", "digest = '0000000000000000'",
         torn::a_commit_left_half_way_is_made_whole)
        ("keeps names that no record has",
         "redis.call('DEL', names)", "",
         torn::a_torn_roster_is_found_and_made_whole)
        ("leaves their leases to those whose record is lost",
         "  disown_unnamed(entry)\n", "",
         torn::a_commit_that_finds_a_hand_is_refused)
        ("leaves leases of nobody",
         "lease and (not region or of == entry)", "lease and of == entry",
         torn::leases_without_owners_do_not_outlive_their_roster)
        ("takes their leases from those who have a record",
         "if is_of and not (region and is_named(record_of(region, room, user), lease)) then", "if is_of then",
         torn::a_commit_that_finds_a_hand_is_refused)
        ("leaves what stands in the place of a shard's hash",
         "if not stored_state then redis.call('DEL', shard) end", "",
         torn::a_shard_that_lost_its_own_hash_goes_on)
        ("forgets the entry of a roster that it makes whole",
         "redis.call('ZADD', key('rooms'), 0, entry)", "",
         torn::a_torn_roster_is_found_and_made_whole)
    "named.lua":
        ("does not count names against records",
         "redis.call('HLEN', hash) - redis.call('HEXISTS', hash, '#') ~= listed or", "",
         torn::a_roster_that_was_mended_is_not_torn)
        ("does not see that a roster has lost its first field",
         "or is_headless(read_roster(region, room), region, room)", "",
         torn::a_commit_that_finds_a_hand_is_refused)
        ("does not look what kind of key a roster is",
         "if found ~= type and found ~= 'none' then return true end", "",
         torn::a_commit_that_finds_a_hand_is_refused)
        ("does not look for the entry of a roster",
         "or has_entry ~= (listed > 0)", "",
         torn::a_torn_roster_is_found_and_made_whole)
    "distrust.lua":
        ("distrusts what is whole",
         "is_settled() and (is_torn(entry) or not do_records_fit())", "true",
         torn::a_roster_that_was_mended_is_not_torn)
        ("does not look at digests",
         "or roster.digest == sum", "or true",
         torn::a_digest_that_fits_nobody_is_distrusted)
    "release.lua":
        ("lengthens",
         "local brought = math.min(replaced, now + grace)", "local brought = now + grace",
         leases::a_release_never_lengthens)
        ("leaves the plain name",
         "redis.call('ZREM', LEASES, lease)", "",
         leases::a_release_is_final)
        ("releases what another edge holds",
         "if deadline and try('SISMEMBER', edge_key(edge), lease) == 1 then", "if deadline then",
         leases::an_edge_releases_only_its_own)
        ("takes a lost edge's deadline for the renewed one",
         "if by == 'edge_lost' and set_to == replaced then replaced = longer end", "",
         leases::a_release_after_a_loss_has_its_whole_grace)
        ("forgets why",
         "write_note(lease, cause, replaced, brought)", "",
         leases::a_release_starts_a_grace)
    "lose.lua":
        ("does not look at the link's number",
         "if known and known > link then", "if false then",
         leases::a_newer_link_keeps_an_edge)
        ("shortens what was renewed since",
         "and deadline <= broken + ttl", "",
         leases::only_the_silent_are_lost)
        ("loses edges in a hold",
         "and not is_held(ttl) then", "then",
         holds::a_hold_keeps_edges)
        ("loses edges of data that nobody vouches for",
         "and is_settled() and", "and",
         faults::a_changed_shard_loses_no_edge)
        ("lengthens",
         "math.min(deadline, now + (graces[ttl] or usual))", "now + (graces[ttl] or usual)",
         leases::a_loss_never_lengthens)
        ("takes silence for a loss",
         "elseif deadline > now and", "elseif",
         leases::a_loss_never_lengthens)
        ("shortens again and again",
         "if by == 'edge_lost' and set_to == deadline then", "if false then",
         leases::losing_an_edge_is_repeatable)
    "edges.lua":
        ("links a run of an edge under another name",
         "known.name ~= ARGV[4]", "false",
         edges::a_run_of_an_edge_has_one_name)
        ("lets a late end overwrite a newer link",
         "known.link <= link", "true",
         edges::a_late_end_is_ignored)
        ("mends a broken link by its own number",
         "if known and known.link == link then", "if false then",
         edges::a_broken_link_keeps_its_time)
        ("counts from the last report of a break",
         "known.link == link and known.broken or now", "now",
         edges::a_broken_link_keeps_its_time)
    "turn.lua":
        ("does not ask whether a renewal has room",
         "begin(string.sub(left_open or '?', 2))", "",
         faults::a_full_store_takes_no_turn_and_nobody_in)
        ("lets anybody finish a turn",
         "and holder == state.holder then finish()", "then finish()",
         turns::a_sweep_counts_from_its_start)
        ("lets any turn be finished",
         "finished == state.turn and", "",
         turns::a_sweep_counts_from_its_start)
        ("counts a sweep from its end",
         "local started = number('started', now)", "local started = now",
         turns::a_sweep_counts_from_its_start)
        ("forgets gaps",
         "if gap > takeover then set('gaps'", "if false then set('gaps'",
         holds::short_gaps_add_up)
        ("does not hear of a step of the clock",
         "if stepped then return 'clock_step' end", "",
         holds::a_reported_step_starts_a_hold)
        ("does not see that its past lies ahead",
         "if looked > now + STEP_MAX then return 'clock_step' end", "",
         holds::a_past_that_lies_ahead_starts_a_hold)
        ("bears a gap of a whole ttl",
         "return gap * 3 > smallest_ttl", "return gap > smallest_ttl",
         holds::a_slow_sweep_is_a_gap)
        ("gives a turn to everybody",
         "local mine = state.holder == holder or", "local mine = true or",
         turns::one_core_has_the_turn)
        ("never takes a turn away",
         "or now >= kept_until or", "or",
         turns::one_core_has_the_turn)
        ("waits for a turn that was kept before the clock stepped back",
         "or kept_until > now + kept", "",
         holds::a_past_that_lies_ahead_starts_a_hold)
        ("leaves deadlines where a clock has left them",
         "redis.call('ZADD', LEASES, limit, lease)", "",
         turns::deadlines_too_far_ahead_are_clamped)
        ("tells everybody what is due",
         "if mine then\n  local touched", "if true then\n  local touched",
         turns::only_the_holder_is_told_what_is_due)
        ("tells what is held",
         "and not is_held(ttl_of(leases[i])) then\n        found", "then\n        found",
         holds::a_hold_lasts_as_long_as_each_lease)
        ("tells no end of a token",
         "for i = 1, #tokens, 2 do", "for i = 1, 0 do",
         turns::a_token_end_is_due)
        ("tells the youngest first",
         "if a.at ~= b.at then return a.at < b.at end", "if a.at ~= b.at then return a.at > b.at end",
         turns::due_leases_come_oldest_first)
        ("does not say that it has begun",
         "begin(string.sub(left_open or '?', 2))", "",
         torn::a_turn_that_is_refused_half_way_goes_on)
        ("forgets nothing",
         "forget(retention, FORGET_PER_TURN, rosters)", "",
         retention::tombstones_are_kept_for_their_time)
    "forget.lua":
        ("forgets history that is young",
         "(tonumber(fields.at) or 0) <= now - retention.history", "true",
         history::history_is_contiguous)
        ("forgets a roster that has members",
         "local bare = redis.call('EXISTS', endings, roster_key('names', region, room)) == 0", "local bare = true",
         retention::tombstones_are_kept_for_their_time)
        ("forgets a position at once",
         "if bare and now - roster.emptied >= retention.rosters then", "if bare then",
         retention::an_emptied_roster_keeps_its_position)
        ("does not remember what it has forgotten",
         "set('forgotten', int(math.max(number('forgotten', 0), roster.revision)))", "",
         retention::a_forgotten_roster_tells_an_old_copy)
        ("does not say what was dropped",
         "set('dropped', int(", "local _ = (int(",
         retention::a_tail_behind_history_is_broken)
    "discard.lua":
        ("discards what runs",
         "if holds('overdue', lease) or holds('token', lease) then", "if true then",
         leases::only_the_ended_are_discarded)
    "members.lua":
        ("reads what nobody vouches for",
         "if not is_settled() then return { 'changed' } end", "",
         faults::a_changed_shard_is_settled_before_it_is_read)
        ("does not know a lease by its grace name",
         "held[#held + 1] = in_grace and grace_name(lease) or lease", "held[#held + 1] = lease",
         reads::a_read_has_records_leases_and_tombstones)
    "page.lua":
        ("reads what nobody vouches for",
         "if not is_settled() then return { 'changed' } end", "",
         faults::a_changed_shard_is_settled_before_it_is_read)
        ("repeats the last of a page",
         "'(' .. after", "'[' .. after",
         reads::pages_make_the_whole_roster)
        ("reads a roster that has lost what all of it has",
         "if is_headless(roster, region, room) or records > listed then", "if false then",
         torn::a_roster_without_position_and_digest_is_not_read)
    "history.lua":
        ("reads what nobody vouches for",
         "if not is_settled() then return { 'changed' } end", "",
         faults::a_changed_shard_is_settled_before_it_is_read)
        ("tells nothing missed of what was compacted",
         "if not entry or #newest_first == steps then return compacted end", "if not entry then break end",
         retention::old_history_is_compacted)
        ("tells a position ahead as compacted",
         "if after > revision then return", "if false then return",
         history::positions_that_never_were_are_told_so)
    "audit.lua":
        ("finds leases that a record names",
         "if not is_named(record, lease) and", "if",
         audits::what_belongs_together_is_no_finding)
        ("does not know grace names",
         "leases[#leases + 1] = plain_name(page[2][i])", "leases[#leases + 1] = page[2][i]",
         audits::what_belongs_together_is_no_finding)
        ("finds records in a hold",
         "if not deadline_of(lease) and not is_held_lease(lease) then", "if not deadline_of(lease) then",
         audits::a_hold_stops_the_audit)
        ("looks at the first page of members only",
         "if #users == left then return entry, users[#users], found end", "if #users == left then return '', '', found end",
         audits::a_walk_looks_at_everything)
        ("takes a hold for a ghost",
         "if is_lease(first[i]) and not is_held_lease(first[i]) then", "if is_lease(first[i]) then",
         audits::the_oldest_overdue_is_told)
        ("does not look whether a roster is whole",
         "looked_at[entry] = is_torn(entry)", "looked_at[entry] = false",
         torn::a_torn_roster_is_found_and_made_whole)
        ("takes anything for a record",
         "if record and not parts_of(record) and", "if false and",
         torn::a_commit_that_finds_a_hand_is_refused)
    "disown.lua":
        ("removes the lease of a living record",
         "and not is_named(record, lease) then", "then",
         audits::a_lease_of_a_record_is_never_disowned)
        ("removes in a hold",
         "and not is_held(ttl_of(lease)) and", "and",
         audits::a_hold_stops_the_audit)
        ("removes what nobody vouches for",
         "is_settled() and", "",
         audits::a_changed_shard_is_not_audited)
        ("ends whose record is lost, without a hold",
         "if region and not record and", "if false and",
         audits::a_lost_record_is_made_good)
    "people.lua":
        ("lists nobody who came",
         "elseif what == 'came' then", "elseif false then",
         users::rooms_of_a_user_are_complete)
        ("does not see who comes and goes",
         "redis.call('ZADD', KEYS[1] .. ':seen', now, user)", "",
         users::coming_and_going_is_seen)
    "stale.lua":
        ("remembers for ever who was seen",
         "redis.call('ZREM', KEYS[1] .. ':seen', forgotten[i])", "",
         users::last_seen_is_kept_for_its_time)
    "unlist.lua":
        ("removes what was written since it was read",
         "and written == listed and", "and",
         users::an_entry_is_removed_only_as_it_was_read)
        ("removes what a commit may be on its way for",
         "and tonumber(written) <= horizon then", "then",
         users::an_entry_is_removed_only_as_it_was_read)
        ("removes who is there",
         "if is_gone and written and", "if written and",
         users::who_came_again_stays_listed)
    "listing.lua":
        ("repeats the last of a page",
         "redis.call('ZRANK', KEYS[1], ARGV[2]) + 1", "redis.call('ZRANK', KEYS[1], ARGV[2])",
         users::rooms_of_a_user_come_in_pages)
    "revoke.lua":
        ("shortens",
         "'GT', 'CH', ARGV[i]", "'CH', ARGV[i]",
         revocations::a_revocation_is_never_shortened)
        ("counts no news",
         "if changed > 0 then", "if false then",
         revocations::news_of_revocations_are_told_by_their_number)
    "revoked.lua":
        ("tells what has ended",
         "local start = redis.call('ZCOUNT', KEYS[1], '-inf', now)", "local start = 0",
         revocations::what_is_revoked_is_told_until_its_time)
        ("has news for whoever knows",
         "if news == ARGV[4] then", "if false then",
         revocations::news_of_revocations_are_told_by_their_number)
        ("repeats the last of a page",
         "redis.call('ZRANK', KEYS[1], ARGV[2]) + 1", "redis.call('ZRANK', KEYS[1], ARGV[2])",
         revocations::revocations_come_in_pages)
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn each_fault_is_one_place_of_its_script() -> anyhow::Result<()> {
    let mut scripts: BTreeMap<&str, String> = BTreeMap::new();
    for mutant in MUTANTS {
        let path = root().join("core/src/store/redis/scripts").join(mutant.script);
        let text = match scripts.get(mutant.script) {
            Some(text) => text,
            None => scripts.entry(mutant.script).or_insert(std::fs::read_to_string(path)?),
        };
        let found = text.matches(mutant.mutation.find).count();
        assert_eq!(found, 1, "{} {}: {:?}", mutant.script, mutant.what, mutant.mutation.find);
    }
    Ok(())
}

#[test]
fn the_table_of_faults_is_the_one_that_is_written_down() -> anyhow::Result<()> {
    let page = std::fs::read_to_string(root().join("docs/mutants.md"))?;
    let row = |mutant: &Mutant| format!("| `{}` {} | `{}` |", mutant.script, mutant.what, mutant.case);
    let missing: Vec<String> = MUTANTS.iter().map(row).filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "not in docs/mutants.md:\n{}", missing.join("\n"));
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains(".lua` ")).count();
    assert_eq!(rows, MUTANTS.len(), "rows of faults that there are not");
    Ok(())
}

/// Whether the case is green in spite of the fault.
async fn survives(mutant: &Mutant) -> anyhow::Result<bool> {
    let harness = RedisBench::mutated(mutant.mutation).await.context("a server with a fault")?;
    let weather = harness.weather();
    let (bench, run) = (Bench::new(Box::new(harness)), mutant.run);
    let case = tokio::spawn(async move { run(&bench).await });
    // A case is red by an error, a panic, or by not coming to an end.
    let is_green = matches!(tokio::time::timeout(WITHIN, case).await, Ok(Ok(Ok(()))));
    // Whatever does not run proves nothing of what it does.
    let failed = weather.failed_script();
    anyhow::ensure!(failed.is_none(), "{} {}: {failed:?}", mutant.script, mutant.what);
    Ok(is_green)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_goes_red_for_each_fault() -> anyhow::Result<()> {
    let judged = MUTANTS.iter().map(async |mutant| Ok((mutant, survives(mutant).await?)));
    let judged: Vec<anyhow::Result<(&Mutant, bool)>> =
        futures::stream::iter(judged).buffer_unordered(TOGETHER).collect().await;
    let mut survivors = Vec::new();
    for outcome in judged {
        let (mutant, survives) = outcome?;
        if survives {
            survivors.push(format!("{} {}: {} stays green", mutant.script, mutant.what, mutant.case));
        }
    }
    assert!(survivors.is_empty(), "{} of {}:\n{}", survivors.len(), MUTANTS.len(), survivors.join("\n"));
    Ok(())
}
