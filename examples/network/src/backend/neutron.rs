//! A back end that creates networks in an OpenStack cloud, by the API of Neutron.
//!
//! # Theory
//!
//! A Network is a network with one subnet and one port, which reserves the gateway's address and
//! can be plugged into a router. Each of the three has marks of its owner:
//!
//! | mark | value | is there |
//! |---|---|---|
//! | name and description | `setpoint-<uid>`, [`DESCRIPTION`] | as soon as it is created |
//! | tag | `setpoint-uid=<uid>` | with the next request: Neutron takes no tags for a new network |
//!
//! What has the tag, or both of the others, is the owner's. Nothing else is changed or deleted, but
//! subnets that others add to the owner's network are deleted with it, by Neutron.
//!
//! Each call first looks for what is there, by name and by tag: so whatever a crash, a lost answer
//! or a hand has left is found before anything is created. If a create whose answer was lost took
//! effect late, there are two networks. The one that is tagged, has subnets and is the oldest
//! stays; the others are deleted.
//!
//! Neutron allows overlapping ranges. A range is checked against all subnets with [`DESCRIPTION`]
//! in the project before a subnet is created, and again before it is tagged.
//!
//! What Neutron refuses is an outcome of its own: see [`BackendError`].

mod api;
mod http;
mod keystone;

pub use http::{
    ANSWER_BYTES_MAX, ATTEMPT_MAX, ATTEMPTS_MAX, Dial, HttpError, PAUSE_MAX, PAUSE_MIN,
};
pub use keystone::{Access, Credential, RENEW_BEFORE, Secret};

use super::{Allocation, Backend, BackendError, Desired, Existing, Owner};
use crate::subnet::Subnet;
use ::http::StatusCode;
use api::{Api, FixedIp, Kind, Marks, Network, Port};
use futures::future::{BoxFuture, FutureExt};
use http::Sender;
use keystone::Sessions;
use serde_json::{Value, json};
use setpoint::prelude::Clock;
use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::sync::Mutex;

/// The description of everything that this back end creates.
pub const DESCRIPTION: &str = "Made by setpoint's network-controller";

/// How often a network is compared with its object, unless another time is asked for: five minutes.
pub const CHECK_PERIOD: Duration = Duration::from_secs(300);

/// Neutron's names of errors that say that somebody uses what is to be changed or deleted.
const IN_USE: [&str; 7] = [
    "NetworkInUse",
    "SubnetInUse",
    "PortInUse",
    "GatewayIpInUse",
    "IpAddressAlreadyAllocated",
    "IpAddressInUse",
    "ServicePortInUse",
];

/// Owners of ports that Neutron deletes with their network or subnet.
const DELETED_WITH_NETWORK: [&str; 3] =
    ["network:dhcp", "network:distributed", "network:floatingip_agent_gateway"];

/// What owners of ports of routers start with: `network:router_interface_distributed`.
const ROUTER: &str = "network:router_interface";

/// Networks of a project in an OpenStack cloud.
pub struct NeutronBackend {
    api: Api,
    check_period: Duration,
    /// Held from the check of a range to the creation of its subnet, so that two owners cannot both
    /// find a range free.
    change: Mutex<()>,
}

impl fmt::Debug for NeutronBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NeutronBackend").finish_non_exhaustive()
    }
}

impl NeutronBackend {
    /// Makes no request. Call it within a tokio runtime. `clock`: for the ends of tokens; `seed`:
    /// for the variation of pauses.
    ///
    /// # Errors
    ///
    /// A URL or the CA file cannot be used.
    pub fn new(access: Access, dial: Dial, clock: Clock, seed: u64) -> Result<Self, HttpError> {
        let sessions = Sessions::new(access, dial, clock)?;
        let api = Api { sessions, sender: Sender::new(seed) };
        Ok(Self { api, check_period: CHECK_PERIOD, change: Mutex::new(()) })
    }

    /// Sets how often a network is compared with its object. Default: [`CHECK_PERIOD`].
    pub fn check_every(self, check_period: Duration) -> Self {
        Self { check_period, ..self }
    }

    /// The owner's networks: the one to keep first.
    async fn networks(&self, mine: &Mine) -> Result<Vec<Network>, BackendError> {
        let mut found: Vec<Network> = self.list(mine, &[("name", &mine.name)]).await?;
        let tagged: Vec<Network> = self.list(mine, &[("tags", &mine.tag)]).await?;
        for network in tagged {
            if found.iter().all(|known| known.id != network.id) {
                found.push(network);
            }
        }
        found.sort_by(|a, b| {
            let rank =
                |network: &Network| (!mine.is_tagged(&network.marks), network.subnets.is_empty());
            let age = |network: &Network| (network.created_at.clone(), network.id.clone());
            rank(a).cmp(&rank(b)).then_with(|| age(a).cmp(&age(b)))
        });
        Ok(found)
    }

