//! Machines that are made up: written as a tree of files such as sysfs has.

use std::fs;
use std::path::Path;

use scx_retune::topology::{CpuSet, Machine};
use tempfile::TempDir;

/// An online CPU and whom it shares what with.
#[derive(Clone, Default)]
pub struct SyntheticCpu {
    pub id: usize,
    pub threads: CpuSet,
    /// The CPUs of its L3.
    pub cache: CpuSet,
    pub package_cpus: CpuSet,
    pub package: usize,
    pub node: usize,
}

#[derive(Clone, Default)]
pub struct Synthetic {
    pub cpus: Vec<SyntheticCpu>,
    /// Node id and its distances, one for each of these nodes.
    pub nodes: Vec<(usize, Vec<u32>)>,
    pub nr_cpu_ids: usize,
    pub isolated: String,
    /// vendor_id, cpu family, model.
    pub processor: (&'static str, u32, u32),
}

impl Synthetic {
    /// Nodes of `width` CPUs each, one package and one cache a node, no threads.
    pub fn nodes_of(width: usize, nodes: Vec<(usize, Vec<u32>)>) -> Synthetic {
        let all = |position: usize| (position * width..(position + 1) * width).collect::<CpuSet>();
        let cpu = |id: usize, position: usize, node: usize| SyntheticCpu {
            id,
            threads: CpuSet::from_iter([id]),
            cache: all(position),
            package_cpus: all(position),
            package: position,
            node,
        };
        let cpus = nodes.iter().enumerate().flat_map(|(position, &(node, _))| {
            all(position).iter().map(|id| cpu(id, position, node)).collect::<Vec<_>>()
        });
        Synthetic {
            cpus: cpus.collect(),
            nr_cpu_ids: width * nodes.len(),
            nodes,
            isolated: String::new(),
            processor: ("GenuineIntel", 6, 85),
        }
    }

    pub fn online(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    pub fn write(&self, root: &Path) {
        let cpus = root.join("sys/devices/system/cpu");
        put(&cpus.join("online"), self.online());
        put(&cpus.join("possible"), format!("0-{}", self.nr_cpu_ids - 1));
        put(&cpus.join("isolated"), &self.isolated);
        self.cpus.iter().for_each(|cpu| cpu.write(&cpus.join(format!("cpu{}", cpu.id))));
        self.write_nodes(&root.join("sys/devices/system/node"));
        let (vendor, family, model) = self.processor;
        let cpuinfo = format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}"
        );
        put(&root.join("proc/cpuinfo"), cpuinfo);
    }

    fn write_nodes(&self, dir: &Path) {
        put(&dir.join("online"), self.nodes.iter().map(|&(id, _)| id).collect::<CpuSet>());
        for (id, distances) in &self.nodes {
            let cpus: CpuSet =
                self.cpus.iter().filter(|cpu| cpu.node == *id).map(|cpu| cpu.id).collect();
            let distances: Vec<String> = distances.iter().map(u32::to_string).collect();
            put(&dir.join(format!("node{id}/cpulist")), cpus);
            put(&dir.join(format!("node{id}/distance")), distances.join(" "));
        }
    }
}

impl SyntheticCpu {
    fn write(&self, dir: &Path) {
        put(&dir.join("topology/thread_siblings_list"), &self.threads);
        put(&dir.join("topology/cluster_cpus_list"), &self.threads);
        put(&dir.join("topology/package_cpus_list"), &self.package_cpus);
        put(&dir.join("topology/physical_package_id"), self.package);
        put(&dir.join("cpu_capacity"), 1024);
        for (index, kind, level, sharers) in
            [(0, "Data", 1, &self.threads), (3, "Unified", 3, &self.cache)]
        {
            let cache = dir.join(format!("cache/index{index}"));
            put(&cache.join("type"), kind);
            put(&cache.join("level"), level);
            put(&cache.join("shared_cpu_list"), sharers);
        }
    }
}

/// Writes a line to a file, making its directories.
pub fn put(path: &Path, line: impl std::fmt::Display) {
    fs::create_dir_all(path.parent().expect("a file in a directory")).expect("directories");
    fs::write(path, format!("{line}\n")).expect("a file");
}

pub fn tree(synthetic: &Synthetic) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    synthetic.write(dir.path());
    dir
}

pub fn model(root: &Path) -> Machine {
    Machine::model_from_root(root).expect("a readable machine")
}

/// "LEVEL span" of each domain of a CPU.
pub fn stack(machine: &Machine, cpu: usize) -> Vec<String> {
    machine.cpus[&cpu]
        .domains
        .iter()
        .map(|domain| format!("{} {}", domain.level, domain.span))
        .collect()
}
