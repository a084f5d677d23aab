//! The matrix with leases over it: what a client has only as long as it stays.
//!
//! A plain set writes to the base. A lease is a layer over it that holds exactly the bits
//! that its assignments name; where layers overlap, the newest shows. Ending a lease takes
//! its layer away, so what lies below shows again: the base, or an older lease that is still
//! held. A plain set also takes its bits out of every layer: the newest wish wins, and the
//! end of a lease never undoes a set that came after it. Restoring remembered values in
//! place of layers would put a value that was leased into the base for good, where leases
//! end in another order than they began.

use super::{Assignment, Change, Matrix, Word};

/// Who holds a lease.
pub type Holder = u64;

/// The flags that are in effect, and what they would be without the leases.
#[derive(Clone, Debug)]
pub struct LeasedMatrix {
    base: Matrix,
    /// Oldest first.
    layers: Vec<Layer>,
    effective: Matrix,
}

/// The bits that one request leased.
#[derive(Clone, Debug)]
struct Layer {
    holder: Holder,
    /// By CPU: the bits that are leased, and their values.
    bits: Vec<Bits>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    mask: u64,
    values: u64,
}

impl LeasedMatrix {
    pub fn new(base: Matrix) -> LeasedMatrix {
        LeasedMatrix { effective: base.clone(), layers: Vec::new(), base }
    }

    /// What is in effect, with the generation of all changes so far.
    pub fn matrix(&self) -> &Matrix {
        &self.effective
    }

    /// Sets for good, over every lease.
    pub fn set(&mut self, assignments: &[Assignment]) -> Change {
        self.base.apply(assignments);
        self.release_bits(&bits_of(assignments, &self.base), |_| true);
        self.show()
    }

    /// Sets until `release(holder)`.
    pub fn lease(&mut self, holder: Holder, assignments: &[Assignment]) -> Change {
        let bits = bits_of(assignments, &self.base);
        // A holder that turns a bit again and again has it in one layer.
        self.release_bits(&bits, |layer| layer.holder == holder);
        self.layers.push(Layer { holder, bits });
        self.show()
    }

    /// Ends all leases of `holder`; changes nothing where it has none.
    pub fn release(&mut self, holder: Holder) -> Change {
        self.layers.retain(|layer| layer.holder != holder);
        self.show()
    }

    fn release_bits(&mut self, taken: &[Bits], from: impl Fn(&Layer) -> bool) {
        for layer in self.layers.iter_mut().filter(|layer| from(layer)) {
            for (bits, taken) in layer.bits.iter_mut().zip(taken) {
                bits.mask &= !taken.mask;
            }
        }
        self.layers.retain(|layer| layer.bits.iter().any(|bits| bits.mask != 0));
    }

    fn show(&mut self) -> Change {
        let words = (0..self.base.words().len()).map(|cpu| self.word(cpu)).collect();
        self.effective.replace(words)
    }

    fn word(&self, cpu: usize) -> Word {
        let cover = |below: u64, bits: Bits| below & !bits.mask | bits.values & bits.mask;
        let layers = self.layers.iter().map(|layer| layer.bits[cpu]);
        Word(layers.fold(self.base.word(cpu).0, cover))
    }
}

