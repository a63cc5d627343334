//! Admission: who may change or refuse a write. A chain of plugins, each with a mutating and a
//! validating half (spec: admission §1).
//!
//! # Theory
//!
//! ```text
//! decode → mutate: every plugin, in order → mutate again: whoever's object a later one changed → strategy, validation
//!        → validate: every plugin, in order → commit
//! ```
//!
//! The plugins of Kubernetes come first, in Kubernetes' order, then those of
//! [`RegistryBuilder::admission`](crate::RegistryBuilder::admission), in the order in which they
//! were added. Webhooks and policies become further links of the same chain.
//!
//! *Reinvocation*: when a plugin has changed an object that an earlier added plugin had seen, the
//! earlier one sees it once more, if it [asks for it](Admission::reinvoked). Once: a second pass
//! settles what depends on each other or leaves it to the validating halves.
//!
//! A plugin reads other objects through [`Review::objects`], from the watch cache.
mod classes;
mod defaults;
mod lifecycle;
mod objects;
mod priority;

pub use objects::{OBJECTS_MAX, Objects};

use crate::attributes::Attributes;
use crate::catalog::Resource;
use crate::shared::Inner;
use crate::subresource::Subresource;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::{ApiError, GroupResource};
use setpoint_store::Compare;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a request does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// POST, or an apply or PUT of an absent object.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE, once per object.
    Delete,
    /// A subresource that streams.
    Connect,
}

/// What a plugin is told of a write.
#[derive(Debug)]
pub struct Review<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) attributes: &'a Attributes,
    pub(crate) resource: &'a Resource,
    /// `None` for the main endpoint.
    pub(crate) subresource: Option<&'a Subresource>,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    /// The name or, of a new object that is still without one, what it starts with.
    pub(crate) name: &'a str,
    /// The stored object, on update and delete.
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
    pub(crate) preconditions: Preconditions,
}

/// What must still be so when the write is committed.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    compares: Mutex<Vec<Compare>>,
    /// One did not hold: what they were taken from is read from the store from now on.
    pub(crate) have_failed: bool,
}

impl<'a> Review<'a> {
    /// The request. One that deletes a collection names no object, and one that evicts or binds a
    /// pod names its subresource.
    pub fn attributes(&self) -> &'a Attributes {
        self.attributes
    }
    /// The row of the object that is written.
    pub fn resource(&self) -> &'a Resource {
        self.resource
    }
    /// The subresource through which it is written.
    pub fn subresource(&self) -> Option<&'a Subresource> {
        self.subresource
    }
    /// What is done to it.
    pub fn operation(&self) -> Operation {
        self.operation
    }
    /// The object's namespace; empty for cluster scope.
    pub fn namespace(&self) -> &'a str {
        self.namespace
    }
    /// The object's name; of a new object without one, its `generateName`.
    pub fn name(&self) -> &'a str {
        self.name
    }
    /// The stored object in the request's version, on update and delete.
    pub fn old(&self) -> Option<&'a Value> {
        self.old
    }
    /// Whether nothing will be committed: a plugin must then have no side effects.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
    /// Other objects.
    pub fn objects(&self) -> Objects<'a> {
        Objects::new(self.inner)
    }
    /// Adds a warning to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        self.attributes.warn(text);
    }
    /// Adds an annotation to the audit event. The key should begin with the plugin's domain.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.attributes.annotate(key, value);
    }
    /// 403 about the object.
    pub fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(&self.group_resource(), self.name, why)
    }

    /// Holds something still until the commit: when it has changed by then, what decided by it
    /// decides again.
    pub(crate) fn require(&self, compare: Compare) {
        self.preconditions.compares.lock().push(compare);
    }
    /// What must still be so when the write is committed.
    pub(crate) fn required(&self) -> Vec<Compare> {
        self.preconditions.compares.lock().clone()
    }
    /// Whether it is about a built-in resource's main endpoint.
    fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_none()
            && *self.resource.gvk.group == *group
            && *self.resource.resource == *resource
    }
    fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }
}

