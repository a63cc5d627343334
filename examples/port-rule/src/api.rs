//! The types: what a person declares, and what nodes report.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;
use std::collections::BTreeMap;

/// The definitions of [`PortRule`] and [`NodeFirewall`], as a person would apply them.
pub const CRDS_YAML: &str = include_str!("../manifests/crds.yaml");

/// The finalizer that keeps a deleted rule until no node has it.
pub const FINALIZER: &str = "firewalld.fedoraproject.org/port-rule";

/// The condition that says whether every selected node has the rule.
pub const READY: &str = "Ready";

/// Ports of nodes, and what happens to connections to them.
///
/// Cluster-scoped, as nodes are: whoever may write rules controls the firewalls of nodes.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "firewalld.fedoraproject.org",
    version = "v1",
    kind = "PortRule",
    plural = "ports",
    status = "PortRuleStatus",
    schema = "disabled",
    crates(
        kube_core = "setpoint::kube_core",
        k8s_openapi = "setpoint::k8s_openapi",
        serde = "serde",
        serde_json = "serde_json"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct PortRuleSpec {
    /// What happens to a connection. `Allow` wins over the others.
    pub action: Verdict,
    /// Whether the node is asked or asks. Default: it is asked.
    #[serde(default)]
    pub direction: Direction,
    /// The transport protocol. Default: TCP.
    #[serde(default)]
    pub protocol: Protocol,
    /// The ports, of the side that is asked.
    pub ports: Vec<Ports>,
    /// Address ranges in CIDR notation: who asks, or, for `Out`, who is asked. None: everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<String>,
    /// Labels of the nodes that get the rule. None: all nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// firewalld's zone. Default: its default zone. Other firewalls refuse a rule with a zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// What happens to a connection.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Verdict {
    /// It is not touched by other rules. What another table of the firewall drops stays dropped.
    #[default]
    Allow,
    /// Its packets disappear.
    Drop,
    /// The other side is told: a reset for TCP, else an ICMP message.
    Reject,
}

/// Whether the node is asked or asks.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Direction {
    /// Connections that others open to the node.
    #[default]
    In,
    /// Connections that the node opens.
    Out,
}

/// A transport protocol.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// The name that firewalls use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}

/// A port, or a range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ports {
    /// The port, or the first one. Not 0.
    pub port: u16,
    /// The last port of a range, which includes it. Default: `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<u16>,
}

/// What became of a rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortRuleStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes the rule selects.
    #[serde(default)]
    pub nodes: i32,
    /// How many of them have this generation of the rule in their firewall.
    #[serde(default)]
    pub applied: i32,
    /// `Ready`: all of them have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What the firewall of one node has. The node's agent writes it; its name is the node's, which
/// owns it, so it goes with the node.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "firewalld.fedoraproject.org",
    version = "v1",
    kind = "NodeFirewall",
    plural = "nodefirewalls",
    schema = "disabled",
    crates(
        kube_core = "setpoint::kube_core",
        k8s_openapi = "setpoint::k8s_openapi",
        serde = "serde",
        serde_json = "serde_json"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeFirewallSpec {
    /// The firewall: `nftables`, `iptables`, `firewalld`.
    pub backend: String,
    /// The rules that select the node or may still be in its firewall, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleReport>,
}

/// What a node says of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleReport {
    /// The rule's name.
    pub name: String,
    /// The rule's uid. A rule that was deleted and made again has another one.
    pub uid: String,
    /// The generation of the rule's spec.
    pub generation: i64,
    /// Whether the firewall has it.
    pub state: RuleState,
    /// Why it has not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether a firewall has a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleState {
    /// Perhaps: it is about to be applied.
    Pending,
    /// It has this generation.
    Applied,
    /// It has not: the rule is invalid, or this firewall cannot do what it asks.
    Refused,
    /// Perhaps, or an older generation: the firewall failed. The agent tries again.
    Failed,
}
