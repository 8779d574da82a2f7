//! Clusters: addresses in shared memory of other blocks, the barrier, and asynchronous accesses.

use super::builder::Builder;
use super::macros::{bin, ter};
use super::modifiers::{Modifiers, Refusal};
use crate::code::{Code, Mbarrier, Modify, Operand as Value, Place, Pure, RANK_SHIFT, Special};
use crate::execute::SHARED_WINDOW;
use crate::syntax::tree::Operand;
use crate::types::Type;

/// The mechanism by which an asynchronous access tells that it is complete.
pub(super) const BYTES: &str = "mbarrier::complete_tx::bytes";

/// The bits of an address that name a block.
const RANK: u64 = 0xff << RANK_SHIFT;

/// The address of the same bytes in the block of a rank.
#[inline(always)]
fn mapped(address: u64, rank: u32, own: u32) -> u64 {
    // A rank that does not fit is one that no cluster has, either.
    let named = u64::from(rank.min(0xfe) + 1) << RANK_SHIFT;
    address & !RANK | if rank == own { 0 } else { named }
}

#[inline(always)]
fn mapped_generic(address: u64, rank: u32, own: u32) -> u64 {
    // An address that is not in shared memory is none in another block, either.
    if address >> 56 == SHARED_WINDOW >> 56 {
        mapped(address, rank, own)
    } else {
        SHARED_WINDOW | RANK
    }
}

/// The rank of the block that has an address.
#[inline(always)]
fn rank_of(address: u64, own: u32) -> u32 {
    ((address & RANK) >> RANK_SHIFT).checked_sub(1).map_or(own, |rank| rank as u32)
}

impl<'t> Builder<'_, 't> {
    /// `mapa`
    pub(super) fn map_address(
        &mut self,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        let named = m.take("shared::cluster");
        let kind = m.kind()?;
        let [to, address, rank] = o else { return Err("3 operands are expected".to_owned()) };
        let run: Pure = match (named, kind) {
            (true, Type::U32) => {
                ter!(u32, u32, u32 => u32, |a, b, c| mapped(a.into(), b, c) as u32)
            }
            (true, Type::U64) => ter!(u64, u32, u32 => u64, |a, b, c| mapped(a, b, c)),
            (false, Type::U64) => ter!(u64, u32, u32 => u64, |a, b, c| mapped_generic(a, b, c)),
            _ => return Err("a generic address has .u64, a named one .u32 or .u64".to_owned()),
        };
        let (address, rank) = (self.source(address, kind)?, self.source(rank, Type::U32)?);
        let own = self.special_source(Special::ClusterRank, 32, false);
        let to = self.dest(to, kind)?;
        self.emit(Code::Pure(run), &[to], &[address, rank, own], 0);
        Ok(())
    }

    /// `getctarank`
    pub(super) fn rank(&mut self, m: &mut Modifiers<'t>, o: &[Operand<'t>]) -> Result<(), Refusal> {
        let named = m.take("shared::cluster");
        let kind = m.kind()?;
        let [to, address] = o else { return Err("2 operands are expected".to_owned()) };
        let run: Pure = match (named, kind) {
            (true, Type::U32) => bin!(u32, u32 => u32, |a, b| rank_of(a.into(), b)),
            (_, Type::U64) => bin!(u64, u32 => u32, |a, b| rank_of(a, b)),
            _ => return Err("a generic address has .u64, a named one .u32 or .u64".to_owned()),
        };
        let address = self.source(address, kind)?;
        let own = self.special_source(Special::ClusterRank, 32, false);
        let to = self.dest(to, Type::U32)?;
        self.emit(Code::Pure(run), &[to], &[address, own], 0);
        Ok(())
    }

    /// `barrier.cluster`
    pub(super) fn cluster_barrier(&mut self, m: &mut Modifiers<'t>) -> Result<(), Refusal> {
        let code = m.must(&[("arrive", Code::ClusterArrive), ("wait", Code::ClusterWait)])?;
        let orders: &[&str] = match code {
            Code::ClusterArrive => &["release", "relaxed"],
            _ => &["acquire"],
        };
        _ = orders.iter().any(|order| m.take(order));
        self.emit(code, &[], &[], 0);
        Ok(())
    }

    /// `st.async`, `red.async`: done at once, as a GPU may do them. An mbarrier is told of the bytes.
    pub(super) fn access_asynchronously(
        &mut self,
        name: &str,
        m: &mut Modifiers<'t>,
        o: &[Operand<'t>],
    ) -> Result<(), Refusal> {
        if !m.take(BYTES) {
            return Err(format!("`{name}.async` without an mbarrier is not supported"));
        }
        if name == "red" && !(m.take("relaxed") && m.take("cluster")) {
            return Err("`red.async` has `.relaxed.cluster`".to_owned());
        }
        if ["volatile", "global", "gpu", "cta", "sys"].iter().any(|other| m.has(other)) {
            return Err(format!(
                "`{name}.async` is of shared memory of the cluster, and weak or relaxed"
            ));
        }
        let in_cluster = m.any_starts_with("shared::cluster");
        let [to, from, told] = o else { return Err("3 operands are expected".to_owned()) };
        let access = [to.clone(), from.clone()];
        if name == "st" {
            self.store(m, &access)?;
        } else {
            self.atomic(m, &access, false)?;
        }
        let bytes = match self.body.drafts.last().map(|draft| draft.code) {
            Some(Code::Store(access)) if access.bytes >= 4 => {
                u32::from(access.bytes) * u32::from(access.count)
            }
            Some(Code::Atomic(atomic))
                if matches!(atomic.operand, Value::B32 | Value::B64 | Value::S32 | Value::S64)
                    && !matches!(atomic.modify, Modify::Exchange | Modify::CompareAndSwap) =>
            {
                atomic.operand.bytes()
            }
            _ => return Err(format!("`{name}.async` has no such type and operation")),
        };
        let address = self.address(told)?;
        let place = self.place(in_cluster.then_some(Place::Cluster), &address)?;
        let slots = [self.whole(&address), self.number(bytes.into(), false)];
        self.emit(Code::Mbarrier { what: Mbarrier::CompleteByAccess, place }, &[], &slots, 0);
        Ok(())
    }
}
