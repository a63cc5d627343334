//! The Node authorizer: what the agent of a node may do (spec: auth §2.5).
//!
//! An agent is `system:node:<name>` in the group `system:nodes`. It reads what pods on its node
//! refer to, and nothing else of the kind. What else every agent needs are the rules of the role
//! `system:node`. The admission plugin `NodeRestriction` limits what it may write into
//! these objects. The authorizer has no opinion about other users.
//!
//! | object | allowed |
//! |---|---|
//! | Secret, ConfigMap | get, list and watch of one that a pod on the node, or a volume of such a pod, uses |
//! | PersistentVolumeClaim, PersistentVolume, ResourceClaim | get, if a pod on the node uses it; the claim's status: update and patch |
//! | VolumeAttachment | get, if it is for the node |
//! | ServiceAccount | get, and its tokens, if a pod on the node runs as it |
//! | ResourceSlice | create; others if it is the node's, or selected by the node's name |
//! | Lease in `kube-node-lease`, CSINode | create; others if it has the node's name |
//! | Node | create, update, patch, and reads of its own |
//! | Pod | create, delete, status, eviction; reads of those on the node |
//!
//! The relations are a [`Graph`], which follows the objects of this process as RBAC's index does.
//! A decision reads memory only: a few lookups, whatever is related to what.
mod graph;
mod references;

use crate::authorize::{Authorizer, Decision};
use crate::cache::ObjectChange;
use crate::fifo_watch::FifoWatch;
use crate::identity::Identity;
use crate::rbac;
use crate::routed::Attributes;
use crate::shared::Registry;
use crate::stored::tree;
use crate::subresource::Subresource;
use futures::future::{BoxFuture, FutureExt as _};
use graph::{Graph, Kind, Source};
use parking_lot::RwLock;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::{ApiError, keys, users};
use setpoint_rbac::{Request, Rule};
use std::sync::{Arc, OnceLock};

/// The role whose rules count for what is not decided by relations.
const ROLE: &str = "system:node";
/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";

/// The Node authorizer. Add it with
/// [`RegistryBuilder::authorizer`](crate::RegistryBuilder::authorizer) and run
/// [`NodeAuthorizer::run`] beside the registry.
///
/// Without the admission plugin `NodeRestriction`, agents may change the nodes and pods of others.
#[derive(Debug)]
pub struct NodeAuthorizer {
    /// `None` until every object is known.
    graph: RwLock<Option<Graph>>,
    is_filled: FifoWatch<bool>,
    /// Of every agent; known once the objects are.
    rules: OnceLock<Vec<Rule>>,
}

impl Default for NodeAuthorizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Authorizer for NodeAuthorizer {
    fn kind(&self) -> (&str, &str) {
        ("Node", "node")
    }

    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        async move {
            let Some(node) = node_of(&request.identity) else {
                return Ok(Decision::NoOpinion(String::new()));
            };
            if node.is_empty() {
                let user = &request.identity.user;
                return Ok(Decision::NoOpinion(format!("unknown node for user {user:?}")));
            }
            self.is_filled.wait_for(|is_filled| *is_filled).await;
            let graph = self.graph.read();
            let graph = graph
                .as_ref()
                .ok_or_else(|| ApiError::internal("pods and volumes have not been read yet"))?;
            let rules = self.rules.get().map_or(&[][..], Vec::as_slice);
            Ok(match decide(graph, rules, node, request) {
                Ok(()) => Decision::Allow(String::new()),
                Err(reason) => Decision::NoOpinion(reason),
            })
        }
        .boxed()
    }

    fn concerns(&self, identity: &Identity) -> bool {
        node_of(identity).is_some()
    }
}

impl NodeAuthorizer {
    /// An authorizer that knows no objects.
    pub fn new() -> Self {
        Self { graph: RwLock::default(), is_filled: FifoWatch::default(), rules: OnceLock::new() }
    }

