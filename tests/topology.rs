//! The domain model against what a real kernel built on 22 captured machines, and its negative
//! controls: each altered file must show up as a difference.

#[path = "trees/captured.rs"]
mod captured;

use captured::Captured;
use scx_retune::topology::command::{self, TopoArgs};
use scx_retune::topology::{CpuSet, Domain, Machine, kernel};
use serde_json::Value;

/// Name, span and flags, as kernel-domains.json spells them.
type Shown = (String, String, Vec<String>);

fn shown_by_kernel(domains: &Value) -> Vec<Shown> {
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    let domain = |domain: &Value| {
        let flags = domain["flags"].as_array().expect("flags").iter().map(text).collect();
        (text(&domain["name"]), text(&domain["span"]), flags)
    };
    domains.as_array().expect("a list of domains").iter().map(domain).collect()
}

fn shown_by_model(domains: &[Domain]) -> Vec<Shown> {
    let flags = |domain: &Domain| domain.flags.iter().map(|flag| flag.to_string()).collect();
    domains
        .iter()
        .map(|domain| (domain.name.clone(), domain.span.to_string(), flags(domain)))
        .collect()
}

fn model(captured: &Captured) -> Machine {
    Machine::model_from_root(&captured.root()).expect("a readable machine")
}

fn differences(captured: &Captured) -> Vec<String> {
    kernel::compare(
        &model(captured),
        &kernel::read(&captured.root()).expect("the kernel's domains"),
    )
}

fn levels(machine: &Machine, cpu: usize) -> Vec<String> {
    machine.cpus[&cpu].domains.iter().map(|domain| domain.level.to_string()).collect()
}

fn set(list: &str) -> CpuSet {
    CpuSet::parse_list(list).expect("a list of CPUs")
}

#[test]
fn every_cpu_of_every_captured_machine_is_as_the_kernel_had_it() {
    let mut nr_cpus = 0;
    for captured in Captured::all() {
        let (machine, kernel) = (model(&captured), captured.kernel_domains());
        assert_eq!(machine.cpus.len(), kernel.len(), "{}", captured.shape);
        for (id, cpu) in &machine.cpus {
            let expected = shown_by_kernel(&kernel[&id.to_string()]);
            assert_eq!(shown_by_model(&cpu.domains), expected, "{} CPU {id}", captured.shape);
            nr_cpus += 1;
        }
        assert_eq!(differences(&captured), [""; 0], "{}", captured.shape);
        let preferred = Machine::from_root(&captured.root()).expect("a readable machine");
        assert_eq!(preferred, machine, "{}: nothing to prefer", captured.shape);
    }
    assert_eq!(nr_cpus, 259);
}

#[test]
fn a_level_is_named_by_its_distance_whatever_the_depth() {
    let cases: [(&str, usize, &[&str]); 12] = [
        ("uni1", 0, &[]),
        ("smt8", 0, &["SMT", "MC"]),
        ("cluster", 0, &["CLS", "MC"]),
        ("epyc", 0, &["SMT", "MC", "PKG", "NUMA1"]),
        ("asymquirk", 1, &["PKG", "NUMA1", "NUMA2", "NUMA3"]),
        ("asym", 0, &["NUMA1", "NUMA2", "NUMA3"]),
        ("line4", 0, &["MC", "NUMA1", "NUMA2", "NUMA3"]),
        ("line4", 4, &["MC", "NUMA1", "NUMA2"]),
        ("offline", 0, &["MC", "NUMA1", "NUMA3"]),
        ("offline", 12, &["MC", "NUMA2", "NUMA3"]),
        ("memonly", 0, &["MC", "NUMA1"]),
        ("isolcpus", 8, &[]),
    ];
    for (shape, cpu, expected) in cases {
        assert_eq!(levels(&model(&Captured::unpack(shape)), cpu), expected, "{shape} CPU {cpu}");
    }
}

#[test]
fn caches_nodes_and_ids_are_read() {
    let cases: [(&str, &[&str], &[usize], usize); 5] = [
        ("snc", &["0-3", "4-7", "8-11", "12-15"], &[0, 1, 2, 3], 16),
        ("holes", &["0-1", "2-3", "4-5"], &[0, 2, 5], 6),
        ("memonly", &["0-3", "4-7"], &[0, 1], 8),
        ("offline", &["0-2", "4-6", "12-15"], &[0, 1, 3], 16),
        ("isolcpus", &["0-1", "2", "3", "4-7", "8", "9-11", "12-15"], &[0, 1, 2, 3], 16),
    ];
    for (shape, llcs, nodes, nr_cpu_ids) in cases {
        let machine = model(&Captured::unpack(shape));
        assert_eq!(machine.llcs, llcs.iter().map(|list| set(list)).collect::<Vec<_>>(), "{shape}");
        assert_eq!(machine.nodes(), nodes, "{shape}");
        assert_eq!(machine.nr_cpu_ids, nr_cpu_ids, "{shape}");
    }
    assert_eq!(model(&Captured::unpack("isolcpus")).isolated, set("2-3,8"));
    assert_eq!(model(&Captured::unpack("holes")).numa_distances, [14, 20, 24]);
}

#[test]
fn asymmetric_distances_are_noted() {
    let notes = model(&Captured::unpack("asymdist")).notes;
    assert!(notes.iter().any(|note| note.contains("0-1") && note.contains("1-2")), "{notes:?}");
}

