//! Fences and hints. They change no result here, as every access is visible at once and complete.

use super::builder::Builder;
use super::modifiers::{Modifiers, Refusal};
use super::order::SCOPES;
use crate::code::Code;

impl<'t> Builder<'_, 't> {
    /// `membar`, `fence`, `prefetch` and their kin
    pub(super) fn fence(&mut self, name: &str, m: &mut Modifiers<'t>) -> Result<(), Refusal> {
        match name {
            "membar" | "fence" if m.take("proxy") => Self::proxy(m)?,
            "membar" => _ = m.must_one(&["cta", "gl", "sys"])?,
            "fence" if m.take("mbarrier_init") => {
                m.must_one(&["release"])?;
                m.must_one(&["cluster"])?;
            }
            "fence" => {
                m.take_one(&["sc", "acq_rel", "acquire", "release"]);
                m.must_one(SCOPES)?;
            }
            "prefetch" => {
                m.take_one(&["global", "local"]);
                m.must_one(&["L1", "L2", "L2::evict_last", "L2::evict_normal"])?;
            }
            "prefetchu" => _ = m.must_one(&["L1"])?,
            "applypriority" => {
                m.take("global");
                m.must_one(&["L2::evict_normal"])?;
            }
            "discard" => {
                m.take("global");
                m.must_one(&["L2"])?;
            }
            "pmevent" => _ = m.take("mask"),
            "griddepcontrol" => _ = m.must_one(&["launch_dependents", "wait"])?,
            _ => {
                for part in ["inc", "dec", "sync", "aligned", "u32"] {
                    m.take(part);
                }
            }
        }
        self.emit(Code::Fence, &[], &[], 0);
        Ok(())
    }

    /// A fence between ways to memory.
    fn proxy(m: &mut Modifiers<'t>) -> Result<(), Refusal> {
        match m.must_one(&["alias", "async", "tensormap::generic", "async::generic"])? {
            "async" => _ = m.take_one(&["global", "shared::cta", "shared::cluster"]),
            "tensormap::generic" | "async::generic" => {
                m.must_one(&["acquire", "release"])?;
                let places = ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"];
                m.take_one(&places);
                m.take_one(SCOPES);
            }
            _ => {}
        }
        Ok(())
    }
}
