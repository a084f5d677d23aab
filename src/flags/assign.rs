//! The one spelling `LEVEL[@SET].FLAG=on|off`: read, checked against the machine, nothing applied.
//!
//! ```text
//! NUMA.WAKE_AFFINE=off                      every NUMA level of every CPU
//! NUMA2@node1.NEWIDLE=off                   one distance, what node 1's CPUs do
//! MC@cpus0-3+8.WAKE_AFFINE=on,*@llc3.newidle=off
//! ```
//!
//! Commas separate assignments, so a CPU list has `+` where the kernel's has a comma.

use super::nearest::{nearest, suggestion};
use super::{ALL_LEVELS, Flag, NUMA_LEVELS, Preset, level_bit, level_name};
use crate::error::Error;
use crate::topology::{CpuSet, Level, Machine};

/// One flag, switched at some levels of some CPUs. Only `parse` and `Preset` make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub(super) flag: Flag,
    /// Mask of level indices.
    pub(super) levels: u16,
    pub(super) cpus: CpuSet,
    pub(super) on: bool,
}

/// Reads a comma-separated list of assignments, or the name of a preset in its place.
///
/// All are good or none is returned. An error names what is wrong and the nearest right words.
pub fn parse(text: &str, machine: &Machine) -> Result<Vec<Assignment>, Error> {
    if let Some(preset) = Preset::from_name(text) {
        return Ok(preset.assignments(machine));
    }
    if !text.contains(['=', '.', ',']) {
        return Err(unknown_preset(text.trim()));
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let assignments =
        parts.iter().map(|part| parse_one(part, machine)).collect::<Result<Vec<_>, _>>()?;
    refuse_contradictions(&parts, &assignments)?;
    Ok(assignments)
}

fn unknown_preset(text: &str) -> Error {
    let names = Preset::ALL.map(Preset::name);
    let what = match text.is_empty() {
        true => "nothing to set".to_owned(),
        false => format!("'{text}' is neither an assignment nor a preset"),
    };
    Error::usage(format!(
        "{what}: say LEVEL[@SET].FLAG=on|off or one of {}{}",
        names.join(", "),
        suggestion(text, &names)
    ))
}

fn parse_one(part: &str, machine: &Machine) -> Result<Assignment, Error> {
    let (place, value) = part.split_once('=').ok_or_else(|| malformed(part, "no '='"))?;
    let (domain, flag) = place.split_once('.').ok_or_else(|| malformed(part, "no '.'"))?;
    let (level, set) = match domain.split_once('@') {
        Some((level, set)) => (level, Some(set.trim())),
        None => (domain, None),
    };
    Ok(Assignment {
        levels: parse_levels(level.trim(), machine)?,
        cpus: set.map_or_else(|| Ok(all_cpus(machine)), |set| parse_set(set, machine))?,
        flag: parse_flag(flag.trim())?,
        on: parse_value(value.trim())?,
    })
}

fn malformed(part: &str, why: &str) -> Error {
    Error::usage(format!(
        "'{part}' is not an assignment: it has {why}; say LEVEL[@SET].FLAG=on|off, such as \
         NUMA@node1.NEWIDLE=off"
    ))
}

/// Absent CPUs get the flags too, so that they have them when they come online.
fn all_cpus(machine: &Machine) -> CpuSet {
    (0..machine.nr_cpu_ids).collect()
}

fn parse_levels(name: &str, machine: &Machine) -> Result<u16, Error> {
    match name.to_ascii_uppercase().as_str() {
        "*" => Ok(ALL_LEVELS),
        "NUMA" => Ok(NUMA_LEVELS),
        // The kernel has one or the other; both are the level that spans the node.
        "NODE" => Ok(level_bit(Level::PKG)),
        name => single_level(name, machine).map(level_bit).ok_or(()),
    }
    .map_err(|()| unknown_level(name, machine))
}

/// A level below NUMA, also where this machine lacks it, or one of its own NUMA levels.
fn single_level(name: &str, machine: &Machine) -> Option<Level> {
    let own = machine.levels();
    Level::all()
        .filter(|level| !level.is_numa() || own.contains(level))
        .find(|level| level.to_string() == name)
}

fn unknown_level(name: &str, machine: &Machine) -> Error {
    let levels = machine.levels();
    let names: Vec<String> = levels.iter().map(|&level| level_name(level, machine)).collect();
    let farthest = levels.iter().rev().find(|level| level.is_numa()).map(Level::to_string);
    let near = match farthest {
        Some(farthest) if is_numa_number(name) => format!("; did you mean {farthest}?"),
        _ => suggestion(name, &level_words(&names)),
    };
    Error::usage(format!("no level '{name}' on this machine: it has {}{near}", names.join(", ")))
}

/// NUMA and a number that this machine does not have: the farthest level is the nearest to it.
fn is_numa_number(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("NUMA").is_some_and(|number| number.parse::<u64>().is_ok_and(|n| n > 0))
}

fn level_words(names: &[String]) -> Vec<&str> {
    let mut words: Vec<&str> = names.iter().map(String::as_str).collect();
    if words.iter().any(|word| word.starts_with("NUMA")) {
        words.push("NUMA");
    }
    words
}

fn parse_flag(name: &str) -> Result<Flag, Error> {
    let flag = Flag::from_name(name).ok_or_else(|| unknown_flag(name))?;
    match flag.undelivered() {
        None => Ok(flag),
        Some(why) => Err(Error::usage(format!(
            "cannot set {flag}: {why}; flags that can be set are {}",
            flag_names(Flag::delivered()).join(", ")
        ))),
    }
}

fn unknown_flag(name: &str) -> Error {
    let names = flag_names(Flag::ALL);
    let near = match suggestion(&super::canonical_name(name), &names) {
        near if near.is_empty() => format!(": the flags are {}", names.join(", ")),
        near => near,
    };
    Error::usage(format!("no flag '{name}'{near}"))
}

fn flag_names(flags: impl IntoIterator<Item = Flag>) -> Vec<&'static str> {
    flags.into_iter().map(Flag::name).collect()
}

