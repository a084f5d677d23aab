//! The last changes of the flags: when, what, and by whom.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Changes that are kept (chosen: some hours of an A/B run with an arm each minute).
pub const CAPACITY: usize = 256;
/// A longer assignment is cut, so that the history stays small whatever clients send.
const TEXT_LIMIT: usize = 1024;

/// What made the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Start,
    Set,
    Lease,
    LeaseEnded,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The generation that the change made.
    pub generation: u64,
    /// ns since 1970.
    pub at_unix_ns: u64,
    pub words_changed: usize,
    pub cause: Cause,
    /// The client's process; none for the start.
    pub pid: Option<i32>,
    /// What was assigned; empty for the end of a lease.
    pub assignments: String,
}

/// The newest changes, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// Keeps the entry, and forgets the oldest where there are too many.
    pub fn push(&mut self, mut entry: Entry) {
        shorten(&mut entry.assignments);
        if self.entries.len() == CAPACITY {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub fn to_vec(&self) -> Vec<Entry> {
        self.entries.iter().cloned().collect()
    }
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_LIMIT {
        text.truncate(text.floor_char_boundary(TEXT_LIMIT));
        text.push_str("...");
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cause::Start => "start",
            Cause::Set => "set",
            Cause::Lease => "lease",
            Cause::LeaseEnded => "lease ended",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(generation: u64, assignments: &str) -> Entry {
        Entry {
            generation,
            at_unix_ns: 0,
            words_changed: 1,
            cause: Cause::Set,
            pid: Some(1),
            assignments: assignments.to_owned(),
        }
    }

    #[test]
    fn the_oldest_change_is_forgotten_first() {
        let mut history = History::default();
        (0..CAPACITY as u64 + 10).for_each(|generation| history.push(entry(generation, "all")));
        let kept: Vec<u64> = history.to_vec().iter().map(|entry| entry.generation).collect();
        assert_eq!(kept, (10..CAPACITY as u64 + 10).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_assignment_is_cut_between_characters() {
        let mut history = History::default();
        history.push(entry(1, &"ä".repeat(TEXT_LIMIT)));
        history.push(entry(2, "MC.NEWIDLE=on"));
        let kept = history.to_vec();
        assert_eq!(kept[0].assignments, "ä".repeat(TEXT_LIMIT / 2) + "...");
        assert_eq!(kept[1].assignments, "MC.NEWIDLE=on");
    }
}
