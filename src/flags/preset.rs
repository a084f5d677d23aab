//! Whole matrices by name: mainline's, none, all, and the three steps of the commit of 2009.

use super::matrix::mainline_levels;
use super::{ALL_LEVELS, Assignment, Flag, NUMA_LEVELS, level_bit};
use crate::topology::{Cpu, CpuSet, Level, Machine};

/// A named matrix. It says a value for every bit, also for flags that this build leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    Mainline,
    None,
    All,
    /// The commit's three steps: neither flag at NUMA levels, WAKE_AFFINE alone, both.
    /// All else, the levels below NUMA included, is as mainline has it.
    Before2009,
    Affine2009,
    Newidle2009,
}

impl Preset {
    pub const ALL: [Preset; 6] = [
        Preset::Mainline,
        Preset::None,
        Preset::All,
        Preset::Before2009,
        Preset::Affine2009,
        Preset::Newidle2009,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Preset::Mainline => "mainline",
            Preset::None => "none",
            Preset::All => "all",
            Preset::Before2009 => "2009-before",
            Preset::Affine2009 => "2009-affine",
            Preset::Newidle2009 => "2009-newidle",
        }
    }

    /// Case does not matter, and `-` equals `_`.
    pub fn from_name(name: &str) -> Option<Preset> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        Preset::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// The flags that the preset has an opinion on and this build cannot deliver, with the reasons.
    pub fn left_out(self) -> Vec<(Flag, &'static str)> {
        Flag::ALL.into_iter().filter_map(|flag| Some((flag, flag.undelivered()?))).collect()
    }

    /// Assignments that bring any matrix to the preset.
    pub fn assignments(self, machine: &Machine) -> Vec<Assignment> {
        Flag::delivered().flat_map(|flag| self.flag_assignments(flag, machine)).collect()
    }

    fn flag_assignments(self, flag: Flag, machine: &Machine) -> Vec<Assignment> {
        let cpu_levels: Vec<u16> =
            (0..machine.nr_cpu_ids).map(|id| self.levels(flag, machine.cpus.get(&id))).collect();
        let at = |level: Level, on: bool| {
            let has = |&cpu: &usize| (cpu_levels[cpu] & level_bit(level) != 0) == on;
            let cpus: CpuSet = (0..cpu_levels.len()).filter(has).collect();
            Assignment { flag, levels: level_bit(level), cpus, on }
        };
        Level::all()
            .flat_map(|level| [at(level, true), at(level, false)])
            .filter(|assignment| !assignment.cpus.is_empty())
            .collect()
    }

    /// The levels at which the preset has the flag for a CPU.
    fn levels(self, flag: Flag, cpu: Option<&Cpu>) -> u16 {
        let mainline = mainline_levels(flag, cpu);
        match (self, flag) {
            (Preset::None, _) => 0,
            (Preset::All, _) => ALL_LEVELS,
            (Preset::Before2009, Flag::WakeAffine) => mainline & !NUMA_LEVELS,
            (Preset::Before2009 | Preset::Affine2009, Flag::BalanceNewidle) => {
                mainline & !NUMA_LEVELS
            }
            (Preset::Affine2009 | Preset::Newidle2009, Flag::WakeAffine) => mainline | NUMA_LEVELS,
            (Preset::Newidle2009, Flag::BalanceNewidle) => mainline | NUMA_LEVELS,
            _ => mainline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Matrix, Word, fixture, parse};
    use super::*;

    fn matrix_of(text: &str) -> Matrix {
        let machine = fixture::line();
        let mut matrix = Matrix::mainline(&machine);
        for step in text.split(';') {
            matrix.apply(&parse(step, &machine).unwrap());
        }
        matrix
    }

    #[test]
    fn every_preset_reads_its_own_name() {
        for preset in Preset::ALL {
            assert_eq!(Preset::from_name(&preset.name().to_uppercase()), Some(preset));
        }
        assert_eq!(Preset::from_name("2009_affine"), Some(Preset::Affine2009));
        assert_eq!(Preset::from_name("2010"), None);
    }

    #[test]
    fn mainline_undoes_any_other_preset() {
        let mainline = Matrix::mainline(&fixture::line());
        for preset in Preset::ALL {
            let back = matrix_of(&format!("{};mainline", preset.name()));
            assert_eq!(back.words(), mainline.words(), "{preset:?}");
        }
    }

    #[test]
    fn none_and_all_are_what_they_say() {
        assert!(matrix_of("none").words().iter().all(|&word| word == Word(0)));
        for flag in Flag::ALL {
            let levels = if flag.undelivered().is_none() { ALL_LEVELS } else { 0 };
            let is_so = |word: &Word| word.levels(flag) == levels;
            assert!(matrix_of("all").words().iter().all(is_so), "{flag}");
        }
    }

    #[test]
    fn the_steps_of_2009_differ_at_numa_levels_alone() {
        for (name, affine, newidle) in [
            ("2009-before", 0, 0),
            ("2009-affine", NUMA_LEVELS, 0),
            ("2009-newidle", NUMA_LEVELS, NUMA_LEVELS),
        ] {
            let word = matrix_of(&format!("none;{name}")).word(0);
            assert_eq!(word.levels(Flag::WakeAffine), affine | 0b1111, "{name}");
            assert_eq!(word.levels(Flag::BalanceNewidle), newidle | 0b1111, "{name}");
        }
    }

    #[test]
    fn a_preset_says_what_it_leaves_out() {
        let left_out: Vec<Flag> =
            Preset::All.left_out().into_iter().map(|(flag, _)| flag).collect();
        let undelivered = Flag::ALL.into_iter().filter(|flag| flag.undelivered().is_some());
        assert_eq!(left_out, undelivered.collect::<Vec<_>>());
    }
}
