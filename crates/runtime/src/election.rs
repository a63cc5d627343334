//! Leader election: of all processes that ask for a Lease, one holds it.
//!
//! # Theory
//!
//! | state     | does                                                         | left when                                        |
//! |-----------|--------------------------------------------------------------|--------------------------------------------------|
//! | candidate | reads the Lease each retry × [1, 2.2), and watches it between | the Lease is free, and its own write of it succeeds |
//! | leading   | renews each retry, by an update without reading first        | stop; somebody else holds it; the renew deadline passes |
//! | ended     | nothing: an elector that has led does not lead again         | never                                            |
//!
//! A Lease is free when it has no holder, when it does not exist, or when *this process* has not
//! seen its record change for as long as the record says. One that is deleted is taken for held
//! until its last record expires: its holder notices at its next renewal, and creates it again. So
//! to delete a Lease by hand makes nobody leader sooner. Moments in the record are for people:
//! clocks of two machines are never compared. So a newcomer waits a full duration before it takes
//! over from a silent holder. Who takes it first is settled by the resourceVersion that every write
//! carries.
//!
//! What the watch is for: a Lease that is released is taken by the next candidate within a round
//! trip instead of a retry. It is only an accelerator. When it breaks, the reads go
//! on, and it is opened again with the next one.
//!
//! A write whose answer is lost may have been done. The elector remembers what it tried to write,
//! and knows its own record when it reads it. A record in its name that it did not write is
//! *another process's* that was given the same identity: it is respected as anybody's.
//!
//! When the deadline passes, [`Leadership::fence`] refuses, whether or not a task runs; see
//! [`fence`](crate::fence) for what that holds back, and what not. `run` then ends with
//! [`ElectionError::Lost`], and the process should end too: what it was doing may not be complete.
//!
//! # Not here
//!
//! Coordinated election, where the server chooses among `LeaseCandidate`s (LE-18): the API is
//! alpha. Locks other than Leases ([`ElectionOptions::lock`] says what to do instead).

mod elector;
mod error;
mod identity;
mod leadership;
mod options;
mod record;
mod request;
mod watch;

pub use self::{
    elector::LeaderElector,
    error::{ElectionError, Loss, OptionsError, RenewalOverdue},
    identity::{in_cluster_namespace, machine_identity},
    leadership::{LeaderState, Leadership},
    options::{ElectionOptions, LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD, Timings},
};
pub(crate) use self::{
    leadership::ElectionCollector,
    record::{Attempts, holder, micro_time},
    request::bounded,
};
