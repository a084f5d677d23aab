//! Laws between counters. Both sides of each are counted on their own, so a law can fail.

use super::{Row, Snapshot};
use crate::bpf::intf::*;
use crate::topology::Level;

/// `calls` is counted where a callback begins, `exits` where it ends.
const CALLBACKS: &[(&str, cpu_counter, &[cpu_counter])] = &[
    (
        "select_cpu",
        cpu_counter_CNT_SELECT_CPU,
        &[
            cpu_counter_CNT_SELECT_IDLE_TARGET,
            cpu_counter_CNT_SELECT_IDLE_PREV,
            cpu_counter_CNT_SELECT_IDLE_RECENT,
            cpu_counter_CNT_SELECT_IDLE_LLC,
            cpu_counter_CNT_SELECT_IDLE_FAR,
            cpu_counter_CNT_SELECT_BUSY,
        ],
    ),
    (
        "enqueue",
        cpu_counter_CNT_ENQUEUE,
        &[
            cpu_counter_CNT_ENQ_KTHREAD,
            cpu_counter_CNT_ENQ_IDLE,
            cpu_counter_CNT_ENQ_PREEMPT,
            cpu_counter_CNT_ENQ_QUEUED,
            cpu_counter_CNT_ENQ_PINNED,
        ],
    ),
    (
        "dispatch",
        cpu_counter_CNT_DISPATCH,
        &[
            cpu_counter_CNT_DISP_KEPT,
            cpu_counter_CNT_DISP_OWN,
            cpu_counter_CNT_DISP_PULLED,
            cpu_counter_CNT_DISP_NOTHING,
        ],
    ),
];

const NEWIDLE_EXITS: &[level_counter] = &[
    level_counter_LCNT_LB_GAINED,
    level_counter_LCNT_LB_FAILED,
    level_counter_LCNT_LB_NOBUSYQ,
    level_counter_LCNT_LB_COST,
    level_counter_LCNT_LB_DICE,
];

impl Snapshot {
    /// The laws that this snapshot breaks, in words; none when all hold.
    ///
    /// Exact only where nothing was counted while the snapshot was read: take it from a
    /// quiet machine, or read until two snapshots agree.
    pub fn broken_laws(&self) -> Vec<String> {
        let total = self.total();
        let callbacks = CALLBACKS.iter().filter_map(|(name, calls, exits)| {
            let sum = exits.iter().map(|exit| total.get(*exit)).sum();
            unequal(&format!("{name}: calls and exits"), total.get(*calls), sum)
        });
        let newidle = Level::all().filter_map(|level| broken_newidle(&total, level));
        callbacks.chain(newidle).chain(self.broken_waits(&total)).collect()
    }

    /// Every wait that began has ended in one of three ways or goes on.
    fn broken_waits(&self, total: &Row) -> Option<String> {
        let elsewhere: u64 = total.level[level_counter_LCNT_RUN_ELSEWHERE as usize].iter().sum();
        let ended = total.get(cpu_counter_CNT_RUN_OWN)
            + elsewhere
            + total.get(cpu_counter_CNT_WAIT_REMOVED);
        unequal(
            "waits: begun, and ended or going on",
            total.get(cpu_counter_CNT_WAIT_BEGUN),
            ended + self.waiting_now,
        )
    }
}

fn broken_newidle(total: &Row, level: Level) -> Option<String> {
    let tries = total.at(level, level_counter_LCNT_LB_COUNT);
    let exits = NEWIDLE_EXITS.iter().map(|exit| total.at(level, *exit)).sum();
    unequal(&format!("newidle at {level}: tries and exits"), tries, exits)
}

fn unequal(what: &str, left: u64, right: u64) -> Option<String> {
    (left != right).then(|| format!("{what} differ: {left} against {right}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{CPU_COUNTERS, LEVEL_COUNTERS};

    fn lawful() -> Snapshot {
        let mut row = Row::zero();
        for (_, calls, exits) in CALLBACKS {
            row.cpu[*calls as usize] = exits.len() as u64;
            exits.iter().for_each(|exit| row.cpu[*exit as usize] = 1);
        }
        for exit in NEWIDLE_EXITS {
            row.level[*exit as usize] = [2; crate::topology::NR_LEVELS];
        }
        row.level[level_counter_LCNT_LB_COUNT as usize] =
            [2 * NEWIDLE_EXITS.len() as u64; crate::topology::NR_LEVELS];
        row.cpu[cpu_counter_CNT_WAIT_BEGUN as usize] = 10;
        row.cpu[cpu_counter_CNT_RUN_OWN as usize] = 4;
        row.cpu[cpu_counter_CNT_WAIT_REMOVED as usize] = 1;
        row.level[level_counter_LCNT_RUN_ELSEWHERE as usize][4] = 3;
        Snapshot { waiting_now: 2, rows: vec![row], ..Snapshot::default() }
    }

    #[test]
    fn a_lawful_snapshot_breaks_no_law() {
        assert_eq!(lawful().broken_laws(), Vec::<String>::new());
    }

    #[test]
    fn each_counter_of_a_law_breaks_it_when_it_is_off_by_one() {
        let free = ["ttwu_local", "tick_overloaded", "invited", "reenqueued", "backstop_walks"];
        for counter in CPU_COUNTERS.iter().filter(|counter| !free.contains(&counter.name)) {
            let mut broken = lawful();
            broken.rows[0].cpu[counter.index] += 1;
            assert_eq!(broken.broken_laws().len(), 1, "{}", counter.name);
        }
        let lawful_levels =
            ["lb_count", "lb_gained", "lb_failed", "lb_nobusyq", "lb_cost", "lb_dice"];
        for counter in LEVEL_COUNTERS.iter().filter(|c| lawful_levels.contains(&c.name)) {
            let mut broken = lawful();
            broken.rows[0].level[counter.index][4] += 1;
            assert_eq!(broken.broken_laws().len(), 1, "{}", counter.name);
        }
    }
}
