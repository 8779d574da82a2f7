//! The modifiers of memory order: which of them an access may have, and which come together.
//!
//! This executor makes every access visible at once, so an order changes no result.

use super::modifiers::{Modifiers, Refusal};

/// Scopes of orders.
pub(super) const SCOPES: &[&str] = &["cta", "cluster", "gpu", "sys"];

/// The order of an access.
pub(super) struct Ordered<'t> {
    order: Option<&'t str>,
    scope: Option<&'t str>,
}

impl<'t> Ordered<'t> {
    /// Takes one of some orders, and one of some scopes. An order has a scope, and a scope has an order.
    pub(super) fn take(
        m: &mut Modifiers<'t>,
        orders: &[&str],
        scopes: &[&str],
    ) -> Result<Self, Refusal> {
        let ordered = Self { order: m.take_one(orders), scope: m.take_one(scopes) };
        match (ordered.order, ordered.scope) {
            (Some(order), None) => Err(format!("`.{order}` needs a scope: add `.gpu`, for one")),
            (None, Some(scope)) => {
                Err(format!("`.{scope}` needs an order: add `.relaxed`, for one"))
            }
            _ => Ok(ordered),
        }
    }

    /// Takes the order of an atomic, which may have none, and its scope, which may be alone.
    pub(super) fn of_atomic(m: &mut Modifiers<'t>, orders: &[&str]) {
        m.take_one(orders);
        m.take_one(SCOPES);
    }

    /// Takes the order of a load or a store, or `.volatile`, and what it says of caches. Returns whether other
    /// threads may look on.
    pub(super) fn of_access(
        m: &mut Modifiers<'t>,
        (order, caches): (&str, &[&str]),
    ) -> Result<bool, Refusal> {
        let is_volatile = m.take("volatile");
        let (is_weak, is_mmio) = (m.take("weak"), m.take("mmio"));
        let ordered = Self::take(m, &["relaxed", order], SCOPES)?;
        let cache = m.take_one(caches);
        let is_ordered = ordered.order.is_some();
        if is_mmio && (ordered.order, ordered.scope) != (Some("relaxed"), Some("sys")) {
            return Err("`.mmio` needs `.relaxed.sys`: add it".to_owned());
        }
        if u8::from(is_volatile) + u8::from(is_weak) + u8::from(is_ordered) > 1 {
            return Err(
                "an access has an order, or is `.volatile`, or `.weak`: leave the others out"
                    .to_owned(),
            );
        }
        if let Some(cache) = cache
            && (is_volatile || is_ordered)
        {
            return Err(format!("`.{cache}` is for accesses without an order: leave it out"));
        }
        Ok(is_volatile || is_ordered)
    }
}
