//! What the flags and presets are for, in words: docs/flags.md is made of this.

use super::{Flag, Preset};

impl Flag {
    /// Names that `set` reads besides the kernel's.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Flag::BalanceNewidle => &["NEWIDLE"],
            _ => &[],
        }
    }

    /// What may happen at a level where the flag is on, and does not where it is off.
    pub fn gates(self) -> &'static str {
        match self {
            Flag::WakeAffine => {
                "a woken task may be pulled to its waker's side, when the level is the lowest that \
                 holds both the waker's CPU and the task's previous CPU"
            }
            Flag::BalanceNewidle => {
                "a CPU that is about to go idle may pull a waiting task from the CPUs that the \
                 level adds"
            }
            Flag::BalanceFork => {
                "a new task may start on the level's CPU with the most spare capacity"
            }
            Flag::BalanceWake => {
                "a woken task may go to the level's CPU with the most spare capacity"
            }
            Flag::BalanceExec => "a task that calls exec may move within the level",
            Flag::LoadBalance => {
                "queues that never go idle are evened out within the level from time to time"
            }
        }
    }

    /// Whose word decides.
    pub fn reader(self) -> &'static str {
        match self {
            Flag::WakeAffine | Flag::BalanceWake => "the waker's CPU",
            Flag::BalanceNewidle => "the puller",
            Flag::BalanceFork => "the parent's CPU",
            Flag::BalanceExec => "the CPU that calls exec",
            Flag::LoadBalance => "the CPU that evens out",
        }
    }
}

impl Preset {
    /// What the preset is for.
    pub fn what(self) -> &'static str {
        match self {
            Preset::Mainline => "the kernel's own flags, and what `run` begins with",
            Preset::None => "no flag anywhere: a waiting task leaves its queue only to be rescued",
            Preset::All => "every flag at every level, beyond the reclaim distance too",
            Preset::Before2009 => "the commit's starting point: neither flag at NUMA levels",
            Preset::Affine2009 => "the commit's first step: WAKE_AFFINE at every NUMA level",
            Preset::Newidle2009 => "the commit's second step: BALANCE_NEWIDLE as well",
        }
    }
}
