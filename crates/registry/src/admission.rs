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
//! were added. The last plugins are `MutatingAdmissionPolicy` and `ValidatingAdmissionPolicy`
//! (`policy`), and `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook` (`webhook`) if the
//! registry can [call webhooks](crate::RegistryBuilder::webhooks).
//!
//! *Reinvocation*: if a later plugin has changed the object, an earlier added plugin is called once
//! more if it [requests it](Admission::reinvoked). If a policy or a webhook has changed the object,
//! Kubernetes' own plugins run once more, and then the policies and the webhooks that want it.
//! There is no third pass: conflicts that remain are left to the validating halves.
//!
//! A plugin reads other objects through [`Review::objects`], from the watch cache.
mod classes;
mod defaults;
mod followed;
mod lifecycle;
mod matching;
mod mutated;
mod objects;
mod policy;
mod priority;
mod question;
mod reinvocation;
mod service_account;
mod subject;
mod variables;
mod webhook;

pub use objects::{OBJECTS_MAX, Objects};

use crate::attributes::Attributes;
use crate::catalog::Resource;
use crate::request::{DeleteOptions, FieldValidation, PropagationPolicy, WriteOptions};
use crate::shared::Inner;
use crate::subresource::Subresource;
use crate::verb::Verb;
use crate::webhook::WebhookClients;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use reinvocation::Reinvocation;
use serde_json::{Value, json};
use setpoint_object::{ApiError, GroupResource};
use setpoint_store::Compare;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};

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
    /// The revision of `old`; 0 without one.
    pub(crate) revision: u64,
    pub(crate) options: Options<'a>,
    pub(crate) dry_run: bool,
    pub(crate) preconditions: Preconditions,
    /// What the mutating webhooks have done.
    pub(crate) reinvocation: Mutex<Reinvocation>,
    /// What the mutating policies have done.
    pub(crate) policy_reinvocation: Mutex<Reinvocation>,
}

