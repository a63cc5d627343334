//! Storage protection: a claim or volume that is being deleted remains while it is in use.
//!
//! # Theory
//!
//! Admission adds the finalizer `kubernetes.io/pvc-protection` to every PersistentVolumeClaim and
//! `kubernetes.io/pv-protection` to every PersistentVolume. Two controllers remove them again:
//!
//! | object being deleted | loses its finalizer when |
//! |---|---|
//! | claim | no pod with a node uses it, by name or as the claim of a generic ephemeral volume |
//! | volume | its phase is not `Bound` |
//!
//! Claims are reconciled by namespace: the deletion of a claim and the end of a pod both enqueue
//! their namespace. One pass lists the pods of the namespace once, from the server, because a cache
//! may not yet show every pod. A pod without a node does not count, because no kubelet starts a pod
//! whose claim is being deleted. The rules are those of kube-controller-manager's
//! `pvc-protection-controller` and `pv-protection-controller`.

use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::setup::Setup;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube_client::Resource;
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_informer::{Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, Manager, Predicate, Reconciler, Request, Watch,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The finalizer of claims.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer of volumes.
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Both protection controllers. They do nothing until a manager runs
/// them.
#[must_use]
pub struct ProtectionController {
    setup: Setup,
}

impl ProtectionController {
    /// Creates controllers that start from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let waiting = Arc::new(Waiting::default());
        let claims =
            Claims { api: self.setup.api("pvc-protection-controller"), waiting: waiting.clone() };
        let pods = waiting.clone();
        let claims = Controller::builder("pvc-protection-controller")
            .maps(
                Watch::<PersistentVolumeClaim>::metadata().filter(being_deleted(CLAIM_FINALIZER)),
                move |claim: &Object<PartialObjectMeta<PersistentVolumeClaim>>| {
                    let key = claim.key();
                    waiting.add(&key.namespace, &key.name);
                    vec![Request::cluster(key.namespace.clone())]
                },
            )
            .watches(Watch::<Pod>::metadata(), move |event: &Event<PartialObjectMeta<Pod>>| {
                let ends = matches!(event, Event::Deleted { .. })
                    || event.object().is_some_and(|pod| !pod.skim().deletion_timestamp.is_empty());
                let namespace = &event.key().namespace;
                let is_relevant = ends && pods.has_any(namespace);
                is_relevant.then(|| Request::cluster(namespace.clone())).into_iter().collect()
            })
            .sync_timeout(None)
            .build(Boxed(claims))?;
        manager.add(claims)?;
        let volumes = Volumes { api: self.setup.api("pv-protection-controller") };
        let volumes = Controller::builder("pv-protection-controller")
            .for_(Watch::<PersistentVolume>::metadata().filter(being_deleted(VOLUME_FINALIZER)))
            .sync_timeout(None)
            .build(volumes)?;
        manager.add(volumes)?;
        Ok(())
    }
}

/// Matches objects that are being deleted and have the finalizer.
pub(crate) fn being_deleted<K>(finalizer: &'static str) -> Predicate<PartialObjectMeta<K>>
where
    PartialObjectMeta<K>: Resource + 'static,
{
    Predicate::new(move |event: &Event<PartialObjectMeta<K>>| {
        !matches!(event, Event::Deleted { .. })
            && event.object().is_some_and(|object| {
                let skim = object.skim();
                !skim.deletion_timestamp.is_empty()
                    && skim.finalizers.iter().any(|f| f == finalizer)
            })
    })
}

/// Objects that wait for the removal of their finalizer, by namespace.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>);

impl Waiting {
    pub(crate) fn add(&self, namespace: &Arc<str>, name: &Arc<str>) {
        self.0.lock().entry(namespace.clone()).or_default().insert(name.clone());
    }

    pub(crate) fn remove(&self, namespace: &str, name: &str) {
        let mut waiting = self.0.lock();
        let Some(names) = waiting.get_mut(namespace) else { return };
        names.remove(name);
        if names.is_empty() {
            waiting.remove(namespace);
        }
    }

    pub(crate) fn has_any(&self, namespace: &str) -> bool {
        self.0.lock().contains_key(namespace)
    }

    pub(crate) fn of(&self, namespace: &str) -> Vec<Arc<str>> {
        self.0.lock().get(namespace).into_iter().flatten().cloned().collect()
    }
}

/// Reconciles the claims of one namespace. The namespace is the request's name.
struct Claims {
    api: Api,
    waiting: Arc<Waiting>,
}

impl BoxedReconciler for Claims {
    type Error = BoxError;

    /// One pass over the waiting claims of a namespace.
    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let namespace = &*request.name;
        let client = context.client();
        let waiting = self.waiting.of(namespace);
        if waiting.is_empty() {
            return Ok(Action::await_change());
        }
        let used = self.used(namespace).await?;
        // A claim that cannot be released does not keep the others.
        let mut errors = FirstError::new();
        for name in waiting {
            errors.note(self.one(namespace, &name, &used).await);
        }
        errors.into_result()?;
        if !self.waiting.has_any(namespace) {
            return Ok(Action::await_change());
        }
        // The end of a pod that the cache does not show yet may cause no event: a cache that lists
        // again has never seen it.
        let cache = client.metadata::<Pod>();
        for (name, uid) in &used.pods {
            let shown = cache.get(&Request::new(namespace, &**name))?;
            if shown.is_none_or(|shown| shown.metadata.uid.as_ref() != Some(uid)) {
                return Ok(Action::requeue());
            }
        }
        Ok(Action::await_change())
    }
}

