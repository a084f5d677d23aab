//! The tables of `stats`: readings in, text out.

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};

use super::plain_table;
use crate::stats::json::Reading;
use crate::stats::latency::{Histogram, SAME_CPU, SAME_CPU_NAME, bound, quantile};
use crate::stats::{CPU_COUNTERS, Counter, LEVEL_COUNTERS, Row, Snapshot};
use crate::topology::{Cpu, CpuSet, Level, Machine};

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Counters that have a level, one column for each level
    Level,
    /// Each distinct domain, summed over the CPUs that see it
    Domain,
    /// Each CPU
    Cpu,
    /// Counters without a level, and the kernel's own, for the whole machine
    Machine,
}

/// What is to be shown.
pub struct Tables<'a> {
    pub machine: &'a Machine,
    pub by: &'a [By],
    /// Also rows in which every number is zero.
    pub all: bool,
}

/// What a domain's and a CPU's row can hold: what says most about the flags' work.
const BY_DOMAIN: &[&str] =
    &["ttwu_wake_remote", "ttwu_move_affine", "lb_count", "lb_gained", "invites", "migrated"];
/// The last ones have levels: a CPU's row has their sum.
const BY_CPU: &[&str] = &[
    "select_cpu",
    "dispatch",
    "disp_pulled",
    "tick_overloaded",
    "invited",
    "lb_count",
    "lb_gained",
    "migrated",
];

/// What an SRE asks of a latency.
const QUANTILES: &[(&str, f64)] =
    &[("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// The totals, or what was counted in an interval that ended now, with rates per second.
pub struct Counted<'a> {
    pub now: &'a Reading,
    pub interval: Option<&'a Reading>,
}

impl Counted<'_> {
    fn shown(&self) -> &Reading {
        self.interval.unwrap_or(self.now)
    }

    fn seconds(&self) -> Option<f64> {
        self.interval.map(|interval| interval.snapshot.at_ns as f64 / 1e9)
    }

    /// A number, with its rate where there is an interval.
    fn number(&self, value: impl Into<i128>) -> String {
        let value = value.into();
        match self.seconds() {
            Some(seconds) => format!("{value} {:>8}/s", rate(value as f64 / seconds)),
            None => value.to_string(),
        }
    }

    /// The line above the tables.
    fn headline(&self) -> String {
        let Snapshot { epoch, generation, waiting_now, .. } = &self.now.snapshot;
        let what = match self.seconds() {
            Some(seconds) => format!("in {seconds:.1} s"),
            None => "since attach".to_owned(),
        };
        format!(
            "counted {what}; attachment {epoch}, flags of generation {generation}, {waiting_now} waiting now\n"
        )
    }
}

