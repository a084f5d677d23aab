//! `scx_retune stats`: what the scheduler counted, by level and domain.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::plain_table;
use crate::cli::SocketArgs;
use crate::control::client::ask;
use crate::control::{Request, Response};
use crate::error::Error;
use crate::stats::{CPU_COUNTERS, LEVEL_COUNTERS, Row, Snapshot};
use crate::topology::{CpuSet, Level, Machine};

#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub socket: SocketArgs,
    /// Print every counter of every CPU as JSON
    #[arg(long)]
    pub json: bool,
    /// Print what was counted since FILE, an earlier `stats --json`
    #[arg(long, value_name = "FILE")]
    pub since: Option<PathBuf>,
}

pub fn stats(args: &StatsArgs) -> Result<u8> {
    let Response::Stats(now) = ask(&args.socket.socket, &Request::Stats)? else {
        bail!("the scheduler answered something else than counters");
    };
    let snapshot = match &args.since {
        Some(file) => since(&now, file)?,
        None => *now,
    };
    if args.json {
        println!("{}", serde_json::to_string(&snapshot)?);
    } else {
        print!("{}", report(&snapshot, &Machine::from_root(Path::new("/"))?));
    }
    Ok(0)
}

fn since(now: &Snapshot, file: &Path) -> Result<Snapshot> {
    let text = fs::read_to_string(file)
        .map_err(|why| Error::usage(format!("cannot read {}: {why}", file.display())))?;
    let earlier: Snapshot = serde_json::from_str(&text)
        .with_context(|| Error::usage(format!("{} is not a `stats --json`", file.display())))?;
    now.since(&earlier).ok_or_else(|| {
        let message = format!(
            "cannot subtract {}: the scheduler was attached anew since then; take it again",
            file.display()
        );
        Error::usage(message).into()
    })
}

/// The tables: counters by level, by domain, and those that have no level.
pub fn report(snapshot: &Snapshot, machine: &Machine) -> String {
    [by_level(snapshot, machine), by_domain(snapshot, machine), without_level(snapshot)].join("\n")
}

fn by_level(snapshot: &Snapshot, machine: &Machine) -> String {
    let levels = machine.levels();
    let names: Vec<String> = levels.iter().map(|&level| level_name(machine, level)).collect();
    let header: Vec<&str> =
        std::iter::once("BY LEVEL").chain(names.iter().map(String::as_str)).collect();
    let mut table = plain_table(&header);
    let total = snapshot.total();
    for counter in LEVEL_COUNTERS {
        let values =
            levels.iter().map(|level| total.level[counter.index][level.index()].to_string());
        table.add_row(std::iter::once(counter.name.to_owned()).chain(values));
    }
    finish(table)
}

/// The counters that tell what the two flags did, for every distinct domain.
fn by_domain(snapshot: &Snapshot, machine: &Machine) -> String {
    const SHOWN: &[&str] =
        &["ttwu_wake_remote", "ttwu_move_affine", "lb_count", "lb_gained", "invites", "migrated"];
    let header: Vec<&str> =
        ["BY DOMAIN", "CPUS"].into_iter().chain(SHOWN.iter().copied()).collect();
    let mut table = plain_table(&header);
    for (level, span) in domains(machine) {
        let sum = snapshot.sum_of(&viewers(machine, level, &span));
        let values = SHOWN.iter().map(|name| value_at(&sum, name, level).to_string());
        let head = [level_name(machine, level), span.to_string()];
        table.add_row(head.into_iter().chain(values));
    }
    finish(table)
}

fn value_at(row: &Row, name: &str, level: Level) -> u64 {
    let counter = LEVEL_COUNTERS.iter().find(|counter| counter.name == name);
    counter.map_or(0, |counter| row.level[counter.index][level.index()])
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
    let sees = |cpu: &&crate::topology::Cpu| cpu.domain(level).is_some_and(|d| d.span == *span);
    machine.cpus.values().filter(sees).map(|cpu| cpu.id).collect()
}

fn without_level(snapshot: &Snapshot) -> String {
    let mut table = plain_table(&["ALL CPUS", ""]);
    let total = snapshot.total();
    for counter in CPU_COUNTERS {
        table.add_row([counter.name.to_owned(), total.cpu[counter.index].to_string()]);
    }
    finish(table)
}

/// The level as this machine calls it: NODE where the kernel has that in place of PKG.
fn level_name(machine: &Machine, level: Level) -> String {
    let has_node =
        |cpu: &crate::topology::Cpu| cpu.domain(level).is_some_and(|domain| domain.name == "NODE");
    if machine.cpus.values().any(has_node) { "NODE".to_owned() } else { level.to_string() }
}

fn finish(table: comfy_table::Table) -> String {
    table.trim_fmt() + "\n"
}
