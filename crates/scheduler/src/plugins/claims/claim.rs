//! ResourceClaims: what they ask for, and what they have.

use super::amount::{Amounts, amounts};
use super::device::{PoolId, selectors};
use crate::labels::{NodeSelector, items, list_of, text};
use crate::node::Node;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::taint::Toleration;
use std::sync::Arc;

/// How many consumers a claim may have: 256, a limit of the API.
pub(super) const CONSUMERS_MAX: usize = 256;

/// A ResourceClaim.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) uid: Arc<str>,
    /// The version of the object; zero if it is no number.
    pub(super) version: u64,
    /// The uid of its controller; empty if it has none.
    pub(super) controller: Arc<str>,
    pub(super) is_deleting: bool,
    /// What it asks for, which never changes.
    pub(super) spec: Arc<ClaimSpec>,
    pub(super) allocation: Option<Arc<Allocation>>,
    /// The uids of its consumers.
    reserved: Vec<Arc<str>>,
}

impl Claim {
    /// Reads a claim. `earlier` is the same claim before: its spec is not read again.
    pub(crate) fn read(claim: &Value, earlier: Option<&Self>) -> Self {
        let owners = items(&claim["metadata"]["ownerReferences"]);
        let controller = owners.iter().find(|owner| owner["controller"] == true);
        let same = earlier.filter(|earlier| *earlier.uid == *claim.uid());
        let status = &claim["status"];
        Self {
            uid: claim.uid().into(),
            version: claim.resource_version().parse().unwrap_or_default(),
            controller: controller.map(|owner| text(&owner["uid"])).unwrap_or_default().into(),
            is_deleting: !claim.deletion_timestamp().is_empty(),
            spec: match same {
                Some(earlier) => earlier.spec.clone(),
                None => Arc::new(ClaimSpec::read(&claim["spec"]["devices"])),
            },
            allocation: Allocation::read(&status["allocation"]).map(Arc::new),
            reserved: items(&status["reservedFor"])
                .iter()
                .map(|consumer| text(&consumer["uid"]).into())
                .collect(),
        }
    }

    pub(super) fn is_reserved_for(&self, uid: &str) -> bool {
        self.reserved.iter().any(|consumer| **consumer == *uid)
    }

    /// Whether a pod may use it besides its other consumers.
    pub(super) fn has_room_for(&self, uid: &str) -> bool {
        self.reserved.len() < CONSUMERS_MAX || self.is_reserved_for(uid)
    }

    /// Whether nobody but a pod uses it.
    pub(super) fn is_idle_without(&self, uid: &str) -> bool {
        self.reserved.iter().all(|consumer| **consumer == *uid)
    }

    /// Whether it has what it had before, and can be used.
    pub(super) fn has_kept(&self, before: &Self) -> bool {
        let devices = |claim: &Self| claim.allocation.as_ref().map(|of| of.devices.clone());
        self.uid == before.uid && !self.is_deleting && devices(self) == devices(before)
    }

    /// Whether nothing of interest differs.
    pub(super) fn is_same(&self, before: &Self) -> bool {
        self.has_kept(before) && !before.is_deleting && self.reserved == before.reserved
    }
}

/// `spec` of a claim.
#[derive(Debug, Default)]
pub(super) struct ClaimSpec {
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<Constraint>,
    /// Parameters for drivers, as they were written.
    pub(super) configs: Vec<Value>,
}

impl ClaimSpec {
    fn read(devices: &Value) -> Self {
        Self {
            requests: items(&devices["requests"]).iter().map(Request::read).collect(),
            constraints: items(&devices["constraints"]).iter().map(Constraint::read).collect(),
            configs: items(&devices["config"]).to_vec(),
        }
    }
}

/// A request for devices.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    /// What it asks for; of several, the first that is there. Empty: in a way unknown here.
    pub(super) alternatives: Vec<Wanted>,
    /// Whether there is a choice, so that the alternatives have names.
    pub(super) is_choice: bool,
}

impl Request {
    fn read(request: &Value) -> Self {
        let exactly = &request["exactly"];
        let is_choice = !exactly.is_object();
        let alternatives = match is_choice {
            true => items(&request["firstAvailable"]).iter().map(Wanted::read).collect(),
            false => vec![Wanted::read(exactly)],
        };
        Self { name: text(&request["name"]).to_owned(), alternatives, is_choice }
    }

