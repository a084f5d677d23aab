//! The scheduler's life: plan (pure) -> open -> configure -> load -> attach -> run.

pub mod attach;
mod libbpf;
pub mod memory;
pub mod plan;
pub mod probe;
pub mod run;
