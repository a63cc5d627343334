//! Processes one object: reads it and its owners, then deletes it, patches it or leaves it.

use super::Shared;
use super::graph::{Coordinates, Uid};
use super::reference::{OwnerState, owner_state};
use super::{FOREGROUND, ORPHAN};
use crate::api::{RequestError, Resource, ignore_not_found};
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;

/// Why an object has to be processed again.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The server does not serve the kind, either no longer or not yet.
    #[error("the kind {kind} of {api_version} is not served")]
    UnknownKind { api_version: String, kind: String },
    /// A cluster-scoped object names an owner in a namespace.
    #[error("a cluster-scoped object cannot have an owner in a namespace")]
    OwnerInNamespace,
    /// Dependents still exist and have to be deleted, or to drop their reference.
    #[error("{remaining} dependents remain")]
    Waiting { remaining: usize },
}

/// Processes one object.
pub(super) async fn process(shared: &Shared, uid: &Uid) -> Result<(), CollectError> {
    let Some(coordinates) = shared.graph.lock().coordinates(uid).cloned() else { return Ok(()) };
    let Coordinates { api_version, kind, namespace, name } = coordinates;
    let discovered = shared.discovered().await?;
    let resource = discovered.of_kind(&api_version, &kind).ok_or_else(|| {
        CollectError::UnknownKind { api_version: api_version.to_string(), kind: kind.to_string() }
    })?;
    let path = resource.object(&namespace, &name);
    let live = match shared.api.get(&path).await {
        Ok(live) if live.uid() == &**uid => live,
        Ok(_) => return forget(shared, uid),
        Err(error) if shared.means_absent(&error, resource, &name) => return forget(shared, uid),
        Err(error) => return Err(error.into()),
    };
    let object = Item { shared, uid, resource, path, live };
    if object.live.deletion_timestamp().is_empty() {
        object.attempt_to_delete().await
    } else if !shared.graph.lock().has_seen_deletion(uid) {
        // The server is ahead. The event will have it processed again.
        Ok(())
    } else if object.live.finalizers().contains(&ORPHAN) {
        object.orphan_dependents().await
    } else if object.live.finalizers().contains(&FOREGROUND) {
        object.delete_dependents().await
    } else {
        Ok(())
    }
}

fn forget(shared: &Shared, uid: &Uid) -> Result<(), CollectError> {
    let to_process = shared.graph.lock().forget(uid);
    shared.enqueue(to_process);
    Ok(())
}

/// An object as the graph and the server have it.
struct Item<'a> {
    shared: &'a Shared,
    uid: &'a Uid,
    resource: &'a Resource,
    path: String,
    live: Value,
}

