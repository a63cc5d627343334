//! What accepted changes of a status add to counters of the server.
use serde_json::Value;

/// A counter with one label, which metrics show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Counter {
    /// Certificates that were issued for requests which ask for a duration, by signer.
    RequestedDuration,
    /// Those with about that duration.
    HonoredDuration,
}

/// What a stored change of a status counts: `(new object, object before)`, both in the storage
/// version. Each counter, and the value of its label.
pub type Counts = fn(&Value, &Value) -> Vec<(Counter, String)>;

/// Nothing.
pub(super) fn nothing(_: &Value, _: &Value) -> Vec<(Counter, String)> {
    Vec::new()
}
