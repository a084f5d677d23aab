//! Whether KVM can be used: only when a guest really boots under it.
//!
//! A /dev/kvm that opens, answers and creates CPUs, but cannot run an ordinary kernel, exists. So
//! the kernel is booted under it once, without a root, up to the panic that says so. What was found
//! is remembered for this kernel, this QEMU and this boot of the host.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::boot::Accelerator;
use super::process::Group;
use super::tools::{Kernel, Tools};

const DEVICE: &str = "/dev/kvm";
/// Under a KVM that works the kernel is there in 2 s or less; chosen, for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// The kernel's last words when there is no root: it ran all the way to the first process.
const BOOTED: &str = "VFS: Unable to mount root fs";
/// QEMU's words before it stops the guest for good.
const BROKEN: &str = "KVM internal error";

/// Finds the accelerator, by a boot at most once for each kernel, QEMU and boot of the host.
pub fn accelerator(tools: &Tools, kernel: &Kernel) -> Accelerator {
    if File::options().read(true).write(true).open(DEVICE).is_err() {
        return Accelerator::Emulation;
    }
    let memory = Memory { path: tools.cache.join("kvm"), key: key(tools, kernel) };
    let works = memory.recall().unwrap_or_else(|| {
        eprintln!("{DEVICE} is there: trying, once, whether a guest boots under it");
        let works = boots(tools, kernel);
        let verdict = if works { "works" } else { "does not boot this kernel: emulating instead" };
        eprintln!("{DEVICE} {verdict}");
        memory.keep(works);
        works
    });
    if works { Accelerator::Kvm } else { Accelerator::Emulation }
}

fn boots(tools: &Tools, kernel: &Kernel) -> bool {
    let exit_code = std::env::temp_dir().join(format!("scx_retune-kvm-{}", std::process::id()));
    let booted = Group::start(&probe(tools, kernel), &exit_code, None)
        .is_ok_and(|group| wait(&group, &exit_code));
    let _ = fs::remove_file(&exit_code);
    booted
}

/// Two CPUs, because starting the second is where a half-working KVM fails too.
fn probe(tools: &Tools, kernel: &Kernel) -> Command {
    let mut command = Command::new(&tools.qemu);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-machine", "q35,accel=kvm", "-smp", "2", "-m", "512M"]);
    command.args(["-cpu", &Accelerator::Kvm.cpu_model(1), "-serial", "stdio"]);
    command.arg("-kernel").arg(&kernel.image);
    command.args(["-append", "console=ttyS0 panic=-1"]);
    command
}

fn wait(group: &Group, exit_code: &Path) -> bool {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end && !group.console.contains(BROKEN) {
        if group.console.contains(BOOTED) {
            return true;
        }
        if exit_code.exists() {
            // The last lines may still be in the pipe.
            thread::sleep(Duration::from_millis(200));
            return group.console.contains(BOOTED);
        }
        thread::sleep(POLL);
    }
    false
}

/// What the answer depends on.
fn key(tools: &Tools, kernel: &Kernel) -> String {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let parts = [stamp(&kernel.image), stamp(&tools.qemu), release, boot_id];
    parts.map(|part| part.trim().to_string()).join(" ")
}

/// A file's name, size and time of change.
fn stamp(path: &Path) -> String {
    let meta = fs::metadata(path).ok();
    let size = meta.as_ref().map_or(0, |meta| meta.len());
    let time = meta.and_then(|meta| meta.modified().ok()?.duration_since(UNIX_EPOCH).ok());
    format!("{} {size} {}", path.display(), time.unwrap_or_default().as_secs())
}

/// A file of lines `yes KEY` or `no KEY`. One that cannot be written only costs the next probe.
struct Memory {
    path: PathBuf,
    key: String,
}

impl Memory {
    fn recall(&self) -> Option<bool> {
        let text = fs::read_to_string(&self.path).ok()?;
        let line = text.lines().rev().find(|line| line.ends_with(&format!(" {}", self.key)))?;
        Some(line.starts_with("yes "))
    }

    fn keep(&self, works: bool) {
        let old = fs::read_to_string(&self.path).unwrap_or_default();
        let answer = if works { "yes" } else { "no" };
        let _ = fs::write(&self.path, format!("{old}{answer} {}\n", self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_remembered_for_its_key_alone() {
        let dir = tempfile::tempdir().unwrap();
        let memory = |key: &str| Memory { path: dir.path().join("kvm"), key: key.into() };
        assert_eq!(memory("a 1").recall(), None);
        memory("a 1").keep(true);
        memory("b 1").keep(false);
        assert_eq!(memory("a 1").recall(), Some(true));
        assert_eq!(memory("b 1").recall(), Some(false));
        assert_eq!(memory("c 1").recall(), None);
    }
}