impl Item<'_> {
    fn references(&self) -> &[Value] {
        self.live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn solid_references(&self, states: &[OwnerState]) -> Vec<Value> {
        let references = self.references().iter().zip(states);
        references
            .filter(|(_, state)| **state == OwnerState::Solid)
            .map(|(reference, _)| reference.clone())
            .collect()
    }

    /// For an object that is not being deleted: leaves it, removes dangling references from it, or
    /// deletes it.
    async fn attempt_to_delete(&self) -> Result<(), CollectError> {
        if self.references().is_empty() {
            return Ok(());
        }
        let mut states = Vec::with_capacity(self.references().len());
        for reference in self.references() {
            match owner_state(self.shared, &self.live, reference).await {
                // This can never change, so it is not retried.
                Err(CollectError::OwnerInNamespace) => return Ok(()),
                other => states.push(other?),
            }
        }
        let is = |wanted: OwnerState| states.contains(&wanted);
        if is(OwnerState::Solid) {
            return match self.solid_references(&states) {
                remaining if remaining.len() == states.len() => Ok(()),
                remaining => self.patch(json!({"ownerReferences": remaining})).await,
            };
        }
        let policy = if is(OwnerState::Waiting) && self.shared.graph.lock().has_dependents(self.uid)
        {
            self.unblock_cycle().await?;
            "Foreground"
        } else if self.live.finalizers().contains(&ORPHAN) {
            "Orphan"
        } else if self.live.finalizers().contains(&FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        self.delete(policy).await
    }

    /// Objects that own each other and wait for each other would wait forever, so this one stops
    /// blocking.
    async fn unblock_cycle(&self) -> Result<(), CollectError> {
        let blocks =
            self.references().iter().any(|reference| reference["blockOwnerDeletion"] == true);
        if !blocks || !self.shared.graph.lock().has_waiting_dependent(self.uid) {
            return Ok(());
        }
        let mut references = self.references().to_vec();
        for reference in &mut references {
            reference["blockOwnerDeletion"] = false.into();
        }
        let metadata = json!({"uid": &**self.uid, "ownerReferences": references});
        self.shared.api.merge_patch(&self.path, &json!({"metadata": metadata})).await?;
        Ok(())
    }

    async fn delete(&self, policy: &str) -> Result<(), CollectError> {
        // A patch of its own may have changed the version. The uid must still match.
        let mut preconditions = json!({"uid": &**self.uid});
        if policy != "Foreground" {
            preconditions["resourceVersion"] = self.live.resource_version().into();
        }
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy, "preconditions": preconditions});
        match ignore_not_found(self.shared.api.delete(&self.path, &options).await)? {
            None => forget(self.shared, self.uid),
            Some(_) => Ok(()),
        }
    }

    /// For an object deleted in the foreground: removes its finalizer when no dependent blocks. The
    /// graph enqueued every dependent when the deletion began, and enqueues this object again when
    /// one of them is deleted.
    async fn delete_dependents(&self) -> Result<(), CollectError> {
        let is_blocked = self.shared.graph.lock().is_blocked(self.uid);
        if is_blocked { Ok(()) } else { self.drop_finalizer(FOREGROUND).await }
    }

    /// For an object deleted with policy `Orphan`: removes the reference from each dependent, then
    /// the finalizer.
    async fn orphan_dependents(&self) -> Result<(), CollectError> {
        let mut remaining = 0;
        let dependents = self.shared.graph.lock().dependents(self.uid);
        for dependent in &dependents {
            let coordinates = self.shared.graph.lock().coordinates(dependent).cloned();
            let Some(coordinates) = coordinates else { continue };
            if let Err(error) = self.remove_reference_from(&coordinates, dependent).await {
                tracing::debug!(%dependent, error = chain(&error), "remove the reference from a dependent");
                remaining += 1;
            }
        }
        if remaining > 0 {
            return Err(CollectError::Waiting { remaining });
        }
        self.drop_finalizer(ORPHAN).await
    }

    async fn remove_reference_from(
        &self,
        coordinates: &Coordinates,
        dependent: &Uid,
    ) -> Result<(), CollectError> {
        let discovered = self.shared.discovered().await?;
        let Some(resource) = discovered.of_kind(&coordinates.api_version, &coordinates.kind) else {
            return Ok(());
        };
        let path = resource.object(&coordinates.namespace, &coordinates.name);
        let Some(live) = self.shared.api.get_opt(&path).await? else {
            return Ok(());
        };
        if live.uid() != &**dependent {
            return Ok(());
        }
        let references =
            live["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let remaining: Vec<&Value> =
            references.iter().filter(|reference| reference["uid"] != **self.uid).collect();
        if remaining.len() == references.len() {
            return Ok(());
        }
        let metadata = json!({"uid": &**dependent, "resourceVersion": live.resource_version(), "ownerReferences": remaining});
        let patch = json!({"metadata": metadata});
        ignore_not_found(self.shared.api.merge_patch(&path, &patch).await)?;
        Ok(())
    }

    async fn drop_finalizer(&self, finalizer: &str) -> Result<(), CollectError> {
        let finalizers = self.live.finalizers();
        let remaining: Vec<&str> =
            finalizers.into_iter().filter(|found| *found != finalizer).collect();
        self.patch(json!({"finalizers": remaining})).await
    }

    /// Patches metadata, with uid and resourceVersion as preconditions.
    async fn patch(&self, mut metadata: Value) -> Result<(), CollectError> {
        metadata["uid"] = (&**self.uid).into();
        metadata["resourceVersion"] = self.live.resource_version().into();
        tracing::debug!(resource = %self.resource.resource, name = self.live.name(), %metadata, "patch");
        let patch = json!({"metadata": metadata});
        match ignore_not_found(self.shared.api.merge_patch(&self.path, &patch).await)? {
            None => forget(self.shared, self.uid),
            Some(_) => Ok(()),
        }
    }
}
