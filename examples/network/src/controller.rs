//! The controller: makes a back end's networks fit the objects.
//!
//! # Theory
//!
//! One pass looks at one object and ends in one of these:
//!
//! | the object | the network | condition `Ready` | event | comes back |
//! |---|---|---|---|---|
//! | asks for something that cannot be | stays as it was | `False InvalidSpec` | `Warning InvalidSpec` | when it changes |
//! | asks for a range that is taken | stays as it was | `False RangeTaken` | `Warning RangeTaken` | with back-off |
//! | is right, the back end fails | as far as it got | `False BackendFailed` | `Warning BackendFailed` | with back-off |
//! | is right | is made so | `True Synced` | `Normal Synced` if anything changed | when it changes |
//! | is being deleted | is freed, then the finalizer goes | – | – | – |
//!
//! The finalizer is on the object before the network is made, and the network is freed before it
//! comes off: whatever happens in between, a deleted object's network goes. Every step may be
//! repeated, so that a controller that stops anywhere, for any reason, leaves nothing that its next
//! pass does not mend. A status that would say nothing new is not written, and a resync that finds
//! an unchanged resourceVersion does nothing.

use crate::api::{FINALIZER, Network, NetworkStatus, READY};
use crate::backend::{Allocation, Backend, BackendError, Desired, Held, Owner};
use crate::subnet::{Subnet, SubnetError};
use setpoint::prelude::*;
use std::net::{AddrParseError, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// How often every network is looked at although nothing was heard of it; unchanged ones are passed
/// over.
pub const RESYNC_PERIOD: Duration = Duration::from_secs(30);

/// How many networks are worked on at a time.
pub const WORKERS: usize = 2;

/// The controller's name: in events, in `managedFields`, in logs.
pub const NAME: &str = "network-controller";

/// Why a spec cannot be fulfilled, as it stands.
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
/// Never, as it is built here; the builder's own rules say when.
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
            Finalize::Cleanup(network) => self.free(&request, &network).await,
        };
        Ok(finalizer(&networks, FINALIZER, network, pass).await?)
    }
}

impl<B: Backend> NetworkReconciler<B> {
    /// Makes the network what the object asks for, and says how that went.
    async fn apply(
        &self,
        request: &Request,
        network: &Network,
        context: &Context,
    ) -> Result<Action, BoxError> {
        let say = Say { request, network, context };
        let desired = match desired(network) {
            Ok(desired) => desired,
            Err(error) => {
                // Trying again would find the same: the next pass is the next edit's.
                let held = self.held(request, network).await;
                say.refused("InvalidSpec", &error.to_string(), held).await?;
                return Ok(Action::await_change());
            }
        };
        match self.backend.ensure(&owner(request, network), desired).await {
            Ok(allocation) => {
                say.synced(desired, &allocation).await?;
                Ok(Action::await_change())
            }
            Err(error) => {
                let reason = if matches!(error, BackendError::Overlap { .. }) {
                    "RangeTaken"
                } else {
                    "BackendFailed"
                };
                let held = self.held(request, network).await;
                say.refused(reason, &error.to_string(), held).await?;
                Err(error.into())
            }
        }
    }

    /// What the object has although it cannot have what it asks for: perhaps more than its status
    /// knows, for the back end may have changed it in a pass that did not come to say so. `None`
    /// when the back end cannot tell.
    async fn held(&self, request: &Request, network: &Network) -> Option<Option<Held>> {
        let held = self.backend.held(&owner(request, network)).await;
        held.inspect_err(|error| tracing::debug!(network = %request, %error, "look")).ok()
    }

    /// Frees the network of an object that is being deleted.
    async fn free(&self, request: &Request, network: &Network) -> Result<Action, BoxError> {
        let held = self.backend.release(&owner(request, network)).await?;
        tracing::info!(network = %request, held, "freed");
        Ok(Action::await_change())
    }
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

/// Writes what a network has into its status.
fn fill(status: &mut NetworkStatus, held: Option<&Held>) {
    status.cidr = held.map(|held| held.desired.subnet.to_string());
    status.gateway = held.map(|held| held.desired.gateway.to_string());
    status.device = held.map(|held| held.device.clone());
}

/// Says how a pass went: in the status, by an event, in the log.
struct Say<'a> {
    request: &'a Request,
    network: &'a Network,
    context: &'a Context,
}

impl Say<'_> {
    async fn synced(&self, desired: Desired, allocation: &Allocation) -> Result<(), BoxError> {
        let message =
            format!("{} with gateway {} is {}", desired.subnet, desired.gateway, allocation.device);
        let held = Held { desired, device: allocation.device.clone() };
        if self.write(Some(Some(held)), true, "Synced", &message).await? {
            tracing::info!(network = %self.request, "synced: {message}");
            self.context.recorder().normal(&ObjectReference::of(self.network), "Synced", message);
        }
        Ok(())
    }

    async fn refused(
        &self,
        reason: &str,
        message: &str,
        held: Option<Option<Held>>,
    ) -> Result<(), BoxError> {
        if self.write(held, false, reason, message).await? {
            tracing::warn!(network = %self.request, "{reason}: {message}");
            self.context.recorder().warning(&ObjectReference::of(self.network), reason, message);
        }
        Ok(())
    }

    /// Writes the status if it says anything new, and says whether it did.
    async fn write(
        &self,
        held: Option<Option<Held>>,
        ready: bool,
        reason: &str,
        message: &str,
    ) -> Result<bool, BoxError> {
        let generation = self.network.meta().generation;
        let now = self.context.clock().now();
        let news = |network: &Network| {
            let mut status = network.status.clone().unwrap_or_default();
            if let Some(held) = &held {
                fill(&mut status, held.as_ref());
            }
            status.observed_generation = generation;
            set_condition(&mut status.conditions, READY, ready, reason, message, generation, now);
            (network.status.as_ref() != Some(&status)).then_some(status)
        };
        // This controller may have written the status of another pass, which the cache shows late:
        // what it wrote itself is waited for, so that nothing is said twice.
        let networks = self.context.client().api::<Network>();
        let seen =
            networks.get_own(self.request).await?.filter(|seen| seen.uid() == self.network.uid());
        let Some(seen) = seen else { return Ok(false) };
        let Some(status) = news(&seen) else { return Ok(false) };
        let said = Network { status: Some(status), ..(*seen).clone() };
        networks.status().merge(&MergeFrom::object(&seen), &said).await?;
        Ok(true)
    }
}
