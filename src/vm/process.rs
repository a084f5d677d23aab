//! A process group that never outlives us, and the tail of its console.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::Error;

/// Lines of the console that are shown when a guest dies; a panic with its trace has about 45.
const TAIL_LINES: usize = 60;

/// Runs a command in the background, writes its exit code to the file $0 when it ends, and kills the
/// whole group when standard input closes: on drop, and also when this process is killed.
const GUARD: &str = r#"
rc=$0
("$@" < /dev/null; echo $? > "$rc") &
exec > /dev/null 2>&1
read -r _
kill -KILL 0
"#;

/// A command and all that it starts, in a process group of their own.
pub struct Group {
    guard: Child,
    /// Open as long as the group may live.
    lifeline: Option<ChildStdin>,
    pub console: Console,
}

impl Group {
    /// Starts `command`; its output is the console, its exit code appears in the file `exit_code`.
    pub fn start(command: &Command, exit_code: &Path, copy: Option<&Path>) -> Result<Group, Error> {
        let copy = copy.map(create).transpose()?;
        let (reader, writer) = std::io::pipe().map_err(cannot_start)?;
        let mut guard = guard_of(command, exit_code);
        guard.stdin(Stdio::piped()).stdout(writer.try_clone().map_err(cannot_start)?);
        guard.stderr(writer).process_group(0);
        let mut guard = guard.spawn().map_err(cannot_start)?;
        let lifeline = guard.stdin.take();
        Ok(Group { guard, lifeline, console: Console::follow(reader, copy) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.guard.wait();
    }
}

fn guard_of(command: &Command, exit_code: &Path) -> Command {
    let mut guard = Command::new("/bin/sh");
    guard.args(["-c", GUARD]).arg(exit_code).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => guard.env(name, value),
            None => guard.env_remove(name),
        };
    }
    guard
}

fn cannot_start(why: std::io::Error) -> Error {
    Error::environment(format!("cannot start the virtual machine: {why}; is /bin/sh there?"))
}

fn create(path: &Path) -> Result<File, Error> {
    File::create(path).map_err(|why| {
        let path = path.display();
        Error::usage(format!("cannot write the console to {path}: {why}; name another file"))
    })
}

/// The last lines of a stream that a thread reads.
#[derive(Clone, Default)]
pub struct Console(Arc<Mutex<VecDeque<String>>>);

impl Console {
    /// Reads to the end in the background. The thread ends with the last writer.
    fn follow(from: impl std::io::Read + Send + 'static, mut copy: Option<File>) -> Console {
        let console = Console::default();
        let keeper = console.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                if let Some(file) = &mut copy {
                    let _ = file.write_all(&[&line[..], b"\n"].concat());
                }
                keeper.push(String::from_utf8_lossy(&line).trim_end().to_string());
            }
        });
        console
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    pub fn tail(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        lines.iter().cloned().collect()
    }

    pub fn contains(&self, text: &str) -> bool {
        self.tail().iter().any(|line| line.contains(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    fn wait_until(mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < end, "waited 20 s in vain");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_tail_keeps_the_last_lines() {
        let console = Console::default();
        (0..100).for_each(|n| console.push(n.to_string()));
        assert_eq!(console.tail().len(), TAIL_LINES);
        assert!(console.contains("99") && !console.contains("39"));
    }

    #[test]
    fn the_exit_code_and_the_console_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let rc = dir.path().join("rc");
        let group = Group::start(&shell("echo hello; exit 7"), &rc, None).unwrap();
        wait_until(|| fs::read_to_string(&rc).is_ok_and(|text| text == "7\n"));
        wait_until(|| group.console.contains("hello"));
    }

    #[test]
    fn drop_ends_grandchildren_too() {
        let dir = tempfile::tempdir().unwrap();
        let rc = dir.path().join("rc");
        let group = Group::start(&shell("sleep 1000 & echo pid $!; wait"), &rc, None).unwrap();
        wait_until(|| group.console.contains("pid "));
        let line = group.console.tail().pop().unwrap();
        let proc = format!("/proc/{}/stat", line.strip_prefix("pid ").unwrap());
        assert!(Path::new(&proc).exists());
        drop(group);
        let gone = |stat: String| stat.contains(") Z ");
        wait_until(|| fs::read_to_string(&proc).map_or(true, gone));
    }
}
