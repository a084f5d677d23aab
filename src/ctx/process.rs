//! The one place that forks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

/// The exit code of a child whose work panicked: Rust's own.
const PANICKED: i32 = 101;

/// Runs `work` in a new process, which exits with its value and dies when the caller dies.
///
/// `work` must keep to system calls, memory that exists already, and memory that it drops: the
/// caller may have other threads, and their locks (stdout's, say) stay held in the child.
pub(super) fn spawn(work: impl FnOnce() -> u8) -> nix::Result<Pid> {
    let parent = getpid();
    // SAFETY: the child runs `work` alone, which keeps to the rule above, and leaves by `_exit`:
    // neither the caller's stack is unwound nor its exit handlers are run a second time.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = catch_unwind(AssertUnwindSafe(|| run_child(parent, work)));
            // SAFETY: _exit has no preconditions.
            unsafe { nix::libc::_exit(code.map_or(PANICKED, i32::from)) }
        }
    }
}

fn run_child(parent: Pid, work: impl FnOnce() -> u8) -> u8 {
    // A parent that died before the request took effect is seen by its pid being gone.
    let will_be_told = set_pdeathsig(Signal::SIGKILL).is_ok();
    match will_be_told && getppid() == parent {
        true => work(),
        false => PANICKED as u8,
    }
}
