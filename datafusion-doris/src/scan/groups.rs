//! Groups of tablets, one for each statement of a scan.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::ScanSplit;

/// Groups tablets into at most `partitions` splits of about equal size; fewer when a split would get less than
/// `tablets_per_split` tablets. The same tablets and sizes always give the same splits.
///
/// Where no sizes are known, neighbouring ids stay together. A tablet whose size is not known counts as the average.
pub(super) fn group_tablets(
    mut tablets: Vec<i64>,
    partitions: usize,
    tablets_per_split: usize,
    sizes: &HashMap<i64, u64>,
) -> Vec<ScanSplit> {
    tablets.sort_unstable();
    tablets.dedup();
    let least = tablets_per_split.max(1);
    let groups = tablets.len().div_ceil(least).min(partitions.max(1));
    let known: Vec<u64> = tablets.iter().filter_map(|tablet| sizes.get(tablet).copied()).collect();
    if known.iter().all(|size| *size == 0) || groups <= 1 {
        return evenly(&tablets, groups);
    }
    let average = known.iter().sum::<u64>() / known.len().max(1) as u64;
    // Empty tablets cost something too.
    let size_of = |tablet: i64| sizes.get(&tablet).copied().unwrap_or(average).max(1);
    let mut largest_first = tablets;
    largest_first.sort_by_key(|tablet| (Reverse(size_of(*tablet)), *tablet));
    let mut splits: Vec<Vec<i64>> = vec![Vec::new(); groups];
    // The lightest split first, then that of the fewest tablets. A heap: there may be as many splits as tablets.
    let mut lightest: BinaryHeap<_> = (0..groups).map(|split| Reverse((0_u64, 0_usize, split))).collect();
    let (mut left, mut missing) = (largest_first.len(), groups.saturating_mul(least));
    for tablet in largest_first {
        // Splits that are too short for their least number of tablets go first once only enough for them are left; from
        // then on the others get no more.
        let short_only = left <= missing;
        while let Some(Reverse((weight, count, split))) = lightest.pop() {
            if short_only && count >= least {
                continue;
            }
            missing -= usize::from(count < least);
            splits[split].push(tablet);
            lightest.push(Reverse((weight.saturating_add(size_of(tablet)), count + 1, split)));
            break;
        }
        left -= 1;
    }
    splits.iter_mut().for_each(|ids| ids.sort_unstable());
    splits.sort();
    splits.into_iter().map(|tablets| ScanSplit { tablets }).collect()
}

/// Groups of equal numbers of neighbours.
fn evenly(tablets: &[i64], groups: usize) -> Vec<ScanSplit> {
    let mut splits = Vec::with_capacity(groups);
    let mut rest = tablets;
    for remaining in (1..=groups).rev() {
        let (group, others) = rest.split_at(rest.len().div_ceil(remaining));
        splits.push(ScanSplit { tablets: group.to_vec() });
        rest = others;
    }
    splits
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unsized_groups(tablets: Vec<i64>, partitions: usize, least: usize) -> Vec<ScanSplit> {
        group_tablets(tablets, partitions, least, &HashMap::new())
    }

    fn split(ids: &[i64]) -> ScanSplit {
        ScanSplit { tablets: ids.to_vec() }
    }

    #[test]
    fn no_tablets_give_no_splits() {
        assert!(unsized_groups(vec![], 4, 1).is_empty());
        assert!(group_tablets(vec![], 4, 1, &HashMap::from([(1, 5)])).is_empty());
    }

    #[test]
    fn splits_are_stable_and_respect_their_least_size() {
        let expected = [split(&[1, 2, 3]), split(&[4, 5])];
        assert_eq!(unsized_groups(vec![5, 1, 4, 2, 3], 2, 1), expected);
        assert_eq!(unsized_groups(vec![3, 5, 4, 1, 2, 2], 8, 3), expected);
    }

    #[test]
    fn large_tablets_stand_alone_and_unknown_ones_count_as_the_average() {
        let sizes = HashMap::from([(1, 900), (2, 100), (3, 100), (4, 0), (5, 400)]);
        assert_eq!(group_tablets(vec![1, 2, 3, 4, 5], 2, 1, &sizes), [split(&[1]), split(&[2, 3, 4, 5])]);
        // 6 counts as 300.
        assert_eq!(group_tablets(vec![1, 2, 3, 5, 6], 2, 1, &sizes), [split(&[1]), split(&[2, 3, 5, 6])]);
        assert_eq!(group_tablets(vec![1, 2, 3, 4], 2, 2, &sizes), [split(&[1, 4]), split(&[2, 3])]);
    }

    #[test]
    fn every_split_has_its_least_number_of_tablets_while_there_are_enough() {
        let sizes: HashMap<i64, u64> = (1..=10).map(|id| (id, if id < 3 { 1_000 } else { id as u64 })).collect();
        for (partitions, least, expected) in [(2, 4, vec![5, 5]), (3, 3, vec![3, 3, 4]), (8, 4, vec![3, 3, 4])] {
            let splits = group_tablets((1..=10).collect(), partitions, least, &sizes);
            let mut counts: Vec<usize> = splits.iter().map(|split| split.tablets.len()).collect();
            counts.sort_unstable();
            assert_eq!(counts, expected, "{partitions} partitions of {least}");
        }
    }

    proptest! {
        #[test]
        fn each_tablet_is_in_exactly_one_split_of_about_equal_size(
            ids in prop::collection::hash_set(0i64..10_000, 1..200),
            partitions in 1usize..32,
        ) {
            let splits = unsized_groups(ids.iter().copied().collect(), partitions, 1);
            prop_assert_eq!(splits.len(), partitions.min(ids.len()));
            let mut read: Vec<i64> = splits.iter().flat_map(|split| split.tablets.clone()).collect();
            let sizes: Vec<usize> = splits.iter().map(|split| split.tablets.len()).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            read.sort_unstable();
            let mut all: Vec<i64> = ids.into_iter().collect();
            all.sort_unstable();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn sized_splits_hold_each_tablet_once_and_differ_by_at_most_the_largest_one(
            sizes in prop::collection::hash_map(0i64..10_000, 1u64..1_000, 1..200),
            partitions in 1usize..32,
        ) {
            let ids: Vec<i64> = sizes.keys().copied().collect();
            let splits = group_tablets(ids.clone(), partitions, 1, &sizes);
            prop_assert_eq!(splits.len(), partitions.min(ids.len()));
            let mut read: Vec<i64> = splits.iter().flat_map(|split| split.tablets.clone()).collect();
            read.sort_unstable();
            let mut all = ids;
            all.sort_unstable();
            prop_assert_eq!(read, all);
            let weight = |split: &ScanSplit| split.tablets.iter().map(|id| sizes[id]).sum::<u64>();
            let weights: Vec<u64> = splits.iter().map(weight).collect();
            let largest = sizes.values().max().unwrap();
            prop_assert!(weights.iter().max().unwrap() - weights.iter().min().unwrap() <= *largest);
        }
    }
}
