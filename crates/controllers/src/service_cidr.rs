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

use crate::api::{Api, RequestError};
use crate::protection::{release, set_finalizers};
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube_core::metadata::PartialObjectMeta;
use serde_json::{Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::{Clock, Timestamp};
use setpoint_runtime::{
    Action, BoxError, Client, Context, Controller, Manager, Reconciler, Request, Watch,
};
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
            let is_kept = range.finalizers().contains(&FINALIZER) && says(&range, &ready());
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
            .build(pass)?;
        manager.add(controller)?;
        Ok(())
    }
}

/// The ranges that wait for their finalizer to be removed.
fn deleted_ranges(client: &Client) -> Vec<Request> {
    let ranges = client.metadata::<ServiceCIDR>();
    let all = ranges.list(None, &Selector::everything()).unwrap_or_default();
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
fn says(range: &Value, condition: &Value) -> bool {
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

impl Reconciler for Pass {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, _: Context) -> Result<Action, BoxError> {
        // Boxed, so that a worker that waits for work is small.
        Ok(Box::pin(self.pass(&request.name)).await?)
    }
}

impl Pass {
    async fn pass(&self, name: &str) -> Result<Action, RequestError> {
        let path = format!("{RANGES}/{name}");
        let range = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => return Ok(Action::await_change()),
            range => range?,
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
            let is_in = |networks: &[Network]| networks.iter().any(|n| n.can_give(address));
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
        if says(range, &condition) {
            return Ok(());
        }
        condition["lastTransitionTime"] = self.clock.now().rfc3339().into();
        let status = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": range.name()}, "status": {"conditions": [condition]},
        });
        let path = format!("{path}/status?fieldManager={NAME}&force=true");
        match self.api.apply(&path, &status).await {
            Err(error) if error.is_not_found() => Ok(()),
            applied => applied.map(drop),
        }
    }
}

/// A network of one family.
#[derive(Debug, Clone, Copy)]
struct Network {
    base: u128,
    /// The bits that differ between its addresses.
    host: u128,
    is_six: bool,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (base, length) = text.split_once('/')?;
        let base: IpAddr = base.parse().ok()?;
        let (bits, base) = bits(base);
        let n_host = bits.checked_sub(length.parse().ok()?)?;
        let host = u128::MAX.checked_shr(128 - n_host).unwrap_or(0);
        Some(Self { base: base & !host, host, is_six: bits == 128 })
    }

    /// Whether an allocator may give an address of it: not its own, nor the broadcast address of
    /// IPv4.
    fn can_give(self, address: IpAddr) -> bool {
        let (_, address_bits) = bits(address);
        let host = address_bits & self.host;
        address.is_ipv6() == self.is_six
            && address_bits & !self.host == self.base
            && host != 0
            && (self.is_six || host != self.host)
    }
}

/// The number of bits of an address, and the bits.
fn bits(address: IpAddr) -> (u32, u128) {
    match address {
        IpAddr::V4(address) => (32, u32::from(address).into()),
        IpAddr::V6(address) => (128, address.into()),
    }
}

fn networks(range: &Value) -> Vec<Network> {
    let texts = range["spec"]["cidrs"].as_array().into_iter().flatten();
    texts.filter_map(Value::as_str).filter_map(Network::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_gives_all_but_its_own_and_the_broadcast_address() {
        let gives = |network: &str, address: &str| {
            Network::parse(network).unwrap().can_give(address.parse().unwrap())
        };
        for (address, expected) in [
            ("10.1.0.0", false),
            ("10.1.0.1", true),
            ("10.1.0.6", true),
            ("10.1.0.7", false),
            ("10.1.0.9", false),
            ("::a01:1", false),
        ] {
            assert_eq!(gives("10.1.0.0/29", address), expected, "{address}");
        }
        assert!(gives("fd00::/112", "fd00::ffff") && !gives("fd00::/112", "fd00::"));
        assert!(gives("0.0.0.0/0", "1.2.3.4") && gives("::/0", "::1"));
        assert!(!gives("10.2.0.1/32", "10.2.0.1"));
    }

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
