//! Which writes of a kind may use more of a ResourceQuota: a column of its row. What an object uses
//! is known to `setpoint_quota`.
use serde_json::Value;

/// The writes that the admission plugin `ResourceQuota` charges.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Charged {
    /// None (Event).
    Never,
    /// Creates.
    Creates,
    /// Creates and updates.
    Updates {
        /// The subresources of such updates; empty: the object itself.
        parts: &'static [&'static str],
        /// Whether an update may need more: (subresource or empty, new object, stored object).
        may_need: fn(&str, &Value, &Value) -> bool,
    },
}
impl Charged {
    /// Creates, and all updates of these subresources; empty: of the object itself.
    pub(super) const fn updates(parts: &'static [&'static str]) -> Self {
        Self::Updates { parts, may_need: |_, _, _| true }
    }
}
