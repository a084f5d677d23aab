//! scx_retune: the kernel's NUMA scheduling-domain flags as a knob that turns while it runs.

pub mod error;
pub mod topology;
pub mod vm;
