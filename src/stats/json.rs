//! The public JSON of `stats`: every number under its name. `--since` reads it back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::events::{self, Events};
use super::latency::{Histogram, SAME_CPU, SAME_CPU_NAME, bucket_of, shortest_us};
use super::{CPU_COUNTERS, Counter, LEVEL_COUNTERS, Row, Snapshot};
use crate::topology::{Level, NR_LEVELS};

/// What one look at the machine gives: the scheduler's counters and the kernel's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub snapshot: Snapshot,
    pub events: Events,
}

impl Reading {
    /// What was counted since `earlier`, `at_ns` being how long that took; none if the
    /// scheduler was attached anew in between.
    pub fn since(&self, earlier: &Reading) -> Option<Reading> {
        let snapshot = self.snapshot.since(&earlier.snapshot)?;
        Some(Reading { snapshot, events: events::since(&self.events, &earlier.events) })
    }
}

/// The document, as docs/stats.md describes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    epoch: u64,
    generation: u64,
    at_ns: u64,
    interval_ns: Option<u64>,
    waiting_now: u64,
    total: Counters,
    cpus: BTreeMap<usize, Counters>,
    timer: Counters,
    kernel_events: Events,
}

/// Every counter of a row by name, then by level and name; times from wakeup to run by level
/// and by the shortest time of their bucket.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counters {
    #[serde(flatten)]
    counters: BTreeMap<String, u64>,
    levels: BTreeMap<String, BTreeMap<String, u64>>,
    wakeup_to_run_us: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Document {
    /// The document of a reading, or of what was counted in the interval that ended with it.
    ///
    /// `levels` are those of the machine with their names on it; a level that is not among
    /// them appears if anything was counted there.
    pub fn new(now: &Reading, interval: Option<&Reading>, levels: &[(Level, String)]) -> Document {
        let Reading { snapshot, events } = interval.unwrap_or(now);
        let (cpus, timer) = match snapshot.rows.split_last() {
            Some((timer, cpus)) => (cpus, timer.clone()),
            None => (&[][..], Row::zero()),
        };
        let counters = |row: &Row| Counters::new(row, levels);
        Document {
            epoch: now.snapshot.epoch,
            generation: now.snapshot.generation,
            at_ns: now.snapshot.at_ns,
            interval_ns: interval.map(|interval| interval.snapshot.at_ns),
            waiting_now: now.snapshot.waiting_now,
            total: counters(&snapshot.total()),
            cpus: cpus.iter().map(counters).enumerate().collect(),
            timer: counters(&timer),
            kernel_events: events.clone(),
        }
    }

    /// The reading that the document was made from.
    ///
    /// Errors: it holds an interval's differences, or other counters than this build's.
    pub fn reading(&self) -> Result<Reading, String> {
        if self.interval_ns.is_some() {
            return Err("it holds the differences of an interval, not totals".to_owned());
        }
        let nr_cpus = self.cpus.last_key_value().map_or(0, |(last, _)| last + 1);
        let missing = |cpu: &usize| !self.cpus.contains_key(cpu);
        if let Some(cpu) = (0..nr_cpus).find(missing) {
            return Err(format!("it lacks CPU {cpu}"));
        }
        let rows = self.cpus.values().chain([&self.timer]).map(Counters::row);
        let snapshot = Snapshot {
            epoch: self.epoch,
            generation: self.generation,
            at_ns: self.at_ns,
            waiting_now: self.waiting_now,
            rows: rows.collect::<Result<_, _>>()?,
        };
        Ok(Reading { snapshot, events: self.kernel_events.clone() })
    }
}

impl Counters {
    fn new(row: &Row, levels: &[(Level, String)]) -> Counters {
        let counters = CPU_COUNTERS.iter().map(|c| (c.name.to_owned(), row.cpu[c.index]));
        let levels = levels_of(row, levels);
        let times = levels.iter().map(|(level, name)| (level.index(), name.as_str()));
        let times = times.chain([(SAME_CPU, SAME_CPU_NAME)]);
        Counters {
            counters: counters.collect(),
            wakeup_to_run_us: times
                .map(|(index, name)| (name.to_owned(), buckets(&row.latency[index])))
                .collect(),
            levels: levels.into_iter().map(|(l, name)| (name, at_level(row, l))).collect(),
        }
    }

    fn row(&self) -> Result<Row, String> {
        let mut row = Row::zero();
        for (counter, value) in named(&self.counters, CPU_COUNTERS)? {
            row.cpu[counter.index] = value;
        }
        for (name, values) in &self.levels {
            let level = level_of(name).ok_or_else(|| format!("it has a level '{name}'"))?;
            for (counter, value) in named(values, LEVEL_COUNTERS)? {
                row.level[counter.index][level.index()] = value;
            }
        }
        for (name, times) in &self.wakeup_to_run_us {
            let level = level_of(name).map(Level::index);
            let index = level.or((name == SAME_CPU_NAME).then_some(SAME_CPU));
            let index = index.ok_or_else(|| format!("it has a level '{name}'"))?;
            row.latency[index] = histogram(times)?;
        }
        Ok(row)
    }
}

/// The machine's levels, and any other at which something was counted.
fn levels_of(row: &Row, levels: &[(Level, String)]) -> Vec<(Level, String)> {
    let is_known = |level: &Level| levels.iter().any(|(known, _)| known == level);
    let counted = |level: &Level| {
        row.level.iter().any(|values| values[level.index()] != 0)
            || row.latency[level.index()].iter().any(|times| *times != 0)
    };
    let others = Level::all().filter(|level| !is_known(level) && counted(level));
    levels.iter().cloned().chain(others.map(|level| (level, level.to_string()))).collect()
}

