//! The types [`PortRule`], which users write, and [`NodeFirewall`], which nodes report.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Deserialize, Serialize};
use setpoint::prelude::*;
use std::collections::BTreeMap;

/// The manifest with the definitions of [`PortRule`] and [`NodeFirewall`].
pub const CRDS_YAML: &str = include_str!("../manifests/crds.yaml");

/// The finalizer that keeps a deleted rule until no node has it.
pub const FINALIZER: &str = "firewalld.fedoraproject.org/port-rule";

/// The condition that says whether every selected node has the rule.
pub const READY: &str = "Ready";

/// Ports of nodes, and what happens to connections to them.
///
/// Cluster-scoped, as nodes are: users who may write rules control the firewalls of nodes.
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
    /// Whether the node accepts the connection or opens it. Default: it accepts it.
    #[serde(default)]
    pub direction: Direction,
    /// The transport protocol. Default: TCP.
    #[serde(default)]
    pub protocol: Protocol,
    /// The ports of the side that accepts the connection.
    pub ports: Vec<Ports>,
    /// Address ranges of the other side, in CIDR notation. None: all addresses.
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
    /// The other side gets a reset for TCP, otherwise an ICMP message.
    Reject,
}

/// Whether the node accepts the connection or opens it.
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

/// The status of a rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortRuleStatus {
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of nodes that the rule selects.
    #[serde(default)]
    pub nodes: i32,
    /// Number of these nodes with this generation of the rule in their firewall.
    #[serde(default)]
    pub applied: i32,
    /// `Ready`: all selected nodes have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// The rules in the firewall of one node. The node's agent writes it. It has the name of the node,
/// which owns it, so it is deleted with the node.
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

/// The report of a node about one rule.
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
    /// Why the firewall does not have it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether a firewall has a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuleState {
    /// May have it: it is being applied.
    Pending,
    /// Has this generation.
    Applied,
    /// Does not have it: the rule is invalid, or not supported by this firewall.
    Refused,
    /// May have it, or an older generation: the firewall failed. The agent tries again.
    Failed,
}
