//! The kernel's own counters of sched_ext events, `SCX_EV_*`, which stand beside ours.
//!
//! They count since the kernel enabled the scheduler that runs now, so they begin anew with
//! each attachment, as ours do.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where kernels from 6.15 on show the events of the scheduler that runs (lines `NAME value`).
pub const EVENTS_FILE: &str = "/sys/kernel/sched_ext/root/events";

/// Values by name. `SCX_EV_BYPASS_DURATION` is ns, all others are numbers of events.
pub type Events = BTreeMap<String, i64>;

/// The kernel's events now; none where this kernel does not show them.
pub fn read(file: &Path) -> Events {
    fs::read_to_string(file).map(|text| parse(&text)).unwrap_or_default()
}

/// Reads lines `NAME value`; a line of another shape is left out.
pub fn parse(text: &str) -> Events {
    let event = |line: &str| {
        let (name, value) = line.trim().split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(event).collect()
}

/// What happened since `earlier`; a name that it lacks counts from zero.
pub fn since(now: &Events, earlier: &Events) -> Events {
    let before = |name: &String| earlier.get(name).copied().unwrap_or_default();
    now.iter().map(|(name, value)| (name.clone(), value - before(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_names_and_values() {
        let events = parse("SCX_EV_SELECT_CPU_FALLBACK 3\nSCX_EV_BYPASS_DURATION 1200000\nodd\n");
        assert_eq!(events.len(), 2);
        assert_eq!(events["SCX_EV_SELECT_CPU_FALLBACK"], 3);
    }

    #[test]
    fn an_event_that_is_new_counts_from_zero() {
        let (then, now) = (parse("A 3"), parse("A 5\nB 2"));
        assert_eq!(since(&now, &then), parse("A 2\nB 2"));
    }

    #[test]
    fn a_kernel_without_the_file_has_no_events() {
        assert!(read(Path::new("/nonexistent/events")).is_empty());
    }
}
