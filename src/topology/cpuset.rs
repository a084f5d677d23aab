//! A set of CPU numbers, read and written in the kernel's list format ("0-3,8").

use std::fmt;

use fixedbitset::FixedBitSet;

/// CPU numbers, without an upper bound. Two sets are equal when they hold the same CPUs.
#[derive(Clone, Default)]
pub struct CpuSet(FixedBitSet);

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn insert(&mut self, cpu: usize) {
        self.0.grow(cpu + 1);
        self.0.insert(cpu);
    }

    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(cpu)
    }

    pub fn len(&self) -> usize {
        self.0.count_ones(..)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_clear()
    }

    pub fn first(&self) -> Option<usize> {
        self.0.minimum()
    }

    pub fn last(&self) -> Option<usize> {
        self.0.maximum()
    }

    /// Ascending CPU numbers.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.ones()
    }

    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let mut set = self.clone();
        set.0.union_with(&other.0);
        set
    }

    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        let mut set = self.clone();
        set.0.intersect_with(&other.0);
        set
    }

    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        let mut set = self.clone();
        set.0.difference_with(&other.0);
        set
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    pub fn intersects(&self, other: &CpuSet) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// Reads the kernel's list format: "0-3,8"; an empty text is the empty set.
    ///
    /// Errors name the part that is not a number or a rising range.
    pub fn parse_list(text: &str) -> Result<CpuSet, String> {
        let mut set = CpuSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |s: &str| s.trim().parse::<usize>().map_err(|_| bad_part(part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last > MAX_CPU {
                return Err(bad_part(part));
            }
            set.0.grow(last + 1);
            set.0.insert_range(first..last + 1);
        }
        Ok(set)
    }

    /// Reads the kernel's mask format: hexadecimal, a comma every 32 bits, CPU 0 in the last digit.
    ///
    /// Errors name the digit that is not hexadecimal.
    pub fn parse_mask(text: &str) -> Result<CpuSet, String> {
        let mut set = CpuSet::new();
        let digits = text.trim().chars().rev().filter(|&digit| digit != ',');
        for (place, digit) in digits.enumerate() {
            let bits = digit.to_digit(16).ok_or_else(|| format!("'{digit}' is not hexadecimal"))?;
            (0..4).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| set.insert(4 * place + bit));
        }
        Ok(set)
    }
}

/// A bound on what a list may name, so that a typing error cannot ask for gigabytes
/// (the kernel's own largest CONFIG_NR_CPUS is 8192).
const MAX_CPU: usize = 1 << 20;

fn bad_part(part: &str) -> String {
    format!("'{part}' is not a CPU number or a range such as 0-3")
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl PartialEq for CpuSet {
    fn eq(&self, other: &Self) -> bool {
        self.is_subset(other) && other.is_subset(self)
    }
}

impl Eq for CpuSet {}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&cpu| cpu == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_printed_as_the_kernel_prints_it() {
        for list in ["", "0", "0-3", "0-3,8", "1,3,5-6,1023"] {
            assert_eq!(CpuSet::parse_list(list).unwrap().to_string(), list);
        }
        assert_eq!(CpuSet::parse_list("3,0-2\n").unwrap().to_string(), "0-3");
    }

    #[test]
    fn a_wrong_list_names_its_wrong_part() {
        for list in ["x", "3-1", "0-3,-", "0-99999999999"] {
            assert!(CpuSet::parse_list(list).is_err(), "{list}");
        }
        assert!(CpuSet::parse_list("0-3,5-4").unwrap_err().contains("5-4"));
    }

    #[test]
    fn a_mask_is_read_from_its_last_digit() {
        for (mask, list) in [("000f", "0-3"), ("1,00000003", "0-1,32"), ("0", ""), ("A0\n", "5,7")]
        {
            assert_eq!(
                CpuSet::parse_mask(mask).unwrap(),
                CpuSet::parse_list(list).unwrap(),
                "{mask}"
            );
        }
        assert!(CpuSet::parse_mask("0x3").unwrap_err().contains('x'));
    }

    #[test]
    fn word_operations_agree_with_membership() {
        let sets: Vec<CpuSet> = ["", "0", "0-70", "3,64,900", "64-200"]
            .map(|list| CpuSet::parse_list(list).unwrap())
            .to_vec();
        for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
            for cpu in 0..1000 {
                let (in_a, in_b) = (a.contains(cpu), b.contains(cpu));
                assert_eq!(a.union(b).contains(cpu), in_a || in_b);
                assert_eq!(a.intersection(b).contains(cpu), in_a && in_b);
                assert_eq!(a.difference(b).contains(cpu), in_a && !in_b);
            }
            assert_eq!(a.is_subset(b), a.iter().all(|cpu| b.contains(cpu)));
            assert_eq!(a.intersects(b), a.iter().any(|cpu| b.contains(cpu)));
            assert_eq!(a == b, a.iter().eq(b.iter()));
        }
    }

    #[test]
    fn sets_of_different_capacity_are_equal_when_they_hold_the_same() {
        let mut wide = CpuSet::parse_list("0,900").unwrap();
        wide = wide.difference(&CpuSet::parse_list("900").unwrap());
        assert_eq!(wide, CpuSet::parse_list("0").unwrap());
    }
}