/// One link of the chain: changes objects before they are validated, or refuses writes.
///
/// It is called inside the write, once per attempt: it should be quick, and must expect to be
/// called again for the same request. It has no effect but what it does to `object` and what it
/// says through the [`Review`].
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use serde_json::Value;
/// use setpoint_object::ApiError;
/// use setpoint_registry::{Admission, Review};
///
/// /// Every Deployment says which team it belongs to.
/// #[derive(Debug)]
/// struct Team;
///
/// impl Admission for Team {
///     fn name(&self) -> &str {
///         "team.example.com"
///     }
///     fn handles(&self, review: &Review<'_>) -> bool {
///         &*review.resource().resource == "deployments" && review.subresource().is_none()
///     }
///     fn validate<'a>(
///         &'a self,
///         review: &'a Review<'a>,
///         object: Option<&'a Value>,
///     ) -> BoxFuture<'a, Result<(), ApiError>> {
///         async move {
///             match object {
///                 Some(object) if object["metadata"]["labels"]["team"].is_null() => {
///                     Err(review.forbidden("it has no label team"))
///                 }
///                 _ => Ok(()),
///             }
///         }
///         .boxed()
///     }
/// }
/// ```
pub trait Admission: Debug + Send + Sync {
    /// Its name, in logs and audit.
    fn name(&self) -> &str;
    /// Whether it has anything to say. Default: always.
    fn handles(&self, _review: &Review<'_>) -> bool {
        true
    }
    /// Changes the object, or refuses. Asked on create and update. Default: does nothing.
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Refuses. `object` is what will be stored, in the storage version; absent on delete and
    /// connect. Default: allows.
    fn validate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Whether its mutating half is called once more when a later plugin changed the object.
    /// Default: no.
    fn reinvoked(&self) -> bool {
        false
    }
}

/// The plugins, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Chain {
    built_in: Vec<Box<dyn Admission>>,
    added: Vec<Arc<dyn Admission>>,
}
impl Chain {
    /// The plugins every registry has, in Kubernetes' order, and what an embedder adds.
    pub(crate) fn new(added: Vec<Arc<dyn Admission>>) -> Self {
        Self {
            built_in: vec![
                Box::new(lifecycle::NamespaceLifecycle),
                Box::new(defaults::TaintNodesByCondition),
                Box::new(priority::Priority),
                Box::new(defaults::DefaultTolerationSeconds),
                Box::new(classes::DefaultStorageClass),
                Box::new(defaults::StorageObjectInUseProtection),
                Box::new(classes::DefaultIngressClass),
            ],
            added,
        }
    }
    /// The mutating halves.
    pub(crate) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.built_in.iter().filter(|p| p.handles(review)) {
            plugin.mutate(review, object).await?;
        }
        // What each plugin that may be called again left behind.
        let mut left: Vec<(&dyn Admission, u64)> = Vec::new();
        for plugin in self.added.iter().filter(|p| p.handles(review)) {
            plugin.mutate(review, object).await?;
            if plugin.reinvoked() {
                left.push((&**plugin, fingerprint(object)));
            }
        }
        for (plugin, as_left) in left {
            if fingerprint(object) != as_left {
                plugin.mutate(review, object).await?;
            }
        }
        Ok(())
    }
    /// The validating halves.
    pub(crate) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        let built_in = self.built_in.iter().map(|plugin| &**plugin);
        let plugins = built_in.chain(self.added.iter().map(|plugin| &**plugin));
        for plugin in plugins.filter(|p| p.handles(review)) {
            plugin.validate(review, object).await?;
        }
        Ok(())
    }
    /// Decides again by what had changed at the commit: whether the namespace still takes new
    /// objects.
    pub(crate) async fn decide_again(&self, review: &mut Review<'_>) -> Result<(), ApiError> {
        review.preconditions = Preconditions { have_failed: true, ..Preconditions::default() };
        if lifecycle::NamespaceLifecycle.handles(review) {
            lifecycle::check(review).await?;
        }
        Ok(())
    }
}
/// Tells one state of an object from another.
fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}