/// The options of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Options<'a> {
    /// Of a create, update, patch or apply.
    Write(&'a WriteOptions),
    Delete(&'a DeleteOptions),
    /// A stream has none.
    None,
}

/// Conditions that must still hold at the commit.
#[derive(Debug, Default)]
pub(crate) struct Preconditions {
    compares: Mutex<Vec<Compare>>,
    /// A condition did not hold: from now on, its source is read from the store.
    pub(crate) have_failed: bool,
}

impl<'a> Review<'a> {
    /// The request. For a deletecollection it names no object.
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
    /// The request's `CreateOptions`, `UpdateOptions` or `DeleteOptions` as the API shows them. A
    /// patch has `UpdateOptions`. Null for a stream.
    pub fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete | Operation::Connect => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                options[name] = value;
            }
        };
        match self.options {
            Options::Write(write) => {
                let manager = &write.field_manager;
                add("fieldManager", (!manager.is_empty()).then(|| manager.as_str().into()));
                add(
                    "fieldValidation",
                    match write.field_validation {
                        FieldValidation::Ignore => Some("Ignore".into()),
                        FieldValidation::Strict => Some("Strict".into()),
                        // The default.
                        FieldValidation::Warn => None,
                    },
                );
            }
            Options::Delete(delete) => {
                add("gracePeriodSeconds", delete.grace_period_seconds.map(Value::from));
                add("orphanDependents", delete.orphan_dependents.map(Value::from));
                let policy = delete.propagation.map(|policy| match policy {
                    PropagationPolicy::Orphan => "Orphan",
                    PropagationPolicy::Background => "Background",
                    PropagationPolicy::Foreground => "Foreground",
                });
                add("propagationPolicy", policy.map(Value::from));
                let mut preconditions = json!({});
                if let Some(uid) = &delete.uid {
                    preconditions["uid"] = uid.as_str().into();
                }
                if let Some(version) = &delete.resource_version {
                    preconditions["resourceVersion"] = version.as_str().into();
                }
                let has_some = preconditions != json!({});
                add("preconditions", has_some.then_some(preconditions));
            }
            Options::None => return Value::Null,
        }
        add("dryRun", self.dry_run.then(|| json!(["All"])));
        options
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
    /// 403 about the object. Refusals of a deletecollection name none.
    pub fn forbidden(&self, why: &str) -> ApiError {
        let name = match self.attributes.verb {
            Verb::DeleteCollection => "Unknown",
            _ => self.name,
        };
        ApiError::forbidden(&self.group_resource(), name, why)
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
    /// Whether the mutating half is called for an operation. Default: create and update.
    fn mutates(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }
    /// Changes the object, or refuses the write. `object` is the new object in the request's
    /// version; the object that was sent, for a subresource that acts (an Eviction); the options of
    /// a stream; null on delete. Default: does nothing.
    fn mutate<'a>(
        &'a self,
        _review: &'a Review<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        futures::future::ready(Ok(())).boxed()
    }
    /// Refuses the write. `object` is the object to store, in the storage version; the object that
    /// was sent, for a subresource that acts (an Eviction); the options of a stream; `None` on
    /// delete. Default: allows.
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
    mutating_policy: MutatingAdmissionPolicy,
    validating_policy: ValidatingAdmissionPolicy,
    mutating_webhook: Option<MutatingAdmissionWebhook>,
    validating_webhook: Option<ValidatingAdmissionWebhook>,
}
impl Chain {
    /// The plugins of every registry, in Kubernetes' order, followed by `added` and by webhooks if
    /// they can be called. `has_accounts`: pods get service accounts.
    pub(crate) fn new(
        added: Vec<Arc<dyn Admission>>,
        clients: Option<Arc<dyn WebhookClients>>,
        has_accounts: bool,
    ) -> Self {
        let mut built_in: Vec<Box<dyn Admission>> = vec![Box::new(lifecycle::NamespaceLifecycle)];
        if has_accounts {
            built_in.push(Box::new(service_account::ServiceAccount));
        }
        let others: [Box<dyn Admission>; 6] = [
            Box::new(defaults::TaintNodesByCondition),
            Box::new(priority::Priority),
            Box::new(defaults::DefaultTolerationSeconds),
            Box::new(classes::DefaultStorageClass),
            Box::new(defaults::StorageObjectInUseProtection),
            Box::new(classes::DefaultIngressClass),
        ];
        built_in.extend(others);
        Self {
            mutating_policy: MutatingAdmissionPolicy::new(),
            validating_policy: ValidatingAdmissionPolicy::new(),
            mutating_webhook: clients.clone().map(MutatingAdmissionWebhook::new),
            validating_webhook: clients.map(ValidatingAdmissionWebhook::new),
            built_in,
            added,
        }
    }
    /// Runs the mutating halves.
    pub(crate) async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        self.mutate_built_in(review, object).await?;
        // The object's state after each plugin that may be reinvoked.
        let mut left: Vec<(&dyn Admission, u64)> = Vec::new();
        for plugin in self.added.iter().filter(|p| mutates(&***p, review)) {
            plugin.mutate(review, object).await?;
            if plugin.reinvoked() {
                left.push((&**plugin, fingerprint(object)));
            }
        }
        let policies = Some(&self.mutating_policy).filter(|policies| mutates(*policies, review));
        if let Some(policies) = policies {
            policies.mutate(review, object).await?;
        }
        let webhooks = self.mutating_webhook.as_ref().filter(|webhooks| webhooks.handles(review));
        if let Some(webhooks) = webhooks {
            webhooks.mutate(review, object).await?;
        }
        let by_policies = review.policy_reinvocation.lock().has_changed();
        let by_webhooks = review.reinvocation.lock().has_changed();
        if by_policies || by_webhooks {
            self.mutate_built_in(review, object).await?;
        }
        for (plugin, as_left) in left {
            if fingerprint(object) != as_left {
                plugin.mutate(review, object).await?;
            }
        }
        let are_due = review.policy_reinvocation.lock().is_due(object);
        if let Some(policies) = policies.filter(|_| are_due) {
            review.policy_reinvocation.lock().begin_second();
            policies.mutate(review, object).await?;
        }
        let are_due = review.reinvocation.lock().is_due(object);
        if let Some(webhooks) = webhooks.filter(|_| are_due) {
            review.reinvocation.lock().begin_second();
            webhooks.mutate(review, object).await?;
        }
        Ok(())
    }
    async fn mutate_built_in(
        &self,
        review: &Review<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for plugin in self.built_in.iter().filter(|p| mutates(&***p, review)) {
            plugin.mutate(review, object).await?;
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
        let added = self.added.iter().map(|plugin| &**plugin);
        let webhooks = self.validating_webhook.iter().map(|plugin| plugin as &dyn Admission);
        let policies = std::iter::once(&self.validating_policy as &dyn Admission);
        let plugins = built_in.chain(added).chain(policies).chain(webhooks);
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
fn mutates(plugin: &dyn Admission, review: &Review<'_>) -> bool {
    plugin.mutates(review.operation) && plugin.handles(review)
}
/// A hash that distinguishes states of an object.
fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}
