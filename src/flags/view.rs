//! What `get` shows: each flag at each level, as a table, as JSON and as text that `set` reads.
//!
//! Only CPUs for which a level exists count: a bit has no effect elsewhere. Levels below NUMA that
//! no CPU has are shown as `-`, because they can be set.

use std::fmt;

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{Flag, Matrix, NR_FLAGS, level_name};
use crate::topology::{CpuSet, Level, Machine};

/// The flags of a machine, by level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    pub generation: u64,
    /// Nearest first.
    pub levels: Vec<Row>,
    /// Flags shown as `n/a`, with the reasons.
    #[serde(serialize_with = "reasons_as_map")]
    pub undelivered: Vec<(Flag, &'static str)>,
}

/// One level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The level as this machine calls it.
    #[serde(rename = "level")]
    pub name: String,
    /// In the order of `Flag::ALL`.
    #[serde(rename = "flags", serialize_with = "cells_as_map")]
    pub cells: [Cell; NR_FLAGS],
}

/// One flag at one level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    On,
    Off,
    /// Some CPUs have it on and some off.
    Mixed {
        on: CpuSet,
        off: CpuSet,
    },
    /// The level adds nothing for any CPU: `-`.
    Absent,
    /// This build does not deliver the flag: `n/a`.
    Undelivered,
}

impl View {
    pub(super) fn new(matrix: &Matrix, machine: &Machine) -> View {
        let own = machine.levels();
        let levels = Level::all()
            .filter(|level| !level.is_numa() || own.contains(level))
            .map(|level| Row::new(level, matrix, machine))
            .collect();
        let undelivered =
            Flag::ALL.into_iter().filter_map(|flag| Some((flag, flag.undelivered()?)));
        View { generation: matrix.generation(), levels, undelivered: undelivered.collect() }
    }

    /// The assignments that `set` needs to bring any matrix of this machine to this view;
    /// empty for a machine without domains.
    pub fn plain(&self) -> String {
        self.levels.iter().flat_map(Row::plain).collect::<Vec<_>>().join(",")
    }
}

impl Row {
    fn new(level: Level, matrix: &Matrix, machine: &Machine) -> Row {
        let cells = Flag::ALL.map(|flag| Cell::new(flag, level, matrix, machine));
        Row { name: level_name(level, machine), cells }
    }

    fn plain(&self) -> Vec<String> {
        let cells = Flag::ALL.iter().zip(&self.cells);
        cells.flat_map(|(flag, cell)| cell.plain(&self.name, *flag)).collect()
    }
}

impl Cell {
    fn new(flag: Flag, level: Level, matrix: &Matrix, machine: &Machine) -> Cell {
        if flag.undelivered().is_some() {
            return Cell::Undelivered;
        }
        let cpus = machine.cpus.values().filter(|cpu| cpu.domain(level).is_some());
        let (on, off): (Vec<usize>, Vec<usize>) =
            cpus.map(|cpu| cpu.id).partition(|&id| matrix.word(id).get(flag, level));
        match (on.is_empty(), off.is_empty()) {
            (true, true) => Cell::Absent,
            (false, true) => Cell::On,
            (true, false) => Cell::Off,
            (false, false) => {
                Cell::Mixed { on: on.into_iter().collect(), off: off.into_iter().collect() }
            }
        }
    }

    fn plain(&self, level: &str, flag: Flag) -> Vec<String> {
        let at =
            |cpus: &CpuSet| format!("{level}@cpus{}.{flag}", cpus.to_string().replace(',', "+"));
        match self {
            Cell::On | Cell::Off => vec![format!("{level}.{flag}={self}")],
            Cell::Mixed { on, off } => vec![format!("{}=on", at(on)), format!("{}=off", at(off))],
            Cell::Absent | Cell::Undelivered => Vec::new(),
        }
    }
}

/// The value that most CPUs have, and those that differ: `on (4-7 off)`.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::On => f.pad("on"),
            Cell::Off => f.pad("off"),
            Cell::Mixed { on, off } if off.len() <= on.len() => write!(f, "on ({off} off)"),
            Cell::Mixed { on, .. } => write!(f, "off ({on} on)"),
            Cell::Absent => f.pad("-"),
            Cell::Undelivered => f.pad("n/a"),
        }
    }
}

/// The table, without a newline at its end.
impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let flags = Flag::ALL.iter().map(ToString::to_string);
        table.set_header(std::iter::once("LEVEL".to_owned()).chain(flags));
        for row in &self.levels {
            let cells = row.cells.iter().map(ToString::to_string);
            table.add_row(std::iter::once(row.name.clone()).chain(cells));
        }
        f.write_str(&table.trim_fmt())
    }
}

/// `"on"`, `"off"`, `"-"`, `"n/a"`, or `{"on": LIST, "off": LIST}` where CPUs differ.
impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Cell::Mixed { on, off } = self else {
            return serializer.collect_str(self);
        };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("on", &on.to_string())?;
        map.serialize_entry("off", &off.to_string())?;
        map.end()
    }
}

