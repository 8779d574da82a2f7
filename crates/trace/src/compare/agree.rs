//! Comparison of single values with recorded ones.

use crate::format::AttributeRead;

pub(super) fn unset_or_equal<T: PartialEq>(recorded: &Option<T>, got: &Option<T>) -> bool {
    recorded.is_none() || recorded == got
}

/// A value that was recorded as null has no stable meaning: only the code is compared.
pub(super) fn reads_agree(recorded: &AttributeRead, got: &AttributeRead) -> bool {
    recorded.0 == got.0 && unset_or_equal(&recorded.1, &got.1)
}
