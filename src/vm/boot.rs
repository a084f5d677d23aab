//! One guest's life: its command line, the relay of its output, its end.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::guest;
use super::process::Group;
use super::shape::Shape;
use super::tools::{Kernel, Tools};
use crate::error::Error;

/// How often the guest's files are looked at; chosen, no tool of ours needs an answer sooner.
const POLL: Duration = Duration::from_millis(20);
/// Directories whose changes in the guest are kept in its memory, as vng itself has them.
const OVERLAYS: [&str; 8] = ["/etc", "/lib", "/home", "/opt", "/srv", "/usr", "/var", "/tmp"];
/// Quiet, because a line on an emulated serial port costs a millisecond or two of boot time. A panic
/// raises the level itself. A guest with several sockets needs no watchdog that emulation trips.
const KERNEL_PARAMETERS: [&str; 6] = [
    "mitigations=off",
    "nowatchdog",
    "no_timer_check",
    "schedstats=enable",
    "sched_verbose",
    "log_buf_len=16M",
];
const VM_EXIT_CODE: &str = "vm-rc";

/// Set by ctrl-C and SIGTERM.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How the guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    Emulation,
}

impl Accelerator {
    /// QEMU's `-cpu`.
    ///
    /// Emulated, an Intel id: an AMD guest with more than one socket gives up its TSC for the hpet,
    /// and its threads share no cache. `la57=off` saves a page-table level, 9 s of a boot of 16 CPUs.
    /// Dies are told only by CPUID leaf 0x1f.
    pub fn cpu_model(self, dies: usize) -> String {
        let level = if dies > 1 { ",level=0x20" } else { "" };
        let model = match self {
            Accelerator::Kvm => "host",
            Accelerator::Emulation => {
                "max,vendor=GenuineIntel,family=6,model=85,stepping=7,la57=off"
            }
        };
        format!("{model}{level}")
    }

    fn qemu_args(self, dies: usize) -> Vec<String> {
        let mut args = vec!["-cpu".into(), self.cpu_model(dies)];
        if self == Accelerator::Emulation {
            args.extend(["-accel".into(), "tcg,thread=multi".into()]);
        }
        args
    }
}

/// What to boot.
pub struct Machine<'a> {
    pub tools: &'a Tools,
    pub kernel: &'a Kernel,
    pub shape: &'a Shape,
    pub accelerator: Accelerator,
    pub memory_mib: u64,
    /// Further kernel parameters.
    pub append: &'a [String],
    /// Directories of the host that the guest may write to.
    pub writable: &'a [PathBuf],
    /// A copy of the guest's console.
    pub console: Option<&'a Path>,
}

impl Machine<'_> {
    fn command(&self, run: &RunDir) -> Command {
        let mut command = Command::new(&self.tools.virtme_run);
        command.env("PATH", self.search_path()).env("TMPDIR", &run.0);
        command.arg("--kimg").arg(&self.kernel.image).args(["--mods", "auto"]);
        command.arg("--qemu-bin").arg(&self.tools.qemu);
        command.args(["--name", "scx-retune", "--show-boot-console", "--disable-microvm"]);
        if self.accelerator == Accelerator::Emulation {
            command.arg("--disable-kvm");
        }
        command.args(OVERLAYS.map(|dir| format!("--overlay-rwdir={dir}")));
        command.arg(format!("--rwdir={}={}", guest::RUN_DIR, run.0.display()));
        command.args(self.writable.iter().map(|dir| format!("--rwdir={0}={0}", dir.display())));
        command.args(self.shape.virtme_args(self.memory_mib));
        command.args(self.kernel_parameters(run).iter().flat_map(|word| ["--kopt", word]));
        command.arg("--script-sh").arg(format!("/bin/sh {}/{}", guest::RUN_DIR, guest::SCRIPT));
        command.arg("--qemu-opts").args(self.accelerator.qemu_args(self.shape.llcs_per_node));
        command
    }

    /// virtme-run looks for virtiofsd in PATH.
    fn search_path(&self) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{path}", self.tools.virtiofsd_dir.display())
    }

    /// PATH is taken up by the guest's init, which finds our idle `udevadm` first: where the host has
    /// udev, its coldplug of every module would add a minute to the boot.
    fn kernel_parameters(&self, run: &RunDir) -> Vec<String> {
        let mut words: Vec<String> = KERNEL_PARAMETERS.map(String::from).into();
        words.push(format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", run.shims().display()));
        words.extend(self.append.iter().flat_map(|text| text.split_whitespace().map(String::from)));
        words
    }
}

