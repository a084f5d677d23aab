//! docs/stats.md.

use scx_retune::stats::{CPU_COUNTERS, Counter, LAWS, LEVEL_COUNTERS, Law};

use crate::{code, table};

pub fn document() -> String {
    format!(
        "{HEAD}{BY_LEVEL}\n{}{WITHOUT_LEVEL}\n{}{LAW_HEAD}\n{}{TAIL}",
        counters(LEVEL_COUNTERS),
        counters(CPU_COUNTERS),
        laws()
    )
}

fn counters(counters: &[Counter]) -> String {
    let row = |counter: &Counter| vec![code(counter.name), counter.what.to_owned()];
    table(&["counter", "counts"], counters.iter().map(row))
}

fn laws() -> String {
    let row = |law: &Law| {
        let place = if law.at_each_level { "each level" } else { "the machine" };
        vec![law.name.to_owned(), code(&law.to_string()), place.to_owned(), law.why.to_owned()]
    };
    table(&["law", "equation", "for", "because"], LAWS.iter().map(row))
}

const HEAD: &str = r#"<!-- Generated from the code: UPDATE_DOCS=1 cargo test --test docs -->

# Statistics

    scx_retune stats                          totals since attach, by level, domain and machine
    scx_retune stats --by cpu                 one row for each CPU
    scx_retune stats --watch 5                every 5 s what was counted, and its rate per second
    scx_retune stats --json > before          ... and later:
    scx_retune stats --since before           what was counted in between
    scx_retune stats --laws                   1 if a law between counters is broken

* A counter belongs to the CPU that *executes*: a pull counts for the puller, a wakeup for the waker.
  `timer` is the backstop timer's own row.
* A domain's row is the sum over the CPUs that see that domain. NUMA spans overlap on rings and meshes,
  so rows of one level may add up to more than its column.
* Rows of zeros are not shown; `--all` shows them.
* Where there is an interval, a cell is what was counted in it and the rate per second; SINCE ATTACH is
  the total, for a counter with levels over all of them.
* Counters begin at zero with each attachment (CPU hotplug attaches anew). `--watch` says so and goes on;
  `--since` refuses.

## JSON

    {"epoch": 1,                one more with each attachment of this process
     "generation": 4,           of the flags
     "at_ns": 81234567890,      CLOCK_MONOTONIC
     "interval_ns": null,       since attach; with --since and --watch the length of the interval,
                                and every counter is what was counted in it
     "waiting_now": 2,          tasks that wait in a queue at this moment
     "total": {COUNTER: n, ..., "levels": {LEVEL: {COUNTER: n, ...}, ...},
               "wakeup_to_run_us": {LEVEL: {SHORTEST: n, ...}, ...}},
     "cpus": {"0": {as total}, ...},
     "timer": {as total},
     "kernel_events": {"SCX_EV_...": n, ...}}

In `wakeup_to_run_us` SHORTEST is the shortest time of a bucket in us; the next one is twice as long (0, 1,
2, 4, ...). Empty buckets are left out. `CPU` stands for wakeups to the waker's own CPU.

Every counter is there, zero or not. Levels are those of the machine, and any other at which something was
counted. `cpus` has every possible CPU. With `--watch` each interval is one line. `--since` takes a
document without an interval. For example the tasks that each CPU pulled across NUMA1:

    scx_retune stats --json | jq '.cpus | map_values(.levels.NUMA1.lb_gained)'
"#;

const BY_LEVEL: &str = "
## Counters with a level

\"...\" continues the line above. Names are schedstat's where it has one for the same thing.
";

const WITHOUT_LEVEL: &str = "
## Wakeup to run

The time from a wakeup until the task runs, by the level between the waker's CPU and the chosen one (`CPU`:
the same). Buckets double, so a quantile is known only as the bound of its bucket: `<8` is 4 us or more, and
less than 8.

## Counters without a level
";

const LAW_HEAD: &str = "
## Laws

Both sides of each are counted on their own, so that a law can fail. `stats --laws` reads up to 20 times
within 2 s, because CPUs count while it reads. A law holds if the sides were once equal. It is broken,
and the exit code is 1, if they always differ and the difference never shrinks, or is always more than
the machine can have in flight (twice the number of CPUs). What is neither is said to be unclear.
";

const TAIL: &str = "
## The kernel's events

Kernels from 6.15 on count what they did for or in spite of a sched_ext scheduler. `stats` shows
`/sys/kernel/sched_ext/root/events` beside its own counters, under the kernel's names, and leaves the
table out where the kernel has no such file. `struct scx_event_stats` in the kernel's source has a comment
for each. `SCX_EV_BYPASS_DURATION` is in ns. `SCX_EV_SELECT_CPU_FALLBACK` is not to grow: it counts
choices of a CPU that the task may not use.
";
