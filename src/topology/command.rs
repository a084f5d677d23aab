//! `scx_retune topo`: prints the domains of this machine or of a captured tree. Needs no
//! privilege, no sched_ext and no particular kernel.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::kernel::{self, KernelDomains};
use super::{Cpu, CpuSet, Domain, Level, Machine, explain};
use crate::error::{Error, Kind};

/// Show the scheduling domains that the kernel builds from this machine.
#[derive(clap::Args, Clone, Debug)]
pub struct TopoArgs {
    /// Read the tree in DIR (with sys/ and proc/ in it) instead of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Print every CPU's domains as JSON, bottom to top.
    #[arg(long)]
    pub json: bool,

    /// Hold the domains modelled from sysfs against the kernel's own; exit with 1 if they differ.
    #[arg(long, conflicts_with = "json")]
    pub compare: bool,

    /// Say which level CPUs A and B share, and what each flag does for the pair.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["json", "compare"])]
    pub explain: Option<Vec<usize>>,
}

/// Runs `topo`; returns the exit code: 0, or 1 where `--compare` finds a difference.
///
/// Errors: usage for a CPU that is not online or a directory that is no such tree, environment
/// where a file cannot be read.
pub fn run(args: &TopoArgs) -> anyhow::Result<u8> {
    check_root(&args.root)?;
    if args.compare {
        return run_compare(&args.root);
    }
    let machine = Machine::from_root(&args.root)?;
    let text = match args.explain.as_deref() {
        Some(&[a, b]) => explain::explain(&machine, a, b)?,
        _ if args.json => json(&machine)? + "\n",
        _ => table(&machine, &source(&args.root)),
    };
    print(&text)?;
    Ok(0)
}

/// Writes to stdout; a reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

fn check_root(root: &Path) -> Result<(), Error> {
    if root.join("sys/devices/system/cpu").is_dir() {
        return Ok(());
    }
    Err(Error::usage(format!(
        "no topology in {}: it has no sys/devices/system/cpu; name a directory with sys/ and proc/ in it",
        root.display()
    )))
}

fn run_compare(root: &Path) -> anyhow::Result<u8> {
    let model = Machine::model_from_root(root)?;
    let kernel = kernel::read(root)?;
    let differences = kernel::compare(&model, &kernel);
    if differences.is_empty() {
        print(&agreement(&model, &kernel))?;
        return Ok(0);
    }
    print(&(differences.join("\n") + "\n"))?;
    Ok(Kind::Finding as u8)
}

/// What was compared: a kernel that hides flags cannot confirm them.
fn agreement(model: &Machine, kernel: &KernelDomains) -> String {
    let mut domains = kernel.cpus.values().flatten();
    let what = match domains.all(|domain| domain.flags.is_some()) {
        true => "names, spans and flags",
        false => "names and spans",
    };
    let (nr_cpus, sources) = (model.cpus.len(), kernel.sources.join(", "));
    format!(
        "no difference: online CPUs: {nr_cpus}; {what} are as the kernel shows them ({sources})\n"
    )
}

/// Where the printed domains come from.
fn source(root: &Path) -> String {
    match kernel::read(root) {
        Ok(kernel) => format!(
            "sysfs, checked against the kernel's own domains ({})",
            kernel.sources.join(", ")
        ),
        Err(error) => format!("sysfs alone: {error}"),
    }
}

#[derive(Serialize)]
struct JsonDomain<'a> {
    level: String,
    name: &'a str,
    span: String,
    flags: &'a [&'static str],
}

#[derive(Serialize)]
struct JsonMachine<'a> {
    cpus: BTreeMap<usize, Vec<JsonDomain<'a>>>,
}

/// `{"cpus": {"0": [{"level", "name", "span", "flags"}, ...]}}`, bottom to top.
pub fn json(machine: &Machine) -> anyhow::Result<String> {
    let cpus = machine
        .cpus
        .iter()
        .map(|(&id, cpu)| (id, cpu.domains.iter().map(json_domain).collect()))
        .collect();
    Ok(serde_json::to_string(&JsonMachine { cpus })?)
}

fn json_domain(domain: &Domain) -> JsonDomain<'_> {
    JsonDomain {
        level: level_name(domain),
        name: &domain.name,
        span: domain.span.to_string(),
        flags: &domain.flags,
    }
}

/// Our name of the level; NODE where that is what the kernel has in PKG's place.
fn level_name(domain: &Domain) -> String {
    if domain.name == "NODE" { domain.name.clone() } else { domain.level.to_string() }
}

/// The levels of each set of CPUs that see alike, then the last-level caches and the notes.
fn table(machine: &Machine, source: &str) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["CPUS", "NODE", "LEVEL", "NAME", "SPAN", "ADDS", "FLAGS"]);
    for (cpus, first) in alike(machine) {
        add_rows(&mut table, machine, &cpus, first);
    }
    let notes = machine.notes.iter().map(|note| format!("note: {note}\n"));
    format!(
        "{}\n\n{}\n{}source: {source}\n",
        trimmed(&table),
        llcs(machine),
        notes.collect::<String>()
    )
}

/// CPUs that see the same levels, flags and spans from PKG up, each set with its first CPU, whose
/// SMT, CLS and MC stand for those of the others.
fn alike(machine: &Machine) -> Vec<(CpuSet, &Cpu)> {
    let mut sets: Vec<(CpuSet, &Cpu)> = vec![];
    for cpu in machine.cpus.values() {
        match sets.iter_mut().find(|(_, first)| is_alike(machine, first, cpu)) {
            Some((cpus, _)) => cpus.insert(cpu.id),
            None => sets.push((CpuSet::from_iter([cpu.id]), cpu)),
        }
    }
    sets
}

fn is_alike(machine: &Machine, a: &Cpu, b: &Cpu) -> bool {
    let same_domain = |a: &Domain, b: &Domain| {
        (a.level, &a.name, &a.flags) == (b.level, &b.name, &b.flags)
            && (a.level < Level::PKG || a.span == b.span)
    };
    a.node == b.node
        && a.domains.len() == b.domains.len()
        && machine.isolated.contains(a.id) == machine.isolated.contains(b.id)
        && a.domains.iter().zip(&b.domains).all(|(a, b)| same_domain(a, b))
}

fn add_rows(table: &mut Table, machine: &Machine, cpus: &CpuSet, first: &Cpu) {
    let mut lead = [cpus.to_string(), first.node.to_string()];
    if first.domains.is_empty() {
        let why =
            if machine.isolated.contains(first.id) { "isolated: no domain" } else { "no domain" };
        table.add_row([&lead[0], &lead[1], "-", "-", "-", "-", why]);
    }
    let mut below = CpuSet::from_iter([first.id]);
    for domain in &first.domains {
        let [cpus, node] = std::mem::take(&mut lead);
        table.add_row([
            cpus,
            node,
            level_name(domain),
            domain.name.clone(),
            domain.span.to_string(),
            domain.span.difference(&below).to_string(),
            short_flags(domain),
        ]);
        below = domain.span.clone();
    }
}

fn short_flags(domain: &Domain) -> String {
    let short: Vec<&str> =
        domain.flags.iter().map(|name| name.strip_prefix("SD_").unwrap_or(name)).collect();
    short.join(" ")
}

fn llcs(machine: &Machine) -> String {
    let lines =
        machine.llcs.iter().enumerate().map(|(index, span)| format!("llc{index}: CPUs {span}\n"));
    lines.collect()
}

fn trimmed(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}