    /// The name of an alternative as claims refer to it.
    pub(super) fn name_of(&self, alternative: &Wanted) -> String {
        match self.is_choice {
            true => format!("{}/{}", self.name, alternative.name),
            false => self.name.clone(),
        }
    }
}

/// Devices of one class.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The name among alternatives.
    pub(super) name: String,
    pub(super) class: Arc<str>,
    /// Expressions; `None`: a selector of another kind.
    pub(super) selectors: Vec<Option<Arc<str>>>,
    pub(super) mode: Mode,
    /// It uses devices besides their owners, as monitoring does.
    pub(super) is_admin: bool,
    pub(super) tolerations: Vec<Toleration>,
    /// The same as they were written.
    pub(super) written_tolerations: Value,
    pub(super) amounts: Amounts,
}

/// How many devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Exactly(usize),
    All,
    Unknown(String),
}

impl Wanted {
    fn read(wanted: &Value) -> Self {
        let mode = match text(&wanted["allocationMode"]) {
            "ExactCount" | "" => {
                let count = wanted["count"].as_u64().unwrap_or(1);
                Mode::Exactly(usize::try_from(count).unwrap_or(usize::MAX))
            }
            "All" => Mode::All,
            other => Mode::Unknown(other.to_owned()),
        };
        Self {
            name: text(&wanted["name"]).to_owned(),
            class: text(&wanted["deviceClassName"]).into(),
            selectors: selectors(&wanted["selectors"]),
            mode,
            is_admin: wanted["adminAccess"] == true,
            tolerations: list_of(&wanted["tolerations"]),
            written_tolerations: wanted["tolerations"].clone(),
            amounts: amounts(&wanted["capacity"]["requests"], ""),
        }
    }
}

/// What the devices of a claim have in common, or not.
#[derive(Debug)]
pub(super) struct Constraint {
    /// The requests or alternatives whose devices are meant; empty: all.
    requests: Vec<String>,
    pub(super) rule: Rule,
}

/// The rule of a constraint, with the full name of an attribute.
#[derive(Debug)]
pub(super) enum Rule {
    Same(String),
    Distinct(String),
    Unknown,
}

impl Constraint {
    fn read(constraint: &Value) -> Self {
        let name = |member: &str| constraint[member].as_str().map(str::to_owned);
        let rule = name("matchAttribute").map(Rule::Same);
        let rule = rule.or_else(|| name("distinctAttribute").map(Rule::Distinct));
        Self {
            requests: items(&constraint["requests"])
                .iter()
                .map(|name| text(name).to_owned())
                .collect(),
            rule: rule.unwrap_or(Rule::Unknown),
        }
    }

    /// Whether it means the devices of a request, by the names of the request and of the
    /// alternative.
    pub(super) fn applies_to(&self, request: &str, alternative: &str) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| name == request || name == alternative)
    }
}

/// What a claim has.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The nodes that the devices can be used on; `None`: all.
    pub(super) nodes: Option<NodeSelector>,
    pub(super) devices: Vec<Allocated>,
}

/// A device of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocated {
    pub(super) pool: PoolId,
    pub(super) device: Arc<str>,
    /// The request, with the alternative behind a slash.
    pub(super) request: String,
    /// It belongs to others, too.
    pub(super) is_admin: bool,
    /// A part of a shared device, and how much.
    pub(super) share: Option<Amounts>,
}

impl Allocation {
    /// Whether a node can use the devices.
    pub(super) fn is_usable_on(&self, node: &Node) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.matches(&node.name, &node.labels))
    }

    /// Reads `status.allocation`; `None` if there is none.
    pub(super) fn read(allocation: &Value) -> Option<Self> {
        let results = items(&allocation["devices"]["results"]).iter();
        let device = |result: &Value| Allocated {
            pool: PoolId::new(text(&result["driver"]), text(&result["pool"])),
            device: text(&result["device"]).into(),
            request: text(&result["request"]).to_owned(),
            is_admin: result["adminAccess"] == true,
            share: result["shareID"].is_string().then(|| amounts(&result["consumedCapacity"], "")),
        };
        allocation.is_object().then(|| Self {
            nodes: NodeSelector::read(&allocation["nodeSelector"]),
            devices: results.map(device).collect(),
        })
    }
}
