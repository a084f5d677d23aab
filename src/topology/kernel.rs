//! The domains that the kernel itself shows, and how they are held against the model.
//!
//! /proc/schedstat has each domain's span, and from version 17 its name (kernel/sched/stats.c
//! show_schedstat(), CONFIG_SCHEDSTATS; no privilege needed). debugfs sched/domains has names and
//! flags (kernel/sched/debug.c, root and sched_verbose needed); a captured tree may hold the
//! output of `grep -r . domains` as raw/sched-domains.txt in its place. Read apart from sysfs: a
//! CPU that comes or goes in between shows as a difference.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::domains::Model;
use super::facts::Facts;
use super::sd_flags::SdFlags;
use super::{Cpu, CpuSet, Domain, Level, Machine, NR_NUMA_LEVELS};
use crate::error::Error;

/// What the kernel shows of one domain; none for what its files do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelDomain {
    pub name: Option<String>,
    pub span: Option<CpuSet>,
    /// Names with SD_ prefix, in the kernel's order.
    pub flags: Option<Vec<String>>,
}

/// The kernel's domains of each CPU, bottom to top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelDomains {
    pub cpus: BTreeMap<usize, Vec<KernelDomain>>,
    /// The files that they were read from, as a user would name them.
    pub sources: Vec<String>,
}

/// Reads the kernel's own domains from a tree with `sys/` and `proc/` in it.
///
/// Errors (environment) when neither file can be read, with the reason of each.
pub fn read(root: &Path) -> Result<KernelDomains, Error> {
    let spans = read_schedstat(&root.join("proc/schedstat"));
    let flags = read_debugfs(root);
    match (spans, flags) {
        (Ok(spans), Ok(flags)) => Ok(with_flags(spans, flags)),
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
        (Err(schedstat), Err(debugfs)) => Err(Error::environment(format!(
            "cannot read the kernel's own domains: {schedstat}; {debugfs}; a kernel with \
             CONFIG_SCHEDSTATS, or root and the kernel parameter sched_verbose, shows them"
        ))),
    }
}

fn read_schedstat(path: &Path) -> Result<KernelDomains, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let cpus = parse_schedstat(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(KernelDomains { cpus, sources: vec!["proc/schedstat".to_string()] })
}

/// `domainN NAME MASK ...` from version 17 on, `domainN MASK ...` in 15 and 16.
fn parse_schedstat(text: &str) -> Result<BTreeMap<usize, Vec<KernelDomain>>, String> {
    let mut cpus: BTreeMap<usize, Vec<KernelDomain>> = BTreeMap::new();
    let mut version = 0;
    let mut current = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if first == "version" {
            version = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        } else if let Some(cpu) = first.strip_prefix("cpu").and_then(|id| id.parse().ok()) {
            current = Some(cpus.entry(cpu).or_default());
        } else if let (Some(domains), true) = (&mut current, first.starts_with("domain")) {
            let name = if version >= 17 { words.next().map(str::to_string) } else { None };
            let span = CpuSet::parse_mask(words.next().unwrap_or_default())?;
            domains.push(KernelDomain { name, span: Some(span), flags: None });
        }
    }
    match version {
        15.. => Ok(cpus),
        _ => Err(format!("version {version} is not known (15 and later are)")),
    }
}

fn read_debugfs(root: &Path) -> Result<KernelDomains, String> {
    let dir = root.join("sys/kernel/debug/sched/domains");
    let captured = root.join("raw/sched-domains.txt");
    match (fs::read_dir(&dir), fs::read_to_string(&captured)) {
        (Ok(entries), _) => {
            let ids = entries
                .flatten()
                .filter_map(|entry| numbered(&entry.file_name().to_string_lossy(), "cpu"));
            let cpus =
                ids.map(|id| (id, read_debugfs_cpu(&dir.join(format!("cpu{id}"))))).collect();
            Ok(KernelDomains { cpus, sources: vec!["debugfs sched/domains".to_string()] })
        }
        (Err(_), Ok(text)) => Ok(KernelDomains {
            cpus: parse_captured(&text),
            sources: vec!["raw/sched-domains.txt".to_string()],
        }),
        (Err(error), Err(_)) => Err(format!("{}: {error}", dir.display())),
    }
}

