//! What the tables look like, on a made-up machine: two nodes of two CPUs, CPU 4 possible.

use super::*;
use crate::stats::events;
use crate::topology::Domain;

fn machine() -> Machine {
    let cpus = (0..4).map(|id| (id, cpu(id))).collect();
    Machine {
        cpus,
        nr_cpu_ids: 5,
        llcs: vec![(0..2).collect(), (2..4).collect()],
        isolated: CpuSet::new(),
        numa_distances: vec![21],
        notes: Vec::new(),
    }
}

fn cpu(id: usize) -> Cpu {
    let node = id / 2;
    let domain = |level, name: &str, span: std::ops::Range<usize>| Domain {
        level,
        name: name.to_owned(),
        span: span.collect(),
        flags: vec![],
    };
    let domains = vec![
        domain(Level::MC, "MC", node * 2..node * 2 + 2),
        domain(Level::numa(1).unwrap(), "NUMA", 0..4),
    ];
    Cpu { id, node, domains }
}

/// CPU 0 took tasks from the other node, CPU 3 woke some there; the timer made its rounds.
fn reading(times: u64) -> Reading {
    let mut rows = vec![Row::zero(); 6];
    let mut count = |cpu: usize, name: &str, level: Option<Level>, value: u64| {
        let table = if level.is_some() { LEVEL_COUNTERS } else { CPU_COUNTERS };
        let counter = counters(table, &[name]).next().expect(name);
        match level {
            Some(level) => rows[cpu].level[counter.index][level.index()] = value * times,
            None => rows[cpu].cpu[counter.index] = value * times,
        }
    };
    let numa = Level::numa(1);
    count(0, "dispatch", None, 1200);
    count(0, "disp_pulled", None, 7);
    count(0, "lb_count", Some(Level::MC), 40);
    count(0, "lb_count", numa, 12);
    count(0, "lb_gained", numa, 7);
    count(0, "migrated", numa, 7);
    count(3, "select_cpu", None, 90_000);
    count(3, "dispatch", None, 350);
    count(3, "ttwu_wake_remote", Some(Level::MC), 20);
    count(3, "ttwu_wake_remote", numa, 3);
    count(5, "backstop_walks", None, 50);
    count(5, "lb_count", numa, 1);
    rows[3].latency[Level::MC.index()][1] = 18 * times;
    rows[3].latency[Level::MC.index()][12] = 2 * times;
    rows[0].latency[SAME_CPU][0] = times;
    let at_ns = 5_000_000_000 * times;
    let snapshot = Snapshot { epoch: 1, generation: 4, at_ns, waiting_now: 2, rows };
    let events = format!("SCX_EV_BYPASS_ACTIVATE 0\nSCX_EV_SELECT_CPU_FALLBACK {}", 3 * times);
    Reading { snapshot, events: events::parse(&events) }
}

fn render(by: &[By], all: bool, is_interval: bool) -> String {
    let (machine, now) = (machine(), reading(2));
    let interval = is_interval.then(|| now.since(&reading(1)).unwrap());
    let counted = Counted { now: &now, interval: interval.as_ref() };
    Tables { machine: &machine, by, all }.render(&counted)
}

#[test]
fn totals_by_level_domain_and_machine() {
    insta::assert_snapshot!(render(&[By::Level, By::Domain, By::Machine], false, false));
}

#[test]
fn an_interval_has_differences_rates_and_totals() {
    insta::assert_snapshot!(render(&[By::Level, By::Domain, By::Machine], false, true));
}

#[test]
fn each_cpu_has_a_row_and_so_has_the_timer() {
    insta::assert_snapshot!(render(&[By::Cpu], true, false));
    insta::assert_snapshot!(render(&[By::Cpu], false, true));
}

#[test]
fn all_shows_the_rows_of_zeros_too() {
    let text = render(&[By::Level, By::Machine], true, false);
    let names = LEVEL_COUNTERS.iter().chain(CPU_COUNTERS).map(|counter| counter.name);
    names.for_each(|name| assert!(text.contains(&format!("{name} ")), "{name}"));
    assert!(text.contains("SCX_EV_BYPASS_ACTIVATE"));
    assert!(!text.contains("zero"));
}

#[test]
fn a_kernel_without_events_has_no_such_table() {
    let machine = machine();
    let now = Reading { events: events::Events::new(), ..reading(1) };
    let tables = Tables { machine: &machine, by: &[By::Machine], all: true };
    assert!(!tables.render(&Counted { now: &now, interval: None }).contains("KERNEL"));
}

#[test]
fn the_counters_of_the_short_tables_exist() {
    assert_eq!(counters(LEVEL_COUNTERS, BY_DOMAIN).count(), BY_DOMAIN.len());
    let table: Vec<&str> =
        CPU_COUNTERS.iter().chain(LEVEL_COUNTERS).map(|counter| counter.name).collect();
    BY_CPU.iter().for_each(|name| assert!(table.contains(name), "{name}"));
}