/// When to stop waiting.
pub struct Limits {
    /// From the start to the guest's script.
    pub boot: Duration,
    /// From the start to the command's end.
    pub total: Duration,
}

/// Why a run has no exit code.
enum Failure {
    /// The guest was still booting; the job has not begun.
    BootHung(Error),
    Final(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Final(error)
    }
}

/// Boots the machine, runs the job in it, and returns the command's exit code.
///
/// A boot that hangs is tried once more: under emulation one in thirty did, for no cause that
/// was found, and nothing of the job has run then.
pub fn run(machine: &Machine, job: &guest::Job, limits: &Limits) -> Result<u8, Error> {
    match run_once(machine, job, limits) {
        Err(Failure::BootHung(error)) => {
            eprintln!("note: {error}; trying once more");
            run_once(machine, job, limits).map_err(|failure| match failure {
                Failure::BootHung(error) | Failure::Final(error) => error,
            })
        }
        Err(Failure::Final(error)) => Err(error),
        Ok(code) => Ok(code),
    }
}

fn run_once(machine: &Machine, job: &guest::Job, limits: &Limits) -> Result<u8, Failure> {
    let run = RunDir::create(job)?;
    let group = Group::start(&machine.command(&run), &run.file(VM_EXIT_CODE), machine.console)?;
    let mut relays = [
        Relay::new(run.file(guest::STDOUT), Box::new(io::stdout())),
        Relay::new(run.file(guest::STDERR), Box::new(io::stderr())),
    ];
    let result = wait(&run, &mut relays, limits);
    if result.is_err() {
        print_tail(&group);
    }
    result
}

fn wait(run: &RunDir, relays: &mut [Relay], limits: &Limits) -> Result<u8, Failure> {
    let start = Instant::now();
    loop {
        // Looked at before the outputs are read: what the guest wrote before its end is then there.
        let end = run.end();
        relays.iter_mut().try_for_each(Relay::pump).map_err(cannot_relay)?;
        match end {
            Some(End::Command(code)) => return Ok(code),
            Some(End::Machine(code)) => return Err(died(code, run.has_started()).into()),
            None => check_limits(start.elapsed(), run.has_started(), limits)?,
        }
        thread::sleep(POLL);
    }
}

fn check_limits(elapsed: Duration, started: bool, limits: &Limits) -> Result<(), Failure> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(Error::environment("interrupted: the guest was ended").into());
    }
    if elapsed > limits.total {
        return Err(too_long(limits.total).into());
    }
    if !started && elapsed > limits.boot {
        return Err(Failure::BootHung(not_booted(limits.boot)));
    }
    Ok(())
}

fn too_long(limit: Duration) -> Error {
    Error::environment(format!(
        "the command did not end within {} s, and the guest was ended; see its console above, or \
         give it more with --timeout",
        limit.as_secs()
    ))
}

fn not_booted(limit: Duration) -> Error {
    Error::environment(format!(
        "the guest did not boot within {} s, and was ended; see its console above, or give it more \
         with --boot-timeout",
        limit.as_secs()
    ))
}

fn died(code: i32, started: bool) -> Error {
    let when = if started { "while the command ran" } else { "before the command started" };
    Error::environment(format!(
        "the guest died {when} (virtme-run ended with {code}): a panic, or QEMU failed; see its \
         console above"
    ))
}

fn cannot_relay(why: io::Error) -> Failure {
    let what = format!("cannot pass the guest's output on: {why}; is the reader gone?");
    Error::environment(what).into()
}

