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
//! were added. Then come `MutatingAdmissionPolicy` and `ValidatingAdmissionPolicy` (`policy`),
//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook` (`webhook`) if the registry can
//! [call webhooks](crate::RegistryBuilder::webhooks), and last `ResourceQuota`.
//! [`AdmissionOptions`] says which of Kubernetes' plugins run; their rows are in `plugins`.
//!
//! *Reinvocation*: if a later plugin has changed the object, an earlier added plugin is called once
//! more if it [requests it](Admission::reinvoked). If a policy or a webhook has changed the object,
//! Kubernetes' own plugins run once more, and then the policies and the webhooks that want it.
//! There is no third pass: conflicts that remain are left to the validating halves.
//!
//! A plugin reads other objects through [`Review::objects`], from the watch cache.
mod always;
mod always_pull_images;
mod certificate_approval;
mod certificate_signing;
mod certificate_subject_restriction;
mod chain;
mod cluster_trust_bundle_attest;
mod composed;
mod counted;
mod decoded;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
mod extended_resource_toleration;
mod followed;
mod job_validation;
mod limit_pod_hard_anti_affinity_topology;
mod limit_ranger;
mod manifests;
mod matching;
mod mutated;
mod namespace_auto_provision;
mod namespace_exists;
mod namespace_lifecycle;
mod node_declared_feature_validator;
mod node_restriction;
mod objects;
mod owner_references_permission_enforcement;
mod persistent_volume_claim_resize;
mod plugins;
mod pod_group_protection;
mod pod_group_workload_exists;
mod pod_node_selector;
mod pod_resize_validator;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod policy;
mod priority;
mod question;
mod reinvocation;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use_protection;
mod subject;
mod taint_nodes_by_condition;
mod tolerations;
mod variables;
mod webhook;

pub use manifests::{ManifestError, ManifestFile, Manifests};
pub use objects::{OBJECTS_MAX, Objects};
pub use plugins::{AdmissionOptions, AdmissionOptionsError, AdmissionPlugins};

use crate::attributes::ResourcePath;
use crate::authorize::Decision;
use crate::catalog::Resource;
use crate::request::{DeleteOptions, FieldValidation, PropagationPolicy, WriteOptions};
use crate::routed::{Attributes, Requested};
use crate::shared::Inner;
use crate::stored::store_error;
use crate::subresource::Subresource;
use crate::threads::ServingThread;
use crate::verb::Verb;
pub(crate) use certificate_approval::signer_paths;
pub(crate) use chain::Chain;
use chain::Stored;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use reinvocation::Reinvocation;
pub(crate) use resource_quota::Charges;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupResource, GroupVersionResource};
use setpoint_store::{Compare, Op};
use std::fmt::Debug;
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
    /// Left before costly work.
    pub(crate) thread: &'a ServingThread,
    pub(crate) resource: &'a Resource,
    /// `None` for the main endpoint.
    pub(crate) subresource: Option<&'a Subresource>,
    pub(crate) operation: Operation,
    pub(crate) namespace: &'a str,
    /// The name or, for a new object without one, its `generateName`.
    pub(crate) name: &'a str,
    /// The name of the new object is made of its `generateName`.
    pub(crate) generates: bool,
    /// The name that is tried for a new object with a `generateName`; empty before there is one.
    pub(crate) generated: String,
    /// The stored object, on update and delete.
    pub(crate) old: Option<&'a Value>,
    /// The revision of `old`; 0 without one.
    pub(crate) revision: u64,
    /// What mutating hooks see of a write of a Scale.
    pub(crate) scales: Option<Scales>,
    pub(crate) options: Options<'a>,
    pub(crate) dry_run: bool,
    /// No policy or webhook is asked: when the write began, none could match. Its objects have
    /// their managedFields beside them.
    pub(crate) is_unseen: bool,
    pub(crate) preconditions: Preconditions,
    /// What the mutating webhooks have done.
    pub(crate) reinvocation: Mutex<Reinvocation>,
    /// What the mutating policies have done.
    pub(crate) policy_reinvocation: Mutex<Reinvocation>,
    /// What the write charges to quotas.
    pub(crate) charges: Mutex<Charges>,
}

/// A write of a Scale, with managedFields.
#[derive(Debug)]
pub(crate) struct Scales {
    /// As it was sent or patched.
    pub(crate) new: Value,
    /// The present one.
    pub(crate) old: Value,
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
    fn is_delete_by_uid(&self) -> bool {
        let is_marked_first = self.resource.kind.begin_termination.is_some();
        self.attributes.verb != Verb::DeleteCollection && is_marked_first
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
                // As there, a delete of one of these objects is one of its uid.
                let old = self.old.filter(|_| self.is_delete_by_uid()).map(|old| old.uid());
                if let Some(uid) = delete.uid.as_deref().or(old) {
                    preconditions["uid"] = uid.into();
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
        Objects::of_write(self.inner, self.thread)
    }
    /// Adds a warning to the answer.
    pub fn warn(&self, text: impl Into<String>) {
        self.attributes.warn(text);
    }
    /// Adds an annotation to the audit event. The key should begin with the plugin's domain.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.attributes.annotate(key, value);
    }
    /// 403 about the object, by its generated name once it has one. Refusals of a deletecollection
    /// name none, and neither do those of an object without a name.
    pub fn forbidden(&self, why: &str) -> ApiError {
        let name = match self.attributes.verb {
            Verb::DeleteCollection => "",
            _ if !self.generated.is_empty() => &self.generated,
            _ => self.name,
        };
        let name = if name.is_empty() { "Unknown" } else { name };
        ApiError::forbidden(&self.group_resource(), name, why)
    }

    /// Adds a condition for the commit. If it does not hold then, the plugin that added it decides
    /// again.
    pub(crate) fn require(&self, compare: Compare) {
        self.preconditions.compares.lock().push(compare);
    }
    /// The conditions that must hold at the commit.
    pub(crate) fn required(&self) -> Vec<Compare> {
        let mut compares = self.preconditions.compares.lock().clone();
        compares.extend(self.charges.lock().compares());
        compares
    }
    /// The changes of other objects that belong to the commit.
    pub(crate) fn charged(&self) -> Vec<Op> {
        self.charges.lock().ops()
    }
    /// Whether the write is to the main endpoint of this built-in resource.
    fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_none()
            && *self.resource.gvk.group == *group
            && *self.resource.resource == *resource
    }
    /// Whether the write is to a subresource of this built-in resource.
    fn is_part(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.subresource.is_some_and(|part| part.as_str() == subresource)
            && *self.resource.gvk.group == *group
            && *self.resource.resource == *resource
    }
    /// Asks the authorizers whether the user may do something else.
    async fn decide(&self, verb: Verb, path: ResourcePath) -> Result<Decision, ApiError> {
        let request = self.attributes.with(verb, Requested::Unrouted(path));
        self.inner.authorization.decide(&request).await
    }
    /// The namespace of the object, if there is one. Not older than the request: a level that was
    /// set before is enforced.
    pub(crate) async fn namespace_object(&self) -> Result<Option<Arc<Value>>, ApiError> {
        if self.inner.cache.reached().is_filled {
            let revision = self.inner.store.revision().await.map_err(store_error)?;
            self.inner.cache.wait_fresh(revision.0).await?;
        }
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        self.objects().tree(&namespaces, "", self.namespace).await
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
