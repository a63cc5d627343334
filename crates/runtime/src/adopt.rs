//! Adopts and releases children by labels: adopts matching objects without a controller, and
//! releases objects that no longer match.
//!
//! # Theory
//!
//! As ReplicaSet, Job and StatefulSet do (`ControllerRefManager`): an owner selects its children by
//! labels, and marks those it controls with a controller reference that has its uid. For each
//! candidate:
//!
//! | controlled by | labels match | owner is being deleted | what is done                                       | is the owner's |
//! |---------------|--------------|------------------------|----------------------------------------------------|----------------|
//! | another       |              |                        | nothing                                            | no             |
//! | the owner     | yes          |                        | nothing                                            | yes            |
//! | the owner     | no           | no                     | *released*: the reference is removed               | no             |
//! | the owner     | no           | yes                    | nothing: the garbage collector handles it          | no             |
//! | none          | yes          | no                     | *adopted*: the reference is added, unless the candidate is being deleted | yes |
//! | none          | otherwise    |                        | nothing                                            | no             |
//!
//! Objects from a cache may be outdated. So before the first adoption the owner is read from the
//! server: one that is being deleted, or has another uid, adopts nothing. Each patch tests the
//! candidate's uid, so that a new object with the same name is not changed.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::Resource;
use serde_json::{Value, json};
use setpoint_informer::Cacheable;
use setpoint_object::label::Selector;

use crate::{
    client::{Api, ClientError},
    error::chain,
    owner::{OwnerError, controller_of, controller_reference},
    request::Request,
};

/// An owner that claims children by labels. See the module's theory.
#[derive(Debug)]
#[must_use = "nothing is claimed before `claim`"]
pub struct Claim<'a, O: Resource> {
    owners: &'a Api<O>,
    owner: &'a O,
    reference: OwnerReference,
    selector: &'a Selector,
}

/// The result of a claim.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claimed<K> {
    /// The owner's children, in the order of the candidates; adopted ones as returned by the
    /// server.
    pub children: Vec<Arc<K>>,
    /// The newly adopted children.
    pub adopted: Vec<Request>,
    /// The released objects.
    pub released: Vec<Request>,
}

/// Why some candidates could not be claimed or released. The others were.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The owner was deleted or recreated since it was read: it adopts nothing.
    #[error("{owner} was recreated since it was read, or is being deleted: it adopts nothing")]
    OwnerGone {
        /// The owner.
        owner: Request,
    },
    /// The owner could not be read from the server.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Patches failed.
    #[error("claim {}", .0.iter().map(|(key, error)| format!("{key}: {}", chain(error))).collect::<Vec<_>>().join("; "))]
    Patch(Vec<(Request, ClientError)>),
}

/// What to do with a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Adopt,
    Release,
    Ignore,
}

impl<'a, O: Cacheable> Claim<'a, O> {
    /// Claims for an owner: objects in its namespace whose labels match.
    ///
    /// # Errors
    ///
    /// The owner has not been created yet.
    pub fn of(
        owners: &'a Api<O>,
        owner: &'a O,
        selector: &'a Selector,
    ) -> Result<Self, OwnerError> {
        let reference = controller_reference(owner, owners.dynamic_type())?;
        Ok(Self { owners, owner, reference, selector })
    }

