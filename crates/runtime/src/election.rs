//! Leader election: of all candidates for a Lease, one holds it.
//!
//! # Theory
//!
//! | state     | does                                                         | left when                                        |
//! |-----------|--------------------------------------------------------------|--------------------------------------------------|
//! | candidate | reads the Lease each retry × [1, 2.2), and watches it between | the Lease is free, and its own write of it succeeds |
//! | leading   | renews each retry, by an update without reading first        | stop; another process holds it; the renew deadline passes |
//! | ended     | nothing: an elector never leads twice                        | never                                            |
//!
//! A Lease is free when it has no holder, when it does not exist, or when *this process* has not
//! seen its record change for the record's duration. A deleted Lease counts as held until its last
//! record expires, since its holder notices at its next renewal and creates it again. So deleting a
//! Lease by hand does not speed up a takeover. Times in the record are informational: clocks of two
//! machines are never compared. So a new candidate waits a full duration before it takes over from
//! a silent holder. Of several candidates, the resourceVersion in every write decides which one
//! succeeds.
//!
//! The watch lets the next candidate take a released Lease within a round trip instead of a retry
//! period. It only speeds this up: if it breaks, the reads go on, and the next read opens it again.
//!
//! A write whose answer is lost may have been done. The elector remembers what it tried to write,
//! and recognizes its own record when it reads it. A record with its identity that it did not write
//! belongs to *another process* with the same identity, and is respected as any other.
//!
//! When the deadline passes, [`Leadership::fence`] refuses writes, even if no task runs; see
//! [`fence`](crate::fence) for what that covers. `run` then ends with [`ElectionError::Lost`], and
//! the process should exit, since its work may be incomplete.
//!
//! # Not supported
//!
//! Coordinated election, where the server chooses among `LeaseCandidate`s (LE-18): the API is
//! alpha. Locks other than Leases ([`ElectionOptions::lock`] says what to do instead).

mod elector;
mod error;
mod leadership;
mod options;
mod record;
mod watch;

pub use self::{
    elector::LeaderElector,
    error::{ElectionError, Loss, OptionsError, RenewalOverdue},
    leadership::{LeaderState, Leadership},
    options::{
        ElectionOptions, LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, Timings,
        in_cluster_namespace, machine_identity, machine_name,
    },
};
pub(crate) use self::{
    elector::bounded,
    leadership::ElectionCollector,
    record::{Attempts, holder, micro_time},
};