fn parse_value(value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Error::usage(format!("no value '{value}': a flag is on or off"))),
    }
}

const SETS: [&str; 3] = ["node", "cpus", "llc"];

fn parse_set(set: &str, machine: &Machine) -> Result<CpuSet, Error> {
    let lower = set.to_ascii_lowercase();
    let kind = SETS.into_iter().find(|kind| lower.starts_with(kind)).unwrap_or_default();
    let rest = &lower[kind.len()..];
    match kind {
        "node" => node_set(rest, machine),
        "cpus" => cpu_set(rest, machine),
        "llc" => llc_set(rest, machine),
        _ => Err(unknown_set(set)),
    }
}

fn unknown_set(set: &str) -> Error {
    let end = set.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(set.len());
    let (kind, rest) = set.split_at(end);
    let near = match nearest(kind, &SETS).as_slice() {
        [near, ..] => format!("; did you mean {near}{rest}?"),
        [] => String::new(),
    };
    Error::usage(format!(
        "no set '{set}': a set is node1, cpus0-3+8 or llc2, with the numbers that topo prints{near}"
    ))
}

fn node_set(id: &str, machine: &Machine) -> Result<CpuSet, Error> {
    let cpus = id.parse().map(|node| machine.node_cpus(node)).unwrap_or_default();
    match cpus.is_empty() {
        false => Ok(cpus),
        true => {
            let nodes: CpuSet = machine.nodes().into_iter().collect();
            Err(Error::usage(format!("no node {}: nodes with CPUs are {nodes}", shown(id))))
        }
    }
}

fn llc_set(index: &str, machine: &Machine) -> Result<CpuSet, Error> {
    let llc = index.parse().ok().and_then(|index: usize| machine.llcs.get(index));
    llc.cloned().ok_or_else(|| {
        let llcs: CpuSet = (0..machine.llcs.len()).collect();
        Error::usage(format!("no LLC {}: LLCs of this machine are {llcs}", shown(index)))
    })
}

