//! The controller: makes the networks of a back end match the objects.
//!
//! # Theory
//!
//! A pass reads one object. Its outcomes:
//!
//! | the object | the network | condition `Ready` | event | comes back |
//! |---|---|---|---|---|
//! | has an invalid spec | stays as it was | `False InvalidSpec` | `Warning InvalidSpec` | when it changes |
//! | has a range that another network uses | stays as it was | `False RangeTaken` | `Warning RangeTaken` | with back-off |
//! | is valid, a quota is used up | may be half made | `False QuotaExceeded` | `Warning QuotaExceeded` | after a minute |
//! | is valid, the back end refuses it | may be half made | `False Rejected` | `Warning Rejected` | when it changes |
//! | is valid, others use what has to go | stays as it was | `False InUse` | `Warning InUse` | after a minute |
//! | is valid, the back end fails | may be half made | `False BackendFailed` | `Warning BackendFailed` | with back-off |
//! | is valid | is created or changed | `True Synced` | `Normal Synced` if anything changed | when it changes, or after the back end's check period |
//! | is being deleted, others use the network | stays as it was | `False InUse` | `Warning InUse` | after a minute |
//! | is being deleted | is deleted, then the finalizer is removed | – | – | – |
//!
//! The finalizer is added before the network is created, and removed after the network is deleted.
//! So the network of a deleted object is always deleted, wherever the controller stops. Every step
//! may be repeated: a pass after a crash completes what the earlier one began. An unchanged status
//! is not written, and a resync that finds an unchanged resourceVersion does nothing.

use crate::api::{FINALIZER, Network, NetworkStatus, READY};
use crate::backend::{Again, Allocation, Backend, BackendError, Desired, Existing, Owner};
use crate::subnet::{Subnet, SubnetError};
use setpoint::prelude::*;
use setpoint::runtime::finalizer::FinalizerError;
use std::error::Error;
use std::net::{AddrParseError, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Time between two resyncs. Networks whose resourceVersion is unchanged are skipped.
pub const RESYNC_PERIOD: Duration = Duration::from_secs(30);

/// Time until another try if somebody else has to act first: to raise a quota, to remove a port.
pub const SLOW_RETRY: Duration = Duration::from_secs(60);

/// How many networks are worked on at a time.
pub const WORKERS: usize = 2;

/// The controller's name: in events, in `managedFields`, in logs.
pub const NAME: &str = "network-controller";

/// Why a spec is invalid.
#[derive(Debug, thiserror::Error)]
enum SpecError {
    /// The range, or the gateway within it.
    #[error(transparent)]
    Subnet(#[from] SubnetError),
    /// The gateway is no address.
    #[error("the gateway {text:?} is not an IPv4 address")]
    Gateway {
        text: String,
        #[source]
        source: AddrParseError,
    },
}

/// The reconciler of Networks over one back end.
#[derive(Debug)]
pub struct NetworkReconciler<B> {
    backend: Arc<B>,
}

/// The controller, to be added to a manager.
///
/// # Errors
///
/// None: these options are valid.
pub fn controller(backend: Arc<impl Backend>) -> Result<Controller, BuildError> {
    Controller::builder(NAME)
        .for_(Watch::<Network>::new().filter(Predicate::resource_version_changed()))
        .concurrency(WORKERS)
        // The CRD may come later than the controller.
        .sync_timeout(None)
        .build(NetworkReconciler { backend })
}

/// What the controller's manager caches.
pub fn cache() -> CacheOptions {
    CacheOptions::new().resync(RESYNC_PERIOD)
}

impl<B: Backend> Reconciler for NetworkReconciler<B> {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, context: Context) -> Result<Action, BoxError> {
        let networks = context.client().api::<Network>();
        let Some(network) = networks.get(&request)? else { return Ok(Action::await_change()) };
        let pass = async |finalize| match finalize {
            Finalize::Apply(network) => self.apply(&request, &network, &context).await,
            Finalize::Cleanup(network) => self.free(&request, &network, &context).await,
        };
        match finalizer(&networks, FINALIZER, network, pass).await {
            // The finalizer stays.
            Err(FinalizerError::Cleanup(error)) if again(&error) == Again::Slowly => {
                Ok(Action::requeue_after(SLOW_RETRY))
            }
            done => Ok(done?),
        }
    }
}

impl<B: Backend> NetworkReconciler<B> {
    /// Makes the network match the object, and reports the outcome.
    async fn apply(
        &self,
        request: &Request,
        network: &Network,
        context: &Context,
    ) -> Result<Action, BoxError> {
        let reporter = Reporter { request, network, context };
        let desired = match desired(network) {
            Ok(desired) => desired,
            Err(error) => {
                // Not retried: only an edit of the object can change the outcome.
                let existing = self.existing(request, network).await;
                reporter.refused("InvalidSpec", &error.to_string(), existing).await?;
                return Ok(Action::await_change());
            }
        };
        match self.backend.ensure(&owner(request, network), desired).await {
            Ok(allocation) => {
                reporter.synced(desired, &allocation).await?;
                let period = self.backend.check_period();
                Ok(period.map_or_else(Action::await_change, Action::requeue_after))
            }
            Err(error) => {
                let existing = self.existing(request, network).await;
                reporter.refused(error.reason(), &chain(&error), existing).await?;
                match error.again() {
                    Again::WithBackoff => Err(error.into()),
                    Again::Slowly => Ok(Action::requeue_after(SLOW_RETRY)),
                    Again::AfterChange => Ok(Action::await_change()),
                }
            }
        }
    }

    /// The network that exists although its spec cannot be applied. It may be newer than the
    /// status, if an earlier pass ended before it wrote the status. `None` if the back end fails.
    async fn existing(&self, request: &Request, network: &Network) -> Option<Option<Existing>> {
        let existing = self.backend.get(&owner(request, network)).await;
        existing.inspect_err(|error| tracing::debug!(network = %request, %error, "look")).ok()
    }

    /// Deletes the network of an object that is being deleted.
    async fn free(
        &self,
        request: &Request,
        network: &Network,
        context: &Context,
    ) -> Result<Action, BoxError> {
        match self.backend.release(&owner(request, network)).await {
            Ok(released) => {
                tracing::info!(network = %request, released, "freed");
                Ok(Action::await_change())
            }
            Err(error) => {
                if error.again() == Again::Slowly {
                    let reporter = Reporter { request, network, context };
                    let existing = self.existing(request, network).await;
                    reporter.refused(error.reason(), &chain(&error), existing).await?;
                }
                Err(error.into())
            }
        }
    }
}

/// When another try makes sense after a failed cleanup.
fn again(error: &BoxError) -> Again {
    error.downcast_ref::<BackendError>().map_or(Again::WithBackoff, BackendError::again)
}

/// The messages of an error and of its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn desired(network: &Network) -> Result<Desired, SpecError> {
    let subnet: Subnet = network.spec.cidr.parse()?;
    let text = &network.spec.gateway;
    let gateway: Ipv4Addr =
        text.parse().map_err(|source| SpecError::Gateway { text: text.clone(), source })?;
    subnet.check_gateway(gateway)?;
    Ok(Desired { subnet, gateway })
}

