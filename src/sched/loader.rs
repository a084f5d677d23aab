//! The loader of real schedulers: from the machine as it is now to an attached BPF object.
//!
//! CPUs may come and go meanwhile. The kernel refuses an object whose hotplug number, read
//! when it is opened, is no longer the kernel's; so the object is opened before the topology
//! is read, and whatever changes the topology later is refused. One case is left: the number
//! moves before a CPU is gone from sysfs. `settle` waits for that, and what was read is
//! compared with what is online after the attach.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::attach::{Fault, Opened, Storage};
use super::attachment::{Loaded, Loader, Refusal};
use super::libbpf;
use super::plan::{Plan, QueueCpus};
use super::probe;
use super::state::words_of;
use crate::flags::Matrix;
use crate::topology::{CpuSet, Machine};

const CPU_DIR: &str = "/sys/devices/system/cpu";

pub struct BpfLoader {
    pub fault: Fault,
    pub queue_cpus: QueueCpus,
}

impl Loader for BpfLoader {
    fn load<'s>(
        &mut self,
        storage: &'s mut Storage,
        flags: &Matrix,
    ) -> Result<Loaded<'s>, Refusal> {
        let hotplugs = probe::nr_hotplugs();
        match self.try_load(storage, flags) {
            Ok(loaded) if is_current(&loaded.machine) => Ok(loaded),
            Ok(_) => Err(Refusal::Raced(anyhow!("a CPU went while the scheduler was attached"))),
            Err(why) if probe::nr_hotplugs() != hotplugs => Err(Refusal::Raced(why)),
            Err(why) => Err(Refusal::Failed(why)),
        }
    }
}

impl BpfLoader {
    fn try_load<'s>(&self, storage: &'s mut Storage, flags: &Matrix) -> Result<Loaded<'s>> {
        probe::check()?;
        libbpf::keep_messages();
        let loaded =
            self.attach(storage, flags).inspect_err(|_| eprint!("{}", libbpf::take_messages()))?;
        libbpf::take_messages();
        Ok(loaded)
    }

    fn attach<'s>(&self, storage: &'s mut Storage, flags: &Matrix) -> Result<Loaded<'s>> {
        settle();
        let opened = Opened::open(storage)?;
        let machine = Machine::from_root(Path::new("/"))?;
        let plan = Plan::new(&machine, self.queue_cpus)?;
        let attached = opened
            .configure(&plan, self.fault, &words_of(flags), flags.generation())?
            .load()?
            .attach()?;
        eprintln!("scx_retune: attached, {}", summary(&machine, &plan));
        Ok(Loaded { machine, attachment: Box::new(attached) })
    }
}

/// Waits until no CPU is on its way in or out: the kernel shows a CPU's `online` under the
/// lock that it holds meanwhile (drivers/base/core.c online_show, device_offline).
fn settle() {
    for entry in fs::read_dir(CPU_DIR).into_iter().flatten().flatten() {
        // Not every CPU has the file, and other entries have none.
        let _ = fs::read(entry.path().join("online"));
    }
}

fn is_current(machine: &Machine) -> bool {
    let list = fs::read_to_string(format!("{CPU_DIR}/online")).unwrap_or_default();
    CpuSet::parse_list(list.trim()).is_ok_and(|online| online == machine.online())
}

fn summary(machine: &Machine, plan: &Plan) -> String {
    let levels: Vec<String> = machine.levels().iter().map(ToString::to_string).collect();
    format!(
        "{} CPUs, {} nodes, {} last-level caches, levels {}",
        machine.cpus.len(),
        plan.nodes.len(),
        plan.llcs.len(),
        levels.join(" ")
    )
}