/// Three digits or more say enough without a fraction.
fn rate(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A table under construction; rows of zeros are left out unless all are wanted.
struct Rows {
    table: Table,
    all: bool,
    nr_rows: usize,
    nr_left_out: usize,
}

impl Rows {
    fn new(header: &[&str], all: bool) -> Rows {
        Rows { table: plain_table(header), all, nr_rows: 0, nr_left_out: 0 }
    }

    fn add(&mut self, is_zero: bool, cells: impl IntoIterator<Item = String>) {
        if is_zero && !self.all {
            self.nr_left_out += 1;
            return;
        }
        self.nr_rows += 1;
        self.table.add_row(cells);
    }

    /// The text, its columns from `first_number` on right-aligned.
    fn finish(mut self, first_number: usize) -> String {
        for column in self.table.column_iter_mut().skip(first_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = self.table.trim_fmt() + "\n";
        if self.nr_left_out > 0 {
            let rows = if self.nr_rows == 0 { "every row is" } else { "other rows are" };
            text += &format!("({rows} zero: {})\n", self.nr_left_out);
        }
        text
    }
}

impl Tables<'_> {
    /// Every table that is wanted, in the order in which it was asked for.
    pub fn render(&self, counted: &Counted) -> String {
        let table = |by: &By| match by {
            By::Level => self.by_level(counted) + "\n" + &self.wakeup_to_run(counted),
            By::Domain => self.by_domain(counted),
            By::Cpu => self.by_cpu(counted),
            By::Machine => self.of_machine(counted) + &self.of_kernel(counted),
        };
        let tables: Vec<String> = self.by.iter().map(table).collect();
        format!("{}\n{}", counted.headline(), tables.join("\n"))
    }

    fn by_level(&self, counted: &Counted) -> String {
        let levels = self.machine.levels();
        let names = levels.iter().map(|&level| level_name(self.machine, level));
        let ever = counted.interval.map(|_| "SINCE ATTACH".to_owned());
        let header: Vec<String> =
            std::iter::once("BY LEVEL".to_owned()).chain(names).chain(ever).collect();
        let mut rows = Rows::new(&as_strs(&header), self.all);
        let (shown, total) = (counted.shown().snapshot.total(), counted.now.snapshot.total());
        for counter in LEVEL_COUNTERS {
            let values = levels.iter().map(|level| value_at(&shown, counter, *level));
            let sum = counted.interval.map(|_| over_levels(&total, counter).to_string());
            let numbers = values.clone().map(|value| counted.number(value));
            let name = std::iter::once(counter.name.to_owned());
            rows.add(values.sum::<u64>() == 0, name.chain(numbers).chain(sum));
        }
        rows.finish(1)
    }

    /// How long woken tasks waited for a CPU, by the level between waker and chosen CPU.
    fn wakeup_to_run(&self, counted: &Counted) -> String {
        let latency = counted.shown().snapshot.total().latency;
        let levels = named_levels(self.machine);
        let own = [(SAME_CPU, SAME_CPU_NAME.to_owned())].into_iter();
        let places: Vec<(usize, String)> =
            own.chain(levels.into_iter().map(|(level, name)| (level.index(), name))).collect();
        let names = places.iter().map(|(_, name)| name.as_str());
        let header: Vec<&str> = std::iter::once("WAKEUP TO RUN").chain(names).collect();
        let mut rows = Rows::new(&header, true);
        let histograms = places.iter().map(|(index, _)| &latency[*index]);
        let wakeups = histograms.clone().map(|times| counted.number(times.iter().sum::<u64>()));
        rows.add(false, std::iter::once("wakeups".to_owned()).chain(wakeups));
        for (name, share) in QUANTILES {
            let bounds = histograms.clone().map(|times| quantile_bound(times, *share));
            rows.add(false, std::iter::once(format!("{name} us")).chain(bounds));
        }
        rows.finish(1)
    }

    /// The counters that tell what the flags did, for every distinct domain.
    fn by_domain(&self, counted: &Counted) -> String {
        let mut rows = Rows::new(&[&["BY DOMAIN", "CPUS"], BY_DOMAIN].concat(), self.all);
        for (level, span) in domains(self.machine) {
            let sum = counted.shown().snapshot.sum_of(&viewers(self.machine, level, &span));
            let values: Vec<u64> = counters(LEVEL_COUNTERS, BY_DOMAIN)
                .map(|counter| value_at(&sum, counter, level))
                .collect();
            let head = [level_name(self.machine, level), span.to_string()];
            let numbers = values.iter().map(|value| counted.number(*value));
            rows.add(values.iter().all(|value| *value == 0), head.into_iter().chain(numbers));
        }
        rows.finish(2)
    }

    fn by_cpu(&self, counted: &Counted) -> String {
        let mut rows = Rows::new(&[&["BY CPU", "NODE"], BY_CPU].concat(), self.all);
        let table = &counted.shown().snapshot.rows;
        let timer = table.len().saturating_sub(1);
        for (cpu, row) in table.iter().enumerate() {
            let node = self.machine.cpus.get(&cpu).map(|cpu| cpu.node.to_string());
            let name = if cpu == timer { "timer".to_owned() } else { cpu.to_string() };
            let values: Vec<u64> = BY_CPU.iter().map(|name| value_of(row, name)).collect();
            let head = [name, node.unwrap_or_else(|| "-".to_owned())];
            let numbers = values.iter().map(|value| counted.number(*value));
            rows.add(values.iter().all(|value| *value == 0), head.into_iter().chain(numbers));
        }
        rows.finish(2)
    }

    fn of_machine(&self, counted: &Counted) -> String {
        let mut rows = Rows::new(&self.machine_header("ALL CPUS", counted), self.all);
        let (shown, total) = (counted.shown().snapshot.total(), counted.now.snapshot.total());
        for counter in CPU_COUNTERS {
            let value = shown.cpu[counter.index];
            let ever = counted.interval.map(|_| total.cpu[counter.index].to_string());
            let cells = [counter.name.to_owned(), counted.number(value)];
            rows.add(value == 0, cells.into_iter().chain(ever));
        }
        rows.finish(1)
    }

    /// The kernel's events; nothing where it shows none.
    fn of_kernel(&self, counted: &Counted) -> String {
        if counted.now.events.is_empty() {
            return String::new();
        }
        let mut rows = Rows::new(&self.machine_header("KERNEL", counted), self.all);
        for (name, value) in &counted.shown().events {
            let ever = counted.interval.map(|_| counted.now.events[name].to_string());
            let cells = [name.clone(), counted.number(*value)];
            rows.add(*value == 0, cells.into_iter().chain(ever));
        }
        format!("\n{}", rows.finish(1))
    }

    fn machine_header<'a>(&self, name: &'a str, counted: &Counted) -> Vec<&'a str> {
        match counted.interval {
            Some(_) => vec![name, "IN INTERVAL", "SINCE ATTACH"],
            None => vec![name, "SINCE ATTACH"],
        }
    }
}