    /// The owner's resources among those with these values.
    async fn list<K: Kind + Marked>(
        &self,
        mine: &Mine,
        filters: &[(&str, &str)],
    ) -> Result<Vec<K>, BackendError> {
        let found = self.api.list::<K>(filters).await;
        let mut found = found.map_err(|error| mine.failed("look for", K::ONE, error))?;
        found.retain(|item| mine.owns(item.marks()));
        Ok(found)
    }

    /// All ports of a network, or of a subnet.
    async fn ports(
        &self,
        mine: &Mine,
        filters: &[(&str, &str)],
    ) -> Result<Vec<Port>, BackendError> {
        let found = self.api.list(filters).await;
        found.map_err(|error| mine.failed("list the ports of", "network", error))
    }

    /// Adds the tag if it is missing; returns whether it was.
    async fn tag<K: Kind + Marked>(&self, mine: &Mine, item: &K) -> Result<bool, BackendError> {
        if mine.is_tagged(item.marks()) {
            return Ok(false);
        }
        let tagged = self.api.tag::<K>(item.id(), &mine.tag).await;
        tagged.map_err(|error| mine.failed("tag", K::ONE, error))?;
        Ok(true)
    }

    async fn create<K: Kind>(&self, mine: &Mine, fields: Value) -> Result<K, BackendError> {
        let mut fields = fields;
        fields["name"] = json!(mine.name);
        fields["description"] = json!(DESCRIPTION);
        let created = self.api.create::<K>(&fields).await;
        created.map_err(|error| mine.refused("create", K::ONE, error))
    }

    async fn delete<K: Kind>(&self, mine: &Mine, id: &str) -> Result<bool, BackendError> {
        let deleted = self.api.delete::<K>(id).await;
        deleted.map_err(|error| mine.refused("delete", K::ONE, error))
    }

    /// Refuses a range that overlaps the one of another owner in this project.
    async fn check_free(&self, mine: &Mine, wanted: Subnet) -> Result<(), BackendError> {
        let all = self.api.list::<api::Subnet>(&[("description", DESCRIPTION)]).await;
        let all = all.map_err(|error| mine.failed("compare the range of", "network", error))?;
        for other in all.into_iter().filter(|other| !mine.owns(&other.marks)) {
            // A range that this controller cannot have made is not its own.
            let Ok(held) = other.cidr.parse::<Subnet>() else { continue };
            if held.overlaps(&wanted) {
                return Err(BackendError::Overlap { wanted, held, holder: other.marks.name });
            }
        }
        Ok(())
    }

    /// Deletes the owner's ports among these. Refuses if others would stay: they are in use.
    async fn clear(&self, mine: &Mine, ports: Vec<Port>) -> Result<(), BackendError> {
        let (own, others): (Vec<Port>, Vec<Port>) = ports
            .into_iter()
            .filter(|port| !DELETED_WITH_NETWORK.contains(&&*port.device_owner))
            .partition(|port| mine.owns(&port.marks) && port.device_id.is_empty());
        if let Some(other) = others.first() {
            let user = match other.device_owner.is_empty() {
                true => String::new(),
                false => format!(" of {}", other.device_owner),
            };
            return Err(BackendError::InUse {
                network: mine.name.clone(),
                user: format!("{} ports, one of which is {}{user}", others.len(), other.id),
            });
        }
        for port in own {
            self.delete::<Port>(mine, &port.id).await?;
        }
        Ok(())
    }

    /// Deletes a network with the owner's ports; its subnets go with it.
    async fn remove(&self, mine: &Mine, network: &Network) -> Result<bool, BackendError> {
        let ports = self.ports(mine, &[("network_id", &network.id)]).await?;
        self.clear(mine, ports).await?;
        self.delete::<Network>(mine, &network.id).await
    }

