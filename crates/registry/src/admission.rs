//! Who may change or refuse a write: an ordered chain of plugins, each with a mutating and a validating half (spec: admission §1).
//!
//! The mutating halves run before names, strategy and validation, the validating ones after. Webhooks and policies become further
//! links of the same chain.
mod classes;
mod defaults;
mod lifecycle;
mod priority;

use crate::attributes::Attributes;
use crate::catalog::Resource;
use crate::shared::Inner;
use crate::subresource::Subresource;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use setpoint_object::{ApiError, GroupResource};
use std::fmt::Debug;

/// What a request does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// POST, or an apply of an absent object.
    Create,
    /// PUT and PATCH.
    Update,
    /// DELETE, once per object.
    Delete,
    /// A subresource that streams.
    Connect,
}
/// What a plugin is told.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub(crate) inner: &'a Inner,
    #[expect(dead_code, reason = "webhooks and policies are told who asks")]
    pub(crate) attributes: &'a Attributes,
    pub(crate) resource: &'a Resource,
    /// `None` for the main endpoint.
    pub(crate) subresource: Option<&'a Subresource>,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    /// Empty for the objects of a deletecollection.
    pub(crate) name: &'a str,
    /// The stored object, on update and delete.
    pub(crate) old: Option<&'a Value>,
    #[expect(dead_code, reason = "webhooks with side effects are told")]
    pub(crate) dry_run: bool,
}
impl Review<'_> {
    /// Whether it is about a built-in resource's main endpoint.
    fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_none()
            && *self.resource.gvk.group == *group
            && *self.resource.resource == *resource
    }
    /// 403 about the object.
    fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(&self.group_resource(), self.name, why)
    }
    fn group_resource(&self) -> GroupResource {
        self.resource.group_resource()
    }
}
/// One link of the chain.
pub(crate) trait Plugin: Debug + Send + Sync {
    /// Whether it has anything to say.
    fn handles(&self, review: &Review<'_>) -> bool;
    /// Changes the object, or refuses.
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Refuses. `object` is absent on delete.
    fn validate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
}
/// The plugins, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}
impl Chain {
    /// The plugins every registry has, in Kubernetes' order.
    pub(crate) fn built_in() -> Self {
        Self {
            plugins: vec![
                Box::new(lifecycle::NamespaceLifecycle),
                Box::new(defaults::TaintNodesByCondition),
                Box::new(priority::Priority),
                Box::new(defaults::DefaultTolerationSeconds),
                Box::new(classes::DefaultStorageClass),
                Box::new(defaults::StorageObjectInUseProtection),
                Box::new(classes::DefaultIngressClass),
            ],
        }
    }
    /// The mutating halves.
    pub(crate) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins.iter().filter(|p| p.handles(review)) {
            plugin.mutate(review, object).await?;
        }
        Ok(())
    }
    /// The validating halves.
    pub(crate) async fn validate(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
    ) -> Result<(), ApiError> {
        for plugin in self.plugins.iter().filter(|p| p.handles(review)) {
            plugin.validate(review, object).await?;
        }
        Ok(())
    }
}
