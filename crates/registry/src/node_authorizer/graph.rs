//! Which objects are related to which nodes.
//!
//! # Theory
//!
//! Pods, volumes, attachments, slices and certificate requests are *sources*: what each of them
//! refers to is known from it alone. The graph has the relations of each source, so that a changed
//! one replaces its own, and two indexes made from them: objects to nodes, with the number of
//! relations that say so, and claims to the volumes that are bound to them. A volume leads to the
//! nodes of its claim, and so do its secrets: they are counted whenever a claim gains or loses a
//! node, or a volume. So a decision is a few lookups, however many pods and volumes use one secret,
//! and however many pods are on one node.
use super::references;
use crate::shared::Registry;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The namespace, empty for cluster scope, and the name of an object.
pub(super) type Name = (Box<str>, Box<str>);

/// The kind of an object that a node reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ResourceClaim,
    ServiceAccount,
    Attachment,
    Slice,
    CertificateRequest,
}

/// A kind of object that has relations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Pod,
    Volume,
    Attachment,
    Slice,
    CertificateRequest,
}

/// The relations of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Relations {
    /// These objects lead to a node.
    Node { node: Arc<str>, objects: BTreeSet<(Kind, Box<str>)> },
    /// A volume leads to a claim, and these secrets lead to the volume.
    Claim { claim: Name, secrets: BTreeSet<Name> },
}

impl Source {
    /// The sources by the storage prefixes of their resources.
    pub(super) fn all(registry: &Registry) -> Vec<(Arc<str>, Self)> {
        let catalog = registry.catalog();
        let rows = [
            ("", "v1", "pods", Self::Pod),
            ("", "v1", "persistentvolumes", Self::Volume),
            ("storage.k8s.io", "v1", "volumeattachments", Self::Attachment),
            ("resource.k8s.io", "v1", "resourceslices", Self::Slice),
            ("certificates.k8s.io", "v1beta1", "podcertificaterequests", Self::CertificateRequest),
        ];
        rows.into_iter()
            .filter_map(|(group, version, resource, source)| {
                let row = catalog.get(group, version, resource)?;
                Some((row.storage_prefix.clone(), source))
            })
            .collect()
    }

    /// The name of an object and its relations; `None` if it has none, for example because a pod
    /// is on no node.
    pub(super) fn relations(self, object: &Value) -> (Name, Option<Relations>) {
        let name: Name = (object.namespace().into(), object.name().into());
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("");
        let of_node = |node: &str, objects| {
            (!node.is_empty()).then(|| Relations::Node { node: node.into(), objects })
        };
        let relations = match self {
            Self::Pod => of_node(text("/spec/nodeName"), references::of_pod(object)),
            Self::Volume => {
                let claim = (text("/spec/claimRef/namespace"), text("/spec/claimRef/name"));
                object.pointer("/spec/claimRef").filter(|claim| claim.is_object()).map(|_| {
                    Relations::Claim {
                        claim: (claim.0.into(), claim.1.into()),
                        secrets: references::of_volume(object, claim.0),
                    }
                })
            }
            Self::Attachment => {
                let own = BTreeSet::from([(Kind::Attachment, name.1.clone())]);
                of_node(text("/spec/nodeName"), own)
            }
            Self::CertificateRequest => {
                let own = BTreeSet::from([(Kind::CertificateRequest, name.1.clone())]);
                of_node(text("/spec/nodeName"), own)
            }
            Self::Slice => {
                let own = BTreeSet::from([(Kind::Slice, name.1.clone())]);
                of_node(text("/spec/nodeName"), own)
            }
        };
        (name, relations)
    }
}

/// The relations of all sources. Its size is that of the references in pods and volumes.
#[derive(Debug, Default)]
pub(super) struct Graph {
    sources: HashMap<(Source, Name), Relations>,
    /// The nodes that an object leads to, with the number of pods and, for secrets, pairs of a
    /// node's claim and a volume that say so.
    nodes: HashMap<(Kind, Name), HashMap<Arc<str>, usize>>,
    /// The volumes that are bound to a claim.
    volumes: HashMap<Name, BTreeSet<Box<str>>>,
}

impl Graph {
    /// The relations of a source.
    pub(super) fn relations(&self, source: Source, name: &Name) -> Option<&Relations> {
        self.sources.get(&(source, name.clone()))
    }

