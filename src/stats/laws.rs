//! Laws between counters. Both sides of each are counted on their own, so a law can fail.
//!
//! The table is data: the check, its words and docs/stats.md come from it.

use std::fmt;

use super::counters::{CPU_COUNTERS, LEVEL_COUNTERS};
use super::{Row, Snapshot};
use crate::bpf::intf::*;
use crate::topology::Level;

/// A number that is counted once is the sum of numbers that are counted elsewhere.
pub struct Law {
    pub name: &'static str,
    /// Why it must hold.
    pub why: &'static str,
    /// Whether it holds at each level, or for the sum over the levels.
    pub at_each_level: bool,
    whole: Term,
    parts: &'static [Term],
}

/// Numbers that are added up.
enum Term {
    Cpu(&'static [cpu_counter]),
    Level(&'static [level_counter]),
    /// Tasks that wait in a queue now, read from the queues.
    WaitingNow,
}

/// `calls` is counted where a callback begins, `exits` where it ends.
const fn callback(
    name: &'static str,
    calls: &'static [cpu_counter],
    exits: &'static [Term],
) -> Law {
    let why = "the callback counts once where it begins, and once where it returns";
    Law { name, why, at_each_level: false, whole: Term::Cpu(calls), parts: exits }
}

/// Every law, for the sum over all CPUs.
pub const LAWS: &[Law] = &[
    callback(
        "select_cpu",
        &[cpu_counter_CNT_SELECT_CPU],
        &[Term::Cpu(&[
            cpu_counter_CNT_SELECT_IDLE_TARGET,
            cpu_counter_CNT_SELECT_IDLE_PREV,
            cpu_counter_CNT_SELECT_IDLE_RECENT,
            cpu_counter_CNT_SELECT_IDLE_LLC,
            cpu_counter_CNT_SELECT_IDLE_FAR,
            cpu_counter_CNT_SELECT_BUSY,
        ])],
    ),
    callback(
        "enqueue",
        &[cpu_counter_CNT_ENQUEUE],
        &[Term::Cpu(&[
            cpu_counter_CNT_ENQ_KTHREAD,
            cpu_counter_CNT_ENQ_IDLE,
            cpu_counter_CNT_ENQ_PREEMPT,
            cpu_counter_CNT_ENQ_QUEUED,
            cpu_counter_CNT_ENQ_PINNED,
        ])],
    ),
    callback(
        "dispatch",
        &[cpu_counter_CNT_DISPATCH],
        &[Term::Cpu(&[
            cpu_counter_CNT_DISP_KEPT,
            cpu_counter_CNT_DISP_OWN,
            cpu_counter_CNT_DISP_PULLED,
            cpu_counter_CNT_DISP_NOTHING,
        ])],
    ),
    Law {
        name: "newidle",
        why: "a new-idle try at a level ends in one way",
        at_each_level: true,
        whole: Term::Level(&[level_counter_LCNT_LB_COUNT]),
        parts: &[Term::Level(&[
            level_counter_LCNT_LB_GAINED,
            level_counter_LCNT_LB_FAILED,
            level_counter_LCNT_LB_NOBUSYQ,
            level_counter_LCNT_LB_COST,
            level_counter_LCNT_LB_DICE,
        ])],
    },
    Law {
        name: "waits",
        why: "a wait that began has ended in one way, or goes on",
        at_each_level: false,
        whole: Term::Cpu(&[cpu_counter_CNT_WAIT_BEGUN]),
        parts: &[
            Term::Cpu(&[cpu_counter_CNT_RUN_OWN, cpu_counter_CNT_WAIT_REMOVED]),
            Term::Level(&[level_counter_LCNT_RUN_ELSEWHERE]),
            Term::WaitingNow,
        ],
    },
];

impl Term {
    fn value(&self, snapshot: &Snapshot, total: &Row, level: Option<Level>) -> u64 {
        match self {
            Term::Cpu(counters) => counters.iter().map(|counter| total.get(*counter)).sum(),
            Term::Level(counters) => {
                counters.iter().map(|counter| at_levels(total, *counter, level)).sum()
            }
            Term::WaitingNow => snapshot.waiting_now,
        }
    }

    /// The names of what is added up, in order.
    fn names(&self) -> Vec<&'static str> {
        match self {
            Term::Cpu(counters) => {
                counters.iter().map(|index| CPU_COUNTERS[*index as usize].name).collect()
            }
            Term::Level(counters) => {
                counters.iter().map(|index| LEVEL_COUNTERS[*index as usize].name).collect()
            }
            Term::WaitingNow => vec!["waiting_now"],
        }
    }
}

/// A level counter at one level, or at all of them together.
fn at_levels(total: &Row, counter: level_counter, level: Option<Level>) -> u64 {
    match level {
        Some(level) => total.at(level, counter),
        None => total.level[counter as usize].iter().sum(),
    }
}

/// The equation in the counters' names: `lb_count = lb_gained + lb_failed`.
impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts.iter().flat_map(Term::names).collect();
        write!(f, "{} = {}", self.whole.names().join(" + "), parts.join(" + "))
    }
}

