//! `scx_retune run` as a child, and its control socket.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scx_retune::control::client::ask;
use scx_retune::control::history::Entry;
use scx_retune::control::{AttachmentReport, Request, Response, SetReport};
use scx_retune::stats::Snapshot;

use super::wait_until;

const SOCKET: &str = "/run/scx_retune.sock";
/// The verifier alone takes seconds under emulation.
const ATTACH_LIMIT: Duration = Duration::from_secs(60);

/// A running scheduler; dropping it ends it and waits until the kernel's own is back.
pub struct Scheduler {
    child: Child,
}

/// `scx_retune` with arguments, not yet started.
pub fn scx_retune(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_retune"));
    command.args(args);
    command
}

/// The kernel's word: disabled, enabling, enabled, disabling.
pub fn kernel_state() -> String {
    fs::read_to_string("/sys/kernel/sched_ext/state").unwrap_or_default().trim().to_owned()
}

impl Scheduler {
    pub fn start(args: &[&str]) -> Scheduler {
        let child = scx_retune(&[&["run"], args].concat())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start scx_retune run");
        let mut scheduler = Scheduler { child };
        let attached = wait_until(ATTACH_LIMIT, || {
            kernel_state() == "enabled" && ask(&PathBuf::from(SOCKET), &Request::Get).is_ok()
        });
        if !attached {
            let _ = scheduler.child.kill();
            panic!("the scheduler did not attach: {}", scheduler.stderr());
        }
        scheduler
    }

    pub fn start_with(flags: &str) -> Scheduler {
        Scheduler::start(&["--set", flags])
    }

    pub fn start_faulty(fault: &str, flags: &str) -> Scheduler {
        Scheduler::start(&["--fault", fault, "--set", flags])
    }

    pub fn set(&self, assignments: &str) -> SetReport {
        match self.try_set(assignments) {
            Ok(report) => report,
            Err(why) => panic!("set {assignments}: {why:#}"),
        }
    }

    pub fn try_set(&self, assignments: &str) -> anyhow::Result<SetReport> {
        let request = Request::Set { assignments: assignments.to_owned() };
        match ask(&PathBuf::from(SOCKET), &request)? {
            Response::Set(report) => Ok(report),
            other => panic!("set was answered by {other:?}"),
        }
    }

    pub fn stats(&self) -> Snapshot {
        match ask(&PathBuf::from(SOCKET), &Request::Stats) {
            Ok(Response::Stats(snapshot)) => *snapshot,
            other => panic!("stats was answered by {other:?}"),
        }
    }

    pub fn try_stats(&self) -> anyhow::Result<Response> {
        ask(&PathBuf::from(SOCKET), &Request::Stats)
    }

    /// The flags as `set` reads them.
    pub fn flags(&self) -> String {
        match ask(&PathBuf::from(SOCKET), &Request::Get) {
            Ok(Response::Flags { plain, .. }) => plain,
            other => panic!("get was answered by {other:?}"),
        }
    }

    pub fn history(&self) -> Vec<Entry> {
        match ask(&PathBuf::from(SOCKET), &Request::History) {
            Ok(Response::History(entries)) => entries,
            other => panic!("history was answered by {other:?}"),
        }
    }

    pub fn attach(&self) -> AttachmentReport {
        self.switch(&Request::Attach)
    }

    pub fn detach(&self) -> AttachmentReport {
        self.switch(&Request::Detach)
    }

    fn switch(&self, request: &Request) -> AttachmentReport {
        match ask(&PathBuf::from(SOCKET), request) {
            Ok(Response::Attachment(report)) => report,
            other => panic!("{request:?} was answered by {other:?}"),
        }
    }

    /// What `work` made the scheduler count.
    pub fn counted(&self, work: impl FnOnce()) -> Snapshot {
        let before = self.stats();
        work();
        self.stats().since(&before).expect("one attachment")
    }

    /// The laws that are broken in a moment without scheduling; reads until there is one.
    pub fn broken_laws_once_quiet(&self) -> Vec<String> {
        let mut broken = Vec::new();
        wait_until(Duration::from_secs(20), || {
            broken = self.stats().broken_laws();
            broken.is_empty()
        });
        broken
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Whether the process and the kernel both say that it runs.
    pub fn is_running(&mut self) -> bool {
        self.is_alive() && kernel_state() == "enabled"
    }

    /// Whether the process is there, attached or not.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it and returns what it wrote to standard error.
    pub fn end_and_tell(mut self) -> String {
        kill(self.pid(), Signal::SIGTERM).expect("signal the scheduler");
        self.stderr()
    }

    /// Sends `signal`, waits for the process to end and the kernel's scheduler to be back.
    pub fn end(mut self, signal: Signal) -> Option<i32> {
        kill(self.pid(), signal).expect("signal the scheduler");
        let status = self.child.wait().expect("wait for the scheduler");
        assert!(is_disabled_soon(), "the kernel still says {}", kernel_state());
        status.code()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.as_mut() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(self.pid(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
        assert!(is_disabled_soon() || std::thread::panicking(), "{}", kernel_state());
    }
}

pub fn is_disabled_soon() -> bool {
    wait_until(Duration::from_secs(30), || kernel_state() == "disabled")
}
