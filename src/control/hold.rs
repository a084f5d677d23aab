//! `set --lease`: holds a lease while a command runs, or until told to end.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::client::Lease;
use super::command::{SetArgs, told};
use crate::error::Error;

/// How often a wait looks whether ctrl-C came, ms.
const LOOK_INTERVAL_MS: u16 = 100;

pub fn hold(args: &SetArgs) -> Result<u8> {
    let lease = Lease::take(&args.socket.socket, &args.assignments.join(","))?;
    let report = told(lease.report(), args.json)?;
    match args.command.as_slice() {
        [] => {
            println!("{report}");
            io::stdout().flush()?;
            hold_until_told(lease)
        }
        // Standard output is the command's.
        command => {
            eprintln!("scx_retune: {report}");
            hold_while_running(lease, command)
        }
    }
}

fn hold_until_told(lease: Lease) -> Result<u8> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch ctrl-C and SIGTERM")?;
    while !stop.load(Ordering::Relaxed) && is_input_open(&lease)? {}
    end(lease)
}

/// Waits a moment; false when standard input has ended.
///
/// Errors (exit code 3): the scheduler has ended, so the flags are gone with it.
fn is_input_open(lease: &Lease) -> Result<bool> {
    let stdin = io::stdin();
    let mut fds = [stdin.as_fd(), lease.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, PollTimeout::from(LOOK_INTERVAL_MS)) {
        Err(nix::errno::Errno::EINTR) | Ok(0) => return Ok(true),
        Err(why) => return Err(why).context("cannot wait for the end of standard input"),
        Ok(_) => (),
    }
    if fds[1].any().unwrap_or(true) {
        return Err(lost().into());
    }
    Ok(io::stdin().lock().read(&mut [0; 4096])? > 0)
}

fn hold_while_running(lease: Lease, command: &[String]) -> Result<u8> {
    let mut child = Command::new(&command[0]).args(&command[1..]).spawn().map_err(|why| {
        Error::usage(format!("cannot run {}: {why}; give --lease a command", command[0]))
    })?;
    pass_on_signals(&child)?;
    let status = child.wait().context("cannot wait for the command")?;
    if let Err(why) = end(lease) {
        eprintln!("scx_retune: the lease did not last until the command ended: {why:#}");
    }
    Ok(exit_code(status))
}

/// Ctrl-C and SIGTERM end the command, and with it the lease. From a terminal the command has
/// had the ctrl-C already.
fn pass_on_signals(child: &Child) -> Result<()> {
    let pid = Pid::from_raw(child.id() as i32);
    let pass_on = move || {
        // The command may have ended already.
        let _ = kill(pid, Signal::SIGTERM);
    };
    ctrlc::set_handler(pass_on).context("cannot catch ctrl-C and SIGTERM")
}

/// As shells have it: 128 and the signal for a command that was killed.
fn exit_code(status: ExitStatus) -> u8 {
    let killed = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(killed).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn end(lease: Lease) -> Result<u8> {
    let report = lease.end()?;
    eprintln!(
        "scx_retune: lease ended: generation {}: {} words changed",
        report.generation, report.words_changed
    );
    Ok(0)
}

fn lost() -> Error {
    Error::environment("the lease is lost: the scheduler ended; its own output says why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands_as_shells_have_it() {
        for (raw, code) in [(0, 0), (7 << 8, 7), (255 << 8, 255), (9, 137), (15, 143)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code);
        }
    }
}
