//! The VM runner, by booting guests. Every test here takes from half a minute to a few minutes
//! under emulation and needs scripts/setup; `cargo test --test vm_runner -- --ignored` runs them.

use std::process::{Command, Output};

const TELL: &str = "
echo to stdout
echo to stderr >&2
pwd
echo \"A=$A\"
cat /sys/devices/system/node/node*/distance
sort -u /sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list
sort -u /sys/devices/system/cpu/cpu*/topology/thread_siblings_list
ls /boot
cat /sys/kernel/debug/sched/verbose
for type in bpf cgroup2 tracefs; do grep -c \" $type \" /proc/mounts; done
exit 7
";

fn vm(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scx_retune"));
    command.arg("vm").args(args).current_dir("/usr/share").stdin(std::process::Stdio::null());
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What a run leaves behind if it does not clean up: processes that name its directory.
fn processes_that_name(text: &str) -> usize {
    let name = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let lines = std::fs::read_dir("/proc").unwrap().flatten().filter_map(name);
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
#[ignore = "boots VMs: make test"]
fn boot_gives_back_output_exit_code_and_the_topology_asked_for() {
    let output =
        vm(&["--topo", "2n2l2c2t:dist=10,17;17,10", "--env", "A=b c", "--", "sh", "-c", TELL]);
    let (out, err) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(7), "{out}\n{err}");
    let expected = "to stdout\n/usr/share\nA=b c\n10 17\n17 10\n\
        0-3\n12-15\n4-7\n8-11\n\
        0-1\n10-11\n12-13\n14-15\n2-3\n4-5\n6-7\n8-9\n";
    assert!(out.starts_with(expected), "{out}");
    assert!(out.contains("\nconfig-"), "libbpf has no kernel configuration: {out}");
    assert!(out.ends_with("\nY\n1\n1\n1\n"), "{out}");
    assert!(err.ends_with("to stderr\n"), "{err}");
}

#[test]
#[ignore = "boots VMs: make test"]
fn boot_of_a_guest_that_panics_ends_with_its_console() {
    let panic = "echo before; echo c > /proc/sysrq-trigger; sleep 1000";
    let output = vm(&["--topo", "1n2c", "--", "sh", "-c", panic]);
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert_eq!(stdout(&output), "before\n");
    assert!(err.contains("Kernel panic - not syncing: sysrq triggered crash"), "{err}");
    assert!(err.contains("the guest died while the command ran"), "{err}");
}

#[test]
#[ignore = "boots VMs: make test"]
fn boot_of_a_command_that_hangs_ends_at_the_time_limit() {
    let mark = format!("hangs-in-{}", std::process::id());
    let hang = "echo hello > /dev/kmsg; dmesg -n 8; echo \"<1>hung\" > /dev/kmsg; sleep 1000";
    let append = format!("mark={mark}");
    let args = ["--topo", "1n2c", "--timeout", "45", "--append", &append, "--", "sh", "-c", hang];
    let output = vm(&args);
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.contains("the command did not end within 45 s"), "{err}");
    assert!(err.contains("hung\n"), "no tail of the console: {err}");
    assert_eq!(processes_that_name(&mark), 0, "QEMU was left behind");
}

#[test]
fn a_wrong_shape_is_refused_before_anything_is_started() {
    let output = vm(&["--topo", "4x4", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("right ones are 4n4c"), "{}", stderr(&output));
}
