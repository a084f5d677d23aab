//! The kernel's scheduling-domain flags, in its bit order (include/linux/sched/sd_flags.h).

use std::ops::{BitAnd, BitOr};

/// A set of SD_ flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SdFlags(u32);

/// Names by bit. The bit numbers are ours; only their order is the kernel's.
const NAMES: [&str; 14] = [
    "SD_BALANCE_NEWIDLE",
    "SD_BALANCE_EXEC",
    "SD_BALANCE_FORK",
    "SD_BALANCE_WAKE",
    "SD_WAKE_AFFINE",
    "SD_ASYM_CPUCAPACITY",
    "SD_ASYM_CPUCAPACITY_FULL",
    "SD_SHARE_CPUCAPACITY",
    "SD_CLUSTER",
    "SD_SHARE_LLC",
    "SD_SERIALIZE",
    "SD_ASYM_PACKING",
    "SD_PREFER_SIBLING",
    "SD_NUMA",
];

impl SdFlags {
    pub const NONE: SdFlags = SdFlags(0);
    pub const BALANCE_NEWIDLE: SdFlags = SdFlags(1 << 0);
    pub const BALANCE_EXEC: SdFlags = SdFlags(1 << 1);
    pub const BALANCE_FORK: SdFlags = SdFlags(1 << 2);
    pub const WAKE_AFFINE: SdFlags = SdFlags(1 << 4);
    pub const ASYM_CPUCAPACITY: SdFlags = SdFlags(1 << 5);
    pub const ASYM_CPUCAPACITY_FULL: SdFlags = SdFlags(1 << 6);
    pub const SHARE_CPUCAPACITY: SdFlags = SdFlags(1 << 7);
    pub const CLUSTER: SdFlags = SdFlags(1 << 8);
    pub const SHARE_LLC: SdFlags = SdFlags(1 << 9);
    pub const SERIALIZE: SdFlags = SdFlags(1 << 10);
    pub const PREFER_SIBLING: SdFlags = SdFlags(1 << 12);
    pub const NUMA: SdFlags = SdFlags(1 << 13);

    /// SDF_NEEDS_GROUPS: flags that mean nothing in a domain with a single group
    /// (SD_DEGENERATE_GROUPS_MASK). WAKE_AFFINE is the only one that does not need any.
    pub const NEEDS_GROUPS: SdFlags = SdFlags(((1 << NAMES.len()) - 1) & !Self::WAKE_AFFINE.0);

    pub fn has(self, other: SdFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// `|` for constants.
    pub const fn or(self, other: SdFlags) -> SdFlags {
        SdFlags(self.0 | other.0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn without(self, other: SdFlags) -> SdFlags {
        SdFlags(self.0 & !other.0)
    }

    /// The kernel's names, in the kernel's order.
    pub fn names(self) -> Vec<&'static str> {
        (0..NAMES.len()).filter(|bit| self.0 >> bit & 1 == 1).map(|bit| NAMES[bit]).collect()
    }

    /// The flag of that name; none for a name that this table does not know.
    pub fn from_name(name: &str) -> Option<SdFlags> {
        NAMES.iter().position(|&known| known == name).map(|bit| SdFlags(1 << bit))
    }
}

impl BitOr for SdFlags {
    type Output = SdFlags;

    fn bitor(self, other: SdFlags) -> SdFlags {
        SdFlags(self.0 | other.0)
    }
}

impl BitAnd for SdFlags {
    type Output = SdFlags;

    fn bitand(self, other: SdFlags) -> SdFlags {
        SdFlags(self.0 & other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_are_paired() {
        for name in NAMES {
            assert_eq!(SdFlags::from_name(name).unwrap().names(), [name]);
        }
        assert_eq!(SdFlags::NUMA.names(), ["SD_NUMA"]);
        assert_eq!(SdFlags::SHARE_LLC.names(), ["SD_SHARE_LLC"]);
        assert!(!SdFlags::NEEDS_GROUPS.has(SdFlags::WAKE_AFFINE));
    }
}