fn owner(request: &Request, network: &Network) -> Owner {
    Owner { uid: network.uid().unwrap_or_default(), name: request.to_string() }
}

/// Copies the existing network into the status.
fn fill(status: &mut NetworkStatus, existing: Option<&Existing>) {
    status.cidr = existing.map(|existing| existing.desired.subnet.to_string());
    status.gateway = existing.map(|existing| existing.desired.gateway.to_string());
    status.device = existing.map(|existing| existing.device.clone());
}

/// Reports the outcome of a pass: in the status, by an event, in the log.
struct Reporter<'a> {
    request: &'a Request,
    network: &'a Network,
    context: &'a Context,
}

impl Reporter<'_> {
    async fn synced(&self, desired: Desired, allocation: &Allocation) -> Result<(), BoxError> {
        let message =
            format!("{} with gateway {} is {}", desired.subnet, desired.gateway, allocation.device);
        let existing = Existing { desired, device: allocation.device.clone() };
        if self.write(Some(Some(existing)), true, "Synced", &message).await? {
            tracing::info!(network = %self.request, "synced: {message}");
            self.context.recorder().normal(&ObjectReference::of(self.network), "Synced", message);
        }
        Ok(())
    }

    async fn refused(
        &self,
        reason: &str,
        message: &str,
        existing: Option<Option<Existing>>,
    ) -> Result<(), BoxError> {
        if self.write(existing, false, reason, message).await? {
            tracing::warn!(network = %self.request, "{reason}: {message}");
            self.context.recorder().warning(&ObjectReference::of(self.network), reason, message);
        }
        Ok(())
    }

    /// Writes the status if it has changed; returns whether it did.
    async fn write(
        &self,
        existing: Option<Option<Existing>>,
        ready: bool,
        reason: &str,
        message: &str,
    ) -> Result<bool, BoxError> {
        let generation = self.network.meta().generation;
        let now = self.context.clock().now();
        let changed_status = |network: &Network| {
            let mut status = network.status.clone().unwrap_or_default();
            if let Some(existing) = &existing {
                fill(&mut status, existing.as_ref());
            }
            status.observed_generation = generation;
            set_condition(&mut status.conditions, READY, ready, reason, message, generation, now);
            (network.status.as_ref() != Some(&status)).then_some(status)
        };
        // Waits until the cache has this controller's own writes, so that no change is reported
        // twice.
        let networks = self.context.client().api::<Network>();
        let seen =
            networks.get_own(self.request).await?.filter(|seen| seen.uid() == self.network.uid());
        let Some(seen) = seen else { return Ok(false) };
        let Some(status) = changed_status(&seen) else { return Ok(false) };
        let updated = Network { status: Some(status), ..(*seen).clone() };
        networks.status().merge(&MergeFrom::object(&seen), &updated).await?;
        Ok(true)
    }
}
