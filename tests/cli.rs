//! The command line where no scheduler runs and none can be loaded.

use std::path::PathBuf;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

fn scx_retune(args: &[&str]) -> Assert {
    Command::cargo_bin("scx_retune").unwrap().args(args).assert()
}

/// Asserts the exit code; returns stdout and stderr.
fn outcome(args: &[&str], code: i32) -> (String, String) {
    let assert = scx_retune(args).code(code);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&assert.get_output().stdout), text(&assert.get_output().stderr))
}

fn has_sched_ext() -> bool {
    PathBuf::from("/sys/kernel/sched_ext").is_dir()
}

#[test]
fn a_wrong_subcommand_or_option_is_usage() {
    assert!(outcome(&["sett"], 2).1.contains("similar subcommand"));
    outcome(&["run", "--repleace"], 2);
    outcome(&["set"], 2);
    outcome(&[], 2);
}

#[test]
fn a_command_to_hold_a_lease_for_needs_a_lease() {
    let (_, message) = outcome(&["set", "none", "--", "true"], 2);
    assert!(message.contains("--lease"), "{message}");
}

#[test]
fn clients_without_a_running_scheduler_say_where_they_looked_and_what_to_do() {
    for args in [
        &["set", "none"][..],
        &["set", "--lease", "none", "--", "true"],
        &["get"],
        &["stats"],
        &["history"],
        &["attach"],
        &["detach"],
    ] {
        let (_, message) =
            outcome(&[&[args[0], "--socket", "/nonexistent/s"], &args[1..]].concat(), 3);
        let expected = "scx_retune: cannot reach a running scx_retune at /nonexistent/s: ";
        assert!(message.starts_with(expected), "{args:?}: {message}");
        assert!(message.contains("start `scx_retune run`"), "{args:?}: {message}");
    }
}

#[test]
fn a_dry_run_prints_the_plan_and_needs_no_sched_ext() {
    let (plan, _) = outcome(&["run", "--dry-run", "--set", "none"], 0);
    assert!(plan.contains(" run queues in ") && plan.contains("WAKE_AFFINE"), "{plan}");
}

#[test]
fn a_preset_says_what_it_leaves_out() {
    let (_, message) = outcome(&["run", "--dry-run", "--set", "2009-affine"], 0);
    assert!(message.contains("left out: BALANCE_EXEC: sched_ext never delivers"), "{message}");
}

#[test]
fn without_sched_ext_run_says_so_and_exits_with_3() {
    if has_sched_ext() {
        return eprintln!("this kernel has sched_ext: its refusals are tested in the VM");
    }
    let (_, message) = outcome(&["run"], 3);
    assert!(message.contains("has no sched_ext"), "{message}");
    assert!(message.contains("scx_retune vm"), "{message}");
}

#[test]
fn a_wrong_assignment_is_usage_before_anything_else() {
    let (_, message) = outcome(&["run", "--set", "MC.NEWIDEL=off"], 2);
    assert!(message.contains("no flag 'NEWIDEL'"), "{message}");
}

// ---- run --config ----

fn with_config(text: &str, args: &[&str], code: i32) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("retune.toml");
    std::fs::write(&file, text).unwrap();
    outcome(&[&["run", "--dry-run", "--config", file.to_str().unwrap()], args].concat(), code)
}

#[test]
fn a_config_with_an_unknown_key_is_refused_with_the_nearest_right_one() {
    let (_, message) = with_config("sett = \"none\"\n", &[], 2);
    assert!(message.contains("retune.toml: no key 'sett': the keys are "), "{message}");
    assert!(message.contains("; did you mean set?"), "{message}");
}

#[test]
fn a_config_that_is_missing_or_wrong_is_usage() {
    let (_, message) = outcome(&["run", "--config", "/nonexistent.toml"], 2);
    assert!(message.contains("cannot read /nonexistent.toml: No such file"), "{message}");
    assert!(with_config("set = \n", &[], 2).1.contains("it is not TOML"));
    assert!(with_config("set = ['MC.NEWIDEL=off']\n", &[], 2).1.contains("no flag 'NEWIDEL'"));
}

#[test]
fn the_command_line_wins_over_the_config() {
    let config = "preset = '2009-affine'\nqueue-cpus = 'llc'\n";
    assert!(with_config(config, &[], 0).1.contains("left out"));
    let (_, message) = with_config(config, &["--set", "MC.WAKE_AFFINE=off"], 0);
    assert_eq!(message, "", "the file's preset is not used");
}
