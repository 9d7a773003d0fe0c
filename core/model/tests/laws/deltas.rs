//! Fold and conflation.

use presence_model::digest::Digest;
use presence_model::position::Revision;
use proptest::prelude::*;

use crate::oracle::{Edits, History, List, config, edits};

fn history(commits: &[Edits]) -> History {
    let mut history = History::new(1, 10, List::new());
    commits.iter().for_each(|edits| history.commit(edits));
    history
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn a_snapshot_is_the_fold_of_all_deltas(commits in prop::collection::vec(edits(), 0..12)) {
        let history = history(&commits);
        let mut folded = List::new();
        for revision in history.first..history.revision() {
            let delta = history.delta(revision, revision + 1);
            delta.apply(&mut folded);
            prop_assert_eq!(&folded, history.at(revision + 1));
            prop_assert_eq!(delta.digest, Digest::of_all(folded.values()));
        }
    }

    #[test]
    fn conflated_deltas_are_the_delta_of_the_whole_span_and_apply_anywhere_in_it(
        commits in prop::collection::vec(edits(), 1..12),
        cuts in prop::collection::btree_set(0..12u64, 2..6),
        overlap in 0..3u64,
    ) {
        let history = history(&commits);
        let cuts: Vec<u64> = cuts.iter().map(|cut| (history.first + cut).min(history.revision())).collect();
        let mut conflated = history.delta(cuts[0], cuts[1]);
        for pair in cuts[1..].windows(2) {
            let from = pair[0].saturating_sub(overlap).max(cuts[0]);
            conflated.conflate(history.delta(from, pair[1])).unwrap();
        }
        let (from, to) = (cuts[0], *cuts.last().unwrap());
        prop_assert_eq!(&conflated, &history.delta(from, to));
        for revision in from..to {
            prop_assert!(conflated.covers(Revision(revision)));
            let mut copy = history.at(revision).clone();
            conflated.apply(&mut copy);
            prop_assert_eq!(&copy, history.at(to));
        }
    }

    #[test]
    fn what_does_not_follow_is_not_conflated(commits in prop::collection::vec(edits(), 4..8)) {
        let history = history(&commits);
        let first = history.first;
        let (early, late) = (history.delta(first, first + 1), history.delta(first + 2, first + 3));
        let mut conflated = early.clone();
        prop_assert!(conflated.conflate(late.clone()).is_err());
        prop_assert_eq!(&conflated, &early);
        conflated = late;
        prop_assert!(conflated.conflate(early).is_err());
    }
}