    /// Claims the matching candidates: usually all objects of the owner's namespace in the cache.
    ///
    /// # Errors
    ///
    /// See [`ClaimError`]; earlier changes stay. A candidate that was deleted is not an error, nor
    /// is one to release that was recreated.
    pub async fn claim<K: Cacheable>(
        &self,
        api: &Api<K>,
        candidates: impl IntoIterator<Item = Arc<K>>,
    ) -> Result<Claimed<K>, ClaimError> {
        let mut claimed =
            Claimed { children: Vec::new(), adopted: Vec::new(), released: Vec::new() };
        let mut is_owner_checked = false;
        let mut failures = Vec::new();
        for candidate in candidates {
            match self.verdict(&*candidate) {
                Verdict::Ignore => {}
                // Nearly all, of which there may be thousands.
                Verdict::Keep => claimed.children.push(candidate),
                Verdict::Adopt => {
                    let key = Request::of(&*candidate);
                    if !is_owner_checked {
                        self.check_owner().await?;
                        is_owner_checked = true;
                    }
                    match api.json_patch(&key, &adoption(&*candidate, &self.reference)).await {
                        Ok(adopted) => {
                            claimed.children.push(Arc::new(adopted));
                            claimed.adopted.push(key);
                        }
                        Err(error) if error.is_not_found() => {}
                        Err(error) => failures.push((key, error)),
                    }
                }
                Verdict::Release => {
                    let Some(patch) = release(&*candidate, &self.reference.uid) else { continue };
                    let key = Request::of(&*candidate);
                    match api.json_patch(&key, &patch).await {
                        Ok(_) => claimed.released.push(key),
                        // It was recreated, or released concurrently.
                        Err(error) if error.is_not_found() || error.is_invalid() => {}
                        Err(error) => failures.push((key, error)),
                    }
                }
            }
        }
        if failures.is_empty() { Ok(claimed) } else { Err(ClaimError::Patch(failures)) }
    }

    fn verdict<K: Resource>(&self, candidate: &K) -> Verdict {
        let meta = candidate.meta();
        let labels = meta.labels.as_ref();
        let is_match = self.selector.matches(|label| labels?.get(label).map(String::as_str));
        let is_owner_deleted = self.owner.meta().deletion_timestamp.is_some();
        match controller_of(candidate) {
            Some(controller) if controller.uid != self.reference.uid => Verdict::Ignore,
            Some(_) if is_match => Verdict::Keep,
            Some(_) if is_owner_deleted => Verdict::Ignore,
            Some(_) => Verdict::Release,
            None => {
                let is_elsewhere =
                    self.owner.meta().namespace.as_deref().is_some_and(|namespace| {
                        !namespace.is_empty() && meta.namespace.as_deref() != Some(namespace)
                    });
                let is_free = is_match && !is_owner_deleted && !is_elsewhere;
                if is_free && meta.deletion_timestamp.is_none() {
                    Verdict::Adopt
                } else {
                    Verdict::Ignore
                }
            }
        }
    }

    /// Checks that the owner on the server is the one that was read, and not being deleted.
    async fn check_owner(&self) -> Result<(), ClaimError> {
        let key = Request::of(self.owner);
        match self.owners.get_live(&key).await? {
            Some(live)
                if live.meta().uid.as_deref() == Some(&*self.reference.uid)
                    && live.meta().deletion_timestamp.is_none() =>
            {
                Ok(())
            }
            _ => Err(ClaimError::OwnerGone { owner: key }),
        }
    }
}

/// The JSON patch that adds a reference to the object that was read. If another controller was set
/// meanwhile, the server refuses: there can be only one.
fn adoption<K: Resource>(candidate: &K, reference: &OwnerReference) -> Value {
    let meta = candidate.meta();
    let references = meta.owner_references.as_deref().unwrap_or_default();
    let mut reference = reference.clone();
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    let test = json!({"op": "test", "path": "/metadata/uid", "value": meta.uid});
    match references.iter().position(|existing| existing.uid == reference.uid) {
        // It is an owner already, and becomes the controller.
        Some(at) => {
            let path = format!("/metadata/ownerReferences/{at}");
            json!([
                test,
                {"op": "test", "path": format!("{path}/uid"), "value": reference.uid},
                {"op": "replace", "path": path, "value": reference},
            ])
        }
        None if references.is_empty() => json!([
            test,
            {"op": "test", "path": "/metadata/ownerReferences", "value": null},
            {"op": "add", "path": "/metadata/ownerReferences", "value": [reference]},
        ]),
        None => json!([
            test,
            {"op": "add", "path": "/metadata/ownerReferences/-", "value": reference},
        ]),
    }
}

/// The JSON patch that removes the owner's reference from the object that was read.
fn release<K: Resource>(candidate: &K, owner_uid: &str) -> Option<Value> {
    let meta = candidate.meta();
    let references = meta.owner_references.as_deref().unwrap_or_default();
    let at = references.iter().position(|existing| existing.uid == owner_uid)?;
    let path = format!("/metadata/ownerReferences/{at}");
    Some(json!([
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": format!("{path}/uid"), "value": owner_uid},
        {"op": "remove", "path": path},
    ]))
}