    /// Follows the objects until the registry stops. Dropping the future leaves the graph as it is.
    pub async fn run(&self, registry: &Registry) {
        registry.wait_ready().await;
        self.rules.get_or_init(|| rbac::bootstrap_rules(ROLE, &registry.inner.gates));
        let sources = Arc::new(Source::all(registry));
        let source_of = move |key: &[u8]| {
            let prefix = keys::prefix_of(key)?;
            sources.iter().find(|(own, _)| **own == *prefix).map(|(_, source)| *source)
        };
        let wanted = source_of.clone();
        let mut changes = registry.object_changes_where(move |key, _| wanted(key).is_some());
        let mut filling = None;
        while let Some(change) = changes.next().await {
            match change {
                ObjectChange::Resync => filling = Some(Graph::default()),
                ObjectChange::Synced(_) => {
                    if let Some(filled) = filling.take() {
                        let former = self.graph.write().replace(filled);
                        drop(former);
                        self.is_filled.change(|is_filled| *is_filled = true);
                    }
                }
                ObjectChange::Put(object) => {
                    if let Some(source) = source_of(&object.key)
                        && let Ok(object) = tree(&object.value)
                    {
                        let (name, relations) = source.relations(&object);
                        self.change(&mut filling, source, name, relations);
                    }
                }
                ObjectChange::Deleted(object) => {
                    if let Some(source) = source_of(&object.key)
                        && let Ok(skim) = object.skim()
                    {
                        let name = (Box::from(&*skim.namespace), Box::from(&*skim.name));
                        self.change(&mut filling, source, name, None);
                    }
                }
            }
        }
    }

    /// Changes the graph that is being filled, or else the one that decides. Most changes, such as
    /// those of a status, leave the relations as they are.
    fn change(
        &self,
        filling: &mut Option<Graph>,
        source: Source,
        name: graph::Name,
        relations: Option<graph::Relations>,
    ) {
        if let Some(graph) = filling {
            graph.put(source, name, relations);
            return;
        }
        let is_known = |graph: &Graph| graph.relations(source, &name) == relations.as_ref();
        if self.graph.read().as_ref().is_some_and(is_known) {
            return;
        }
        if let Some(graph) = self.graph.write().as_mut() {
            graph.put(source, name, relations);
        }
    }
}

/// The node whose agent a user is. Empty for an agent without a node.
fn node_of(identity: &Identity) -> Option<&str> {
    users::node_of(&identity.user).filter(|_| identity.is_in(users::NODES))
}

