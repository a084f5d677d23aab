//! `stats`, `completions` and `man` as processes; `stats` against a server that answers with
//! made-up snapshots. That server's socket is root's, so those tests need root, but no kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use scx_retune::bpf::intf::{cpu_counter_CNT_DISP_NOTHING, cpu_counter_CNT_DISPATCH};
use scx_retune::control::Response;
use scx_retune::control::server::Server;
use scx_retune::stats::{Row, Snapshot};
use serde_json::Value;

/// A server that answers every request with the snapshot of that number.
struct Fake {
    dir: tempfile::TempDir,
    asked: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    fn start(snapshot: impl Fn(u64) -> Snapshot + Send + 'static) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let (asked, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut server = Server::bind(&dir.path().join("socket")).unwrap();
        let (count, end) = (asked.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let answer = |_| {
                    let number = count.fetch_add(1, Ordering::Relaxed);
                    Response::Stats(Box::new(snapshot(number)))
                };
                server.serve(Duration::from_millis(20), answer).unwrap();
            }
        });
        Fake { dir, asked, stop, thread: Some(thread) }
    }

    fn stats(&self, args: &[&str]) -> Command {
        let mut command = scx_retune(&["stats", "--socket"]);
        command.arg(self.dir.path().join("socket")).args(args);
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.stats(args).output().unwrap()
    }

    fn wait_until_asked(&self, times: u64) {
        while self.asked.load(Ordering::Relaxed) < times {
            std::thread::yield_now();
        }
    }

    fn file(&self, text: &[u8]) -> PathBuf {
        let file = self.dir.path().join("before");
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn scx_retune(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_retune"));
    command.args(args);
    command
}

/// One CPU and the timer; every request finds one more dispatch, and its exit but for `lost`.
fn dispatches(epoch: u64, number: u64, lost: u64) -> Snapshot {
    let mut row = Row::zero();
    row.cpu[cpu_counter_CNT_DISPATCH as usize] = number + 1;
    row.cpu[cpu_counter_CNT_DISP_NOTHING as usize] = number + 1 - lost;
    let rows = vec![row, Row::zero()];
    Snapshot { epoch, at_ns: (number + 1) * 500_000_000, rows, ..Snapshot::default() }
}

fn is_root() -> bool {
    let is_root = geteuid().is_root();
    if !is_root {
        eprintln!("the socket is root's: run this test as root");
    }
    is_root
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn json_is_what_since_reads() {
    if !is_root() {
        return;
    }
    let fake = Fake::start(|number| dispatches(1, number, 0));
    let first = fake.output(&["--json"]);
    assert_eq!(first.status.code(), Some(0));
    let file = fake.file(&first.stdout);
    let second = fake.output(&["--json", "--since", file.to_str().unwrap()]);
    let json: Value = serde_json::from_slice(&second.stdout).unwrap();
    assert_eq!(json["cpus"]["0"]["dispatch"], 1);
    assert_eq!(json["interval_ns"], 500_000_000);
    let table = fake.output(&["--since", file.to_str().unwrap(), "--by", "machine"]);
    let table = text(&table.stdout);
    assert!(table.contains("counted in 1.0 s") && table.contains("2.0/s"), "{table}");
}

#[test]
fn since_refuses_another_attachment_and_other_files() {
    if !is_root() {
        return;
    }
    let fake = Fake::start(|number| dispatches(number + 1, number, 0));
    let before = fake.output(&["--json"]).stdout;
    for (content, why) in [
        (&before[..], "attached anew"),
        (b"{}", "not a `stats --json`"),
        (b"", "not a `stats --json`"),
    ] {
        let file = fake.file(content);
        let refused = fake.output(&["--since", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(2), "{why}");
        assert!(text(&refused.stderr).contains(why), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn watch_says_that_the_scheduler_was_attached_anew_and_goes_on_until_a_signal() {
    if !is_root() {
        return;
    }
    let fake = Fake::start(|number| dispatches(1 + number / 3, number, 0));
    let watch = fake
        .stats(&["--watch", "0.1", "--by", "machine"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fake.wait_until_asked(6);
    kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).unwrap();
    let output = watch.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("attachment 2, before 1"), "{output:?}");
    let tables = text(&output.stdout);
    assert!(tables.contains("attachment 1") && tables.contains("attachment 2"), "{tables}");
    assert!(!tables.contains('\x1b'), "no terminal, no escape codes");
}

#[test]
fn laws_tell_a_lost_count_from_a_quiet_machine() {
    if !is_root() {
        return;
    }
    let lawful = Fake::start(|number| dispatches(1, number, 0)).output(&["--laws"]);
    assert_eq!(lawful.status.code(), Some(0));
    assert!(text(&lawful.stdout).contains("laws hold"));
    let broken = Fake::start(|number| dispatches(1, number, 1)).output(&["--laws"]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken.stdout).starts_with("broken: dispatch:"), "{broken:?}");
}

#[test]
fn a_scheduler_of_another_build_is_not_given_wrong_names() {
    if !is_root() {
        return;
    }
    let fake = Fake::start(|number| {
        let mut other = dispatches(1, number, 0);
        other.rows[0].cpu.pop();
        other
    });
    let refused = fake.output(&[]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("another build"), "{refused:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    if !is_root() {
        return;
    }
    let fake = Fake::start(|number| dispatches(1, number, 0));
    let mut stats = fake.stats(&["--watch", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(stats.stdout.take());
    assert_eq!(stats.wait().unwrap().code(), Some(0));
}

#[test]
fn without_a_scheduler_stats_ends_with_3() {
    let output = scx_retune(&["stats", "--socket", "/nonexistent"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn options_that_exclude_each_other_are_usage() {
    for args in [
        &["--watch", "0"][..],
        &["--watch", "1", "--since", "f"],
        &["--laws", "--json"],
        &["--json", "--by", "cpu"],
        &["--by", "node"],
    ] {
        let output = scx_retune(&["stats"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn pages_and_completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("share/man/man1");
    assert!(scx_retune(&["man", "--out"]).arg(&out).status().unwrap().success());
    assert!(out.join("scx_retune-stats.1").is_file());
    let script = scx_retune(&["completions", "bash"]).output().unwrap();
    assert!(text(&script.stdout).contains("complete -F _scx_retune"));
    let nowhere = Path::new("/proc/nowhere");
    let refused = scx_retune(&["man", "--out"]).arg(nowhere).output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("cannot write man pages to /proc/nowhere"));
}