fn quantile_bound(times: &Histogram, share: f64) -> String {
    quantile(times, share).map_or_else(|| "-".to_owned(), bound)
}

fn as_strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The counters of these names, in this order.
fn counters<'a>(
    table: &'static [Counter],
    names: &'a [&str],
) -> impl Iterator<Item = &'static Counter> + 'a {
    names.iter().filter_map(|name| table.iter().find(|counter| counter.name == *name))
}

fn value_at(row: &Row, counter: &Counter, level: Level) -> u64 {
    row.level[counter.index][level.index()]
}

fn over_levels(row: &Row, counter: &Counter) -> u64 {
    row.level[counter.index].iter().sum()
}

/// A counter of a CPU, or the sum over the levels of one that has levels.
fn value_of(row: &Row, name: &str) -> u64 {
    let of_cpu = counters(CPU_COUNTERS, &[name]).map(|counter| row.cpu[counter.index]).next();
    of_cpu.unwrap_or_else(|| {
        counters(LEVEL_COUNTERS, &[name]).map(|counter| over_levels(row, counter)).sum()
    })
}

/// Distinct domains, nearest level first.
fn domains(machine: &Machine) -> Vec<(Level, CpuSet)> {
    let mut domains: Vec<(Level, CpuSet)> = Vec::new();
    for level in machine.levels() {
        for domain in machine.cpus.values().filter_map(|cpu| cpu.domain(level)) {
            if !domains.iter().any(|(l, span)| *l == level && *span == domain.span) {
                domains.push((level, domain.span.clone()));
            }
        }
    }
    domains
}

/// The CPUs that see this domain: fewer than its span where NUMA spans overlap.
fn viewers(machine: &Machine, level: Level, span: &CpuSet) -> CpuSet {
    let sees = |cpu: &&Cpu| cpu.domain(level).is_some_and(|domain| domain.span == *span);
    machine.cpus.values().filter(sees).map(|cpu| cpu.id).collect()
}

/// The machine's levels, nearest first, with their names.
pub fn named_levels(machine: &Machine) -> Vec<(Level, String)> {
    machine.levels().into_iter().map(|level| (level, level_name(machine, level))).collect()
}

/// The level as this machine calls it: NODE where the kernel has that in place of PKG.
fn level_name(machine: &Machine, level: Level) -> String {
    let is_node = |cpu: &Cpu| cpu.domain(level).is_some_and(|domain| domain.name == "NODE");
    if machine.cpus.values().any(is_node) { "NODE".to_owned() } else { level.to_string() }
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
