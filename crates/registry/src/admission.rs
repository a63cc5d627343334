//! Admission: a chain of plugins that may change or refuse a write. Each has a mutating and a
//! validating half (spec: admission §1).
//!
//! # Theory
//!
//! ```text
//! decode → mutate: every plugin, in order → mutate again: plugins whose object a later one changed → strategy, validation
//!        → validate: every plugin, in order → commit
//! ```
//!
//! The plugins of Kubernetes run first, in Kubernetes' order, then those of
//! [`RegistryBuilder::admission`](crate::RegistryBuilder::admission), in the order in which they
//! were added. Webhooks and policies are plugins of the same chain.
//!
//! *Reinvocation*: if a later plugin has changed the object, an earlier added plugin is called once
//! more if it [requests it](Admission::reinvoked). There is no third pass: conflicts that remain
//! are left to the validating halves.
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

/// The operation of a request on an object.
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

/// A write as a plugin sees it.
#[derive(Debug)]
pub struct Review<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) attributes: &'a Attributes,
    pub(crate) resource: &'a Resource,
    /// `None` for the main endpoint.
    pub(crate) subresource: Option<&'a Subresource>,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    /// The name or, for a new object without one, its `generateName`.
    pub(crate) name: &'a str,
    /// The stored object, on update and delete.
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
    pub(crate) preconditions: Preconditions,
}

/// Conditions that must still hold at the commit.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    compares: Mutex<Vec<Compare>>,
    /// A condition did not hold: from now on, its source is read from the store.
    pub(crate) have_failed: bool,
}

impl<'a> Review<'a> {
    /// The request. For a deletecollection it names no object; for an eviction or binding of a pod
    /// it names the subresource.
    pub fn attributes(&self) -> &'a Attributes {
        self.attributes
    }
    /// The row of the written object.
    pub fn resource(&self) -> &'a Resource {
        self.resource
    }
    /// The subresource of the write.
    pub fn subresource(&self) -> Option<&'a Subresource> {
        self.subresource
    }
    /// The operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }
    /// The object's namespace; empty for cluster scope.
    pub fn namespace(&self) -> &'a str {
        self.namespace
    }
    /// The object's name; for a new object without one, its `generateName`.
    pub fn name(&self) -> &'a str {
        self.name
    }
    /// The stored object in the request's version, on update and delete.
    pub fn old(&self) -> Option<&'a Value> {
        self.old
    }
    /// Whether this is a dry run: a plugin must then have no side effects.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
    /// Access to other objects.
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

    /// Adds a condition for the commit. If it does not hold then, the plugin that added it decides
    /// again.
    pub(crate) fn require(&self, compare: Compare) {
        self.preconditions.compares.lock().push(compare);
    }
    /// The conditions that must hold at the commit.
    pub(crate) fn required(&self) -> Vec<Compare> {
        self.preconditions.compares.lock().clone()
    }
    /// Whether the write is to the main endpoint of this built-in resource.
    fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_none()
            && *self.resource.gvk.group == *group
            && *self.resource.resource == *resource
    }
    fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }
}

/// An admission plugin: changes objects before they are validated, or refuses writes.
///
/// It is called within the write, once per attempt. It should be fast, and must expect repeated
/// calls for the same request. Its only effects are changes of `object` and calls to the
/// [`Review`].
///
/// ```
/// use futures::future::{BoxFuture, FutureExt as _};
/// use serde_json::Value;
/// use setpoint_object::ApiError;
/// use setpoint_registry::{Admission, Review};
///
/// /// Requires a `team` label on every Deployment.
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
    /// Whether the plugin handles this write. Default: always.
    fn handles(&self, _review: &Review<'_>) -> bool {
        true
    }
    /// Changes the object, or refuses the write. Called on create and update. Default: does
    /// nothing.
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Refuses the write. `object` is the object to store, in the storage version; `None` on delete
    /// and connect. Default: allows.
    fn validate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Whether its mutating half is called once more if a later plugin changed the object. Default:
    /// no.
    fn reinvoked(&self) -> bool {
        false
    }
}

/// The plugins in call order.
#[derive(Debug)]
pub(crate) struct Chain {
    built_in: Vec<Box<dyn Admission>>,
    added: Vec<Arc<dyn Admission>>,
}
impl Chain {
    /// The plugins of every registry, in Kubernetes' order, followed by `added`.
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
    /// Runs the mutating halves.
    pub(crate) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.built_in.iter().filter(|p| p.handles(review)) {
            plugin.mutate(review, object).await?;
        }
        // The object's state after each plugin that may be reinvoked.
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
    /// Runs the validating halves.
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
    /// Repeats the decisions whose conditions did not hold at the commit: whether the namespace
    /// still accepts new objects.
    pub(crate) async fn decide_again(&self, review: &mut Review<'_>) -> Result<(), ApiError> {
        review.preconditions = Preconditions { have_failed: true, ..Preconditions::default() };
        if lifecycle::NamespaceLifecycle.handles(review) {
            lifecycle::check(review).await?;
        }
        Ok(())
    }
}
/// A hash that distinguishes states of an object.
fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}