fn read_debugfs_cpu(dir: &Path) -> Vec<KernelDomain> {
    let field = |index: usize, name: &str| {
        fs::read_to_string(dir.join(format!("domain{index}/{name}"))).ok()
    };
    (0..)
        .map_while(|index| field(index, "name").map(|name| (index, name)))
        .map(|(index, name)| KernelDomain {
            name: Some(name.trim().to_string()),
            span: None,
            flags: field(index, "flags").map(|flags| flag_names(&flags)),
        })
        .collect()
}

/// Lines such as `domains/cpu15/domain3/flags:SD_BALANCE_NEWIDLE SD_NUMA`, in any order.
fn parse_captured(text: &str) -> BTreeMap<usize, Vec<KernelDomain>> {
    let mut found: BTreeMap<usize, BTreeMap<usize, KernelDomain>> = BTreeMap::new();
    for (path, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let mut parts = path.rsplit('/');
        let (field, domain, cpu) = (parts.next(), parts.next(), parts.next());
        let ids = (
            cpu.and_then(|name| numbered(name, "cpu")),
            domain.and_then(|name| numbered(name, "domain")),
        );
        let (Some(cpu), Some(index)) = ids else {
            continue;
        };
        let domain = found.entry(cpu).or_default().entry(index).or_default();
        match field {
            Some("name") => domain.name = Some(value.trim().to_string()),
            Some("flags") => domain.flags = Some(flag_names(value)),
            _ => {}
        }
    }
    found.into_iter().map(|(cpu, domains)| (cpu, domains.into_values().collect())).collect()
}

fn numbered(name: &str, prefix: &str) -> Option<usize> {
    name.strip_prefix(prefix)?.parse().ok()
}

/// Kernels before 6.18 also mark NUMA domains with SD_OVERLAP: bookkeeping of their groups, which
/// says nothing that the span and SD_NUMA do not.
fn flag_names(text: &str) -> Vec<String> {
    text.split_ascii_whitespace().filter(|&name| name != "SD_OVERLAP").map(str::to_string).collect()
}

/// Adds the flags of debugfs to the spans of schedstat, where both speak of the same domains.
fn with_flags(mut spans: KernelDomains, flags: KernelDomains) -> KernelDomains {
    for (cpu, domains) in &mut spans.cpus {
        let Some(flagged) = flags.cpus.get(cpu).filter(|flagged| flagged.len() == domains.len())
        else {
            continue;
        };
        for (domain, flagged) in domains.iter_mut().zip(flagged) {
            domain.name = domain.name.take().or_else(|| flagged.name.clone());
            domain.flags = flagged.flags.clone();
        }
    }
    spans.sources.extend(flags.sources);
    spans
}

/// What differs between the model and the kernel, one line for each difference with the CPUs that
/// it concerns; empty when every name, span and flag that the kernel shows is as modelled.
pub fn compare(model: &Machine, kernel: &KernelDomains) -> Vec<String> {
    let mut found: BTreeMap<String, CpuSet> = BTreeMap::new();
    let mut add = |text: String, cpu| found.entry(text).or_default().insert(cpu);
    for cpu in model.cpus.values() {
        match kernel.cpus.get(&cpu.id) {
            Some(domains) => {
                cpu_differences(model, cpu, domains).into_iter().for_each(|text| add(text, cpu.id))
            }
            None if cpu.domains.is_empty() => {}
            None => add("online in sysfs, but the kernel shows no such CPU".to_string(), cpu.id),
        }
    }
    for &cpu in kernel.cpus.keys().filter(|cpu| !model.cpus.contains_key(cpu)) {
        add("the kernel shows this CPU, but it is not online in sysfs".to_string(), cpu);
    }
    found.into_iter().map(|(text, cpus)| format!("CPUs {cpus}: {text}")).collect()
}

fn cpu_differences(model: &Machine, cpu: &Cpu, kernel: &[KernelDomain]) -> Vec<String> {
    let kernel = folded(model, cpu, kernel);
    if kernel.len() != cpu.domains.len() {
        return vec![format!(
            "the model has {}, the kernel {}",
            stack(&cpu.domains),
            kernel_stack(&kernel)
        )];
    }
    cpu.domains
        .iter()
        .zip(kernel)
        .flat_map(|(domain, kernel)| domain_differences(domain, kernel))
        .collect()
}