    /// Replaces the relations of a source; `None`: it has none or does not exist.
    pub(super) fn put(&mut self, source: Source, name: Name, relations: Option<Relations>) {
        let key = (source, name);
        if let Some(former) = self.sources.remove(&key) {
            self.unlink(&key.1, &former);
        }
        if let Some(relations) = relations {
            self.link(&key.1, &relations);
            self.sources.insert(key, relations);
        }
    }

    fn link(&mut self, (namespace, name): &Name, relations: &Relations) {
        match relations {
            Relations::Node { node, objects } => {
                for (kind, object) in objects {
                    let object: Name = (namespace.clone(), object.clone());
                    if *kind == Kind::Claim && !self.is_of(node, *kind, object.clone()) {
                        for secret in self.secrets_of(&object) {
                            self.add((Kind::Secret, secret), node);
                        }
                    }
                    self.add((*kind, object), node);
                }
            }
            Relations::Claim { claim, secrets } => {
                self.volumes.entry(claim.clone()).or_default().insert(name.clone());
                for node in self.nodes_of(claim, secrets) {
                    for secret in secrets {
                        self.add((Kind::Secret, secret.clone()), &node);
                    }
                }
            }
        }
    }

    fn unlink(&mut self, (namespace, name): &Name, relations: &Relations) {
        match relations {
            Relations::Node { node, objects } => {
                for (kind, object) in objects {
                    let object: Name = (namespace.clone(), object.clone());
                    self.subtract((*kind, object.clone()), node);
                    if *kind == Kind::Claim && !self.is_of(node, *kind, object.clone()) {
                        for secret in self.secrets_of(&object) {
                            self.subtract((Kind::Secret, secret), node);
                        }
                    }
                }
            }
            Relations::Claim { claim, secrets } => {
                if let Some(volumes) = self.volumes.get_mut(claim) {
                    volumes.remove(name);
                    if volumes.is_empty() {
                        self.volumes.remove(claim);
                    }
                }
                for node in self.nodes_of(claim, secrets) {
                    for secret in secrets {
                        self.subtract((Kind::Secret, secret.clone()), &node);
                    }
                }
            }
        }
    }

    fn add(&mut self, object: (Kind, Name), node: &Arc<str>) {
        *self.nodes.entry(object).or_default().entry(node.clone()).or_default() += 1;
    }

    fn subtract(&mut self, object: (Kind, Name), node: &Arc<str>) {
        let Some(nodes) = self.nodes.get_mut(&object) else { return };
        if let Some(n) = nodes.get_mut(node) {
            *n -= 1;
            if *n == 0 {
                nodes.remove(node);
            }
        }
        if nodes.is_empty() {
            self.nodes.remove(&object);
        }
    }

    /// The secrets of the volumes that are bound to a claim, once per volume.
    fn secrets_of(&self, claim: &Name) -> Vec<Name> {
        let volumes = self.volumes.get(claim).into_iter().flatten();
        let secrets = volumes.flat_map(|volume| {
            match self.sources.get(&(Source::Volume, ("".into(), volume.clone()))) {
                Some(Relations::Claim { secrets, .. }) => Some(secrets),
                _ => None,
            }
        });
        secrets.flatten().cloned().collect()
    }

    /// The nodes of a claim, if they count for any secret.
    fn nodes_of(&self, claim: &Name, secrets: &BTreeSet<Name>) -> Vec<Arc<str>> {
        if secrets.is_empty() {
            return Vec::new();
        }
        let nodes = self.nodes.get(&(Kind::Claim, claim.clone()));
        nodes.into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// Whether an object is related to a node.
    pub(super) fn leads_to(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let name: Name = (namespace.into(), name.into());
        match kind {
            Kind::Volume => self.volume_leads_to(node, &name.1),
            kind => self.is_of(node, kind, name),
        }
    }

    fn is_of(&self, node: &str, kind: Kind, name: Name) -> bool {
        self.nodes.get(&(kind, name)).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn volume_leads_to(&self, node: &str, volume: &str) -> bool {
        let volume = (Source::Volume, ("".into(), volume.into()));
        match self.sources.get(&volume) {
            Some(Relations::Claim { claim, .. }) => self.is_of(node, Kind::Claim, claim.clone()),
            _ => false,
        }
    }

    /// Whether nothing is known, for tests of what stays behind.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.nodes.is_empty() && self.volumes.is_empty()
    }
}