/// The bits that the assignments name, as they leave a word of zeroes and one of ones:
/// what is the same in both was assigned.
fn bits_of(assignments: &[Assignment], like: &Matrix) -> Vec<Bits> {
    let outcome = |word: Word| {
        let mut matrix = Matrix::filled(like.words().len(), word);
        matrix.apply(assignments);
        matrix
    };
    let (zeroes, ones) = (outcome(Word(0)), outcome(Word(u64::MAX)));
    let words = zeroes.words().iter().zip(ones.words());
    words.map(|(zero, one)| Bits { mask: !(zero.0 ^ one.0), values: one.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, parse};
    use super::*;
    use proptest::prelude::*;

    const OFF: &str = "NUMA.NEWIDLE=off";
    const ON: &str = "NUMA.NEWIDLE=on";

    fn assignments(text: &str) -> Vec<Assignment> {
        parse(text, &fixture::line()).unwrap()
    }

    fn mainline() -> LeasedMatrix {
        LeasedMatrix::new(Matrix::mainline(&fixture::line()))
    }

    fn words_after(text: &str) -> Vec<Word> {
        let mut flags = mainline();
        text.split(';').for_each(|text| drop(flags.set(&assignments(text))));
        flags.matrix().words().to_vec()
    }

    #[test]
    fn the_end_of_a_lease_restores_what_it_changed() {
        let mut flags = mainline();
        let taken = flags.lease(1, &assignments("NUMA@node1.NEWIDLE=off,MC.WAKE_AFFINE=off"));
        assert_eq!((taken.generation, taken.words_changed), (1, 20));
        let ended = flags.release(1);
        assert_eq!((ended.generation, ended.words_changed), (2, 20));
        assert_eq!(flags.matrix().words(), mainline().matrix().words());
        assert_eq!(flags.release(1).words_changed, 0);
    }

    #[test]
    fn a_set_after_the_lease_wins_also_where_it_changes_nothing() {
        let mut flags = mainline();
        flags.lease(1, &assignments(OFF));
        assert_eq!(flags.set(&assignments("NUMA@node1.NEWIDLE=off")).words_changed, 0);
        assert_eq!(flags.release(1).words_changed, 16, "all but node 1's four of 20");
        assert_eq!(flags.matrix().words(), words_after("NUMA@node1.NEWIDLE=off"));
    }

    #[test]
    fn a_set_of_other_bits_outlives_the_lease() {
        let mut flags = mainline();
        flags.lease(1, &assignments(OFF));
        flags.set(&assignments("NUMA.WAKE_AFFINE=off"));
        flags.release(1);
        assert_eq!(flags.matrix().words(), words_after("NUMA.WAKE_AFFINE=off"));
    }

    #[test]
    fn leases_of_one_bit_end_in_any_order_without_a_trace() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut flags = mainline();
            flags.lease(1, &assignments(OFF));
            flags.lease(2, &assignments(ON));
            flags.release(first);
            let shown = if first == 1 { ON } else { OFF };
            assert_eq!(flags.matrix().words(), words_after(shown), "{first} ended");
            flags.release(second);
            assert_eq!(flags.matrix().words(), mainline().matrix().words(), "{first}, {second}");
        }
    }

    #[test]
    fn a_holder_that_flips_all_day_has_one_layer() {
        let mut flags = mainline();
        for _ in 0..100 {
            flags.lease(1, &assignments(OFF));
            flags.lease(1, &assignments(ON));
        }
        assert_eq!(flags.layers.len(), 1);
        assert_eq!(flags.matrix().generation(), 200);
    }

    proptest! {
        /// Whatever clients do: without leases nothing is left but the sets, in their order.
        #[test]
        fn nothing_leased_stays(steps in prop::collection::vec((0u64..4, 0usize..6), 0..30)) {
            const TEXTS: [&str; 6] = [
                OFF, ON, "MC.NEWIDLE=off", "*@node1.NEWIDLE=off", "none", "NUMA2.WAKE_AFFINE=on",
            ];
            let mut flags = mainline();
            let mut plain = mainline();
            for (holder, text) in steps {
                match holder {
                    0 => {
                        flags.set(&assignments(TEXTS[text]));
                        plain.set(&assignments(TEXTS[text]));
                    }
                    _ if text == 0 => drop(flags.release(holder)),
                    _ => drop(flags.lease(holder, &assignments(TEXTS[text]))),
                }
            }
            (1..4).for_each(|holder| drop(flags.release(holder)));
            prop_assert_eq!(flags.matrix().words(), plain.matrix().words());
        }
    }
}
