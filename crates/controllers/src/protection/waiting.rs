//! Objects that are being deleted and that pods of their namespace still use.
//!
//! | event | effect |
//! |---|---|
//! | an object is being deleted | it waits, and its namespace is enqueued |
//! | an object has lost its finalizer | the same, until it has it again |
//! | a pod has ended, or is gone | its namespace is enqueued if an object waits there |
//! | a pass over the namespace | lists its pods once, from the server, and releases what none uses |
//! | objects still wait after a pass, and the cache does not show a pod that uses one | the pass is repeated: the end of that pod may cause no event |

use crate::api::{Api, RequestError};
use crate::boxed::BoxedReconciler;
use crate::first_error::FirstError;
use kube_client::Resource;
use kube_core::metadata::PartialObjectMeta;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_informer::{Cacheable, Event, Object};
use setpoint_object::meta::ObjectExt;
use setpoint_runtime::{Action, BoxError, Context, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A resource whose objects are in use by pods of their namespace.
pub(super) trait Protected: Send + Sync + 'static {
    /// A pod, as the controller watches it.
    type Pod: Cacheable<DynamicType = ()>;
    /// The objects that pods use.
    type InUse: Default + Send + Sync;

    /// The path of an object.
    fn path(&self, namespace: &str, name: &str) -> String;

    /// Adds the objects that a pod uses. Returns whether there are any.
    ///
    /// # Errors
    ///
    /// The pod cannot be decoded.
    fn add(&self, in_use: &mut Self::InUse, pod: Value) -> Result<bool, serde_json::Error>;

    /// Whether a pod uses an object.
    fn is_in_use(&self, in_use: &Self::InUse, object: &Value) -> bool;

    /// Removes the finalizer of an object that is being deleted and has it, unless the object has
    /// changed since it was read.
    fn release(
        &self,
        api: &Api,
        path: &str,
        object: Value,
    ) -> impl Future<Output = Result<(), RequestError>> + Send;

    /// Adds the finalizer to an object that is not being deleted and lacks it, in the same way.
    fn protect(
        &self,
        _api: &Api,
        _path: &str,
        _object: &Value,
    ) -> impl Future<Output = Result<(), RequestError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// The objects that wait for the removal of their finalizer, by namespace.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<BTreeMap<Arc<str>, Uids>>);

/// Uids of objects by their names.
type Uids = BTreeMap<Arc<str>, Arc<str>>;

impl Waiting {
    /// Adds an object, in place of a former one of its name. Returns the request for a pass.
    pub(super) fn add<K>(&self, object: &Object<PartialObjectMeta<K>>) -> Vec<Request>
    where
        PartialObjectMeta<K>: Resource,
    {
        let key = object.key();
        self.insert(&key.namespace, &key.name, object.uid());
        vec![Request::cluster(key.namespace.clone())]
    }

    /// The request for a pass over the namespace of a pod, if an object waits there and `frees`
    /// says that the pod uses none any more.
    pub(super) fn request<P>(&self, pod: &Event<P>, frees: fn(&Event<P>) -> bool) -> Vec<Request> {
        let namespace = &pod.key().namespace;
        let is_relevant = self.has_any(namespace) && frees(pod);
        is_relevant.then(|| Request::cluster(namespace.clone())).into_iter().collect()
    }

    fn insert(&self, namespace: &Arc<str>, name: &Arc<str>, uid: &str) {
        let mut waiting = self.0.lock();
        waiting.entry(namespace.clone()).or_default().insert(name.clone(), uid.into());
    }

    /// Removes an object, but not another one that has got its name.
    fn remove(&self, namespace: &str, name: &str, uid: &str) {
        let mut waiting = self.0.lock();
        let Some(objects) = waiting.get_mut(namespace) else { return };
        if objects.get(name).is_some_and(|held| **held == *uid) {
            objects.remove(name);
        }
        if objects.is_empty() {
            waiting.remove(namespace);
        }
    }

    fn has_any(&self, namespace: &str) -> bool {
        self.0.lock().contains_key(namespace)
    }

    fn of(&self, namespace: &str) -> Uids {
        self.0.lock().get(namespace).cloned().unwrap_or_default()
    }
}

/// Reconciles the waiting objects of one namespace, which is the request's name.
pub(super) struct Pass<P> {
    pub(super) api: Api,
    pub(super) waiting: Arc<Waiting>,
    pub(super) protected: P,
}

impl<P: Protected> BoxedReconciler for Pass<P> {
    type Error = BoxError;

    async fn pass(&self, request: &Request, context: &Context) -> Result<Action, BoxError> {
        let namespace = &*request.name;
        let waiting = self.waiting.of(namespace);
        if waiting.is_empty() {
            return Ok(Action::await_change());
        }
        let used = self.used(namespace).await?;
        // An object that cannot be released does not keep the others.
        let mut errors = FirstError::new();
        for (name, uid) in waiting {
            errors.note(self.one(namespace, (&name, &uid), &used.in_use).await);
        }
        errors.into_result()?;
        if !self.waiting.has_any(namespace) {
            return Ok(Action::await_change());
        }
        // The end of a pod that the cache does not show yet may cause no event: a cache that lists
        // again has never seen it.
        let cache = context.client().api::<P::Pod>();
        for (name, uid) in &used.pods {
            let shown = cache.get(&Request::new(namespace, &**name))?;
            if shown.is_none_or(|shown| shown.meta().uid.as_ref() != Some(uid)) {
                return Ok(Action::requeue());
            }
        }
        Ok(Action::await_change())
    }
}

/// What the pods of a namespace use.
#[derive(Debug, Default)]
struct Used<K> {
    /// The names and uids of the pods that use something.
    pods: Vec<(String, String)>,
    in_use: K,
}

impl<P: Protected> Pass<P> {
    async fn used(&self, namespace: &str) -> Result<Used<P::InUse>, BoxError> {
        let (mut used, mut failed) = (Used::<P::InUse>::default(), None);
        let take = |pod: Value| {
            let (name, uid) = (pod.name().to_owned(), pod.uid().to_owned());
            match self.protected.add(&mut used.in_use, pod) {
                Ok(true) => used.pods.push((name, uid)),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
        };
        self.api.list_pages(&format!("/api/v1/namespaces/{namespace}/pods"), take).await?;
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(used),
        }
    }

    /// Releases a waiting object that no pod uses.
    async fn one(
        &self,
        namespace: &str,
        (name, uid): (&str, &str),
        in_use: &P::InUse,
    ) -> Result<(), RequestError> {
        let path = self.protected.path(namespace, name);
        // Another object of the name waits by itself.
        let found = self.api.get_opt(&path).await?.filter(|found| found.uid() == uid);
        if let Some(found) = found {
            self.protected.protect(&self.api, &path, &found).await?;
            if !found.deletion_timestamp().is_empty() && self.protected.is_in_use(in_use, &found) {
                return Ok(());
            }
            self.protected.release(&self.api, &path, found).await?;
        }
        self.waiting.remove(namespace, name, uid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_object_does_not_end_the_wait_of_the_next_one_of_its_name() {
        let (namespace, name): (Arc<str>, Arc<str>) = ("default".into(), "data".into());
        let waiting = Waiting::default();
        waiting.insert(&namespace, &name, "first");
        // While the pass releases the first one.
        waiting.insert(&namespace, &name, "second");
        waiting.remove(&namespace, &name, "first");
        assert_eq!(waiting.of(&namespace), BTreeMap::from([(name.clone(), "second".into())]));
        waiting.remove(&namespace, &name, "second");
        assert!(!waiting.has_any(&namespace));
    }
}
