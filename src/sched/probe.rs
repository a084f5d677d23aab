//! May a scheduler be loaded here? Three answers, each with what to do.

use std::fs;
use std::path::Path;

use crate::error::Error;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// Whether this kernel, this user and this moment allow an attach.
///
/// Errors (exit code 3): no sched_ext, no privilege, another scheduler is loaded.
pub fn check() -> Result<(), Error> {
    check_kernel()?;
    check_privilege()?;
    check_free()
}

fn check_kernel() -> Result<(), Error> {
    if Path::new(SCHED_EXT).is_dir() {
        return Ok(());
    }
    let release = read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_default();
    Err(Error::environment(format!(
        "cannot attach: kernel {release} has no sched_ext ({SCHED_EXT} is missing); boot one with \
         CONFIG_SCHED_CLASS_EXT (6.16 or later), or try `scx_retune vm -- scx_retune run`"
    )))
}

fn check_privilege() -> Result<(), Error> {
    match effective_uid() {
        Some(0) => Ok(()),
        _ => Err(Error::environment(
            "cannot attach: loading a scheduler needs root (CAP_SYS_ADMIN and CAP_BPF); run it with sudo",
        )),
    }
}

fn check_free() -> Result<(), Error> {
    match loaded_scheduler() {
        None => Ok(()),
        Some(name) => Err(Error::environment(format!(
            "cannot attach: another sched_ext scheduler is loaded ({name}); stop it first"
        ))),
    }
}

/// The name of the sched_ext scheduler that is loaded, if one is.
pub fn loaded_scheduler() -> Option<String> {
    let state = read_trimmed(&format!("{SCHED_EXT}/state"))?;
    if state == "disabled" {
        return None;
    }
    Some(read_trimmed(&format!("{SCHED_EXT}/root/ops")).unwrap_or(state))
}

/// How often CPUs came or went; none where the kernel has no sched_ext.
pub fn nr_hotplugs() -> Option<u64> {
    read_trimmed(&format!("{SCHED_EXT}/hotplug_seq"))?.parse().ok()
}

fn effective_uid() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    uids.split_whitespace().nth(1)?.parse().ok()
}

fn read_trimmed(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
