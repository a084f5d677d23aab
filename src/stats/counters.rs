//! The counters of `src/bpf/intf.h` with their names and meanings; docs/stats.md is made of this.

use crate::bpf::intf::*;

/// One counter: its place in a row, the name that users see, and what it counts.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    pub index: usize,
    pub name: &'static str,
    pub what: &'static str,
}

const fn counter(index: u32, name: &'static str, what: &'static str) -> Counter {
    Counter { index: index as usize, name, what }
}

/// Counters of a CPU, at their index.
pub const CPU_COUNTERS: &[Counter] = &[
    counter(cpu_counter_CNT_SELECT_CPU, "select_cpu", "wakeups and forks that asked for a CPU"),
    counter(
        cpu_counter_CNT_SELECT_IDLE_TARGET,
        "select_idle_target",
        "... that found the target idle",
    ),
    counter(
        cpu_counter_CNT_SELECT_IDLE_PREV,
        "select_idle_prev",
        "... their previous CPU, in the target's cache",
    ),
    counter(
        cpu_counter_CNT_SELECT_IDLE_RECENT,
        "select_idle_recent",
        "... the CPU they used before that one",
    ),
    counter(
        cpu_counter_CNT_SELECT_IDLE_LLC,
        "select_idle_llc",
        "... another CPU of the target's cache",
    ),
    counter(
        cpu_counter_CNT_SELECT_IDLE_FAR,
        "select_idle_far",
        "... a CPU that BALANCE_FORK or BALANCE_WAKE found",
    ),
    counter(cpu_counter_CNT_SELECT_BUSY, "select_busy", "... no idle CPU"),
    counter(
        cpu_counter_CNT_TTWU_LOCAL,
        "ttwu_local",
        "wakeups to the waker's own CPU (schedstat's name)",
    ),
    counter(cpu_counter_CNT_ENQUEUE, "enqueue", "tasks that came to wait"),
    counter(cpu_counter_CNT_ENQ_KTHREAD, "enq_kthread", "... per-CPU kernel threads, run first"),
    counter(cpu_counter_CNT_ENQ_IDLE, "enq_idle", "... whose CPU was idle, run at once"),
    counter(cpu_counter_CNT_ENQ_PREEMPT, "enq_preempt", "... that preempted the task on their CPU"),
    counter(cpu_counter_CNT_ENQ_QUEUED, "enq_queued", "... that other CPUs may run too"),
    counter(cpu_counter_CNT_ENQ_PINNED, "enq_pinned", "... that only their CPU may run"),
    counter(cpu_counter_CNT_DISPATCH, "dispatch", "times a CPU asked for its next task"),
    counter(cpu_counter_CNT_DISP_KEPT, "disp_kept", "... and went on with the one it ran"),
    counter(cpu_counter_CNT_DISP_OWN, "disp_own", "... and took one from its own queue"),
    counter(cpu_counter_CNT_DISP_PULLED, "disp_pulled", "... and pulled one from elsewhere"),
    counter(cpu_counter_CNT_DISP_NOTHING, "disp_nothing", "... and found none"),
    counter(cpu_counter_CNT_WAIT_BEGUN, "wait_begun", "waits in a queue that began"),
    counter(cpu_counter_CNT_RUN_OWN, "run_own", "waits that ended on the queue's own CPU"),
    counter(cpu_counter_CNT_WAIT_REMOVED, "wait_removed", "waits that ended without running"),
    counter(
        cpu_counter_CNT_TICK_OVERLOADED,
        "tick_overloaded",
        "ticks that found a movable task waiting",
    ),
    counter(cpu_counter_CNT_INVITED, "invited", "invitations that a CPU answered"),
    counter(
        cpu_counter_CNT_REENQUEUED,
        "reenqueued",
        "tasks that came back from a local DSQ whose CPU a higher class had taken",
    ),
    counter(cpu_counter_CNT_BACKSTOP_WALKS, "backstop_walks", "rounds of the 100 ms timer"),
];

