//! Checks writes against the Lease's own writes in the journal, independently of the Lease's
//! holders.

use crate::harness::{Journal, WriteEntry};
use http::Method;
use std::time::Duration;

/// How long a holder keeps leading without a successful renewal.
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Writes that left a process too late: within the deadline before them, no successful renewal of
/// its own Lease had left the process.
pub(crate) fn late_writes(
    journal: &Journal,
    is_guarded: impl Fn(&WriteEntry) -> bool,
) -> Vec<WriteEntry> {
    let renewals: Vec<WriteEntry> = journal.writes_to("/leases");
    let is_renewal = |lease: &WriteEntry| {
        lease.method != Method::DELETE && lease.answered.is_some_and(|(_, code)| code.is_success())
    };
    let mut late = journal.writes();
    late.retain(|write| {
        is_guarded(write)
            && !renewals.iter().any(|lease| {
                lease.process == write.process
                    && is_renewal(lease)
                    && lease.left <= write.left
                    && write.left < lease.left + RENEW_DEADLINE
            })
    });
    late
}

/// Pairs of a write and another process's successful take-over of the Lease before it, without a
/// renewal of the writer's own in between.
pub(crate) fn usurped_writes(
    journal: &Journal,
    is_guarded: impl Fn(&WriteEntry) -> bool,
) -> Vec<(WriteEntry, WriteEntry)> {
    let mut leases: Vec<WriteEntry> = journal.writes_to("/leases");
    leases.retain(|lease| lease.answered.is_some_and(|(_, code)| code.is_success()));
    leases.sort_by_key(|lease| lease.arrived);
    let mut usurped = Vec::new();
    for write in journal.writes().into_iter().filter(is_guarded) {
        let last = leases.iter().rfind(|lease| lease.arrived.is_some_and(|at| at < write.left));
        if let Some(last) = last.filter(|last| last.process != write.process) {
            usurped.push((write, last.clone()));
        }
    }
    usurped
}
