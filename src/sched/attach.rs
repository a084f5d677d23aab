//! The chain of types from an opened object to a running scheduler.
//!
//! `Opened` can be configured, `Loaded` has passed the verifier and shares memory,
//! `Attached` schedules. Dropping any of them gives everything back; the kernel
//! returns the tasks to its own scheduler when an `Attached` goes, however it goes.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use clap::ValueEnum;
use libbpf_rs::{Link, OpenObject};
use scx_utils::{
    UserExitInfo, compat, scx_ops_attach, scx_ops_load, scx_ops_open, uei_exited, uei_read,
};

use super::attachment::{Attachment, Exit};
use super::memory;
use super::plan::Plan;
use crate::bpf::intf::{self, cpu_stat};
use crate::bpf::skel::{BpfSkel, BpfSkelBuilder, OpenBpfSkel, types};

/// Load words have the number of tasks above this bit (`LOAD_SHIFT` of queue.bpf.h);
/// they are the first two words of `struct queue`.
const LOAD_SHIFT: u32 = 40;

/// A rule to break on purpose: the negative controls of the VM tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    #[default]
    None = intf::retune_fault_FAULT_NONE as isize,
    PinnedToLocal = intf::retune_fault_FAULT_PINNED_TO_LOCAL as isize,
    NoInvitations = intf::retune_fault_FAULT_NO_INVITATIONS as isize,
    FlagsIgnored = intf::retune_fault_FAULT_FLAGS_IGNORED as isize,
    Miscount = intf::retune_fault_FAULT_MISCOUNT as isize,
    NoOrder = intf::retune_fault_FAULT_NO_ORDER as isize,
    NoSleeperBound = intf::retune_fault_FAULT_NO_SLEEPER_BOUND as isize,
    NoPreemption = intf::retune_fault_FAULT_NO_PREEMPTION as isize,
    NoRescue = intf::retune_fault_FAULT_NO_RESCUE as isize,
    NeverWide = intf::retune_fault_FAULT_NEVER_WIDE as isize,
    NoWeightRule = intf::retune_fault_FAULT_NO_WEIGHT_RULE as isize,
    NoGates = intf::retune_fault_FAULT_NO_GATES as isize,
    NoHints = intf::retune_fault_FAULT_NO_HINTS as isize,
}

/// Where libbpf keeps an opened object; it must outlive the scheduler.
pub type Storage = MaybeUninit<OpenObject>;

/// The object is open: sizes and read-only values can still be set.
pub struct Opened<'a> {
    skel: OpenBpfSkel<'a>,
}

impl<'a> Opened<'a> {
    pub fn open(storage: &'a mut Storage) -> Result<Self> {
        let builder = BpfSkelBuilder::default();
        let skel = scx_ops_open!(builder, storage, retune_ops, None)
            .context("cannot open the BPF object")?;
        Ok(Opened { skel })
    }

    /// Sizes the tables and fills them with the plan and the first flag words.
    pub fn configure(
        mut self,
        plan: &Plan,
        fault: Fault,
        words: &[u64],
        generation: u64,
    ) -> Result<Self> {
        self.set_constants(plan, fault)?;
        self.fill_tables(plan)?;
        let words_and_generation = [words, &[generation]].concat();
        memory::fill(&mut self.skel.maps.data_flag_words, &words_and_generation)?;
        self.size_state(plan)?;
        self.skel.struct_ops.retune_ops_mut().flags = ops_flags(plan);
        Ok(self)
    }

    fn set_constants(&mut self, plan: &Plan, fault: Fault) -> Result<()> {
        let rodata = self.skel.maps.rodata_data.as_mut().context("no rodata")?;
        rodata.nr_cpu_ids = plan.cpus.len() as u32;
        rodata.nr_llcs = plan.llcs.len() as u32;
        rodata.nr_queues = plan.queues.len() as u32;
        rodata.nr_all_queues = plan.nr_all_queues() as u32;
        rodata.nr_groups = plan.groups.len() as u32;
        rodata.nr_nodes = plan.nodes.len() as u32;
        rodata.per_node_idle = per_node_idle(plan) != 0;
        rodata.smt = plan.smt;
        rodata.fault = fault as u32;
        Ok(())
    }

    fn fill_tables(&mut self, plan: &Plan) -> Result<()> {
        let maps = &mut self.skel.maps;
        memory::fill(&mut maps.rodata_cpu_places, &plan.cpus)?;
        memory::fill(&mut maps.rodata_llc_places, &plan.llcs)?;
        memory::fill(&mut maps.rodata_queue_places, &plan.queues)?;
        memory::fill(&mut maps.rodata_queue_cpus, &filled_up(&plan.queue_cpus, plan.cpus.len()))?;
        memory::fill(&mut maps.rodata_group_places, &plan.groups)?;
        memory::fill(&mut maps.rodata_node_places, &plan.nodes)?;
        memory::fill(&mut maps.rodata_node_levels, &plan.node_levels)?;
        memory::fill(&mut maps.rodata_node_order, &plan.node_order)
    }

