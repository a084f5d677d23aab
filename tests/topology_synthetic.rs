//! Machines that nobody captured: other processors, packages and nodes than those, broken trees.
//! What is expected here is worked out by hand.

#[path = "trees/synthetic.rs"]
mod synthetic;

use std::fs;
use std::os::unix::fs::symlink;

use scx_retune::topology::{CpuSet, Machine, kernel};
use synthetic::{Synthetic, model, put, stack, tree};

fn names(machine: &Machine, cpu: usize) -> Vec<&str> {
    machine.cpus[&cpu].domains.iter().map(|domain| domain.name.as_str()).collect()
}

#[test]
fn processors_differ_in_what_they_make_of_the_same_tables() {
    let far = vec![(0, vec![10, 32]), (1, vec![32, 10])];
    for (vendor, family, keeps) in [
        ("GenuineIntel", 6, false),
        ("AuthenticAMD", 0x15, false),
        ("AuthenticAMD", 0x17, true),
        ("AuthenticAMD", 0x1a, true),
        ("HygonGenuine", 0x18, true),
    ] {
        let dir = tree(&Synthetic {
            processor: (vendor, family, 1),
            ..Synthetic::nodes_of(2, far.clone())
        });
        let top = model(dir.path()).cpus[&0].domains[1].clone();
        assert_eq!(top.flags.contains(&"SD_WAKE_AFFINE"), keeps, "{vendor} {family:#x}");
    }
}

#[test]
fn three_nodes_in_a_package_of_granite_rapids_are_averaged() {
    // The table in the kernel's own comment on slit_cluster_distance().
    let table = [
        [10, 15, 17, 21, 28, 26],
        [15, 10, 15, 23, 26, 23],
        [17, 15, 10, 26, 23, 21],
        [21, 28, 26, 10, 15, 17],
        [23, 26, 23, 15, 10, 15],
        [26, 23, 21, 17, 15, 10],
    ];
    let nodes = table.iter().enumerate().map(|(id, row)| (id, row.to_vec())).collect();
    let mut machine = Synthetic::nodes_of(2, nodes);
    for cpu in &mut machine.cpus {
        cpu.package = cpu.node / 3;
        cpu.package_cpus = (cpu.package * 6..cpu.package * 6 + 6).collect();
    }
    for (model_number, distances) in
        [(0xad, vec![15, 17, 24]), (0xcf, vec![15, 17, 21, 23, 26, 28])]
    {
        machine.processor.2 = model_number;
        let dir = tree(&machine);
        assert_eq!(model(dir.path()).numa_distances, distances, "model {model_number:#x}");
    }
    machine.processor.2 = 0xad;
    let model = model(tree(&machine).path());
    assert_eq!(stack(&model, 0), ["MC 0-1", "NUMA1 0-3", "NUMA2 0-5", "NUMA3 0-11"]);
    assert_eq!(stack(&model, 2), ["MC 2-3", "NUMA1 0-5", "NUMA3 0-11"]);
}

#[test]
fn node_stands_in_pkgs_place_where_a_package_has_several_nodes() {
    let mut machine = Synthetic::nodes_of(4, vec![(0, vec![10, 12]), (1, vec![12, 10])]);
    for cpu in &mut machine.cpus {
        cpu.package = 0;
        cpu.package_cpus = (0..8).collect();
        cpu.cache = (cpu.id / 2 * 2..cpu.id / 2 * 2 + 2).collect();
    }
    let model = model(tree(&machine).path());
    assert_eq!(names(&model, 0), ["MC", "NODE", "NUMA"]);
    assert_eq!(stack(&model, 0), ["MC 0-1", "PKG 0-3", "NUMA1 0-7"]);
}

#[test]
fn isolated_cpus_leave_the_spans_but_not_the_nodes() {
    let two = vec![(3, vec![10, 20]), (7, vec![20, 10])];
    let cases: [(&str, usize, &[&str]); 4] =
        [("1", 0, &["NUMA1 0,2-3"]), ("2-3", 0, &["MC 0-1"]), ("0,2-3", 1, &[]), ("0-3", 1, &[])];
    for (isolated, cpu, expected) in cases {
        let machine =
            Synthetic { isolated: isolated.into(), ..Synthetic::nodes_of(2, two.clone()) };
        let model = model(tree(&machine).path());
        assert_eq!(stack(&model, cpu), expected, "isolated {isolated}");
        assert_eq!(model.nodes(), [3, 7], "isolated {isolated}");
    }
}

