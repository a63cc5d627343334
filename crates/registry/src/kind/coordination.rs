//! Kinds of `coordination.k8s.io`.
pub(super) mod lease;
pub(super) mod lease_candidate;

use crate::kind::at::At;
use setpoint_object::name;

/// The strategy that Kubernetes has. Others are names with a domain.
const OLDEST: &str = "OldestEmulationVersion";

/// A strategy is a known one, or a name with a domain.
fn known_strategy(at: &At<'_, '_>) {
    // The API's path has the member twice.
    let shown = at.shown_as("strategy", at.value);
    if at.text().contains('/') {
        shown.faults(name::qualified_name(at.text()));
    } else {
        shown.one_of_if_set(&[OLDEST]);
    }
}