    /// State that BPF owns, all zero; the statistics have one more row, for the timer.
    fn size_state(&mut self, plan: &Plan) -> Result<()> {
        let maps = &mut self.skel.maps;
        memory::resize::<types::cpu_ctx>(&mut maps.data_cpu_ctxs, plan.cpus.len())?;
        memory::resize::<types::queue>(&mut maps.data_queues, plan.nr_all_queues())?;
        memory::resize::<types::hints>(&mut maps.data_group_hints, plan.groups.len())?;
        memory::resize::<types::hints>(&mut maps.data_node_hints, plan.nodes.len())?;
        memory::resize::<cpu_stat>(&mut maps.data_cpu_stats, plan.cpus.len() + 1)?;
        maps.llc_masks.set_max_entries(plan.llcs.len() as u32).context("cannot size llc_masks")
    }

    /// Has the kernel verify the programs.
    pub fn load(self) -> Result<Loaded<'a>> {
        let mut skel = self.skel;
        let skel = scx_ops_load!(skel, retune_ops, uei).context("cannot load the BPF programs")?;
        Ok(Loaded { skel })
    }
}

/// The table with zeroes behind it: BPF bounds this index by the number of CPUs.
fn filled_up(table: &[u16], len: usize) -> Vec<u16> {
    table.iter().copied().chain(std::iter::repeat(0)).take(len).collect()
}

/// Idle masks per node, where there are several nodes and the kernel has them (6.15).
fn per_node_idle(plan: &Plan) -> u64 {
    if plan.nodes.len() > 1 { *compat::SCX_OPS_BUILTIN_IDLE_PER_NODE } else { 0 }
}

fn ops_flags(plan: &Plan) -> u64 {
    *compat::SCX_OPS_KEEP_BUILTIN_IDLE
        | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED
        | *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP
        | per_node_idle(plan)
}

/// The programs are verified and the shared memory is there.
pub struct Loaded<'a> {
    skel: BpfSkel<'a>,
}

impl<'a> Loaded<'a> {
    /// Hands every task of the machine to the scheduler.
    pub fn attach(self) -> Result<Attached<'a>> {
        let mut skel = self.skel;
        let link = scx_ops_attach!(skel, retune_ops).context("cannot attach the scheduler")?;
        Ok(Attached { skel, link: Some(link) })
    }
}

/// The scheduler runs.
pub struct Attached<'a> {
    skel: BpfSkel<'a>,
    link: Option<Link>,
}

impl Attachment for Attached<'_> {
    /// Publishes the flag words, then the generation; a decision reads one word, once.
    fn publish(&mut self, words: &[u64], generation: u64) {
        let maps = &mut self.skel.maps;
        let section = maps.data_flag_words_data.as_mut().expect("flag words are mapped");
        let shared = memory::words(*section, &maps.data_flag_words);
        for (word, value) in shared.iter().zip(words) {
            word.store(*value, Ordering::Relaxed);
        }
        shared[words.len()].store(generation, Ordering::Release);
    }

    /// Each counter is read whole, but the table is read while it is written: laws hold
    /// exactly only when two reads agree.
    fn counters(&mut self) -> Vec<u64> {
        let maps = &mut self.skel.maps;
        let section = maps.data_cpu_stats_data.as_mut().expect("counters are mapped");
        memory::words(*section, &maps.data_cpu_stats)
            .iter()
            .map(|counter| counter.load(Ordering::Relaxed))
            .collect()
    }

    /// From the queues' load words.
    fn waiting_now(&mut self) -> u64 {
        let maps = &mut self.skel.maps;
        let section = maps.data_queues_data.as_mut().expect("queues are mapped");
        let queues = memory::words(*section, &maps.data_queues);
        queues
            .chunks_exact(size_of::<types::queue>() / size_of::<u64>())
            .flat_map(|queue| &queue[..2])
            .map(|load| load.load(Ordering::Relaxed) >> LOAD_SHIFT)
            .sum()
    }

    fn has_exited(&self) -> bool {
        uei_exited!(&self.skel, uei)
    }

    fn detach(mut self: Box<Self>) -> Exit {
        drop(self.link.take());
        exit_of(&uei_read!(&self.skel, uei))
    }
}

/// Prints what the kernel says besides the reason.
fn exit_of(exit: &UserExitInfo) -> Exit {
    if exit.should_restart() {
        return Exit::CpusChanged;
    }
    exit.report().map_or_else(|why| Exit::Ejected(why.to_string()), |()| Exit::Unloaded)
}
