//! The loader of real schedulers: from the machine as it is now to an attached BPF object.
//!
//! CPUs may come and go meanwhile. The kernel refuses an object whose hotplug number, read
//! when it is opened, is no longer the kernel's; so the object is opened before the topology
//! is read, and whatever changes the topology later is refused. One case is left: the number
//! moves before a CPU is gone from sysfs. `settle_cpus` waits for that, and what was read is
//! compared with what is online after the attach.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};

use super::attach::{Fault, Opened, Storage};
use super::attachment::{Exit, Loaded, Loader, Refusal};
use super::libbpf;
use super::plan::{Plan, QueueCpus};
use super::probe;
use super::state::words_of;
use crate::error::Error;
use crate::flags::Matrix;
use crate::topology::{CpuSet, Machine};

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
            Ok(loaded) => checked(loaded),
            Err(why) if probe::nr_hotplugs() != hotplugs => Err(Refusal::Raced(why)),
            Err(why) => Err(Refusal::Failed(why)),
        }
    }
}

/// The kernel reports a scheduler that it could not enable as attached, and as ended at once.
fn checked(loaded: Loaded<'_>) -> Result<Loaded<'_>, Refusal> {
    if loaded.attachment.has_exited() {
        return Err(refusal_of(loaded.attachment.detach()));
    }
    if !is_current(&loaded.machine) {
        return Err(Refusal::Raced(anyhow!("a CPU went while the scheduler was attached")));
    }
    eprintln!("scx_retune: attached, {}", summary(&loaded.machine));
    Ok(loaded)
}

fn refusal_of(exit: Exit) -> Refusal {
    match exit {
        Exit::CpusChanged => Refusal::Raced(anyhow!("a CPU came or went meanwhile")),
        Exit::Ejected(why) => Refusal::Failed(
            Error::ejected(format!("the kernel could not enable the scheduler: {why}")).into(),
        ),
        Exit::Unloaded => Refusal::Failed(
            Error::ejected("the scheduler was unloaded from outside as it was attached").into(),
        ),
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
        probe::settle_cpus();
        let opened = Opened::open(storage)?;
        let machine = Machine::from_root(Path::new("/"))?;
        let plan = Plan::new(&machine, self.queue_cpus)?;
        let attached = opened
            .configure(&plan, self.fault, &words_of(flags), flags.generation())?
            .load()?
            .attach()?;
        Ok(Loaded { machine, attachment: Box::new(attached) })
    }
}

fn is_current(machine: &Machine) -> bool {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    CpuSet::parse_list(list.trim()).is_ok_and(|online| online == machine.online())
}

fn summary(machine: &Machine) -> String {
    let levels: Vec<String> = machine.levels().iter().map(ToString::to_string).collect();
    format!(
        "{} CPUs, {} nodes, {} last-level caches, levels {}",
        machine.cpus.len(),
        machine.nodes().len(),
        machine.llcs.len(),
        levels.join(" ")
    )
}