/// The buckets that are not empty.
fn buckets(histogram: &Histogram) -> BTreeMap<u64, u64> {
    let times = histogram.iter().enumerate().filter(|(_, times)| **times != 0);
    times.map(|(bucket, times)| (shortest_us(bucket), *times)).collect()
}

fn histogram(buckets: &BTreeMap<u64, u64>) -> Result<Histogram, String> {
    let mut histogram = Histogram::default();
    for (shortest, times) in buckets {
        let bucket = bucket_of(*shortest).ok_or_else(|| format!("no bucket of {shortest} us"))?;
        histogram[bucket] = *times;
    }
    Ok(histogram)
}

fn at_level(row: &Row, level: Level) -> BTreeMap<String, u64> {
    let value = |counter: &Counter| row.level[counter.index][level.index()];
    LEVEL_COUNTERS.iter().map(|counter| (counter.name.to_owned(), value(counter))).collect()
}

/// Each counter of the table with its value; an error if one lacks a value or a name is unknown.
fn named<'a>(
    values: &BTreeMap<String, u64>,
    table: &'a [Counter],
) -> Result<Vec<(&'a Counter, u64)>, String> {
    let other_build = |name: &str| format!("another build wrote it: counter '{name}' differs");
    let is_known = |name: &str| table.iter().any(|counter| counter.name == name);
    if let Some(unknown) = values.keys().find(|name| !is_known(name)) {
        return Err(other_build(unknown));
    }
    let value = |counter: &'a Counter| {
        let value = values.get(counter.name).ok_or_else(|| other_build(counter.name))?;
        Ok((counter, *value))
    };
    table.iter().map(value).collect()
}

/// NODE is the kernel's name of PKG where it has that in its place.
fn level_of(name: &str) -> Option<Level> {
    let name = if name == "NODE" { "PKG" } else { name };
    (0..NR_LEVELS).filter_map(Level::from_index).find(|level| level.to_string() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: (Level, &str) = (Level::PKG, "NODE");

    /// Two CPUs and the timer, every counter another number.
    fn reading() -> Reading {
        let row = |first: u64| {
            let mut row = Row::zero();
            let levels = row.level.iter_mut().flat_map(|values| &mut values[2..5]);
            row.cpu.iter_mut().chain(levels).zip(first..).for_each(|(to, value)| *to = value);
            row.latency[Level::MC.index()][4] = first;
            row.latency[SAME_CPU][0] = 1;
            row
        };
        let rows = vec![row(100), row(300), row(500)];
        let snapshot = Snapshot { epoch: 2, generation: 7, at_ns: 9, waiting_now: 1, rows };
        Reading { snapshot, events: events::parse("SCX_EV_SELECT_CPU_FALLBACK 3") }
    }

    fn document(now: &Reading, interval: Option<&Reading>) -> String {
        let levels = [(Level::MC, "MC".to_owned()), (NODE.0, NODE.1.to_owned())];
        serde_json::to_string(&Document::new(now, interval, &levels)).unwrap()
    }

    fn read(text: &str) -> Result<Reading, String> {
        serde_json::from_str::<Document>(text).map_err(|why| why.to_string())?.reading()
    }

    #[test]
    fn a_document_reads_back_as_it_was() {
        assert_eq!(read(&document(&reading(), None)), Ok(reading()));
    }

    #[test]
    fn every_number_has_its_name() {
        let json: serde_json::Value = serde_json::from_str(&document(&reading(), None)).unwrap();
        assert_eq!(json["cpus"]["0"]["select_cpu"], 100);
        let first = 100 + CPU_COUNTERS.len() as u64;
        assert_eq!(json["cpus"]["0"]["levels"]["MC"]["ttwu_wake_remote"], first);
        assert_eq!(json["cpus"]["1"]["levels"]["NODE"]["ttwu_wake_remote"], first + 201);
        assert_eq!(json["cpus"]["0"]["levels"]["NUMA1"]["ttwu_wake_remote"], first + 2);
        assert_eq!(json["cpus"]["0"]["wakeup_to_run_us"]["MC"]["8"], 100);
        assert_eq!(json["total"]["wakeup_to_run_us"]["CPU"]["0"], 3);
        assert_eq!(json["timer"]["select_cpu"], 500);
        assert_eq!(json["total"]["select_cpu"], 900);
        assert_eq!(json["kernel_events"]["SCX_EV_SELECT_CPU_FALLBACK"], 3);
        assert_eq!(json["interval_ns"], serde_json::Value::Null);
    }

    #[test]
    fn differences_are_no_totals() {
        let mut now = reading();
        now.snapshot.at_ns += 1_000;
        now.snapshot.rows[1].cpu[0] += 5;
        let interval = now.since(&reading()).unwrap();
        let text = document(&now, Some(&interval));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["interval_ns"], &json["at_ns"]), (&1_000.into(), &1_009.into()));
        assert_eq!((&json["total"]["select_cpu"], &json["generation"]), (&5.into(), &7.into()));
        assert!(read(&text).unwrap_err().contains("not totals"));
    }

    #[test]
    fn a_document_of_another_build_is_refused() {
        let text = document(&reading(), None);
        let renamed = text.replace("\"lb_count\"", "\"lb_counted\"");
        assert!(read(&renamed).unwrap_err().contains("another build"));
        let without_cpu = text.replace("\"0\":", "\"2\":");
        assert_eq!(read(&without_cpu).unwrap_err(), "it lacks CPU 0");
    }

    #[test]
    fn counters_that_went_back_are_another_attachments() {
        let mut anew = reading();
        anew.snapshot.rows[0].level[0][2] -= 1;
        assert_eq!(anew.since(&reading()), None);
    }
}
