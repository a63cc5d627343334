//! Fencing: writes are sent only while a lease is held.
//!
//! # Theory
//!
//! A process that believes itself leader may be wrong: it was paused, its runtime was blocked, or
//! its requests were queued. So the lease is checked at each request, and against a clock instead
//! of a flag:
//!
//! ```text
//!   reconciler ─▶ Client ─▶ FenceLayer ─▶ queues, retries, TLS … ─▶ connection polls the body ─▶ kernel ─▶ server
//!                           check 1                                  check 2
//! ```
//!
//! A lease has a *deadline* for its holder: the time **before** the last successful renewal was
//! sent, plus the renew deadline. Other candidates count the lease duration from when they *saw*
//! that renewal, which is later, and the lease duration is longer. So the holder's deadline passes
//! before another process may take the lease. No task needs to run for that. Once passed, it stays
//! passed until the lease is acquired again.
//!
//! Check 1 refuses a late request. Check 2 is the last moment in this process: the body of every
//! mutating request is wrapped, and fails if the connection polls it after the deadline. The
//! connection then closes, and the server does not execute an incomplete request. A request without
//! a body is sent with an empty body of unknown length (`chunked` on HTTP/1.1), so that check 2
//! applies to it too.
//!
//! All methods except `GET`, `HEAD` and `OPTIONS` are mutating. So access reviews are refused too
//! without the lease.
//!
//! # Limits
//!
//! - **Bytes past check 2.** Once the connection has taken the body, the request may be in the
//!   connection's buffer (a full socket, HTTP/2 flow control), in the kernel, on the wire, or in
//!   the server's queue. It cannot be recalled. A process that is paused exactly between check 2
//!   and the system call sends it when it resumes. The resourceVersion protects objects there: an
//!   update or delete with one fails if the next holder has written since. Creates with fixed names
//!   fail if the object exists. Patches and applies without a resourceVersion have no such
//!   protection.
//! - **Reads are not fenced**, including watches. A deposed holder may read, and may show others
//!   what it read.
//! - **Effects other than requests of this client** are not fenced: call [`Fence::check`] before
//!   them, or let the other side check.
//! - **The rate of clocks.** Times are never compared between machines, but durations are: a
//!   holder's clock must not run slower than a candidate's by more than lease duration / renew
//!   deadline (15 s / 10 s: by half).
//! - **Suspend.** On Linux, tokio's clock is `CLOCK_MONOTONIC`, which stops while a machine is
//!   suspended (a laptop, some virtual machines): a holder that wakes up believes that no time has
//!   passed. With a [`SuspendClock`] the deadline is checked against both clocks. A virtual machine
//!   that is snapshotted and resumed without notice to its guest cannot be detected by any clock of
//!   the guest.
//! - **A Lease that is deleted by hand**, while a process that never saw it starts to run for
//!   election: the new candidate knows of no holder and creates the Lease. Both fences are open
//!   until the holder's next renewal fails. That takes at most one retry period and two requests'
//!   time-outs: 2 s and two round trips, if the server answers. Candidates that saw the Lease wait
//!   until its last record expires, which gives its holder time to create it again.
//! - **Retries below the fence**: `kube_client`'s retry layer needs bodies it can copy. Fenced
//!   bodies cannot be copied, so each request is sent once.

mod deadline;
mod layer;

use std::{sync::Arc, time::Duration};

pub(crate) use self::deadline::{Deadline, Moment};
pub use self::{deadline::SuspendClock, layer::FenceLayer};

/// Decides whether this process may write now. Checked at every mutating request of a [fenced
/// client](crate::Client::fenced).
///
/// It must be fast, and must answer from a clock: an answer that changes only when some task runs
/// may be late exactly when it matters.
pub trait Fence: Send + Sync {
    /// Whether writes may be sent now.
    ///
    /// # Errors
    ///
    /// Writes are not permitted. The error gives the reason.
    fn check(&self) -> Result<(), Fenced>;
}

/// Why a write was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fenced {
    /// The lease is not held, or no longer held.
    #[error("the lease is not held by this process")]
    NotHeld,
    /// The lease was held and has not been renewed in time.
    #[error("the lease has not been renewed in time: its deadline passed {ago:?} ago")]
    Expired {
        /// How long ago the deadline passed.
        ago: Duration,
    },
    /// The cluster was removed from the manager.
    #[error("the cluster was removed from the manager")]
    ClusterRemoved,
}

impl Fenced {
    /// Finds the refusal of a fence in an error's source chain.
    pub fn find<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(fenced) = error.downcast_ref::<Self>() {
                return Some(fenced);
            }
            next = error.source();
        }
        None
    }
}

/// Two fences combined: both must permit.
pub(crate) struct Both(pub(crate) Arc<dyn Fence>, pub(crate) Arc<dyn Fence>);

impl Fence for Both {
    fn check(&self) -> Result<(), Fenced> {
        self.0.check().and_then(|()| self.1.check())
    }
}

/// A client whose mutating requests are fenced.
pub(crate) fn fenced(kube: &kube_client::Client, fence: Arc<dyn Fence>) -> kube_client::Client {
    use tower::Layer;

    let inner = kube.clone();
    let service = tower::service_fn(move |request| {
        let inner = inner.clone();
        async move { inner.send(request).await }
    });
    kube_client::Client::new(FenceLayer::new(fence).layer(service), kube.default_namespace())
        .with_valid_until(*kube.valid_until())
}