fn cpu_set(list: &str, machine: &Machine) -> Result<CpuSet, Error> {
    let cpus = CpuSet::parse_list(&list.replace('+', ","));
    let cpus = cpus.map_err(|why| Error::usage(format!("no set 'cpus{list}': {why}")))?;
    let absent = cpus.difference(&all_cpus(machine));
    match (cpus.is_empty(), absent.first()) {
        (false, None) => Ok(cpus),
        (true, _) => Err(Error::usage("a set 'cpus' without CPUs: say cpus0-3+8".to_owned())),
        (_, Some(absent)) => Err(Error::usage(format!(
            "no CPU {absent}: CPUs of this machine are {}",
            machine.cpus.keys().copied().collect::<CpuSet>()
        ))),
    }
}

/// A number as it stands; anything else in quotes.
fn shown(text: &str) -> String {
    match text.parse::<usize>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("'{text}'"),
    }
}

/// Two assignments that would give one bit two values leave the order to decide: refused.
fn refuse_contradictions(parts: &[&str], assignments: &[Assignment]) -> Result<(), Error> {
    for (i, first) in assignments.iter().enumerate() {
        for (j, second) in assignments.iter().enumerate().skip(i + 1) {
            if let Some(cpus) = contested(first, second) {
                return Err(Error::usage(format!(
                    "'{}' and '{}' contradict each other on CPUs {cpus}: leave one out, or set \
                     them in two calls",
                    parts[i], parts[j]
                )));
            }
        }
    }
    Ok(())
}

