//! Shares of memory: a manual pool of shares that were asked for, an auto pool that shares the rest
//! equally.
//!
//! Shares are whole numbers of parts, 10^15 to the whole, so that sums of decimal fractions are
//! exact: 0.95 and 0.05 are 1, which they need not be in binary. A share given as a fraction is
//! rounded to the nearest part; caps differ from those of binary arithmetic by less than a byte in
//! 10^15, and those of the auto pool are exact. Rules:
//!
//! - manual shares come to at most 1;
//! - while the auto pool has members it has at least [`MIN_AUTOPOOL_SIZE`];
//! - a change that would break a rule is refused and changes nothing.
//!
//! ```
//! use pagewise_managers::manager::Pools;
//!
//! let mut pools = Pools::new();
//! pools.add_auto("a")?;
//! pools.add_auto("b")?;
//! pools.set_manual("b", 0.25)?;
//! assert_eq!(pools.proportion("a"), Some(0.75));
//! assert_eq!(pools.cap("b", 1000), Some(250));
//! assert!(pools.add_manual("c", 0.71).is_err(), "0.04 would be left for the auto pool");
//! # Ok::<(), pagewise_managers::manager::ManagerError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ManagerError, Result};
use super::warning::Warning;

/// The least that the auto pool may have while it has members.
pub const MIN_AUTOPOOL_SIZE: f64 = 0.05;

const WHOLE: u64 = 1_000_000_000_000_000;
const MIN_AUTO: u64 = WHOLE / 20;

/// A share as parts of the whole.
fn parts(proportion: f64) -> Result<u64> {
    let refused = Err(ManagerError::InvalidProportion(proportion));
    if !(proportion > 0.0 && proportion <= 1.0) {
        return refused;
    }
    // In range, so the conversion is exact up to the rounding that is meant.
    match (proportion * WHOLE as f64).round() as u64 {
        0 => refused,
        parts => Ok(parts.min(WHOLE)),
    }
}

fn fraction(parts: u64) -> f64 {
    parts as f64 / WHOLE as f64
}

/// The shares of members. `K` is a member.
///
/// ```
/// let mut pools = pagewise_managers::manager::Pools::new();
/// pools.add_auto(1)?;
/// assert_eq!((pools.auto_pool_proportion(), pools.manual_pool_proportion()), (1.0, 0.0));
/// # Ok::<(), pagewise_managers::manager::ManagerError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pools<K> {
    manual: BTreeMap<K, u64>,
    auto: BTreeSet<K>,
}

impl<K: Ord + Copy> Pools<K> {
    /// Empty pools.
    #[must_use]
    pub const fn new() -> Self {
        Self { manual: BTreeMap::new(), auto: BTreeSet::new() }
    }

    fn manual_parts(&self) -> u64 {
        self.manual.values().sum()
    }

    /// The members of the manual pool, in order.
    pub fn manual_pool(&self) -> impl Iterator<Item = K> + '_ {
        self.manual.keys().copied()
    }

    /// The members of the auto pool, in order.
    pub fn auto_pool(&self) -> impl Iterator<Item = K> + '_ {
        self.auto.iter().copied()
    }

    /// The sum of the manual shares.
    #[must_use]
    pub fn manual_pool_proportion(&self) -> f64 {
        fraction(self.manual_parts())
    }

    /// The share that is left for the auto pool.
    #[must_use]
    pub fn auto_pool_proportion(&self) -> f64 {
        fraction(WHOLE - self.manual_parts())
    }

    /// The share of one: its own, or an equal part of the rest.
    #[must_use]
    pub fn proportion(&self, who: K) -> Option<f64> {
        match self.manual.get(&who) {
            Some(&parts) => Some(fraction(parts)),
            None if self.auto.contains(&who) => {
                Some(self.auto_pool_proportion() / self.auto.len() as f64)
            }
            None => None,
        }
    }

    /// Whether it has a share of its own.
    #[must_use]
    pub fn is_manual(&self, who: K) -> bool {
        self.manual.contains_key(&who)
    }

    /// Its share of so many bytes, rounded down.
    #[must_use]
    pub fn cap(&self, who: K, total_bytes: u64) -> Option<u64> {
        let (parts, sharers) = match self.manual.get(&who) {
            Some(&parts) => (parts, 1),
            None if self.auto.contains(&who) => (WHOLE - self.manual_parts(), self.auto.len()),
            None => return None,
        };
        let cap =
            u128::from(total_bytes) * u128::from(parts) / (u128::from(WHOLE) * sharers as u128);
        u64::try_from(cap).ok()
    }

    /// Adds one with a share of its own; one who is there already changes to it.
    ///
    /// # Errors
    /// As [`set_manual`](Self::set_manual).
    pub fn add_manual(&mut self, who: K, proportion: f64) -> Result<Option<Warning>> {
        self.set_manual(who, proportion)
    }

    /// Adds one to the auto pool; one who is there already changes to it.
    ///
    /// # Errors
    /// As [`set_auto`](Self::set_auto).
    pub fn add_auto(&mut self, who: K) -> Result<()> {
        self.set_auto(who)
    }

    /// Gives one a share of its own.
    ///
    /// # Errors
    /// [`ManagerError::InvalidProportion`] out of range, [`ManagerError::ProportionsExceedOne`],
    /// [`ManagerError::AutoPoolTooSmall`] if the auto pool has members. The pools are as before.
    pub fn set_manual(&mut self, who: K, proportion: f64) -> Result<Option<Warning>> {
        let own = parts(proportion)?;
        let others = self.manual_parts() - self.manual.get(&who).copied().unwrap_or(0);
        let sum = others + own;
        if sum > WHOLE {
            return Err(ManagerError::ProportionsExceedOne(fraction(sum)));
        }
        let small = WHOLE - sum < MIN_AUTO;
        if small && self.auto.iter().any(|&other| other != who) {
            return Err(Self::too_small(sum));
        }
        self.auto.remove(&who);
        self.manual.insert(who, own);
        Ok(small.then(|| Warning::ManualPoolLarge { manual: fraction(sum) }))
    }

    /// Lets one share what the manual pool leaves.
    ///
    /// # Errors
    /// [`ManagerError::AutoPoolTooSmall`]. The pools are as before.
    pub fn set_auto(&mut self, who: K) -> Result<()> {
        if self.auto.contains(&who) {
            return Ok(());
        }
        let others = self.manual_parts() - self.manual.get(&who).copied().unwrap_or(0);
        if WHOLE - others < MIN_AUTO {
            return Err(Self::too_small(others));
        }
        self.manual.remove(&who);
        self.auto.insert(who);
        Ok(())
    }

    /// Takes one out; the auto pool shares what becomes free.
    pub fn remove(&mut self, who: K) {
        self.manual.remove(&who);
        self.auto.remove(&who);
    }

    fn too_small(manual: u64) -> ManagerError {
        ManagerError::AutoPoolTooSmall {
            manual: fraction(manual),
            left: fraction(WHOLE - manual),
            least: MIN_AUTOPOOL_SIZE,
        }
    }
}
