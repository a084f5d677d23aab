//! scx_retune: the kernel's NUMA scheduling-domain flags as a knob that turns while it runs.

pub mod bpf;
pub mod cli;
pub mod control;
pub mod ctx;
pub mod error;
pub mod flags;
pub mod sched;
pub mod stats;
pub mod topology;
pub mod view;
pub mod vm;
