//! Fencing: writes that leave only while a lease is held.
//!
//! # Theory
//!
//! A process that believes itself leader may be wrong: it was paused, its runtime was blocked, its
//! requests waited behind others. So the belief is checked where it counts, at each request, and
//! against a clock rather than a flag:
//!
//! ```text
//!   reconciler ─▶ Client ─▶ FenceLayer ─▶ queues, retries, TLS … ─▶ connection polls the body ─▶ kernel ─▶ server
//!                           check 1                                  check 2
//! ```
//!
//! A lease gives its holder a *deadline*: the moment **before** the last successful renewal was
//! sent, plus the renew deadline. Others count the lease's duration from the moment they *saw* that
//! renewal, which is later, and the duration is the longer of the two: so the holder's deadline
//! passes before anybody else may take the lease. Nobody has to run for it to pass. A deadline that
//! has passed stays passed until the lease is taken anew.
//!
//! Check 1 refuses a request that comes too late. Check 2 is the last moment in this process: the
//! body of every mutating request is wrapped, and fails when the connection asks for it past the
//! deadline. The connection then ends, and a request whose body did not come is never complete, so
//! the server does not do it. A request without a body is sent with an empty one of unknown length
//! (`chunked` on HTTP/1.1), so that it too has something to wait for.
//!
//! Mutating is everything but `GET`, `HEAD` and `OPTIONS`: access reviews, too, are refused to whom
//! may not write.
//!
//! # What remains
//!
//! - **Bytes past the second check.** Once the connection has taken the body, the request may be in
//!   the connection's buffer (a full socket, HTTP/2 flow control), in the kernel, on the wire, or
//!   in the server's queue. Nothing calls it back. A process that is stopped exactly between the
//!   second check and the system call sends it when it goes on. What shields objects there is the
//!   resourceVersion: an update or delete that carries one fails if the next holder has written in
//!   between. Creates of fixed names fail if they exist. Patches and applies without a
//!   resourceVersion have no such shield.
//! - **Reads are not fenced**, watches neither. A deposed holder may read, and may show others what
//!   it read.
//! - **Effects that are no requests of this client** are not fenced: ask [`Fence::check`] before
//!   them, or let the other side do it.
//! - **The rate of clocks.** Moments are never compared between machines, but spans are: a holder's
//!   clock must not run slower than a candidate's by more than lease duration / renew deadline (15
//!   s / 10 s: by half).
//! - **Suspend.** On Linux, tokio's clock is `CLOCK_MONOTONIC`, which stands still while a machine
//!   is suspended (a laptop, some virtual machines): a holder that wakes up then believes that no
//!   time has passed. A [`SuspendClock`] closes this: the deadline is then held by both clocks. A
//!   virtual machine that is snapshotted and resumed without its guest being told is beyond any
//!   clock of the guest.
//! - **A Lease that is deleted by hand**, while a process that never saw it begins to stand: the
//!   newcomer knows of no holder and creates the Lease, and both fences are open until the holder's
//!   next renewal finds that. That is at most one retry period and two requests' time-outs: 2 s and
//!   two round trips, unless the server does not answer. Candidates that saw the Lease wait until
//!   its last record expires, and leave its holder the time to create it again.
//! - **Retries below the fence**: `kube_client`'s retry layer needs bodies it can copy. Fenced ones
//!   it cannot, so each is sent once.

mod body;
mod clock;
mod deadline;
mod layer;

use std::{sync::Arc, time::Duration};

pub(crate) use self::deadline::{Deadline, Moment};
pub use self::{clock::SuspendClock, layer::FenceLayer};

/// Says, at any moment, whether this process may still write. Asked at every mutating request of a
/// [fenced client](crate::Client::fenced).
///
/// It must be quick, and must answer from a clock: an answer that only changes when some task runs
/// is late exactly when it matters.
pub trait Fence: Send + Sync {
    /// Whether writes may leave now.
    ///
    /// # Errors
    ///
    /// They may not, and why.
    fn check(&self) -> Result<(), Fenced>;
}

/// Why a write was not let out of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fenced {
    /// The lease is not held: not yet, or not any more.
    #[error("the lease is not held by this process")]
    NotHeld,
    /// The lease was held, and has not been renewed in time.
    #[error("the lease has not been renewed in time: its deadline passed {ago:?} ago")]
    Expired {
        /// How long ago the deadline passed.
        ago: Duration,
    },
}

impl Fenced {
    /// The refusal of a fence among an error and its causes.
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

/// Two fences in one.
pub(crate) struct Both(pub(crate) Arc<dyn Fence>, pub(crate) Arc<dyn Fence>);

impl Fence for Both {
    fn check(&self) -> Result<(), Fenced> {
        self.0.check().and_then(|()| self.1.check())
    }
}

/// A client whose mutating requests all pass the fence.
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
