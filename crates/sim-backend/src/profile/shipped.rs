//! The profiles that ship with the crate.

use std::sync::LazyLock;

use super::check;
use super::error::ProfileError;
use super::gpu::GpuProfile;
use super::texts::DOCUMENTS;

static PROFILES: LazyLock<Vec<GpuProfile>> = LazyLock::new(|| {
    let read = |(name, text): &(&str, &str)| match GpuProfile::from_toml(text) {
        Ok(profile) => profile,
        // A test reads every document, so this is never seen outside of this crate's own tests.
        Err(error) => panic!("the shipped profile {name}: {error}"),
    };
    DOCUMENTS.iter().map(read).collect()
});

impl GpuProfile {
    /// NVIDIA H200 SXM: the profile with figures fitted to recordings.
    #[must_use]
    pub fn h200() -> Self {
        PROFILES[0].clone()
    }

    /// The shipped profile with this name, upper or lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.iter().find(|profile| profile.name.eq_ignore_ascii_case(name)).cloned()
    }

    /// Every profile that ships with the crate.
    #[must_use]
    pub fn all() -> Vec<Self> {
        PROFILES.clone()
    }

    /// Whether every value makes sense: the first that does not.
    ///
    /// # Errors
    /// [`ProfileError::Value`].
    pub fn check(&self) -> Result<(), ProfileError> {
        // Looking at every figure takes as long as making a machine: once is enough for those that
        // were looked at when they were read.
        let is_shipped = |one: &Self| one.name == self.name && one == self;
        if PROFILES.iter().any(is_shipped) { Ok(()) } else { check::check(self) }
    }
}