impl Claims {
    /// Releases a waiting claim that no pod uses.
    async fn one(&self, namespace: &str, name: &str, used: &Used) -> Result<(), RequestError> {
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        let claim = match self.api.get(&path).await {
            Err(error) if error.is_not_found() => {
                self.waiting.remove(namespace, name);
                return Ok(());
            }
            claim => claim?,
        };
        let is_used =
            used.by_name.contains(name) || used.ephemeral.contains(&(name, controller(&claim)));
        if !is_used {
            release(&self.api, &path, &claim, CLAIM_FINALIZER).await?;
            self.waiting.remove(namespace, name);
        }
        Ok(())
    }
}

/// The claims that the pods of a namespace use.
#[derive(Debug, Default)]
struct Used {
    /// The names and uids of the pods that use claims.
    pods: Vec<(String, String)>,
    /// Claims that pods name.
    by_name: BTreeSet<String>,
    /// Claims of generic ephemeral volumes: the name, and the uid of the pod, which is the claim's
    /// controller.
    ephemeral: EphemeralClaims,
}

#[derive(Debug, Default)]
struct EphemeralClaims(BTreeMap<String, BTreeSet<String>>);

impl EphemeralClaims {
    fn contains(&self, (name, pod): &(&str, &str)) -> bool {
        self.0.get(*name).is_some_and(|pods| pods.contains(*pod))
    }
}

impl Claims {
    async fn used(&self, namespace: &str) -> Result<Used, RequestError> {
        let mut used = Used::default();
        self.api
            .list_pages(&format!("/api/v1/namespaces/{namespace}/pods"), |pod| used.add_pod(&pod))
            .await?;
        Ok(used)
    }
}

impl Used {
    fn add_pod(&mut self, pod: &Value) {
        if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
            return;
        }
        // The pod has been shut down and only waits for its removal, perhaps because of this claim.
        let is_shut_down = !pod.deletion_timestamp().is_empty()
            && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
        let volumes = pod["spec"]["volumes"].as_array();
        let uses = |volume: &Value| {
            volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object()
        };
        if volumes.into_iter().flatten().any(uses) {
            self.pods.push((pod.name().to_owned(), pod.uid().to_owned()));
        }
        for volume in volumes.into_iter().flatten() {
            if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
                self.by_name.insert(claim.to_owned());
            }
            if !is_shut_down && volume["ephemeral"].is_object() {
                let volume = volume["name"].as_str().unwrap_or_default();
                let claim = format!("{}-{volume}", pod.name());
                self.ephemeral.0.entry(claim).or_default().insert(pod.uid().to_owned());
            }
        }
    }
}

/// The uid of an object's controller; empty if it has none.
fn controller(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    controller.and_then(|owner| owner["uid"].as_str()).unwrap_or_default()
}

/// Reconciles volumes.
struct Volumes {
    api: Api,
}

impl Reconciler for Volumes {
    type Error = BoxError;

    async fn reconcile(&self, request: Request, _: Context) -> Result<Action, BoxError> {
        Ok(Box::pin(self.pass(&request.name)).await?)
    }
}

impl Volumes {
    /// One pass over one volume.
    async fn pass(&self, name: &str) -> Result<Action, RequestError> {
        let path = format!("/api/v1/persistentvolumes/{name}");
        let Some(volume) = self.api.get_opt(&path).await? else {
            return Ok(Action::await_change());
        };
        if volume["status"]["phase"] != "Bound" {
            release(&self.api, &path, &volume, VOLUME_FINALIZER).await?;
        }
        Ok(Action::await_change())
    }
}

/// Removes a finalizer from an object that is being deleted, if the object has not changed since it
/// was read.
pub(crate) async fn release(
    api: &Api,
    path: &str,
    object: &Value,
    finalizer: &str,
) -> Result<(), RequestError> {
    let finalizers = object.finalizers();
    if object.deletion_timestamp().is_empty() || !finalizers.contains(&finalizer) {
        return Ok(());
    }
    let remaining: Vec<&str> = finalizers.into_iter().filter(|found| *found != finalizer).collect();
    set_finalizers(api, path, object, &remaining).await
}

/// Sets the finalizers of an object, if it still exists and has not changed since it was read.
pub(crate) async fn set_finalizers(
    api: &Api,
    path: &str,
    object: &Value,
    finalizers: &[&str],
) -> Result<(), RequestError> {
    let metadata = json!({
        "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": finalizers,
    });
    ignore_not_found(api.merge_patch(path, &json!({"metadata": metadata})).await).map(drop)
}