fn cells_as_map<S: Serializer>(cells: &[Cell; NR_FLAGS], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Flag::ALL.iter().map(|flag| flag.name()).zip(cells))
}

fn reasons_as_map<S: Serializer>(
    reasons: &[(Flag, &'static str)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(reasons.iter().map(|(flag, reason)| (flag.name(), reason)))
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, parse};
    use super::*;
    use proptest::prelude::*;

    fn view_after(text: &str) -> View {
        let machine = fixture::line();
        let mut matrix = Matrix::mainline(&machine);
        matrix.apply(&parse(text, &machine).unwrap());
        matrix.view(&machine)
    }

    #[test]
    fn the_table_has_a_row_for_each_level_that_can_be_set() {
        let table = view_after("NUMA1@node1.NEWIDLE=off").to_string();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = table.lines().map(words).collect();
        assert_eq!(
            lines,
            [
                "LEVEL WAKE_AFFINE BALANCE_NEWIDLE BALANCE_FORK BALANCE_WAKE BALANCE_EXEC LOAD_BALANCE",
                "SMT - - - - n/a n/a",
                "CLS - - - - n/a n/a",
                "MC on on on off n/a n/a",
                "PKG - - - - n/a n/a",
                "NUMA1 on on (4-7 off) on off n/a n/a",
                "NUMA2 on on on off n/a n/a",
                "NUMA3 off on off off n/a n/a",
            ]
        );
    }

    #[test]
    fn cpus_without_the_level_do_not_make_it_mixed() {
        let view = view_after("NUMA3@node1.NEWIDLE=off");
        assert_eq!(view.levels[6].cells[Flag::BalanceNewidle.index()], Cell::On);
    }

    #[test]
    fn the_plain_text_is_what_set_reads() {
        let plain = view_after("NUMA1@cpus0+4-7.NEWIDLE=off").plain();
        assert!(plain.starts_with("MC.WAKE_AFFINE=on,MC.BALANCE_NEWIDLE=on,"), "{plain}");
        let mixed = "NUMA1@cpus1-3+8-15.BALANCE_NEWIDLE=on,NUMA1@cpus0+4-7.BALANCE_NEWIDLE=off";
        assert!(plain.contains(mixed), "{plain}");
    }

    #[test]
    fn json_has_every_flag_of_every_level() {
        let json = serde_json::to_value(view_after("NUMA1@node1.NEWIDLE=off")).unwrap();
        assert_eq!(json["generation"], 1);
        assert_eq!(json["levels"][0]["flags"]["WAKE_AFFINE"], "-");
        assert_eq!(json["levels"][4]["level"], "NUMA1");
        let mixed = &json["levels"][4]["flags"]["BALANCE_NEWIDLE"];
        assert_eq!((&mixed["on"], &mixed["off"]), (&"0-3,8-15".into(), &"4-7".into()));
        let reason = json["undelivered"]["BALANCE_EXEC"].as_str().unwrap();
        assert!(reason.contains("exec"));
    }

    #[test]
    fn the_kernels_name_of_the_package_level_is_shown_and_read() {
        let mut machine = fixture::line();
        for cpu in machine.cpus.values_mut() {
            cpu.domains[0].level = Level::PKG;
            cpu.domains[0].name = "NODE".to_owned();
        }
        let view = Matrix::mainline(&machine).view(&machine);
        assert_eq!(view.levels[3].name, "NODE");
        assert!(parse(&view.plain(), &machine).is_ok(), "{}", view.plain());
    }

    fn assignment() -> impl Strategy<Value = String> {
        let level = prop_oneof!["\\*|SMT|CLS|MC|PKG|NUMA|NUMA[1-3]"];
        let set = "(@node[0-3]|@llc[0-3]|@cpus[0-9]|@cpus1[0-9]|@cpus[0-4]-[5-9]\\+1[0-9])?";
        (level, set, "WAKE_AFFINE|NEWIDLE", "on|off")
            .prop_map(|(level, set, flag, value)| format!("{level}{set}.{flag}={value}"))
    }

    proptest! {
        #[test]
        fn any_matrix_survives_its_plain_text(
            steps in prop::collection::vec(assignment(), 0..12), start in 0usize..6
        ) {
            let machine = fixture::line();
            let mut matrix = Matrix::mainline(&machine);
            for step in &steps {
                matrix.apply(&parse(step, &machine).unwrap());
            }
            let view = matrix.view(&machine);
            let mut other = Matrix::mainline(&machine);
            other.apply(&parse(super::super::Preset::ALL[start].name(), &machine).unwrap());
            other.apply(&parse(&view.plain(), &machine).unwrap());
            prop_assert_eq!(other.view(&machine).levels, view.levels);
        }
    }
}