fn contested(first: &Assignment, second: &Assignment) -> Option<CpuSet> {
    let is_same_bit = first.flag == second.flag && first.levels & second.levels != 0;
    let differ = is_same_bit && first.on != second.on;
    let cpus = differ.then(|| first.cpus.intersection(&second.cpus))?;
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::super::{Matrix, fixture};
    use super::*;
    use crate::error::Kind;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Vec<Assignment> {
        parse(text, &fixture::line()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn refused(text: &str) -> String {
        let error = parse(text, &fixture::line()).expect_err(text);
        assert_eq!(error.kind, Kind::Usage);
        error.message
    }

    #[test]
    fn an_assignment_is_read_in_any_spelling() {
        let plain = parsed("NUMA@node1.BALANCE_NEWIDLE=off");
        for text in [
            "numa@NODE1.sd_balance-newidle=OFF",
            "Numa@cpus4-7.newidle=off",
            "NUMA@llc1.SD_NEWIDLE=Off",
            " NUMA @ cpus4+5+6-7 . NEWIDLE = off ",
        ] {
            assert_eq!(parsed(text), plain, "{text}");
        }
    }

    #[test]
    fn a_level_names_its_bits() {
        for (level, levels) in [
            ("SMT", 0b1),
            ("cls", 0b10),
            ("PKG", 0b1000),
            ("node", 0b1000),
            ("NUMA2", 0b10_0000),
            ("NUMA", 0b11_1111_0000),
            ("*", 0b11_1111_1111),
        ] {
            assert_eq!(parsed(&format!("{level}.NEWIDLE=on"))[0].levels, levels, "{level}");
        }
    }

    #[test]
    fn without_a_set_every_possible_cpu_is_meant() {
        assert_eq!(parsed("MC.NEWIDLE=on")[0].cpus, (0..20).collect());
        assert_eq!(parsed("MC@cpus18.NEWIDLE=on")[0].cpus, (18..19).collect());
    }

    #[test]
    fn a_wrong_level_names_the_nearest() {
        let own = "on this machine: it has MC, NUMA1, NUMA2, NUMA3";
        for (level, near) in [
            ("NUMA4", "; did you mean NUMA3?"),
            ("NUMA64", "; did you mean NUMA3?"),
            ("MV", "; did you mean MC?"),
            ("NUME", "; did you mean NUMA?"),
            ("DIE", ""),
            ("NUMA0", "; did you mean NUMA1 or NUMA2 or NUMA3 or NUMA?"),
        ] {
            let message = refused(&format!("{level}.NEWIDLE=on"));
            assert_eq!(message, format!("no level '{level}' {own}{near}"));
        }
    }

    #[test]
    fn a_wrong_flag_names_the_nearest() {
        for (flag, near) in [
            ("WAKE_AFFIN", "; did you mean WAKE_AFFINE?"),
            ("sd_affine", "; did you mean WAKE_AFFINE?"),
            ("FORK", "; did you mean BALANCE_FORK?"),
            ("WAKE", "; did you mean WAKE_AFFINE or BALANCE_WAKE?"),
        ] {
            assert_eq!(refused(&format!("MC.{flag}=on")), format!("no flag '{flag}'{near}"));
        }
        assert!(
            refused("MC.SHARE_LLC=on").contains(": the flags are WAKE_AFFINE, BALANCE_NEWIDLE")
        );
    }

    #[test]
    fn a_flag_that_is_not_delivered_is_refused_with_the_reason() {
        let message = refused("NUMA.BALANCE_EXEC=off");
        assert!(message.starts_with("cannot set BALANCE_EXEC: sched_ext never delivers exec"));
        let settable = flag_names(Flag::delivered()).join(", ");
        assert!(message.ends_with(&format!("can be set are {settable}")), "{message}");
    }

    #[test]
    fn a_wrong_value_names_the_right_ones() {
        assert_eq!(refused("MC.NEWIDLE=1"), "no value '1': a flag is on or off");
        assert!(refused("MC.NEWIDLE=").contains("no value ''"));
        assert!(refused("MC.NEWIDLE=on=off").contains("no value 'on=off'"));
    }

    #[test]
    fn a_wrong_set_names_the_right_ones() {
        let message = |set: &str| refused(&format!("MC@{set}.NEWIDLE=on"));
        assert_eq!(message("node7"), "no node 7: nodes with CPUs are 0-3");
        assert_eq!(message("nodex"), "no node 'x': nodes with CPUs are 0-3");
        assert_eq!(message("llc4"), "no LLC 4: LLCs of this machine are 0-3");
        assert_eq!(message("cpus3+20"), "no CPU 20: CPUs of this machine are 0-15");
        assert!(message("cpus3-1").contains("'3-1' is not a CPU number or a range"));
        assert!(message("cpus").contains("without CPUs"));
        assert!(message("cpu3").ends_with("; did you mean cpus3?"));
        assert!(message("nod1").ends_with("; did you mean node1?"));
        assert!(message("").starts_with("no set ''"));
    }

    #[test]
    fn a_malformed_assignment_says_what_it_lacks() {
        assert!(refused("MC.NEWIDLE").contains("it has no '='"));
        assert!(refused("MC=on").contains("it has no '.'"));
        assert!(refused("MC.NEWIDLE=on,").starts_with("'' is not an assignment"));
        assert!(refused("").starts_with("nothing to set: say LEVEL[@SET].FLAG=on|off or one of"));
        assert!(refused("mainlin").ends_with("; did you mean mainline?"));
    }

    #[test]
    fn a_contradiction_is_refused_and_a_repetition_is_not() {
        let message = refused("NUMA.NEWIDLE=on, *@node1.newidle=off");
        assert!(message.starts_with("'NUMA.NEWIDLE=on' and '*@node1.newidle=off' contradict"));
        assert!(message.contains("on CPUs 4-7"), "{message}");
        assert_eq!(parsed("MC.NEWIDLE=on,mc.newidle=on").len(), 2);
        assert_eq!(parsed("MC@node0.NEWIDLE=on,MC@node1.NEWIDLE=off").len(), 2);
    }

    #[test]
    fn one_wrong_assignment_leaves_the_right_ones_unapplied() {
        let machine = fixture::line();
        let before = Matrix::mainline(&machine);
        let mut matrix = before.clone();
        let text = "NUMA.NEWIDLE=off,MC.NEWIDLE=off,NUMA9.NEWIDLE=off";
        let outcome = parse(text, &machine).map(|assignments| matrix.apply(&assignments));
        assert!(outcome.is_err());
        assert_eq!(matrix, before);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = parse(&text, &fixture::line());
        }

        #[test]
        fn any_near_assignment_is_read_or_refused(
            text in "(NUMA|MC|\\*|é)[0-9]{0,20}(@(node|cpus|llc)[-+0-9]{0,24})?\\.[A-Za-z_-]{0,12}=(on|off|é)?,?"
        ) {
            let _ = parse(&text, &fixture::line());
        }
    }
}