/// Leaves out the NUMA domains of the kernel that share our last level with a wider one.
fn folded<'a>(model: &Machine, cpu: &Cpu, kernel: &'a [KernelDomain]) -> Vec<&'a KernelDomain> {
    let mut kept: Vec<&KernelDomain> = kernel.iter().collect();
    let is_folding = model.numa_distances.len() > NR_NUMA_LEVELS;
    while is_folding && kept.len() > cpu.domains.len().max(1) {
        kept.remove(kept.len() - 2);
    }
    kept
}

fn domain_differences(domain: &Domain, kernel: &KernelDomain) -> Vec<String> {
    let Domain { level, name, span, flags } = domain;
    let mut differences = vec![];
    if let Some(other) = kernel.name.as_ref().filter(|&other| other != name) {
        differences.push(format!("{level} is named {name} in the model, {other} by the kernel"));
    }
    if let Some(other) = kernel.span.as_ref().filter(|&other| other != span) {
        differences.push(format!("{level} spans {span} in the model, {other} in the kernel"));
    }
    if let Some(other) = kernel.flags.as_ref().filter(|&other| other != flags) {
        differences.push(format!(
            "{level} has {} in the model, {} in the kernel",
            flags.join(" "),
            other.join(" ")
        ));
    }
    differences
}

fn stack(domains: &[Domain]) -> String {
    listed(domains.iter().map(|domain| format!("{} {}", domain.name, domain.span)))
}

fn kernel_stack(domains: &[&KernelDomain]) -> String {
    listed(domains.iter().map(|domain| {
        let span = domain.span.as_ref().map_or_else(String::new, |span| format!(" {span}"));
        format!("{}{span}", domain.name.as_deref().unwrap_or("domain"))
    }))
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "no domain".to_string() } else { parts.join(", ") }
}

/// The model with the kernel's domains in the place of those that differ, and a note that says so.
/// Where the kernel does not show flags, the level's own stand in.
pub(super) fn prefer(mut model: Machine, kernel: &KernelDomains, facts: &Facts) -> Machine {
    let differences = compare(&model, kernel);
    let rules = Model::new(facts);
    let mut replaced = CpuSet::new();
    for (id, domains) in &kernel.cpus {
        let Some(cpu) =
            model.cpus.get(id).filter(|cpu| !cpu_differences(&model, cpu, domains).is_empty())
        else {
            continue;
        };
        if let Some(domains) = kernel_domains(&rules, cpu, domains) {
            model.cpus.entry(*id).and_modify(|cpu| cpu.domains = domains);
            replaced.insert(*id);
        }
    }
    if let Some(first) = differences.first() {
        model.notes.push(preference(kernel, &replaced, first));
    }
    model.llcs = super::distinct_llcs(&model.cpus);
    model
}

fn preference(kernel: &KernelDomains, replaced: &CpuSet, first: &str) -> String {
    let sources = kernel.sources.join(" and ");
    let used = match replaced.is_empty() {
        true => "but do not show enough to be used".to_string(),
        false => format!("and are used for CPUs {replaced}"),
    };
    format!("the kernel's domains ({sources}) differ from what sysfs says, {used}: {first}")
}

/// The kernel's domains of a CPU as ours; none where it does not show every name and span. A kind
/// of sharing that has no level here (BOOK and DRAWER of s390) is left out.
fn kernel_domains(rules: &Model, cpu: &Cpu, kernel: &[KernelDomain]) -> Option<Vec<Domain>> {
    let top = kernel.last().map_or_else(|| Some(CpuSet::new()), |top| top.span.clone())?;
    let mut domains: Vec<Domain> = vec![];
    let mut position = 0;
    for shown in kernel {
        let (name, span) = (shown.name.clone()?, shown.span.clone()?);
        let level = match name.as_str() {
            "SMT" => Level::SMT,
            "CLS" => Level::CLS,
            "MC" => Level::MC,
            "PKG" | "NODE" => Level::PKG,
            "NUMA" => {
                position = rules.numa.position_of(cpu.node, &span, &top, position);
                Level::numa_or_last(position)
            }
            _ => continue,
        };
        let flags = match &shown.flags {
            Some(flags) => known_flags(flags),
            None => rules.usual_flags(level),
        };
        domains.pop_if(|below| below.level == level);
        domains.push(Domain { level, name, span, flags: flags.names() });
    }
    Some(domains)
}

fn known_flags(names: &[String]) -> SdFlags {
    names.iter().filter_map(|name| SdFlags::from_name(name)).fold(SdFlags::NONE, SdFlags::or)
}
