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
use setpoint_object::keys::{self, Scope};
use setpoint_object::{ApiError, users};
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
        self.rules.get_or_init(|| rbac::bootstrap_rules(ROLE, registry.inner.features));
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
                    let Some(source) = source_of(&object.key) else { continue };
                    let (name, relations) = match tree(&object.value) {
                        Ok(object) => source.relations(&object),
                        // It may name less now.
                        Err(_) => (name_of(&object.key), None),
                    };
                    self.change(&mut filling, source, name, relations);
                }
                ObjectChange::Deleted(object) => {
                    if let Some(source) = source_of(&object.key) {
                        self.change(&mut filling, source, name_of(&object.key), None);
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

/// The namespace and name of an object by its key, whatever its value is.
fn name_of(key: &[u8]) -> graph::Name {
    let prefix = keys::prefix_of(key).unwrap_or_default();
    // Names contain no slash: that of an object without a namespace has none before it.
    let (namespace, name) = keys::names(prefix.len(), Scope::Namespaced, key);
    (namespace.into(), name.into())
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
    let asked = Asked {
        graph,
        node,
        request,
        verb: request.verb.as_str(),
        subresource: request.subresource().map_or("", Subresource::as_str),
    };
    match (request.group(), request.resource()) {
        ("", "secrets") => asked.read(Kind::Secret),
        ("", "configmaps") => asked.read(Kind::ConfigMap),
        ("", "persistentvolumeclaims") if asked.subresource == "status" => match asked.verb {
            "update" | "patch" => asked.is_related(Kind::Claim),
            _ => refuse("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims") => asked.read_one(Kind::Claim),
        ("", "persistentvolumes") => asked.read_one(Kind::Volume),
        ("resource.k8s.io", "resourceclaims") => asked.read_one(Kind::ResourceClaim),
        ("storage.k8s.io", "volumeattachments") => asked.read_one(Kind::Attachment),
        ("", "serviceaccounts") => asked.service_account(),
        ("coordination.k8s.io", "leases") => asked.lease(),
        ("storage.k8s.io", "csinodes") => asked.csi_node(),
        ("resource.k8s.io", "resourceslices") => asked.resource_slice(),
        ("", "nodes") => asked.own_node(),
        ("", "pods") => asked.pod(),
        (group @ "certificates.k8s.io", resource @ "podcertificaterequests") => {
            // With the feature gate the role has a rule.
            let create = Request { verb: "create", group, resource, ..Request::default() };
            match rules.iter().any(|rule| rule.allows(&create)) {
                true => asked.certificate_request(),
                false => refuse(""),
            }
        }
        (group, resource) => {
            let question = Request {
                verb: asked.verb,
                group,
                resource,
                subresource: asked.subresource,
                name: request.name(),
                path: request.non_resource_path(),
            };
            match rules.iter().any(|rule| rule.allows(&question)) {
                true => Ok(()),
                false => refuse(""),
            }
        }
    }
}

fn refuse(reason: &str) -> Result<(), String> {
    Err(reason.to_owned())
}

/// What the agent of a node asks for. Each method is the rule of one resource; its error is the
/// reason why there is no opinion.
struct Asked<'a> {
    graph: &'a Graph,
    node: &'a str,
    request: &'a Attributes,
    verb: &'a str,
    /// Empty for the main endpoint.
    subresource: &'a str,
}

impl Asked<'_> {
    /// The object is related to the node in the graph.
    fn is_related(&self, kind: Kind) -> Result<(), String> {
        let (node, request) = (self.node, self.request);
        if request.name().is_empty() {
            return refuse("No Object name found");
        }
        match self.graph.leads_to(node, kind, request.namespace(), request.name()) {
            true => Ok(()),
            false => Err(format!("no relationship found between node '{node}' and this object")),
        }
    }

    /// Gets one object that is related to the node.
    fn read_one(&self, kind: Kind) -> Result<(), String> {
        match (self.verb, self.subresource) {
            ("get", "") => self.is_related(kind),
            ("get", _) => refuse("cannot get subresource"),
            _ => refuse("can only get individual resources of this type"),
        }
    }

    /// Reads objects of a namespace that are related to the node.
    fn read(&self, kind: Kind) -> Result<(), String> {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !self.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if self.request.namespace().is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.is_related(kind)
    }

    fn service_account(&self) -> Result<(), String> {
        let is_named = !self.request.name().is_empty();
        match (self.verb, self.subresource) {
            ("get", "") => self.read(Kind::ServiceAccount),
            ("create", "token") if is_named => self.is_related(Kind::ServiceAccount),
            ("create", _) if is_named => {
                refuse("can only create token subresource of serviceaccount")
            }
            _ => refuse("can only create tokens for individual service accounts"),
        }
    }

    fn lease(&self) -> Result<(), String> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" => {}
            _ => return refuse("can only get, create, update, patch, or delete a node lease"),
        }
        if self.request.namespace() != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        match self.verb == "create" || self.request.name() == self.node {
            true => Ok(()),
            false => refuse("can only access node lease with the same name as the requesting node"),
        }
    }

    fn csi_node(&self) -> Result<(), String> {
        match self.verb {
            "get" | "create" | "update" | "patch" | "delete" => {}
            _ => return refuse("can only get, create, update, patch, or delete a CSINode"),
        }
        if !self.subresource.is_empty() {
            return refuse("cannot authorize CSINode subresources");
        }
        match self.verb == "create" || self.request.name() == self.node {
            true => Ok(()),
            false => refuse("can only access CSINode with the same name as the requesting node"),
        }
    }

    fn resource_slice(&self) -> Result<(), String> {
        match self.verb {
            _ if !self.subresource.is_empty() => {
                refuse("cannot authorize ResourceSlice subresources")
            }
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.is_related(Kind::Slice),
            "watch" | "list" | "deletecollection" => {
                match selects(self.request, "spec.nodeName", self.node) {
                    true => Ok(()),
                    false => refuse(
                        "can only list/watch/deletecollection resourceslices with nodeName field selector",
                    ),
                }
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn own_node(&self) -> Result<(), String> {
        let node = self.node;
        match (self.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") => match self.request.name() {
                own if own == node => Ok(()),
                "" => Err(format!("node '{node}' cannot read all nodes, only its own Node object")),
                other => {
                    Err(format!("node '{node}' cannot read '{other}', only its own Node object"))
                }
            },
            _ => refuse(""),
        }
    }

    fn pod(&self) -> Result<(), String> {
        match (self.subresource, self.verb) {
            ("", "get") => self.is_related(Kind::Pod),
            ("", "list" | "watch") => {
                if selects(self.request, "spec.nodeName", self.node) {
                    return Ok(());
                }
                match self.request.name() {
                    "" => refuse("can only list/watch pods with spec.nodeName field selector"),
                    _ => self.is_related(Kind::Pod),
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => {
                Ok(())
            }
            _ => refuse(""),
        }
    }

    /// Certificate requests of pods of the node.
    fn certificate_request(&self) -> Result<(), String> {
        if !self.subresource.is_empty() {
            return refuse("nodes may not access the status subresource of PodCertificateRequests");
        }
        match self.verb {
            // Admission looks at what it is for.
            "create" => Ok(()),
            "get" => self.is_related(Kind::CertificateRequest),
            "list" | "watch" if selects(self.request, "spec.nodeName", self.node) => Ok(()),
            "list" | "watch" => {
                refuse("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests")),
        }
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
