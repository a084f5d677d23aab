//! What two CPUs share, and what each flag of the level does for them.

use super::{Domain, Level, Machine};
use crate::error::Error;

/// A flag that an operator can turn, and what it lets happen between two CPUs.
struct Flag {
    name: &'static str,
    does: fn(usize, usize) -> String,
}

/// In the order of the flag word.
const FLAGS: [Flag; 6] = [
    Flag {
        name: "WAKE_AFFINE",
        does: |a, b| {
            format!(
                "a task that last ran on CPU {b} and is woken by CPU {a} may be pulled to CPU {a}'s side"
            )
        },
    },
    Flag {
        name: "BALANCE_NEWIDLE",
        does: |a, b| format!("CPU {a}, about to go idle, may pull a task that waits for CPU {b}"),
    },
    Flag {
        name: "BALANCE_FORK",
        does: |a, b| format!("a task forked on CPU {a} may start on CPU {b}"),
    },
    Flag {
        name: "BALANCE_WAKE",
        does: |a, b| {
            format!("a task woken on CPU {a}'s side may be placed on CPU {b} by spare capacity")
        },
    },
    Flag {
        name: "BALANCE_EXEC",
        does: |a, b| format!("a task that calls exec on CPU {a} may move to CPU {b}"),
    },
    Flag {
        name: "LOAD_BALANCE",
        does: |a, b| {
            format!("CPU {a} evens out its queue with CPU {b}'s from time to time, busy or not")
        },
    },
];

/// Which level CPUs `a` and `b` share, as `a` sees it, and what each flag of it does for the pair.
///
/// Errors (usage) when one of them is not online, or both are the same.
pub fn explain(machine: &Machine, a: usize, b: usize) -> Result<String, Error> {
    for cpu in [a, b] {
        if !machine.cpus.contains_key(&cpu) {
            return Err(Error::usage(format!(
                "CPU {cpu} is not online; online CPUs: {}",
                machine.online()
            )));
        }
    }
    if a == b {
        return Err(Error::usage(format!("CPU {a} shares everything with itself; name two CPUs")));
    }
    let Some(level) = machine.lowest_common_level(a, b) else {
        return Ok(nothing_shared(machine, a, b));
    };
    let domain =
        machine.cpus[&a].domain(level).expect("the level was found among this CPU's domains");
    Ok(format!("{}{}", shared(machine, a, b, domain), flags(domain, a, b)))
}

fn nothing_shared(machine: &Machine, a: usize, b: usize) -> String {
    let isolated: Vec<String> = [a, b]
        .iter()
        .filter(|&&cpu| machine.isolated.contains(cpu))
        .map(|cpu| format!("CPU {cpu} is isolated; "))
        .collect();
    format!(
        "CPUs {a} and {b} share no domain: {}nothing moves between them but by affinity, whatever the flags\n",
        isolated.concat()
    )
}

fn shared(machine: &Machine, a: usize, b: usize, domain: &Domain) -> String {
    let Domain { level, name, span, .. } = domain;
    let named =
        if level.to_string() == *name { String::new() } else { format!(" ({name} to the kernel)") };
    let back = match machine.lowest_common_level(b, a) {
        Some(other) if other != *level => format!("CPU {b} finds CPU {a} at {other}.\n"),
        _ => String::new(),
    };
    format!(
        "CPU {a} finds CPU {b} at {level}{named}: span {span}{}.\n{back}",
        distance(machine, *level)
    )
}

fn distance(machine: &Machine, level: Level) -> String {
    let position = level.is_numa().then(|| level.index() - super::NR_LOCAL_LEVELS);
    let distance = position.and_then(|position| machine.numa_distances.get(position));
    distance.map_or_else(String::new, |distance| format!(", node distance {distance}"))
}

fn flags(domain: &Domain, a: usize, b: usize) -> String {
    FLAGS
        .iter()
        .map(|flag| {
            format!(
                "  {:<15}  {:<3}  {}\n",
                flag.name,
                kernel_state(domain, flag.name),
                (flag.does)(a, b)
            )
        })
        .collect()
}

/// How the kernel has it: on, off, or always, for what is no flag of the kernel any more
/// (SD_LOAD_BALANCE went in 5.8 and what it allowed stayed).
fn kernel_state(domain: &Domain, flag: &str) -> &'static str {
    let is_set = domain.flags.iter().any(|name| name.strip_prefix("SD_") == Some(flag));
    if is_set || flag == "LOAD_BALANCE" { "on" } else { "off" }
}
