//! Runs controllers only while they have something to do.
//!
//! # Theory
//!
//! Most control planes of a process with many are idle. Controllers and their caches take several
//! times the memory of the objects that they watch, so an idle control plane has none:
//!
//! ```text
//! asleep ── a watched object changes ──▶ awake ── QUIET without a change, and settled ──▶ asleep
//! ```
//!
//! It begins asleep if the objects are settled then, as those of a fresh control plane are: its
//! start writes them as the controllers would leave them.
//!
//! *Settled* is a function of the stored objects: it says that the controllers would do nothing.
//! The wait for changes begins before the objects are read, so no change is missed: one that comes
//! while the controllers stop wakes them again. Whatever the function cannot tell is not settled,
//! and then the controllers run, as those of a server with many objects always do.

use bytes::Bytes;
use futures::future::BoxFuture;
use setpoint_object::keys;
use setpoint_registry::{ChangeSignal, Registry};
use setpoint_runtime::BoxError;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long no watched object changes before controllers sleep. Two seconds: a start costs some
/// milliseconds, so separate changes cost little.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum number of objects of a resource with which controllers sleep. A start lists all of them.
const OBJECTS_MAX: usize = 1000;

/// Objects that controllers watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    group: &'static str,
    resource: &'static str,
    /// The only name of the objects, if they have only one.
    name: Option<&'static str>,
}

impl Watched {
    /// All objects of a resource.
    pub(crate) const fn all(group: &'static str, resource: &'static str) -> Self {
        Self { group, resource, name: None }
    }

    /// The objects of a resource with a name, one in each namespace.
    pub(crate) const fn named(
        group: &'static str,
        resource: &'static str,
        name: &'static str,
    ) -> Self {
        Self { group, resource, name: Some(name) }
    }

    /// The objects of the resource, as they are stored.
    pub(crate) fn objects(&self, registry: &Registry) -> Vec<Bytes> {
        let (objects, _) = registry.stored_objects(&self.prefix());
        objects.into_iter().map(|object| object.value).collect()
    }

    /// Whether the objects of the resource are those of the start of the server.
    pub(crate) fn is_as_started(&self, registry: &Registry) -> bool {
        registry.is_as_started(&self.prefix())
    }

    fn prefix(&self) -> String {
        keys::built_in_prefix(self.group, self.resource)
    }
}

/// Runs controllers with `run` until `stop`, but only while they may have something to do: unless
/// the objects are settled, from now on, and after each change of a watched object until they are.
///
/// # Errors
///
/// That of `run`.
pub(crate) async fn while_needed<'a>(
    registry: &Registry,
    stop: &CancellationToken,
    watched: &[Watched],
    is_settled: impl Fn() -> bool,
    run: impl Fn(CancellationToken) -> BoxFuture<'a, Result<(), BoxError>>,
) -> Result<(), BoxError> {
    let signal = |watched: &Watched| registry.change_signal(&watched.prefix(), watched.name);
    let mut signals: Vec<ChangeSignal> = watched.iter().map(signal).collect();
    let is_small =
        || watched.iter().all(|watched| registry.has_at_most(&watched.prefix(), OBJECTS_MAX));
    // Read after the signals have begun, so that no change is missed.
    let mut is_asleep = is_small() && is_settled();
    loop {
        if is_asleep {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                // Cancel safe: a signal that is not taken remains.
                () = changed(&mut signals) => {}
            }
        }
        let end = stop.child_token();
        let mut running = run(end.clone());
        let settle = async {
            loop {
                // Cancel safe: a signal that is not taken remains.
                match tokio::time::timeout(QUIET, changed(&mut signals)).await {
                    Ok(()) => {}
                    Err(_) if is_small() && is_settled() => return,
                    // Only a change can settle them.
                    Err(_) => changed(&mut signals).await,
                }
            }
        };
        tokio::select! {
            biased;
            ended = &mut running => return ended,
            () = settle => {}
        }
        end.cancel();
        running.await?;
        is_asleep = true;
    }
}

/// Waits until one of the signals says that something has changed.
async fn changed(signals: &mut [ChangeSignal]) {
    poll_fn(|cx| match signals.iter_mut().any(|signal| signal.poll_changed(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
