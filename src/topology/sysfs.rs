//! Reads the facts of a machine from a tree with `sys/` and `proc/` in it; `/` is this machine.
//!
//! Needs no privilege. A mask that several CPUs share is read once, from its first CPU: on a
//! machine with a thousand CPUs the number of files is what reading costs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CpuSet;
use super::facts::{CpuFacts, Facts, NodeFacts, Processor};
use crate::error::Error;

/// Reads the facts of the machine whose `sys/` and `proc/` are in `root`.
///
/// Errors (environment) name the file and what is wrong with it.
pub fn read(root: &Path) -> Result<Facts, Error> {
    let tree = Tree {
        cpu: root.join("sys/devices/system/cpu"),
        node: root.join("sys/devices/system/node"),
    };
    let online = required_list(&tree.cpu.join("online"))?;
    if online.is_empty() {
        return Err(wrong(&tree.cpu.join("online"), "it names no CPU"));
    }
    let nodes = tree.nodes(&online)?;
    Ok(Facts {
        nr_cpu_ids: tree.nr_cpu_ids(&online)?,
        isolated: optional_list(&tree.cpu.join("isolated"))?.unwrap_or_default(),
        cpus: tree.cpus(&online, &nodes)?,
        nodes,
        processor: processor(&root.join("proc/cpuinfo"))?,
        online,
    })
}

struct Tree {
    cpu: PathBuf,
    node: PathBuf,
}

impl Tree {
    /// nr_cpu_ids: one more than the highest possible CPU.
    fn nr_cpu_ids(&self, online: &CpuSet) -> Result<usize, Error> {
        let possible = optional_list(&self.cpu.join("possible"))?.unwrap_or_default();
        Ok(possible.union(online).last().map_or(0, |cpu| cpu + 1))
    }

    /// The online nodes; without a node directory (no NUMA) one node holds every CPU.
    fn nodes(&self, online: &CpuSet) -> Result<BTreeMap<usize, NodeFacts>, Error> {
        let ids: Vec<usize> = match optional_list(&self.node.join("online"))? {
            Some(nodes) if !nodes.is_empty() => nodes.iter().collect(),
            _ => vec![],
        };
        let mut nodes = BTreeMap::new();
        for &id in &ids {
            nodes.insert(id, self.node_facts(id, &ids, online)?);
        }
        let listed = nodes.values().fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        for cpu in online.difference(&listed).iter() {
            nodes.entry(self.linked_node(cpu)).or_default().cpus.insert(cpu);
        }
        Ok(nodes)
    }

    /// The `nodeN` entry of a CPU (a symbolic link in a real sysfs, a directory in a captured
    /// tree), asked only where no node lists the CPU; node 0 where there is none.
    fn linked_node(&self, cpu: usize) -> usize {
        let names = names_in(&self.cpu_dir(cpu));
        names.iter().find_map(|name| name.strip_prefix("node")?.parse().ok()).unwrap_or(0)
    }

    /// `distance` has one column for each *online* node: with holes in the ids the column is not
    /// the id (drivers/base/node.c node_read_distance()).
    fn node_facts(&self, id: usize, ids: &[usize], online: &CpuSet) -> Result<NodeFacts, Error> {
        let dir = self.node.join(format!("node{id}"));
        let cpus = optional_list(&dir.join("cpulist"))?.unwrap_or_default().intersection(online);
        let path = dir.join("distance");
        let Some(text) = optional(&path)? else {
            return Ok(NodeFacts { cpus, distances: BTreeMap::new() });
        };
        let columns: Vec<u32> = text
            .split_whitespace()
            .map(|column| number(&path, column))
            .collect::<Result<_, _>>()?;
        if columns.len() != ids.len() {
            let why = format!("{} distances for {} online nodes", columns.len(), ids.len());
            return Err(wrong(&path, &why));
        }
        Ok(NodeFacts { cpus, distances: ids.iter().copied().zip(columns).collect() })
    }

    fn cpus(
        &self,
        online: &CpuSet,
        nodes: &BTreeMap<usize, NodeFacts>,
    ) -> Result<BTreeMap<usize, CpuFacts>, Error> {
        let threads = self.masks(online, |dir| topology_mask(dir, "thread_siblings_list"))?;
        let clusters = self.masks(online, |dir| topology_mask(dir, "cluster_cpus_list"))?;
        let packages = self.masks(online, package_cpus)?;
        let caches = self.masks(online, outermost_cache)?;
        let ids = self.package_ids(online, &packages)?;
        let capacities = self.capacities(online)?;
        let homes = homes(nodes);
        let facts = |cpu: usize| {
            let own = |masks: &Masks| masks.get(&cpu).cloned();
            let alone = || CpuSet::from_iter([cpu]);
            CpuFacts {
                node: homes.get(&cpu).copied().unwrap_or(0),
                package: ids.get(&cpu).copied(),
                threads: own(&threads).unwrap_or_else(alone),
                cluster: own(&clusters).unwrap_or_else(alone),
                package_cpus: own(&packages).unwrap_or_else(alone),
                cache: own(&caches),
                capacity: capacities.get(&cpu).copied(),
            }
        };
        Ok(online.iter().map(|cpu| (cpu, facts(cpu))).collect())
    }

