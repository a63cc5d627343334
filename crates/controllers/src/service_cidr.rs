//! Ranges of Services: keeps the finalizer and the condition `Ready` of ServiceCIDRs.
//!
//! # Theory
//!
//! | a ServiceCIDR | has |
//! |---|---|
//! | exists | the finalizer; `Ready` is true |
//! | is being deleted, and an address is in no other range | the finalizer; `Ready` is false, reason `Terminating` |
//! | is being deleted, and each address is in another range | the finalizer until the end of [`GRACE`] |
//!
//! An address is an IPAddress that the API server's allocator has made. Any change of a ServiceCIDR
//! or of an IPAddress enqueues the ranges that are being deleted, of which there are few. A pass
//! reads the ranges and the addresses from the server, because caches may lack some. The rules are
//! those of kube-controller-manager's `service-cidr-controller`.

use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::protection::{release, set_finalizers};
use crate::readable::readable;
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube_core::metadata::PartialObjectMeta;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::cidr::Given;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::{Action, BoxError, Client, Context, Controller, Manager, Request, Watch};
use std::net::IpAddr;
use std::time::Duration;

/// The controller's name, and the field manager of the condition.
const NAME: &str = "service-cidr-controller";
/// The finalizer.
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long a range stays after its deletion, so that every allocator knows of it: 10 s, as in
/// kube-controller-manager.
pub const GRACE: Duration = Duration::from_secs(10);
/// The messages of the condition.
const READY: &str = "Kubernetes Service CIDR is ready";
const BLOCKED: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
/// The allocator's addresses.
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses?labelSelector=ipaddress.kubernetes.io%2Fmanaged-by%3Dipallocator.k8s.io";

/// The controller of ServiceCIDRs. It does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct ServiceCidrs {
    setup: Setup,
}

impl ServiceCidrs {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Whether the controller has nothing to do, by all ServiceCIDRs as encoded objects.
    pub fn is_settled(ranges: &[Bytes]) -> bool {
        let is_settled = |range: &Bytes| {
            let range: Value = serde_json::from_slice(range).ok()?;
            let is_kept =
                range.finalizers().contains(&FINALIZER) && has_condition(&range, &ready());
            Some(range.deletion_timestamp().is_empty() && is_kept)
        };
        ranges.iter().all(|range| is_settled(range).unwrap_or(false))
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let ranges = |event: &Event<PartialObjectMeta<ServiceCIDR>>, client: &Client| {
            let mut requests = deleted_ranges(client);
            requests.push(Request::cluster(event.key().name.clone()));
            requests
        };
        let pass = Pass { api: self.setup.api(NAME), clock: self.setup.clock().clone() };
        let controller = Controller::builder(NAME)
            .watches_with(Watch::<ServiceCIDR>::metadata(), ranges)
            .watches_with(Watch::<IPAddress>::metadata(), |_, client: &Client| {
                deleted_ranges(client)
            })
            .sync_timeout(None)
            .build(Boxed(pass))?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The ranges that wait for their finalizer to be removed.
fn deleted_ranges(client: &Client) -> Vec<Request> {
    let ranges = client.metadata::<ServiceCIDR>();
    let all = readable(&ranges.select());
    let deleted = all.iter().filter(|range| range.metadata.deletion_timestamp.is_some());
    deleted.map(|range| Request::of(&**range)).collect()
}

/// The condition, without its time.
fn ready() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "", "message": READY})
}

fn blocked() -> Value {
    json!({"type": "Ready", "status": "False", "reason": "Terminating", "message": BLOCKED})
}

/// Whether a range has a condition.
fn has_condition(range: &Value, condition: &Value) -> bool {
    let held = range["status"]["conditions"].as_array();
    let held = held.into_iter().flatten().find(|held| held["type"] == condition["type"]);
    let same =
        |held: &Value, member: &str| held[member].as_str().unwrap_or_default() == condition[member];
    held.is_some_and(|held| ["status", "reason", "message"].iter().all(|member| same(held, member)))
}

struct Pass {
    api: Api,
    clock: Clock,
}

impl BoxedReconciler for Pass {
    type Error = RequestError;

    async fn pass(&self, request: &Request, _: &Context) -> Result<Action, RequestError> {
        let name = &*request.name;
        let path = format!("{RANGES}/{name}");
        let Some(range) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        let mut finalizers = range.finalizers();
        let is_protected = finalizers.contains(&FINALIZER);
        let deleted = range.deletion_timestamp();
        if deleted.is_empty() {
            if !is_protected {
                finalizers.push(FINALIZER);
                set_finalizers(&self.api, &path, &range, &finalizers).await?;
            }
            self.set_condition(&path, &range, ready()).await?;
            return Ok(Action::await_change());
        }
        if !is_protected {
            return Ok(Action::await_change());
        }
        if self.is_needed(&range).await? {
            self.set_condition(&path, &range, blocked()).await?;
            return Ok(Action::await_change());
        }
        let deleted = Timestamp::parse(deleted).unwrap_or_default();
        let remaining = GRACE.saturating_sub(self.clock.now().since(deleted));
        if !remaining.is_zero() {
            return Ok(Action::requeue_after(remaining));
        }
        release(&self.api, &path, &range, FINALIZER).await?;
        Ok(Action::await_change())
    }
}

impl Pass {
    /// Whether an address would be in no range without this one.
    async fn is_needed(&self, range: &Value) -> Result<bool, RequestError> {
        let own = networks(range);
        let mut others = Vec::new();
        let collect = |other: Value| {
            if other.name() != range.name() {
                others.extend(networks(&other));
            }
        };
        self.api.list_pages(RANGES, collect).await?;
        let mut is_needed = false;
        let look = |address: Value| {
            let Ok(address) = address.name().parse::<IpAddr>() else { return };
            let is_in = |networks: &[Given]| networks.iter().any(|given| given.has(address));
            is_needed |= is_in(&own) && !is_in(&others);
        };
        self.api.list_pages(ADDRESSES, look).await?;
        Ok(is_needed)
    }

    /// Sets the condition unless the range has it.
    async fn set_condition(
        &self,
        path: &str,
        range: &Value,
        mut condition: Value,
    ) -> Result<(), RequestError> {
        if has_condition(range, &condition) {
            return Ok(());
        }
        condition["lastTransitionTime"] = self.clock.now().rfc3339().into();
        let status = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": range.name()}, "status": {"conditions": [condition]},
        });
        let path = format!("{path}/status?fieldManager={NAME}&force=true");
        ignore_not_found(self.api.apply(&path, &status).await).map(drop)
    }
}

fn networks(range: &Value) -> Vec<Given> {
    let texts = range["spec"]["cidrs"].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).filter_map(Given::of_network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_with_its_finalizer_and_the_condition_is_settled() {
        let mut range = json!({
            "metadata": {"name": "more", "finalizers": [FINALIZER]},
            "spec": {"cidrs": ["10.1.0.0/29"]}, "status": {"conditions": [ready()]},
        });
        let is_settled = |range: &Value| ServiceCidrs::is_settled(&[range.to_string().into()]);
        assert!(is_settled(&range));
        range["status"]["conditions"][0]["message"] = "Kubernetes default Service CIDR".into();
        assert!(!is_settled(&range), "the message of a server without controllers");
        range["status"]["conditions"][0] = ready();
        range["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!is_settled(&range));
        assert!(!ServiceCidrs::is_settled(&["{}".into()]));
        assert!(ServiceCidrs::is_settled(&[]));
    }
}