/// Whether an agent may do something.
///
/// # Errors
///
/// The reason why there is no opinion; may be empty.
fn decide(graph: &Graph, rules: &[Rule], node: &str, request: &Attributes) -> Result<(), String> {
    let verb = request.verb.as_str();
    let subresource = request.subresource().map_or("", Subresource::as_str);
    let is_related = |kind| is_related(graph, node, kind, request);
    let read_one = |kind| match (verb, subresource) {
        ("get", "") => is_related(kind),
        ("get", _) => Err("cannot get subresource".to_owned()),
        _ => Err("can only get individual resources of this type".to_owned()),
    };
    let read = |kind| {
        if !matches!(verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".to_owned());
        }
        if !subresource.is_empty() {
            return Err("cannot read subresource".to_owned());
        }
        if request.namespace().is_empty() {
            return Err("can only read namespaced object of this type".to_owned());
        }
        is_related(kind)
    };
    let refuse = |reason: &str| Err(reason.to_owned());
    match (request.group(), request.resource()) {
        ("", "secrets") => read(Kind::Secret),
        ("", "configmaps") => read(Kind::ConfigMap),
        ("", "persistentvolumeclaims") if subresource == "status" => match verb {
            "update" | "patch" => is_related(Kind::Claim),
            _ => refuse("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => read_one(Kind::Claim),
        ("", "persistentvolumes") => read_one(Kind::Volume),
        ("resource.k8s.io", "resourceclaims") => read_one(Kind::ResourceClaim),
        ("storage.k8s.io", "volumeattachments") => read_one(Kind::Attachment),
        ("", "serviceaccounts") => match (verb, subresource) {
            ("get", "") => read(Kind::ServiceAccount),
            ("create", "token") if !request.name().is_empty() => is_related(Kind::ServiceAccount),
            ("create", _) if !request.name().is_empty() => {
                refuse("can only create token subresource of serviceaccount")
            }
            _ => refuse("can only create tokens for individual service accounts"),
        },
        ("coordination.k8s.io", "leases") => match verb {
            "get" | "create" | "update" | "patch" | "delete" => {
                if request.namespace() != LEASES {
                    return Err(format!(
                        "can only access leases in the {LEASES:?} system namespace"
                    ));
                }
                match verb == "create" || request.name() == node {
                    true => Ok(()),
                    false => refuse(
                        "can only access node lease with the same name as the requesting node",
                    ),
                }
            }
            _ => refuse("can only get, create, update, patch, or delete a node lease"),
        },
        ("storage.k8s.io", "csinodes") => match verb {
            "get" | "create" | "update" | "patch" | "delete" => {
                if !subresource.is_empty() {
                    return refuse("cannot authorize CSINode subresources");
                }
                match verb == "create" || request.name() == node {
                    true => Ok(()),
                    false => {
                        refuse("can only access CSINode with the same name as the requesting node")
                    }
                }
            }
            _ => refuse("can only get, create, update, patch, or delete a CSINode"),
        },
        ("resource.k8s.io", "resourceslices") => match verb {
            _ if !subresource.is_empty() => refuse("cannot authorize ResourceSlice subresources"),
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => is_related(Kind::Slice),
            "watch" | "list" | "deletecollection" => {
                match selects(request, "spec.nodeName", node) {
                    true => Ok(()),
                    false => refuse(
                        "can only list/watch/deletecollection resourceslices with nodeName field selector",
                    ),
                }
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        },
        ("", "nodes") => match (subresource, verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match request.name() {
                own if own == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                other => {
                    Err(format!("node '{node}' cannot read '{other}', only its own Node object"))
                }
            },
            _ => refuse(""),
        },
        ("", "pods") => match (subresource, verb) {
            ("", "get") => is_related(Kind::Pod),
            ("", "list" | "watch") => {
                if selects(request, "spec.nodeName", node) {
                    return Ok(());
                }
                match request.name() {
                    "" => refuse("can only list/watch pods with spec.nodeName field selector"),
                    _ => is_related(Kind::Pod),
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => refuse(""),
        },
        (group @ "certificates.k8s.io", resource @ "podcertificaterequests") => {
            // With the feature gate the role has a rule.
            let create = Request { verb: "create", group, resource, ..Request::default() };
            match rules.iter().any(|rule| rule.allows(&create)) {
                true => certificate_request(graph, node, request),
                false => refuse(""),
            }
        }
        (group, resource) => {
            let name = request.name();
            let path = request.path();
            let question = Request { verb, group, resource, subresource, name, path };
            match rules.iter().any(|rule| rule.allows(&question)) {
                true => Ok(()),
                false => refuse(""),
            }
        }
    }
}

/// Certificate requests of pods: those of its node.
fn certificate_request(graph: &Graph, node: &str, request: &Attributes) -> Result<(), String> {
    let refuse = |reason: &str| Err(reason.to_owned());
    if request.subresource().is_some() {
        return refuse("nodes may not access the status subresource of PodCertificateRequests");
    }
    match request.verb.as_str() {
        // Admission looks at what it is for.
        "create" => Ok(()),
        "get" => is_related(graph, node, Kind::CertificateRequest, request),
        "list" | "watch" if selects(request, "spec.nodeName", node) => Ok(()),
        "list" | "watch" => {
            refuse("can only list/watch podcertificaterequests with nodeName field selector")
        }
        verb => Err(format!("nodes may not {verb} podcertificaterequests")),
    }
}

fn is_related(graph: &Graph, node: &str, kind: Kind, request: &Attributes) -> Result<(), String> {
    if request.name().is_empty() {
        return Err("No Object name found".to_owned());
    }
    match graph.leads_to(node, kind, request.namespace(), request.name()) {
        true => Ok(()),
        false => Err(format!("no relationship found between node '{node}' and this object")),
    }
}

/// Whether the field selector of a request requires a value.
fn selects(request: &Attributes, path: &str, value: &str) -> bool {
    FieldSelector::parse(&request.field_selector).is_ok_and(|selector| {
        selector
            .terms()
            .iter()
            .any(|term| !term.negated && term.path == path && term.value == value)
    })
}

#[cfg(test)]
mod tests;