/// Counters of a CPU at a level, at their index.
pub const LEVEL_COUNTERS: &[Counter] = &[
    counter(
        level_counter_LCNT_TTWU_WAKE_REMOTE,
        "ttwu_wake_remote",
        "wakeups to another CPU, at the lowest level that holds both (schedstat's name)",
    ),
    counter(
        level_counter_LCNT_AFFINE_ATTEMPTS,
        "affine_attempts",
        "wakeups that WAKE_AFFINE let consider the waker's side",
    ),
    counter(
        level_counter_LCNT_TTWU_MOVE_AFFINE,
        "ttwu_move_affine",
        "... and that chose it (schedstat's name)",
    ),
    counter(
        level_counter_LCNT_AFFINE_FLAG_OFF,
        "affine_flag_off",
        "wakeups that stayed on the previous side because WAKE_AFFINE is off",
    ),
    counter(
        level_counter_LCNT_AFFINE_WIDE,
        "affine_wide",
        "wakeups that stayed on the previous side because they are wide (wake_wide)",
    ),
    counter(
        level_counter_LCNT_AFFINE_BY_WEIGHT,
        "affine_by_weight",
        "... of ttwu_move_affine, decided by load",
    ),
    counter(
        level_counter_LCNT_SBF_PUSHED,
        "sbf_pushed",
        "forks that BALANCE_FORK moved (schedstat's name, never written there)",
    ),
    counter(level_counter_LCNT_SBW_PUSHED, "sbw_pushed", "wakeups that BALANCE_WAKE moved"),
    counter(level_counter_LCNT_LB_COUNT, "lb_count", "new-idle tries (schedstat's name)"),
    counter(level_counter_LCNT_LB_GAINED, "lb_gained", "... that pulled a task"),
    counter(
        level_counter_LCNT_LB_FAILED,
        "lb_failed",
        "... that found a queue but no task to take",
    ),
    counter(level_counter_LCNT_LB_NOBUSYQ, "lb_nobusyq", "... that found no queue"),
    counter(
        level_counter_LCNT_LB_COST,
        "lb_cost",
        "... refused: the CPU idles too shortly for the level's cost",
    ),
    counter(
        level_counter_LCNT_LB_DICE,
        "lb_dice",
        "... refused: tries seldom succeed here, the dice said no",
    ),
    counter(
        level_counter_LCNT_LB_FLAG_OFF,
        "lb_flag_off",
        "CPUs gone idle that did not look because BALANCE_NEWIDLE is off",
    ),
    counter(
        level_counter_LCNT_LB_QUEUES_READ,
        "lb_queues_read",
        "queues that tries read, at most 8 each, flagged ones only",
    ),
    counter(
        level_counter_LCNT_LB_HOT_GAINED,
        "lb_hot_gained",
        "cache-hot tasks taken after failed tries",
    ),
    counter(
        level_counter_LCNT_REFUSED_HOT,
        "refused_hot",
        "tasks passed over: they ran less than 500 us ago",
    ),
    counter(
        level_counter_LCNT_REFUSED_AFFINITY,
        "refused_affinity",
        "tasks passed over: they may not run on the puller",
    ),
    counter(
        level_counter_LCNT_REFUSED_PREFERRED,
        "refused_preferred",
        "tasks passed over: NUMA balancing wants them where they are",
    ),
    counter(
        level_counter_LCNT_INVITES,
        "invites",
        "idle CPUs invited, by the level between them and the queue",
    ),
    counter(
        level_counter_LCNT_INVITE_FLAG_OFF,
        "invite_flag_off",
        "idle CPUs not invited because their BALANCE_NEWIDLE is off",
    ),
    counter(
        level_counter_LCNT_RUN_ELSEWHERE,
        "run_elsewhere",
        "waits that ended on another CPU than the queue's",
    ),
    counter(
        level_counter_LCNT_RESCUED,
        "rescued",
        "tasks pulled whatever the flags, because a higher class held all their queue's CPUs",
    ),
    counter(
        level_counter_LCNT_MIGRATED,
        "migrated",
        "tasks that ran on another CPU than the last time",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_header_has_a_name_at_its_index() {
        for (table, count) in [
            (CPU_COUNTERS, cpu_counter_NR_CPU_COUNTERS),
            (LEVEL_COUNTERS, level_counter_NR_LEVEL_COUNTERS),
        ] {
            let indices: Vec<usize> = table.iter().map(|counter| counter.index).collect();
            assert_eq!(indices, (0..count as usize).collect::<Vec<_>>());
        }
    }
}
