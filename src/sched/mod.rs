//! The scheduler's life: plan (pure) -> open -> configure -> load -> attach -> run.

pub mod attach;
pub mod attachment;
pub mod config;
mod libbpf;
pub mod loader;
pub mod memory;
pub mod plan;
pub mod probe;
pub mod run;
pub mod session;
pub mod state;