#[test]
fn unequal_capacities_are_marked_and_prefer_no_sibling() {
    let dir = tree(&Synthetic::nodes_of(4, vec![(0, vec![10, 20]), (1, vec![20, 10])]));
    for cpu in [2, 3] {
        put(&dir.path().join(format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity")), 512);
    }
    let machine = model(dir.path());
    for (cpu, is_marked) in [(0, true), (4, false)] {
        let flags = &machine.cpus[&cpu].domains[0].flags;
        assert_eq!(flags.contains(&"SD_ASYM_CPUCAPACITY_FULL"), is_marked, "CPU {cpu}: {flags:?}");
        assert_eq!(flags.contains(&"SD_PREFER_SIBLING"), !is_marked, "CPU {cpu}: {flags:?}");
    }
    assert!(machine.cpus[&4].domains[1].flags.contains(&"SD_ASYM_CPUCAPACITY_FULL"));
}

#[test]
fn a_span_never_loses_cpus_of_the_one_below() {
    let mut machine = Synthetic::nodes_of(4, vec![(0, vec![10])]);
    for cpu in &mut machine.cpus {
        cpu.threads = (cpu.id / 2 * 2..cpu.id / 2 * 2 + 2).collect();
        cpu.cache = CpuSet::from_iter([cpu.id % 2, cpu.id % 2 + 2]);
    }
    assert_eq!(stack(&model(tree(&machine).path()), 1), ["SMT 0-1", "MC 0-1,3", "PKG 0-3"]);
}

#[test]
fn a_tree_may_lack_nodes_caches_or_topology() {
    let machine = Synthetic::nodes_of(4, vec![(0, vec![10])]);
    let of_every_cpu =
        |what: &str| (0..4).map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/{what}")).collect();
    let cases: [(Vec<String>, &[&str]); 5] = [
        (vec!["sys/devices/system/node".into()], &["MC 0-3"]),
        (vec!["proc".into()], &["MC 0-3"]),
        (of_every_cpu("cache"), &["PKG 0-3"]),
        (of_every_cpu("topology"), &["PKG 0-3"]),
        (vec!["sys/devices/system/cpu/cpu0/topology".into()], &["MC 0-3"]),
    ];
    for (missing, expected) in cases {
        let dir = tree(&machine);
        missing.iter().for_each(|path| {
            fs::remove_dir_all(dir.path().join(path)).expect("a directory to remove")
        });
        assert_eq!(stack(&model(dir.path()), 0), expected, "without {missing:?}");
    }
}

#[test]
fn a_cpu_that_no_node_lists_is_found_by_its_link() {
    let dir = tree(&Synthetic::nodes_of(2, vec![(0, vec![10, 20]), (1, vec![20, 10])]));
    let system = dir.path().join("sys/devices/system");
    fs::remove_file(system.join("node/node1/cpulist")).unwrap();
    for cpu in [2, 3] {
        symlink("../../node/node1", system.join(format!("cpu/cpu{cpu}/node1"))).unwrap();
    }
    assert_eq!(stack(&model(dir.path()), 3), ["MC 2-3", "NUMA1 0-3"]);
}

#[test]
fn a_broken_tree_is_refused_with_its_file_and_reason() {
    let cases = [
        ("cpu/online", "", "names no CPU"),
        ("cpu/online", "0-x", "0-x"),
        ("cpu/cpu0/topology/thread_siblings_list", "1-0", "1-0"),
        ("cpu/cpu0/topology/physical_package_id", "first", "first"),
        ("node/node1/distance", "20", "1 distances for 2 online nodes"),
        ("node/node1/distance", "20 ten", "ten"),
    ];
    for (file, text, why) in cases {
        let dir = tree(&Synthetic::nodes_of(2, vec![(0, vec![10, 20]), (1, vec![20, 10])]));
        put(&dir.path().join("sys/devices/system").join(file), text);
        let error = Machine::from_root(dir.path()).expect_err(file);
        let message = error.to_string();
        assert!(message.contains(file) && message.contains(why), "{message}");
        assert_eq!(error.exit_code(), 3);
    }
}

#[test]
fn older_schedstat_and_debugfs_alone_can_be_compared() {
    let dir = tree(&Synthetic::nodes_of(2, vec![(0, vec![10, 20]), (1, vec![20, 10])]));
    let stat = |domain1: &str| format!("version 16\ncpu0 0\ndomain0 3 0\ndomain1 {domain1} 0");
    let found = || {
        kernel::compare(
            &model(dir.path()),
            &kernel::read(dir.path()).expect("the kernel's domains"),
        )
    };
    put(&dir.path().join("proc/schedstat"), stat("f"));
    assert_eq!(found(), ["CPUs 1-3: online in sysfs, but the kernel shows no such CPU"]);
    put(&dir.path().join("proc/schedstat"), stat("7"));
    assert!(
        found().contains(&"CPUs 0: NUMA1 spans 0-3 in the model, 0-2 in the kernel".to_string())
    );
    fs::remove_file(dir.path().join("proc/schedstat")).unwrap();
    let debugfs = dir.path().join("sys/kernel/debug/sched/domains");
    for cpu in 0..4 {
        put(&debugfs.join(format!("cpu{cpu}/domain0/name")), "MC");
        put(&debugfs.join(format!("cpu{cpu}/domain1/name")), if cpu < 3 { "NUMA" } else { "PKG" });
    }
    assert_eq!(found(), ["CPUs 3: NUMA1 is named NUMA in the model, PKG by the kernel"]);
}