    /// Makes the owner's subnet of a network match; returns its id, and whether anything changed.
    async fn ensure_subnet(
        &self,
        mine: &Mine,
        network: &Network,
        desired: Desired,
    ) -> Result<(String, bool), BackendError> {
        let found: Vec<api::Subnet> = self.list(mine, &[("network_id", &network.id)]).await?;
        let cidr = desired.subnet.to_string();
        let (current, stale): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|subnet| subnet.cidr == cidr);
        let gateway = json!({
            "gateway_ip": desired.gateway,
            "allocation_pools": pools(desired),
        });
        let is_settled = |subnet: &api::Subnet| mine.is_tagged(&subnet.marks);
        let one_at_a_time = match current.first().is_some_and(is_settled) {
            true => None,
            false => Some(self.change.lock().await),
        };
        if one_at_a_time.is_some()
            && let Err(error) = self.check_free(mine, desired.subnet).await
        {
            // It was created by a request whose answer was lost, when another owner had the range.
            if let Some(late) = current.first()
                && matches!(error, BackendError::Overlap { .. })
            {
                let ports = [("network_id", &*network.id)];
                let mut ports = self.ports(mine, &ports).await?;
                ports.retain(|port| port.fixed_ips.iter().any(|ip| ip.subnet_id == late.id));
                self.clear(mine, ports).await?;
                self.delete::<api::Subnet>(mine, &late.id).await?;
            }
            return Err(error);
        }
        let mut changed = false;
        if !stale.is_empty() {
            // The range of a subnet cannot be changed, and a new one may overlap it.
            changed = true;
            let mut ports = self.ports(mine, &[("network_id", &network.id)]).await?;
            ports.retain(|port| {
                let is_stale = |ip: &FixedIp| stale.iter().any(|subnet| subnet.id == ip.subnet_id);
                port.fixed_ips.iter().any(is_stale)
            });
            self.clear(mine, ports).await?;
            for subnet in &stale {
                self.delete::<api::Subnet>(mine, &subnet.id).await?;
            }
        }
        let subnet = match current.into_iter().next() {
            Some(subnet) => subnet,
            None => {
                changed = true;
                let mut fields = gateway.clone();
                fields["network_id"] = json!(network.id);
                fields["ip_version"] = json!(4);
                fields["cidr"] = json!(cidr);
                self.create(mine, fields).await?
            }
        };
        changed |= self.tag(mine, &subnet).await?;
        drop(one_at_a_time);
        if subnet.gateway_ip != Some(desired.gateway) {
            changed = true;
            let updated = self.api.update::<api::Subnet>(&subnet.id, &gateway).await;
            updated.map_err(|error| mine.refused("set the gateway of", "subnet", error))?;
        }
        Ok((subnet.id, changed))
    }

    /// Makes the owner's port reserve the gateway's address; returns whether anything changed.
    async fn ensure_port(
        &self,
        mine: &Mine,
        network: &Network,
        subnet_id: String,
        gateway: Ipv4Addr,
    ) -> Result<bool, BackendError> {
        let fields = json!({ "fixed_ips": [{ "subnet_id": subnet_id, "ip_address": gateway }] });
        let wanted = [FixedIp { subnet_id, ip_address: gateway.to_string() }];
        let by = |name, value| [("network_id", &*network.id), (name, value)];
        let mut ports: Vec<Port> = self.list(mine, &by("name", &mine.name)).await?;
        if ports.is_empty() {
            ports = self.list(mine, &by("tags", &mine.tag)).await?;
        }
        ports.sort_by_key(|port| (port.fixed_ips != wanted, port.device_id.is_empty()));
        let mut ports = ports.into_iter();
        let mut changed = false;
        let port = match ports.next() {
            Some(port) => port,
            None => {
                let ip = format!("ip_address={gateway}");
                let holders = self.ports(mine, &by("fixed_ips", &ip)).await?;
                if holders.iter().any(|holder| holder.device_owner.starts_with(ROUTER)) {
                    // A router was given the address directly.
                    return Ok(false);
                }
                changed = true;
                let mut fields = fields.clone();
                fields["network_id"] = json!(network.id);
                self.create(mine, fields).await?
            }
        };
        changed |= self.tag(mine, &port).await?;
        if port.fixed_ips != wanted {
            changed = true;
            if !port.device_id.is_empty() {
                let user = format!("{} {}", port.device_owner, port.device_id);
                return Err(BackendError::InUse { network: mine.name.clone(), user });
            }
            let updated = self.api.update::<Port>(&port.id, &fields).await;
            updated.map_err(|error| mine.refused("set the address of", "port", error))?;
        }
        for extra in ports.filter(|port| port.device_id.is_empty()) {
            changed = true;
            self.delete::<Port>(mine, &extra.id).await?;
        }
        Ok(changed)
    }
}

