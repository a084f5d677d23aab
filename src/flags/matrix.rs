//! The words of all CPUs, mainline's defaults for them, and how assignments change them.

use super::{Assignment, Flag, View, Word, level_bit};
use crate::topology::{Cpu, CpuSet, Domain, Level, Machine};

/// One word for each possible CPU, and the number of the state they are in.
///
/// Bits of flags that this build does not deliver are always 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    words: Vec<Word>,
    generation: u64,
}

/// What an `apply` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The generation after the change; the one before it where no word changed.
    pub generation: u64,
    pub words_changed: usize,
    /// The CPUs whose words are to be published.
    pub cpus: CpuSet,
}

impl Matrix {
    /// The flags as the kernel's own domains have them (topology.c sd_init), generation 0.
    ///
    /// A level that adds nothing for a CPU has no effect there; it takes the value of the next lower
    /// level, so that a threshold stays one. A CPU without domains (isolated, offline) gets what
    /// sd_init begins with: all on but BALANCE_WAKE.
    pub fn mainline(machine: &Machine) -> Matrix {
        let word = |id| mainline_word(machine.cpus.get(&id));
        Matrix { words: (0..machine.nr_cpu_ids).map(word).collect(), generation: 0 }
    }

    /// `word` for each of `nr_cpu_ids` CPUs, generation 0.
    pub(super) fn filled(nr_cpu_ids: usize, word: Word) -> Matrix {
        Matrix { words: vec![word; nr_cpu_ids], generation: 0 }
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The words by CPU number, 0..nr_cpu_ids.
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The word of a CPU; no flags for a CPU number that the machine cannot have.
    pub fn word(&self, cpu: usize) -> Word {
        self.words.get(cpu).copied().unwrap_or_default()
    }

    /// Applies all assignments. They were checked when they were parsed, so none can fail here.
    ///
    /// The generation moves only when a word changed: it names a state, not a request.
    pub fn apply(&mut self, assignments: &[Assignment]) -> Change {
        let before = self.words.clone();
        assignments.iter().for_each(|assignment| self.apply_one(assignment));
        self.note_change(&before)
    }

    /// Puts other words in place of all, as many as there are.
    pub(super) fn replace(&mut self, words: Vec<Word>) -> Change {
        let before = std::mem::replace(&mut self.words, words);
        self.note_change(&before)
    }

    fn note_change(&mut self, before: &[Word]) -> Change {
        let has_changed = |&cpu: &usize| before[cpu] != self.words[cpu];
        let cpus: CpuSet = (0..before.len()).filter(has_changed).collect();
        self.generation += u64::from(!cpus.is_empty());
        Change { generation: self.generation, words_changed: cpus.len(), cpus }
    }

    fn apply_one(&mut self, assignment: &Assignment) {
        for cpu in assignment.cpus.iter() {
            if let Some(word) = self.words.get_mut(cpu) {
                word.set_levels(assignment.flag, assignment.levels, assignment.on);
            }
        }
    }

    /// What the flags are at each level of the machine.
    pub fn view(&self, machine: &Machine) -> View {
        View::new(self, machine)
    }
}

fn mainline_word(cpu: Option<&Cpu>) -> Word {
    let mut word = Word::default();
    for flag in Flag::delivered() {
        word.set_levels(flag, mainline_levels(flag, cpu), true);
    }
    word
}

/// The levels at which mainline has the flag for this CPU.
pub(super) fn mainline_levels(flag: Flag, cpu: Option<&Cpu>) -> u16 {
    let mut on = flag != Flag::BalanceWake;
    let mut levels = 0;
    for level in Level::all() {
        if let Some(domain) = cpu.and_then(|cpu| cpu.domain(level)) {
            on = has_flag(domain, flag);
        }
        levels |= if on { level_bit(level) } else { 0 };
    }
    levels
}

/// LOAD_BALANCE is no longer in the kernel's list: every domain balances.
fn has_flag(domain: &Domain, flag: Flag) -> bool {
    flag == Flag::LoadBalance || domain.flags.contains(&flag.kernel_name())
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, parse};
    use super::*;

    #[test]
    fn defaults_are_mainlines_beyond_the_reclaim_distance_too() {
        let matrix = Matrix::mainline(&fixture::line());
        let far = Level::numa(3).unwrap();
        assert!(matrix.word(0).get(Flag::WakeAffine, Level::numa(2).unwrap()));
        assert!(!matrix.word(0).get(Flag::WakeAffine, far));
        assert!(matrix.word(0).get(Flag::BalanceNewidle, far));
    }

    #[test]
    fn a_missing_level_follows_the_level_below_it() {
        let cpu = &fixture::line().cpus[&0];
        let levels = mainline_levels(Flag::WakeAffine, Some(cpu));
        assert_eq!(levels, 0b00_0011_1111, "NUMA4 and above follow NUMA3");
        assert_eq!(mainline_levels(Flag::WakeAffine, None), 0b11_1111_1111);
        assert_eq!(mainline_levels(Flag::BalanceWake, None), 0);
    }

    #[test]
    fn undelivered_flags_have_no_bits() {
        let matrix = Matrix::mainline(&fixture::line());
        for flag in Flag::ALL.into_iter().filter(|flag| flag.undelivered().is_some()) {
            assert!(matrix.words().iter().all(|word| word.levels(flag) == 0), "{flag}");
        }
    }

    #[test]
    fn set_on_one_node_leaves_the_others_alone() {
        let machine = fixture::line();
        let before = Matrix::mainline(&machine);
        let mut after = before.clone();
        let change = after.apply(&parse("NUMA@node1.NEWIDLE=off", &machine).unwrap());
        assert_eq!(change, Change { generation: 1, words_changed: 4, cpus: (4..8).collect() });
        for cpu in 0..machine.nr_cpu_ids {
            let is_same = before.word(cpu) == after.word(cpu);
            assert_eq!(is_same, !(4..8).contains(&cpu), "CPU {cpu}");
        }
        assert_eq!(after.word(5).levels(Flag::BalanceNewidle), 0b1111);
        assert_eq!(after.word(5).levels(Flag::WakeAffine), before.word(5).levels(Flag::WakeAffine));
    }

    #[test]
    fn a_set_that_changes_nothing_keeps_the_generation() {
        let machine = fixture::line();
        let mut matrix = Matrix::mainline(&machine);
        let change = matrix.apply(&parse("MC.WAKE_AFFINE=on", &machine).unwrap());
        assert_eq!((change.generation, change.words_changed), (0, 0));
    }
}
