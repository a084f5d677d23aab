//! scx_retune: the kernel's NUMA scheduling-domain flags as a knob that turns while it runs.

pub mod bpf;
pub mod error;
pub mod sched;
pub mod flags;
pub mod topology;
