//! What drivers and administrators publish: slices of devices, and classes.

use super::amount::{Amounts, Capacity, amounts};
use crate::labels::{NodeSelector, items, list_of, text};
use crate::node::Node;
use serde_json::Value;
use setpoint_cel::device::{self, Attribute};
use setpoint_object::meta::ObjectExt;
use setpoint_object::taint::Taint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool of devices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolId {
    pub(super) driver: Arc<str>,
    pub(super) name: Arc<str>,
}

impl PoolId {
    pub(super) fn new(driver: &str, name: &str) -> Self {
        Self { driver: driver.into(), name: name.into() }
    }
}

/// The nodes that have something.
#[derive(Debug)]
pub(super) enum Nodes {
    Named(Arc<str>),
    /// The selector, and as it was written.
    Selected(NodeSelector, Value),
    All,
    /// Each device has its own.
    PerDevice,
    /// Said in a way that is not known here: none.
    Unknown,
}

impl Nodes {
    fn read(spec: &Value) -> Self {
        if let Some(name) = spec["nodeName"].as_str().filter(|name| !name.is_empty()) {
            return Self::Named(name.into());
        }
        if spec["allNodes"] == true {
            return Self::All;
        }
        if let Some(selector) = NodeSelector::read(&spec["nodeSelector"]) {
            return Self::Selected(selector, spec["nodeSelector"].clone());
        }
        match spec["perDeviceNodeSelection"] == true {
            true => Self::PerDevice,
            false => Self::Unknown,
        }
    }

    /// Whether a node is among them.
    pub(super) fn include(&self, node: &Node) -> bool {
        match self {
            Self::Named(name) => *name == node.name,
            Self::Selected(selector, _) => selector.matches(&node.name, &node.labels),
            Self::All => true,
            Self::PerDevice | Self::Unknown => false,
        }
    }
}

/// A ResourceSlice.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(super) pool: PoolId,
    pub(super) generation: i64,
    /// How many slices the pool has in this generation.
    pub(super) n_slices: i64,
    pub(super) nodes: Nodes,
    pub(super) devices: Vec<Device>,
    /// What devices of the pool consume together: counters by set and name.
    pub(super) counters: Vec<(String, Amounts)>,
    /// Devices have to be made ready between allocation and binding.
    pub(super) has_conditions: bool,
}

impl Slice {
    pub(crate) fn read(slice: &Value) -> Self {
        let spec = &slice["spec"];
        let pool = &spec["pool"];
        let driver = text(&spec["driver"]);
        let devices: Vec<_> =
            items(&spec["devices"]).iter().map(|device| Device::read(device, driver)).collect();
        Self {
            pool: PoolId::new(driver, text(&pool["name"])),
            generation: pool["generation"].as_i64().unwrap_or_default(),
            n_slices: pool["resourceSliceCount"].as_i64().unwrap_or_default(),
            nodes: Nodes::read(spec),
            has_conditions: devices.iter().any(|device| device.has_conditions),
            devices,
            counters: counters(&spec["sharedCounters"], "name"),
        }
    }

    /// The only node that it concerns, if it is named.
    pub(super) fn only_node(&self) -> Option<&Arc<str>> {
        match &self.nodes {
            Nodes::Named(node) if self.counters.is_empty() => Some(node),
            _ => None,
        }
    }

    /// Whether a node can use anything of it. Counters concern every node.
    pub(super) fn concerns(&self, node: &Node) -> bool {
        !self.counters.is_empty()
            || self.nodes.include(node)
            || matches!(self.nodes, Nodes::PerDevice)
                && self.devices.iter().any(|device| device.nodes.include(node))
    }

    /// The nodes that have a device.
    pub(super) fn nodes_of<'a>(&'a self, device: &'a Device) -> &'a Nodes {
        match self.nodes {
            Nodes::PerDevice => &device.nodes,
            _ => &self.nodes,
        }
    }
}

