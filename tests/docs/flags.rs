//! docs/flags.md.

use std::collections::BTreeMap;

use scx_retune::flags::{Flag, Matrix, Preset};
use scx_retune::topology::domains;
use scx_retune::topology::facts::{CpuFacts, Facts, NodeFacts, Processor};
use scx_retune::topology::{CpuSet, Domain, Level, Machine};

use crate::{code, table};

/// A machine that has every level: four nodes of two last-level caches, each of two clusters of
/// two cores with two threads. The nearest node is at 21, the others beyond the reclaim distance.
fn machine() -> Machine {
    const CPUS: usize = 64;
    let block = |cpu: usize, size: usize| -> CpuSet {
        (cpu / size * size..cpu / size * size + size).collect()
    };
    let cpu = |id: usize| CpuFacts {
        node: id / 16,
        package: Some(id as i64 / 16),
        threads: block(id, 2),
        cluster: block(id, 4),
        cache: Some(block(id, 8)),
        package_cpus: block(id, 16),
        capacity: None,
    };
    let distance = |a: usize, b: usize| match (a == b, a / 2 == b / 2) {
        (true, _) => 10,
        (_, true) => 21,
        _ => 31,
    };
    let node = |id: usize| NodeFacts {
        cpus: block(id * 16, 16),
        distances: (0..4).map(|to| (to, distance(id, to))).collect(),
    };
    domains::machine(&Facts {
        nr_cpu_ids: CPUS,
        online: (0..CPUS).collect(),
        isolated: CpuSet::new(),
        cpus: (0..CPUS).map(|id| (id, cpu(id))).collect(),
        nodes: (0..4).map(|id| (id, node(id))).collect::<BTreeMap<_, _>>(),
        processor: Processor { vendor: "GenuineIntel".to_owned(), family: 6, model: 85 },
    })
}

pub fn document() -> String {
    let machine = machine();
    format!(
        "{HEAD}\n{}{DEFAULTS}\n{}{PRESETS}\n{}{TAIL}",
        flags(),
        defaults(&machine),
        presets(&machine)
    )
}

fn flags() -> String {
    let row = |flag: Flag| {
        let aliases: Vec<String> = flag.aliases().iter().map(|alias| code(alias)).collect();
        vec![
            code(flag.name()),
            aliases.join(", "),
            flag.gates().to_owned(),
            flag.reader().to_owned(),
            flag.undelivered().map_or_else(|| "yes".to_owned(), |why| format!("n/a: {why}")),
        ]
    };
    table(
        &["flag", "alias", "on at a level means", "whose word is read", "delivered"],
        Flag::ALL.map(row),
    )
}

/// As the domain model has them for CPU 0.
fn defaults(machine: &Machine) -> String {
    let row = |domain: &Domain| {
        let flags = Flag::ALL.map(|flag| default_of(flag, domain).to_owned());
        [place(machine, domain.level)].into_iter().chain(flags).collect()
    };
    let names = Flag::ALL.map(Flag::name);
    table(&[&["level"], &names[..]].concat(), machine.cpus[&0].domains.iter().map(row))
}

/// LOAD_BALANCE has no bit in the kernel any more.
fn default_of(flag: Flag, domain: &Domain) -> &'static str {
    match flag {
        Flag::LoadBalance => "always",
        _ if domain.flags.contains(&flag.kernel_name()) => "on",
        _ => "off",
    }
}

/// The level, and for a NUMA level its distance.
fn place(machine: &Machine, level: Level) -> String {
    let position = level.index().checked_sub(scx_retune::topology::NR_LOCAL_LEVELS);
    let distance = position.map(|position| machine.numa_distances[position]);
    distance.map_or_else(|| level.to_string(), |d| format!("{level} at distance {d}"))
}

fn presets(machine: &Machine) -> String {
    let row = |preset: Preset| {
        let mut matrix = Matrix::mainline(machine);
        matrix.apply(&preset.assignments(machine));
        let levels = Flag::delivered().map(|flag| on_levels(machine, &matrix, flag));
        [code(preset.name()), preset.what().to_owned()].into_iter().chain(levels).collect()
    };
    let names: Vec<&str> = Flag::delivered().map(Flag::name).collect();
    table(&[&["preset", "what"], &names[..]].concat(), Preset::ALL.map(row))
}

/// Where CPU 0 has the flag on: a threshold in one word, anything else as a list.
fn on_levels(machine: &Machine, matrix: &Matrix, flag: Flag) -> String {
    let levels = machine.levels();
    let on: Vec<Level> =
        levels.iter().copied().filter(|level| matrix.word(0).get(flag, *level)).collect();
    match on.last() {
        None => "nowhere".to_owned(),
        Some(_) if on.len() == levels.len() => "everywhere".to_owned(),
        Some(last) if levels.starts_with(&on) => format!("up to {last}"),
        Some(_) => on.iter().map(Level::to_string).collect::<Vec<_>>().join(" "),
    }
}

const HEAD: &str = "\
<!-- Generated from the code: UPDATE_DOCS=1 cargo test --test docs -->

# Flags

One bit for every flag, level and CPU. `get` prints them, `set` changes them while tasks run:

    scx_retune set NUMA.WAKE_AFFINE=off               every NUMA level of every CPU
    scx_retune set NUMA2@node1.NEWIDLE=off            one distance, what node 1's CPUs do
    scx_retune set 'MC@cpus0-3+8.WAKE_AFFINE=on,*@llc3.NEWIDLE=off'
    scx_retune set 2009-affine                        a preset

An assignment is `LEVEL[@SET].FLAG=on|off`. Commas separate assignments; all are applied or none.

* `LEVEL` is a level that `get` prints; `NUMA` is every NUMA level, `*` every level.
* `SET` is `node1`, `cpus0-3+8` or `llc2`, with the numbers that `topo` prints; without it, every CPU.
* `FLAG` is a name below, with or without `SD_`, in any case, `-` for `_`.

A flag limits what its CPUs do, not what is done to them: with `NUMA@node1.NEWIDLE=off` node 1 no
longer pulls, and node 0 may still pull from node 1. Flags gate balance, never liveness.
";

const DEFAULTS: &str = "
## Defaults

What mainline has on a machine that has every level, the last one beyond the reclaim distance (30;
32 on AMD from family 17h), and what `run` begins with. `LOAD_BALANCE` left the kernel's flags in 5.8;
what it allowed is always done. A level that adds nothing for a CPU has no effect there; `get` shows
`-` where that is so for all of them.
";

const PRESETS: &str = "
## Presets

Each sets every flag that this build delivers; `set` says on stderr what it left out. Here on the
same machine:
";

const TAIL: &str = "
## Thresholds and holes

In the kernel a level may have one of these flags only if every level below it has it: the states are
thresholds, \"on up to level L\". Here every bit is free. What a hole means:

* `WAKE_AFFINE` is decided by one level alone, the lowest that holds both the waker's CPU and the
  wakee's previous CPU. Off at NUMA1 and on at NUMA2: no pull between the nearest nodes, pulls between
  farther ones.
* `BALANCE_NEWIDLE` of a level covers the CPUs that the level adds to the one below. Off at MC and on
  at NUMA1: a CPU that goes idle passes its neighbours by and pulls from the next nodes.
";