/// The addresses that ports may have: all hosts but the gateway.
fn pools(desired: Desired) -> Value {
    let Desired { subnet, gateway } = desired;
    let below = (subnet.first_host(), Ipv4Addr::from_bits(gateway.to_bits() - 1));
    let above = (Ipv4Addr::from_bits(gateway.to_bits() + 1), subnet.last_host());
    let pools = [below, above].into_iter().filter(|(first, last)| first <= last);
    pools.map(|(first, last)| json!({ "start": first, "end": last })).collect()
}

/// The marks of one owner's resources.
struct Mine {
    name: String,
    tag: String,
}

impl Mine {
    fn of(owner: &Owner) -> Self {
        let uid = &owner.uid;
        Self { name: format!("setpoint-{uid}"), tag: format!("setpoint-uid={uid}") }
    }

    fn is_tagged(&self, marks: &Marks) -> bool {
        marks.tags.contains(&self.tag)
    }

    fn owns(&self, marks: &Marks) -> bool {
        self.is_tagged(marks)
            || marks.name == self.name && marks.description.as_deref() == Some(DESCRIPTION)
    }

    /// The error of a request that does not depend on the spec.
    fn failed(&self, what: &'static str, kind: &'static str, error: HttpError) -> BackendError {
        BackendError::Cloud { what, kind, network: self.name.clone(), source: Box::new(error) }
    }

    /// The error of a request that Neutron may refuse because of the spec, a quota or other users.
    fn refused(&self, what: &'static str, kind: &'static str, error: HttpError) -> BackendError {
        let network = self.name.clone();
        match error {
            HttpError::Refused { status, kind, message, .. }
                if status == StatusCode::CONFLICT && kind == "OverQuota" =>
            {
                BackendError::Quota { network, message }
            }
            HttpError::Refused { status: StatusCode::BAD_REQUEST, message, .. } => {
                BackendError::Rejected { network, message }
            }
            HttpError::Refused { status, kind, message, .. }
                if status == StatusCode::CONFLICT && IN_USE.contains(&&*kind) =>
            {
                BackendError::InUse { network, user: message }
            }
            error => self.failed(what, kind, error),
        }
    }
}

/// A resource with marks.
trait Marked {
    fn marks(&self) -> &Marks;
}

impl Marked for Network {
    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Marked for api::Subnet {
    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Marked for Port {
    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Backend for NeutronBackend {
    fn ensure<'a>(
        &'a self,
        owner: &'a Owner,
        desired: Desired,
    ) -> BoxFuture<'a, Result<Allocation, BackendError>> {
        async move {
            let mine = Mine::of(owner);
            let mut networks = self.networks(&mine).await?.into_iter();
            let (network, mut changed) = match networks.next() {
                Some(network) => (network, false),
                None => {
                    // A range that is taken gets no network.
                    self.check_free(&mine, desired.subnet).await?;
                    (self.create(&mine, json!({})).await?, true)
                }
            };
            changed |= self.tag(&mine, &network).await?;
            for duplicate in networks {
                changed = true;
                self.remove(&mine, &duplicate).await?;
            }
            let (subnet_id, subnet_changed) = self.ensure_subnet(&mine, &network, desired).await?;
            changed |= subnet_changed;
            changed |= self.ensure_port(&mine, &network, subnet_id, desired.gateway).await?;
            Ok(Allocation { device: network.id, changed })
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Option<Existing>, BackendError>> {
        async move {
            let mine = Mine::of(owner);
            let networks = self.networks(&mine).await?;
            let Some(network) = networks.into_iter().next() else { return Ok(None) };
            let filters = [("network_id", &*network.id)];
            let subnets: Vec<api::Subnet> = self.list(&mine, &filters).await?;
            let desired = subnets.iter().find_map(|subnet| {
                Some(Desired { subnet: subnet.cidr.parse().ok()?, gateway: subnet.gateway_ip? })
            });
            Ok(desired.map(|desired| Existing { desired, device: network.id }))
        }
        .boxed()
    }

    fn release<'a>(&'a self, owner: &'a Owner) -> BoxFuture<'a, Result<bool, BackendError>> {
        async move {
            let mine = Mine::of(owner);
            let mut was_held = false;
            for network in self.networks(&mine).await? {
                was_held |= self.remove(&mine, &network).await?;
            }
            Ok(was_held)
        }
        .boxed()
    }

    fn check_period(&self) -> Option<Duration> {
        Some(self.check_period)
    }
}