    /// Reads one kind of mask for every CPU, asking only a CPU that no mask has named so far.
    fn masks(
        &self,
        online: &CpuSet,
        read_mask: impl Fn(&Path) -> Result<Option<CpuSet>, Error>,
    ) -> Result<Masks, Error> {
        let mut masks = Masks::new();
        for cpu in online.iter() {
            if masks.contains_key(&cpu) {
                continue;
            }
            let Some(mask) = read_mask(&self.cpu_dir(cpu))? else {
                continue;
            };
            let mask = mask.intersection(online);
            for sharer in mask.iter() {
                masks.entry(sharer).or_insert_with(|| mask.clone());
            }
            masks.entry(cpu).or_insert_with(|| CpuSet::from_iter([cpu]));
        }
        Ok(masks)
    }

    fn package_ids(
        &self,
        online: &CpuSet,
        packages: &Masks,
    ) -> Result<BTreeMap<usize, i64>, Error> {
        let mut ids = BTreeMap::new();
        for cpu in online.iter() {
            if ids.contains_key(&cpu) {
                continue;
            }
            let path = self.cpu_dir(cpu).join("topology/physical_package_id");
            let Some(text) = optional(&path)? else {
                continue;
            };
            let id = number(&path, text.trim())?;
            ids.insert(cpu, id);
            ids.extend(
                packages.get(&cpu).iter().flat_map(|mask| mask.iter()).map(|sharer| (sharer, id)),
            );
        }
        Ok(ids)
    }

    /// The capacity of each CPU, where the first one has such a file.
    fn capacities(&self, online: &CpuSet) -> Result<BTreeMap<usize, u32>, Error> {
        let mut capacities = BTreeMap::new();
        for cpu in online.iter() {
            let path = self.cpu_dir(cpu).join("cpu_capacity");
            let Some(text) = optional(&path)? else { break };
            capacities.insert(cpu, number(&path, text.trim())?);
        }
        Ok(capacities)
    }

    fn cpu_dir(&self, cpu: usize) -> PathBuf {
        self.cpu.join(format!("cpu{cpu}"))
    }
}

type Masks = BTreeMap<usize, CpuSet>;

/// The node of each CPU.
fn homes(nodes: &BTreeMap<usize, NodeFacts>) -> BTreeMap<usize, usize> {
    nodes.iter().flat_map(|(&id, node)| node.cpus.iter().map(move |cpu| (cpu, id))).collect()
}

fn topology_mask(cpu_dir: &Path, file: &str) -> Result<Option<CpuSet>, Error> {
    optional_list(&cpu_dir.join("topology").join(file))
}

/// package_cpus_list; core_siblings_list is its name before 5.5.
fn package_cpus(cpu_dir: &Path) -> Result<Option<CpuSet>, Error> {
    match topology_mask(cpu_dir, "package_cpus_list")? {
        None => topology_mask(cpu_dir, "core_siblings_list"),
        found => Ok(found),
    }
}

/// Who shares the outermost data cache with this CPU: its highest level is the last-level cache
/// (arch/x86/kernel/cpu/cacheinfo.c takes the L3's id, else the L2's, as llc_id).
fn outermost_cache(cpu_dir: &Path) -> Result<Option<CpuSet>, Error> {
    let mut outermost: Option<(u32, PathBuf)> = None;
    let names = names_in(&cpu_dir.join("cache"));
    for index in names.iter().filter(|name| name.starts_with("index")) {
        let dir = cpu_dir.join("cache").join(index);
        let (Some(level), Some(kind)) =
            (optional(&dir.join("level"))?, optional(&dir.join("type"))?)
        else {
            continue;
        };
        let level = number(&dir.join("level"), level.trim())?;
        let is_farther = outermost.as_ref().is_none_or(|(farthest, _)| level > *farthest);
        if kind.trim() != "Instruction" && is_farther {
            outermost = Some((level, dir));
        }
    }
    match outermost {
        Some((_, dir)) => optional_list(&dir.join("shared_cpu_list")),
        None => Ok(None),
    }
}

/// Vendor, family and model of the first processor; nothing of it on machines that are no x86.
fn processor(path: &Path) -> Result<Processor, Error> {
    let text = first_processor(path)?;
    let field = |name: &str| {
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
        value.unwrap_or_default().trim().to_string()
    };
    let (family, model) = (field("cpu family"), field("model"));
    if family.is_empty() {
        return Ok(Processor::default());
    }
    Ok(Processor {
        vendor: field("vendor_id"),
        family: number(path, &family)?,
        model: number(path, &model)?,
    })
}

/// The first part of cpuinfo: the whole of it is long, and slow to make, on a large machine.
fn first_processor(path: &Path) -> Result<String, Error> {
    let mut head = vec![0; 4096];
    let length =
        match fs::File::open(path).and_then(|mut file| io::Read::read(&mut file, &mut head)) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(unreadable(path, &error)),
        };
    head.truncate(length);
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn required_list(path: &Path) -> Result<CpuSet, Error> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    CpuSet::parse_list(&text).map_err(|why| wrong(path, &why))
}

fn optional_list(path: &Path) -> Result<Option<CpuSet>, Error> {
    let Some(text) = optional(path)? else {
        return Ok(None);
    };
    CpuSet::parse_list(&text).map(Some).map_err(|why| wrong(path, &why))
}

/// The text of a file that need not exist, or whose CPU went away while it was read.
fn optional(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(unreadable(path, &error)),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

/// Names in a directory, sorted; none where there is no such directory.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

fn number<N: std::str::FromStr>(path: &Path, text: &str) -> Result<N, Error> {
    text.parse().map_err(|_| wrong(path, &format!("'{text}' is not a number")))
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::environment(format!("cannot read the topology: {}: {error}", path.display()))
}

fn wrong(path: &Path, why: &str) -> Error {
    Error::environment(format!("cannot use the topology: {}: {why}", path.display()))
}
