//! What the session needs of a scheduler in the kernel, so that it can be tested without one.

use anyhow::Error;

use super::attach::Storage;
use crate::flags::Matrix;
use crate::topology::Machine;

/// A scheduler that is attached.
pub trait Attachment {
    /// Makes the flag words count from the next decision on.
    fn publish(&mut self, words: &[u64], generation: u64);

    /// Every counter of every row, in the order of `cpu_stat`; the last row is the timer's.
    fn counters(&mut self) -> Vec<u64>;

    /// Tasks that wait in a queue.
    fn waiting_now(&mut self) -> u64;

    /// Whether the kernel has ended the scheduler.
    fn has_exited(&self) -> bool;

    /// Ends the scheduler and tells why it ended.
    fn detach(self: Box<Self>) -> Exit;
}

/// Why a scheduler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was unloaded, by us or from outside.
    Unloaded,
    /// CPUs came or went: the kernel wants it loaded anew.
    CpusChanged,
    /// The kernel ejected it, with its reason.
    Ejected(String),
}

/// Brings a scheduler into the kernel.
pub trait Loader {
    /// Reads the machine as it is now and attaches a scheduler for it that begins with `flags`.
    fn load<'s>(&mut self, storage: &'s mut Storage, flags: &Matrix)
    -> Result<Loaded<'s>, Refusal>;
}

/// A scheduler, and the machine that it was made for.
pub struct Loaded<'s> {
    pub machine: Machine,
    pub attachment: Box<dyn Attachment + 's>,
}

/// Why there is no scheduler.
#[derive(Debug)]
pub enum Refusal {
    /// CPUs came or went while it was loaded: the next attempt may do better.
    Raced(Error),
    Failed(Error),
}