/// The console comes through a pipe that is read by a thread, so its last lines may still be on the
/// way; they are when the tail still grows.
fn print_tail(group: &Group) {
    let mut tail = group.console.tail();
    loop {
        thread::sleep(Duration::from_millis(100));
        let next = group.console.tail();
        if next == tail {
            break;
        }
        tail = next;
    }
    eprintln!("--- the guest's console, last {} lines ---", tail.len());
    tail.iter().for_each(|line| eprintln!("{line}"));
    eprintln!("---");
}

/// Why there is nothing more to wait for.
enum End {
    Command(u8),
    Machine(i32),
}

/// The directory that host and guest share. It goes when this value goes.
struct RunDir(PathBuf);

impl RunDir {
    fn create(job: &guest::Job) -> Result<RunDir, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "scx_retune-vm-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let run = RunDir(std::env::temp_dir().join(name));
        run.fill(job).map_err(|why| {
            let dir = run.0.display();
            Error::environment(format!("cannot make {dir}: {why}; make room, or set TMPDIR"))
        })?;
        Ok(run)
    }

    fn fill(&self, job: &guest::Job) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.0)?;
        fs::create_dir(self.shims())?;
        symlink("/bin/true", self.shims().join("udevadm"))?;
        fs::write(self.file(guest::SCRIPT), guest::script(job))
    }

    fn shims(&self) -> PathBuf {
        self.file("bin")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn has_started(&self) -> bool {
        self.file(guest::STARTED).exists()
    }

    /// The command's end comes first: a guest that is done may also be gone.
    fn end(&self) -> Option<End> {
        let machine = read_number(&self.file(VM_EXIT_CODE));
        match read_number(&self.file(guest::EXIT_CODE)) {
            Some(code) => Some(End::Command(code as u8)),
            None => machine.map(End::Machine),
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A whole line with a number; a file that is not there, or not yet complete, is none.
fn read_number(path: &Path) -> Option<i32> {
    fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Copies a file to a stream while it grows.
struct Relay {
    path: PathBuf,
    from: Option<File>,
    to: Box<dyn Write>,
}

impl Relay {
    fn new(path: PathBuf, to: Box<dyn Write>) -> Self {
        Relay { path, from: None, to }
    }

    /// Copies what has come since the last time; from the start when the file was truncated.
    fn pump(&mut self) -> io::Result<()> {
        if self.from.is_none() {
            self.from = File::open(&self.path).ok();
        }
        let Some(from) = &mut self.from else { return Ok(()) };
        if from.metadata()?.len() < from.stream_position()? {
            from.rewind()?;
        }
        let mut chunk = Vec::new();
        if from.read_to_end(&mut chunk)? > 0 {
            self.to.write_all(&chunk)?;
            self.to.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { boot: Duration::from_secs(10), total: Duration::from_secs(20) }
    }

    #[test]
    fn only_a_guest_that_has_not_started_is_held_to_the_boot_limit() {
        assert!(check_limits(Duration::from_secs(11), true, &limits()).is_ok());
        let late = check_limits(Duration::from_secs(11), false, &limits());
        assert!(matches!(late, Err(Failure::BootHung(_))));
        let hung = check_limits(Duration::from_secs(21), true, &limits());
        assert!(matches!(hung, Err(Failure::Final(error)) if error.exit_code() == 3));
    }

    #[test]
    fn a_relay_follows_growth_and_truncation() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        let mut relay = Relay::new(from.clone(), Box::new(File::create(&to).unwrap()));
        relay.pump().unwrap();
        for text in ["one\n", "one\ntwo\n", "x\n"] {
            fs::write(&from, text).unwrap();
            relay.pump().unwrap();
        }
        assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\nx\n");
    }

    #[test]
    fn a_number_counts_once_its_line_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rc");
        assert_eq!(read_number(&path), None);
        fs::write(&path, "25").unwrap();
        assert_eq!(read_number(&path), None);
        fs::write(&path, "255\n").unwrap();
        assert_eq!(read_number(&path), Some(255));
    }

    #[test]
    fn dies_raise_the_cpuid_level() {
        assert!(!Accelerator::Emulation.cpu_model(1).contains("level"));
        assert!(Accelerator::Emulation.cpu_model(2).ends_with(",level=0x20"));
    }
}
