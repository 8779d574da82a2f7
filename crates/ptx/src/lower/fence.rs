//! Fences and hints. They change no result here, as every access is visible at once and complete.

use super::builder::Builder;
use super::modifiers::{Modifiers, Refusal};
use super::order::SCOPES;
use crate::code::Code;

impl<'t> Builder<'_, 't> {
    /// `membar`, `fence`, `prefetch` and their kin
    pub(super) fn fence(&mut self, name: &str, m: &mut Modifiers<'t>) -> Result<(), Refusal> {
        let needs = |found: Option<&str>, what: &str| match found {
            Some(_) => Ok(()),
            None => Err(format!("`{name}` needs {what}: add it")),
        };
        match name {
            "membar" | "fence" if m.take("proxy") => Self::proxy(m)?,
            "membar" => needs(m.take_one(&["cta", "gl", "sys"]), "a level, such as `.gl`")?,
            "fence" if m.take("mbarrier_init") => {
                for part in ["release", "cluster"] {
                    m.must(&[(part, ())])?;
                }
            }
            "fence" => {
                m.take_one(&["sc", "acq_rel", "acquire", "release"]);
                needs(m.take_one(SCOPES), "a scope, such as `.gpu`")?;
            }
            "prefetch" => {
                m.take_one(&["global", "local"]);
                let levels = ["L1", "L2", "L2::evict_last", "L2::evict_normal"];
                needs(m.take_one(&levels), "a level, such as `.L2`")?;
            }
            "prefetchu" => needs(m.take_one(&["L1"]), "the level `.L1`")?,
            "applypriority" => {
                m.take("global");
                needs(m.take_one(&["L2::evict_normal"]), "the priority `.L2::evict_normal`")?;
            }
            "discard" => {
                m.take("global");
                needs(m.take_one(&["L2"]), "the level `.L2`")?;
            }
            "pmevent" => _ = m.take("mask"),
            "griddepcontrol" => {
                needs(m.take_one(&["launch_dependents", "wait"]), "`.wait` or its opposite")?;
            }
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
        let kinds = ["alias", "async", "tensormap::generic", "async::generic"];
        match m.take_one(&kinds) {
            Some("async") => _ = m.take_one(&["global", "shared::cta", "shared::cluster"]),
            Some("tensormap::generic" | "async::generic") => {
                m.must(&[("acquire", ()), ("release", ())])?;
                let places = ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"];
                m.take_one(&places);
                m.take_one(SCOPES);
            }
            Some(_) => {}
            None => return Err("a fence of proxies names their kind, such as `.async`".to_owned()),
        }
        Ok(())
    }
}