/// How a law stood in one snapshot, at one level if it is a law of levels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Index in `LAWS`.
    pub law: usize,
    pub level: Option<Level>,
    pub whole: u64,
    pub parts: u64,
}

impl Standing {
    fn new(snapshot: &Snapshot, total: &Row, law: usize, level: Option<Level>) -> Standing {
        let Law { whole, parts, .. } = &LAWS[law];
        Standing {
            law,
            level,
            whole: whole.value(snapshot, total, level),
            parts: parts.iter().map(|part| part.value(snapshot, total, level)).sum(),
        }
    }

    pub fn holds(&self) -> bool {
        self.whole == self.parts
    }

    /// How much was counted in the whole and not in the parts.
    pub fn missing(&self) -> i64 {
        self.whole.wrapping_sub(self.parts) as i64
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let law = &LAWS[self.law];
        let place = self.level.map_or_else(String::new, |level| format!(" at {level}"));
        let sign = if self.holds() { "=" } else { "against" };
        write!(f, "{}{place}: {law}: {} {sign} {}", law.name, self.whole, self.parts)
    }
}

impl Snapshot {
    /// How every law stands, in the table's order, then by level.
    pub fn standings(&self) -> Vec<Standing> {
        let total = self.total();
        let standing = |law, level| Standing::new(self, &total, law, level);
        let of_law = |law: usize| -> Vec<Standing> {
            match LAWS[law].at_each_level {
                true => Level::all().map(|level| standing(law, Some(level))).collect(),
                false => vec![standing(law, None)],
            }
        };
        (0..LAWS.len()).flat_map(of_law).collect()
    }

    /// The laws that this snapshot breaks, in words; none when all hold.
    ///
    /// Exact only where nothing was counted while the snapshot was read: take it from a
    /// quiet machine, or judge several with `verdicts`.
    pub fn broken_laws(&self) -> Vec<String> {
        let broken = self.standings().into_iter().filter(|standing| !standing.holds());
        broken.map(|standing| standing.to_string()).collect()
    }
}

/// What several snapshots of one attachment say about a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both sides were equal at least once.
    Holds,
    /// The sides never met, by more than what counting in between explains.
    Broken,
    /// The sides never met, but the machine was never quiet enough to blame the scheduler.
    Unclear,
}

/// Judges every law by snapshots of one attachment, each with the law's last standing.
///
/// A snapshot is read while CPUs count, so one that is unequal proves nothing. What was in
/// flight then is counted soon after: a difference of that kind comes and goes. One that in
/// many reads never shrinks is none, and neither is one larger than the machine can have in
/// flight: one callback on each CPU, and as much again for rows read at different moments
/// (chosen).
pub fn verdicts(snapshots: &[Snapshot]) -> Vec<(Standing, Verdict)> {
    let standings: Vec<Vec<Standing>> = snapshots.iter().map(Snapshot::standings).collect();
    let Some(last) = standings.last() else { return Vec::new() };
    let in_flight = 2 * snapshots[0].rows.len() as u64;
    let missing = |law: usize| -> Vec<i64> {
        standings.iter().map(|standings| standings[law].missing()).collect()
    };
    let judged = |law| judge(&missing(law), in_flight);
    last.iter().enumerate().map(|(law, standing)| (standing.clone(), judged(law))).collect()
}

/// Fewer reads than this may grow by accident (chosen).
const MANY_READS: usize = 10;

