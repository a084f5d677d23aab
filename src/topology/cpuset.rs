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

    /// Ascending CPU numbers.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.ones()
    }

    pub fn union(&self, other: &CpuSet) -> CpuSet {
        self.iter().chain(other.iter()).collect()
    }

    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        self.iter().filter(|&cpu| !other.contains(cpu)).collect()
    }

    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.iter().all(|cpu| other.contains(cpu))
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
            (first..=last).for_each(|cpu| set.insert(cpu));
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
        self.iter().eq(other.iter())
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
    fn sets_of_different_capacity_are_equal_when_they_hold_the_same() {
        let mut wide = CpuSet::parse_list("0,900").unwrap();
        wide = wide.difference(&CpuSet::parse_list("900").unwrap());
        assert_eq!(wide, CpuSet::parse_list("0").unwrap());
    }
}