const CPU0: &str = "sys/devices/system/cpu/cpu0";

#[test]
fn an_altered_machine_is_found_to_differ() {
    let cases: [(&str, String, &str, &str, &str); 7] = [
        (
            "seed16",
            "sys/devices/system/node/node0/distance".into(),
            "12 20 22",
            "20 12 22",
            "NUMA1",
        ),
        ("two2x4", "sys/devices/system/node/node0/distance".into(), "21", "31", "CPUs 0-3"),
        ("llc2", format!("{CPU0}/cache/index3/shared_cpu_list"), "0-3", "0-7", "MC"),
        ("smt8", format!("{CPU0}/topology/thread_siblings_list"), "0-1", "0", "CPUs 0"),
        ("isolcpus", "sys/devices/system/cpu/isolated".into(), "2-3,8", "2-3", "CPUs 8"),
        ("epycamd", "proc/cpuinfo".into(), "AuthenticAMD", "GenuineIntel", "SD_WAKE_AFFINE"),
        (
            "offline",
            "sys/devices/system/cpu/online".into(),
            "0-2,",
            "0-1,",
            "CPUs 2: the kernel shows",
        ),
    ];
    for (shape, file, from, to, said) in cases {
        let captured = Captured::unpack(shape);
        let text = captured.read(&file);
        assert!(text.contains(from), "{shape} {file} holds {text}");
        captured.write(&file, &text.replace(from, to));
        let found = differences(&captured);
        assert!(found.iter().any(|line| line.contains(said)), "{shape} {file}: {found:#?}");
        assert_eq!(command::run(&compare_args(&captured)).expect("a comparison"), 1, "{shape}");
    }
}

#[test]
fn the_kernels_domains_win_over_an_altered_sysfs() {
    let captured = Captured::unpack("seed16");
    let truth = model(&captured);
    captured.write("sys/devices/system/node/node0/distance", "10 22 20 12\n");
    assert_ne!(model(&captured).cpus, truth.cpus);
    for flags_are_shown in [true, false] {
        if !flags_are_shown {
            captured.remove("raw/sched-domains.txt");
        }
        let machine = Machine::from_root(&captured.root()).expect("a readable machine");
        let spans = |machine: &Machine| -> Vec<Vec<Shown>> {
            machine.cpus.values().map(|cpu| shown_by_model(&cpu.domains)).collect()
        };
        assert_eq!(spans(&machine), spans(&truth));
        assert!(
            machine.notes.iter().any(|note| note.contains("proc/schedstat")),
            "{:?}",
            machine.notes
        );
    }
}

#[test]
fn the_kernels_numa_domains_get_the_level_of_their_distance() {
    let captured = Captured::unpack("offline");
    let cache = "sys/devices/system/cpu/cpu12/cache/index3/shared_cpu_list";
    captured.write(cache, "12-13\n");
    assert_eq!(levels(&model(&captured), 12), ["MC", "PKG", "NUMA2", "NUMA3"]);
    let machine = Machine::from_root(&captured.root()).expect("a readable machine");
    assert_eq!(levels(&machine, 12), ["MC", "NUMA2", "NUMA3"]);
}

#[test]
fn without_the_kernels_domains_the_model_stands_and_a_comparison_is_refused() {
    let captured = Captured::unpack("epyc");
    captured.remove("proc/schedstat");
    captured.remove("raw/sched-domains.txt");
    assert_eq!(Machine::from_root(&captured.root()).expect("a machine"), model(&captured));
    let refused = command::run(&compare_args(&captured)).expect_err("nothing to compare with");
    assert_eq!(scx_retune::error::exit_code_of(&refused), 3);
    assert!(refused.to_string().contains("proc/schedstat"), "{refused}");
}

#[test]
fn an_altered_kernel_flag_is_found() {
    let captured = Captured::unpack("flat4");
    let text = captured.read("raw/sched-domains.txt");
    captured.write("raw/sched-domains.txt", &text.replace(" SD_PREFER_SIBLING", ""));
    let found = differences(&captured);
    assert!(found.len() == 1 && found[0].starts_with("CPUs 0-3: MC has"), "{found:?}");
}

#[test]
fn json_has_the_contracts_shape() {
    let json: Value =
        serde_json::from_str(&command::json(&model(&Captured::unpack("two2x4"))).unwrap()).unwrap();
    let top = &json["cpus"]["7"][1];
    assert_eq!(top["level"], "NUMA1");
    assert_eq!(top["name"], "NUMA");
    assert_eq!(top["span"], "0-7");
    assert_eq!(top["flags"][0], "SD_BALANCE_NEWIDLE");
    assert_eq!(json["cpus"].as_object().unwrap().len(), 8);
}

#[test]
fn explain_refuses_a_cpu_that_is_not_online() {
    let captured = Captured::unpack("offline");
    let explain = |a, b| {
        let args =
            TopoArgs { explain: Some(vec![a, b]), compare: false, ..compare_args(&captured) };
        command::run(&args)
    };
    assert_eq!(explain(0, 12).expect("both are online"), 0);
    let refused = explain(0, 3).expect_err("CPU 3 is offline");
    assert_eq!(scx_retune::error::exit_code_of(&refused), 2);
    assert!(refused.to_string().contains("0-2,4-6,12-15"), "{refused}");
}

fn compare_args(captured: &Captured) -> TopoArgs {
    TopoArgs { root: captured.root(), json: false, compare: true, explain: None }
}
