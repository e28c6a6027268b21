//! How the VPC's addresses are shared out: private subnets a quarter each, public ones out of the last quarter.

use std::net::Ipv4Addr;

use crate::error::{Kind, fail};

/// The most zones that there is room for.
pub(super) const MOST_ZONES: u32 = 3;

/// An IPv4 block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    base: u32,
    prefix: u8,
}

impl Block {
    /// Reads the VPC's block: /16 to /20, as the settings allow, on its own boundary.
    pub(super) fn of_vpc(text: &str) -> anyhow::Result<Self> {
        let wrong = |why: &str| fail(Kind::Config, format!("network.cidr = {text:?} {why}")).hint("for example network.cidr = \"10.180.0.0/16\"");
        let (base, prefix) = text.split_once('/').ok_or_else(|| wrong("is no CIDR block"))?;
        let base: Ipv4Addr = base.parse().map_err(|_| wrong("is no CIDR block"))?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong("is no CIDR block"))?;
        if !(16..=20).contains(&prefix) {
            return Err(wrong("is too large or too small: /16 to /20").into());
        }
        let base = u32::from(base);
        if base.trailing_zeros() < u32::from(32 - prefix) {
            return Err(wrong("does not begin at a boundary of its size").into());
        }
        Ok(Self { base, prefix })
    }

    /// The `index`-th of the blocks that are `bits` smaller.
    fn part(self, bits: u8, index: u32) -> Self {
        let prefix = self.prefix + bits;
        Self { base: self.base + (index << (32 - prefix)), prefix }
    }

    /// Of the private subnet in the `index`-th zone: a quarter.
    pub(super) fn private(self, index: u32) -> Self {
        self.part(2, index)
    }

    /// Of the public subnet in the `index`-th zone: a sixty-fourth, in the last quarter.
    pub(super) fn public(self, index: u32) -> Self {
        self.part(2, MOST_ZONES).part(4, index)
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_do_not_overlap_and_stay_inside() {
        for vpc in ["10.180.0.0/16", "172.31.16.0/20", "10.0.128.0/18"] {
            let vpc = Block::of_vpc(vpc).unwrap();
            let shares: Vec<Block> = (0..MOST_ZONES).flat_map(|i| [vpc.private(i), vpc.public(i)]).collect();
            let range = |b: &Block| (u64::from(b.base), u64::from(b.base) + (1u64 << (32 - b.prefix)));
            for (i, a) in shares.iter().enumerate() {
                assert!(range(a).0 >= range(&vpc).0 && range(a).1 <= range(&vpc).1, "{a} in {vpc}");
                for b in &shares[i + 1..] {
                    assert!(range(a).1 <= range(b).0 || range(b).1 <= range(a).0, "{a} and {b}");
                }
            }
        }
        let vpc = Block::of_vpc("10.180.0.0/16").unwrap();
        assert_eq!([vpc.private(1).to_string(), vpc.public(1).to_string()], ["10.180.64.0/18", "10.180.196.0/22"]);
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in ["10.0.0.0", "10.0.0.0/8", "10.0.1.0/16", "10.0.0/16", "300.0.0.0/16", "10.0.0.0/24"] {
            assert!(Block::of_vpc(text).is_err(), "{text}");
        }
    }
}