/// Sets of counters, by the name at a member.
fn counters(sets: &Value, member: &str) -> Vec<(String, Amounts)> {
    let set = |set: &Value| (text(&set[member]).to_owned(), amounts(&set["counters"], "value"));
    items(sets).iter().map(set).collect()
}

/// A device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: Arc<str>,
    /// Its own nodes, if the slice says that devices have such.
    nodes: Nodes,
    /// As expressions see it, or why they cannot.
    pub(super) seen: Result<device::Device, String>,
    /// `None`: of no known type.
    attributes: BTreeMap<String, Option<Attribute>>,
    pub(super) capacity: BTreeMap<String, Capacity>,
    pub(super) taints: Vec<Taint>,
    /// What it consumes of the pool's counters.
    pub(super) consumes: Vec<(String, Amounts)>,
    /// Several claims may have it, as far as its capacity goes.
    pub(super) is_shared: bool,
    /// Its claims can be used on one node only.
    pub(super) binds_to_node: bool,
    /// It has to be made ready between allocation and binding.
    pub(super) has_conditions: bool,
}

impl Device {
    fn read(device: &Value, driver: &str) -> Self {
        let members = |member: &str| device[member].as_object().into_iter().flatten();
        let attributes: BTreeMap<_, _> = members("attributes")
            .map(|(name, attribute)| (name.clone(), read_attribute(attribute)))
            .collect();
        let amounts = members("capacity").map(|(name, one)| (name.as_str(), text(&one["value"])));
        let is_shared = device["allowMultipleAllocations"] == true;
        let seen = device::Device::new(
            driver,
            is_shared,
            attributes.iter().map(|(name, attribute)| (name.as_str(), attribute.as_ref())),
            amounts,
        );
        let capacity = members("capacity");
        Self {
            name: text(&device["name"]).into(),
            nodes: Nodes::read(device),
            seen,
            capacity: capacity.map(|(name, one)| (name.clone(), Capacity::read(one))).collect(),
            attributes,
            taints: list_of(&device["taints"]),
            consumes: counters(&device["consumesCounters"], "counterSet"),
            is_shared,
            binds_to_node: device["bindsToNode"] == true,
            has_conditions: !items(&device["bindingConditions"]).is_empty(),
        }
    }

    /// The attribute of a full name. A driver's own attributes need not name its domain.
    pub(super) fn attribute(&self, driver: &str, name: &str) -> Option<&Attribute> {
        let own = || {
            let (domain, id) = name.split_once('/')?;
            self.attributes.get(id).filter(|_| domain == driver)
        };
        self.attributes.get(name).or_else(own)?.as_ref()
    }
}

fn read_attribute(attribute: &Value) -> Option<Attribute> {
    if let Some(number) = attribute["int"].as_i64() {
        return Some(Attribute::Int(number));
    }
    if let Some(is_so) = attribute["bool"].as_bool() {
        return Some(Attribute::Bool(is_so));
    }
    let text = |member: &str| attribute[member].as_str().map(str::to_owned);
    text("string").map(Attribute::Text).or_else(|| text("version").map(Attribute::Version))
}

/// A DeviceClass.
#[derive(Debug)]
pub(crate) struct Class {
    pub(super) name: Arc<str>,
    /// Expressions that select its devices; `None`: a selector of another kind.
    pub(super) selectors: Vec<Option<Arc<str>>>,
    /// Parameters for drivers, as they were written.
    pub(super) configs: Vec<Value>,
}

impl Class {
    pub(crate) fn read(class: &Value) -> Self {
        Self {
            name: class.name().into(),
            selectors: selectors(&class["spec"]["selectors"]),
            configs: items(&class["spec"]["config"]).to_vec(),
        }
    }
}

/// The expressions of a list of selectors.
pub(super) fn selectors(list: &Value) -> Vec<Option<Arc<str>>> {
    let expression = |one: &Value| one["cel"]["expression"].as_str().map(Arc::from);
    items(list).iter().map(expression).collect()
}
