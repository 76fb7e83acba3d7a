//! A set of inbox entries that stays small however many commands a run takes.

use serde::{Deserialize, Serialize};

use crate::id::InboxNo;

/// A set of inbox numbers, stored as ranges. A run takes nearly all of its entries, so there
/// are about as many ranges as entries without effect, whose number the inbox limits.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "Vec<Stored>", into = "Vec<Stored>")]
pub struct InboxSet {
    /// The first and the last number of each range, in order. No two ranges touch.
    ranges: Vec<(u64, u64)>,
}

/// A range as it is stored. Earlier versions stored each number.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Stored {
    Number(u64),
    Range(u64, u64),
}

impl InboxSet {
    /// Adds a number.
    pub fn insert(&mut self, number: InboxNo) {
        self.insert_range(number.0, number.0);
    }

    /// Whether the set has a number.
    #[must_use]
    pub fn contains(&self, number: &InboxNo) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= number.0);
        after.checked_sub(1).is_some_and(|at| number.0 <= self.ranges[at].1)
    }

    /// The highest number.
    #[must_use]
    pub fn last(&self) -> Option<InboxNo> {
        self.ranges.last().map(|(_, last)| InboxNo(*last))
    }

    fn insert_range(&mut self, mut first: u64, mut last: u64) {
        let from = self.ranges.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = self.ranges.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        for (begin, end) in self.ranges.drain(from..to.max(from)) {
            (first, last) = (first.min(begin), last.max(end));
        }
        self.ranges.insert(from, (first, last));
    }
}

impl Extend<InboxNo> for InboxSet {
    fn extend<T: IntoIterator<Item = InboxNo>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| self.insert(number));
    }
}

impl From<Vec<Stored>> for InboxSet {
    fn from(stored: Vec<Stored>) -> Self {
        let mut set = Self::default();
        for range in stored {
            match range {
                Stored::Number(number) => set.insert_range(number, number),
                // The range may come from a damaged file.
                Stored::Range(first, last) => set.insert_range(first.min(last), last.max(first)),
            }
        }
        set
    }
}

impl From<InboxSet> for Vec<Stored> {
    fn from(set: InboxSet) -> Self {
        let stored = |(first, last)| {
            if first == last { Stored::Number(first) } else { Stored::Range(first, last) }
        };
        set.ranges.into_iter().map(stored).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The set behaves like a set of numbers, with as few ranges as possible.
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec(prop_oneof![0..20_u64, Just(u64::MAX)], 0..40)) {
            let mut set = InboxSet::default();
            set.extend(numbers.iter().copied().map(InboxNo));
            let want: BTreeSet<u64> = numbers.into_iter().collect();
            for number in (0..21).chain([u64::MAX]) {
                prop_assert_eq!(set.contains(&InboxNo(number)), want.contains(&number));
            }
            prop_assert_eq!(set.last(), want.last().copied().map(InboxNo));
            let begins = want.iter().filter(|it| !it.checked_sub(1).is_some_and(|it| want.contains(&it)));
            prop_assert_eq!(set.ranges.len(), begins.count());
            let stored = serde_json::to_string(&set).unwrap();
            prop_assert_eq!(serde_json::from_str::<InboxSet>(&stored).unwrap(), set.clone());
            let earlier = serde_json::to_string(&want).unwrap();
            prop_assert_eq!(serde_json::from_str::<InboxSet>(&earlier).unwrap(), set);
        }
    }
}