fn judge(missing: &[i64], in_flight: u64) -> Verdict {
    let amounts: Vec<u64> = missing.iter().map(|amount| amount.unsigned_abs()).collect();
    let never_shrinks = amounts.len() >= MANY_READS && amounts.is_sorted();
    match amounts.iter().min() {
        None | Some(0) => Verdict::Holds,
        Some(least) if never_shrinks || *least > in_flight => Verdict::Broken,
        Some(_) => Verdict::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::NR_LEVELS;

    /// Every part is one, twice over at levels, and every whole is what its parts add up to.
    fn lawful() -> Snapshot {
        let mut row = Row::zero();
        for law in LAWS {
            law.parts.iter().for_each(|part| put(&mut row, part, 1));
        }
        let mut snapshot = Snapshot { waiting_now: 2, rows: vec![row], ..Snapshot::default() };
        for standing in snapshot.standings() {
            put(&mut snapshot.rows[0], &LAWS[standing.law].whole, standing.parts);
        }
        snapshot
    }

    fn put(row: &mut Row, term: &Term, value: u64) {
        match term {
            Term::Cpu(counters) => counters.iter().for_each(|c| row.cpu[*c as usize] = value),
            Term::Level(counters) => {
                counters.iter().for_each(|c| row.level[*c as usize] = [value; NR_LEVELS]);
            }
            Term::WaitingNow => {}
        }
    }

    fn names_in_laws() -> Vec<&'static str> {
        let terms = LAWS.iter().flat_map(|law| law.parts.iter().chain([&law.whole]));
        terms.flat_map(Term::names).collect()
    }

    #[test]
    fn a_lawful_snapshot_breaks_no_law() {
        assert_eq!(lawful().broken_laws(), Vec::<String>::new());
    }

    #[test]
    fn each_counter_of_a_law_breaks_it_when_it_is_off_by_one() {
        let names = names_in_laws();
        for counter in CPU_COUNTERS.iter().filter(|counter| names.contains(&counter.name)) {
            let mut broken = lawful();
            broken.rows[0].cpu[counter.index] += 1;
            assert_eq!(broken.broken_laws().len(), 1, "{}", counter.name);
        }
        for counter in LEVEL_COUNTERS.iter().filter(|counter| names.contains(&counter.name)) {
            let mut broken = lawful();
            broken.rows[0].level[counter.index][4] += 1;
            assert_eq!(broken.broken_laws().len(), 1, "{}", counter.name);
        }
    }

    #[test]
    fn a_callback_that_counts_its_calls_counts_its_exits() {
        let names = names_in_laws();
        for prefix in ["select_", "enq_", "disp_", "wait_"] {
            let of_callback = CPU_COUNTERS.iter().filter(|c| c.name.starts_with(prefix));
            of_callback.for_each(|c| assert!(names.contains(&c.name), "{}", c.name));
        }
    }

    #[test]
    fn a_broken_law_says_which_level_and_both_sides() {
        let mut broken = lawful();
        broken.rows[0].level[level_counter_LCNT_LB_COUNT as usize][4] += 1;
        let [words] = &broken.broken_laws()[..] else { panic!("one law") };
        assert!(words.starts_with("newidle at NUMA1: lb_count = lb_gained + "), "{words}");
        assert!(words.ends_with(": 6 against 5"), "{words}");
    }

    #[test]
    fn a_law_is_judged_by_several_reads() {
        for (missing, verdict) in [
            (&[3, 0, 2][..], Verdict::Holds),
            (&[1; 10], Verdict::Broken),
            (&[-1; 10], Verdict::Broken),
            (&[1, 1, 1, 2, 2, 2, 3, 3, 3, 4], Verdict::Broken),
            (&[1, 1, 1, 2, 2, 2, 3, 3, 4, 3], Verdict::Unclear),
            (&[1, 2, 3], Verdict::Unclear),
            (&[40, 47, 41], Verdict::Broken),
            (&[-40, 41], Verdict::Broken),
        ] {
            assert_eq!(judge(missing, 32), verdict, "{missing:?}");
        }
    }

    #[test]
    fn verdicts_name_the_last_standing() {
        let (now, mut later) = (lawful(), lawful());
        later.rows[0].cpu[cpu_counter_CNT_DISPATCH as usize] += 1;
        assert!(verdicts(&[later.clone(), now]).iter().all(|(_, v)| *v == Verdict::Holds));
        let broken: Vec<String> = verdicts(&vec![later; MANY_READS])
            .into_iter()
            .filter(|(_, verdict)| *verdict == Verdict::Broken)
            .map(|(standing, _)| standing.to_string())
            .collect();
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].starts_with("dispatch: "), "{broken:?}");
    }
}
