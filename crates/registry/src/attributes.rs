//! A request as one value: its user and what it is about. Contains no HTTP types.
//!
//! Of the row that serves a resource it knows the names only ([`Row`]), so that rows may know
//! requests. [`crate::Attributes`] is the request that this server routes, with a row of its
//! catalog.
use crate::identity::{Identity, Impersonator, TEXT_BYTES};
use crate::latency::{Latencies, Layer};
use crate::subresource::Subresource;
use crate::verb::Verb;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::field::quote;
use setpoint_object::field_selector::{FieldSelector, Term};
use setpoint_object::{ApiError, Origin, name};
use setpoint_schema::encode::to_bytes;
use setpoint_spans::{Span, Trace};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of warnings in one answer.
///
/// The headers of an answer hold at most 4096 characters of warnings, so the last of more than a
/// thousand texts are never sent.
pub const WARNINGS_MAX: usize = 1024;
/// Maximum number of audit annotations of one request.
///
/// 64: kube-apiserver's own admission adds a handful. The limit protects memory from a plugin that
/// adds them in a loop.
pub const AUDIT_ANNOTATIONS_MAX: usize = 64;

/// How long a request takes whose times are annotated.
const SLOW: Duration = Duration::from_millis(500);

/// A handle of the row that serves a resource: its names.
pub trait Row: Clone {
    /// Group; empty for the core group.
    fn group(&self) -> &str;
    /// Served version.
    fn version(&self) -> &str;
    /// Plural name.
    fn resource(&self) -> &str;
}

/// Refuses a name that cannot be a part of an object's key.
pub(crate) fn check_name(name: &str) -> Result<(), ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_request("Name parameter required."));
    }
    let faults = name::path_segment(name);
    if faults.is_empty() {
        return Ok(());
    }
    let text = format!("Name parameter invalid: {}: {}", quote(name), faults.join(";"));
    Err(ApiError::bad_request(text))
}

/// The resource that a request is about, with the row that serves it. An empty `name` means the
/// collection. An empty `namespace` means cluster scope or all namespaces.
#[derive(Debug, Clone)]
pub struct Target<R> {
    /// The row that the request was routed to.
    pub resource: R,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Subresource; `None` for the main endpoint.
    pub subresource: Option<Subresource>,
}
impl<R> Target<R> {
    /// A collection, or an object if `name` is not empty.
    pub fn new(resource: R, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { resource, namespace: namespace.into(), name: name.into(), subresource: None }
    }
    /// A subresource of this target.
    pub fn subresource(self, subresource: Subresource) -> Self {
        Self { subresource: Some(subresource), ..self }
    }
    /// The subresource's name; empty for the main endpoint.
    pub fn subresource_name(&self) -> &str {
        self.subresource.as_ref().map_or("", Subresource::as_str)
    }
}

/// The names in a resource path that no row of this server serves. Another server may serve it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    /// Group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name.
    pub resource: String,
    /// Namespace; empty for cluster scope and all namespaces.
    pub namespace: String,
    /// Name; empty for the collection.
    pub name: String,
    /// Subresource.
    pub subresource: Option<Subresource>,
}

/// The subject of a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Requested<R> {
    /// A resource of this server.
    Resource(Target<R>),
    /// A resource by its names: not routed yet, or not served by any row of this server.
    Unrouted(ResourcePath),
    /// A path that names no resource: `/version`, `/healthz`.
    Path(String),
}

/// A request: its user and what it is about. It is made once, where the request enters (over HTTP,
/// from the in-process client or from an in-process source), and passed down. Every stage of the
/// API server and the registry decides by this value.
#[derive(Debug)]
pub struct Attributes<R> {
    /// The user.
    pub identity: Identity,
    /// Who acts as the user; `None`: the user itself.
    pub impersonator: Option<Arc<Impersonator>>,
    /// The reconcile that the request comes from, as reported by the client.
    pub origin: Option<Arc<Origin>>,
    /// The `User-Agent` header. Its first word is the default field manager.
    pub user_agent: String,
    /// The verb.
    pub verb: Verb,
    /// The subject.
    pub requested: Requested<R>,
    /// `labelSelector` as it was sent: list, watch and deletecollection.
    pub label_selector: String,
    /// `fieldSelector` as it was sent: list, watch and deletecollection.
    pub field_selector: String,
    /// When its answer is due; `None`: it may take as long as it likes.
    pub deadline: Option<Instant>,
    /// Nothing is committed. For a delete, the option may be in the body, which is read later:
    /// `false` here does not rule out a dry run.
    pub dry_run: bool,
    /// The id of the request in logs.
    pub audit_id: String,
    /// Makes spans of its stages; `None`: it is not traced.
    pub trace: Option<Trace>,
    /// Warnings and audit annotations that the stages add. Those who work on the request in
    /// several places share them.
    pub notes: Arc<Notes>,
}

/// The name that a field selector requires; of several, which match nothing, the first in order.
/// `None`: it requires none, or no object can have that name, or it cannot be parsed.
fn required_name(selector: &str) -> Option<&str> {
    if !selector.contains("metadata.name") {
        return None;
    }
    let parsed = FieldSelector::parse(selector).ok()?;
    let requires_name = |term: &&Term| !term.negated && term.path == "metadata.name";
    let names = parsed.terms().iter().filter(requires_name).map(|term| term.value.as_str());
    let required = names.min()?;
    // A name with escapes is not a part of the text. It counts for nothing here.
    let at = selector.find(required)?;
    name::path_segment(required).is_empty().then(|| &selector[at..at + required.len()])
}

/// Warnings and audit annotations that the stages of a request add to its answer
/// ([`Attributes::warn`], [`Attributes::annotate`]).
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts of `Warning` headers, in order, without duplicates.
    warnings: Mutex<Vec<String>>,
    latencies: Latencies,
    is_apply: AtomicBool,
    /// Whether `decoded` has the object, not only the fact.
    keeps_decoded: AtomicBool,
    decoded: OnceLock<Decoded>,
    /// Whether the labels of the object are a default.
    has_default_labels: AtomicBool,
    /// For the audit log. A list, because most requests have two.
    audit_annotations: Mutex<Vec<(Cow<'static, str>, Cow<'static, str>)>>,
}

/// The body of a write that decodes as an object ([`Attributes::decoded`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// As JSON; one of a built-in kind with defaults.
    Object(Bytes),
    /// The object was not to be kept.
    Dropped,
}

impl<R: Row> Attributes<R> {
    /// A request of `identity`. All other fields are empty.
    pub fn new(identity: Identity, verb: Verb, requested: Requested<R>) -> Self {
        Self {
            identity,
            impersonator: None,
            origin: None,
            user_agent: String::new(),
            verb,
            requested,
            label_selector: String::new(),
            field_selector: String::new(),
            deadline: None,
            dry_run: false,
            audit_id: String::new(),
            trace: None,
            notes: Arc::default(),
        }
    }
    /// A request of the server itself on a resource, as `system:apiserver` in `system:masters`.
    pub fn loopback(verb: Verb, target: Target<R>) -> Self {
        Self::new(Identity::loopback(), verb, Requested::Resource(target))
    }
    /// Another request with the same user, origin and user agent: a secondary check, or one object
    /// of a collection.
    #[must_use]
    pub fn with(&self, verb: Verb, requested: Requested<R>) -> Self {
        Self {
            impersonator: self.impersonator.clone(),
            origin: self.origin.clone(),
            user_agent: self.user_agent.clone(),
            deadline: self.deadline,
            dry_run: self.dry_run,
            audit_id: self.audit_id.clone(),
            trace: self.trace.as_ref().map(Trace::branch),
            ..Self::new(self.identity.clone(), verb, requested)
        }
    }
    /// A span in the current one, with the id of the request; `None`: it is not traced.
    pub fn span(&self, name: &'static str) -> Option<Span> {
        self.trace.as_ref().map(|trace| self.with_id(trace.child(name)))
    }
    /// The same, which is the current one until it ends ([`Trace::stage`]).
    pub fn stage(&self, name: &'static str) -> Option<Span> {
        self.trace.as_ref().map(|trace| self.with_id(trace.stage(name)))
    }
    fn with_id(&self, span: Span) -> Span {
        span.set_text("audit-id", &self.audit_id);
        span
    }
    /// The same request, with the same notes, for work that outlives a borrow.
    pub(crate) fn to_owned(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            impersonator: self.impersonator.clone(),
            origin: self.origin.clone(),
            user_agent: self.user_agent.clone(),
            verb: self.verb.clone(),
            requested: self.requested.clone(),
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            deadline: self.deadline,
            dry_run: self.dry_run,
            audit_id: self.audit_id.clone(),
            trace: self.trace.as_ref().map(Trace::branch),
            notes: self.notes.clone(),
        }
    }
    /// The same request, with the same notes, as another user, as whom `impersonator` acts.
    #[must_use]
    pub fn as_user(&self, identity: Identity, impersonator: Impersonator) -> Self {
        let impersonator = Some(Arc::new(impersonator));
        Self { identity, impersonator, ..self.to_owned() }
    }
    /// The same request with only what is noted on it so far, for who keeps it after its end. Of
    /// the annotations, the first `n_annotations`; no warnings, and no object.
    #[must_use]
    pub fn so_far(&self, n_annotations: usize) -> Self {
        let annotations = self.notes.audit_annotations.lock();
        let annotations = annotations.iter().take(n_annotations).cloned().collect();
        let notes = Notes { audit_annotations: Mutex::new(annotations), ..Notes::default() };
        Self { notes: Arc::new(notes), trace: None, ..self.to_owned() }
    }
    /// Bytes of its texts in memory, which clients, authenticators and plugins may make many and
    /// long. Without the object ([`Attributes::decoded`]).
    pub fn n_bytes(&self) -> usize {
        let names = match &self.requested {
            Requested::Resource(target) => target.namespace.len() + target.name.len(),
            Requested::Unrouted(path) => {
                let ResourcePath { group, version, resource, namespace, name, .. } = path;
                [group, version, resource, namespace, name].into_iter().map(String::len).sum()
            }
            Requested::Path(path) => path.len(),
        };
        let subresource = self.subresource().map_or(0, |subresource| subresource.as_str().len());
        let texts = [&self.user_agent, &self.label_selector, &self.field_selector, &self.audit_id];
        let origin = self.origin.as_ref().map_or(0, |origin| {
            origin.controller.len() + origin.request.len() + origin.reconcile_id.len()
        });
        let impersonator = self.impersonator.as_ref().map_or(0, |one| one.identity.n_bytes());
        let annotations = self.notes.audit_annotations.lock();
        let annotations = annotations.iter().map(|(key, value)| key.len() + value.len());
        let warnings = self.notes.warnings.lock();
        let notes = annotations.chain(warnings.iter().map(String::len));
        texts.into_iter().map(String::len).sum::<usize>()
            + names
            + subresource
            + origin
            + self.identity.n_bytes()
            + impersonator
            + notes.map(|n_bytes| TEXT_BYTES + n_bytes).sum::<usize>()
    }
    /// The target, if a row of this server serves it.
    ///
    /// # Errors
    ///
    /// 404: no row of this server serves it.
    pub fn target(&self) -> Result<&Target<R>, ApiError> {
        match &self.requested {
            Requested::Resource(target) => Ok(target),
            Requested::Unrouted(_) | Requested::Path(_) => Err(ApiError::no_route()),
        }
    }
    /// Whether the request is about a resource, served here or not.
    pub fn is_resource(&self) -> bool {
        !matches!(self.requested, Requested::Path(_))
    }
    /// Whether the request lasts as long as its client wants: a watch, or a stream to a node, a
    /// Service or a pod.
    pub fn is_long_running(&self) -> bool {
        matches!(self.verb.as_str(), "watch" | "proxy")
            || self.subresource().is_some_and(Subresource::is_connect)
    }
    /// The path of a non-resource request; empty for others.
    pub fn path(&self) -> &str {
        self.non_resource_path().unwrap_or_default()
    }
    /// The path of a non-resource request; `None` for others.
    pub fn non_resource_path(&self) -> Option<&str> {
        match &self.requested {
            Requested::Path(path) => Some(path),
            Requested::Resource(_) | Requested::Unrouted(_) => None,
        }
    }
    /// The resource's group; empty for the core group and for paths.
    pub fn group(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => target.resource.group(),
            Requested::Unrouted(path) => &path.group,
            Requested::Path(_) => "",
        }
    }
    /// The resource's version; empty for paths.
    pub fn version(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => target.resource.version(),
            Requested::Unrouted(path) => &path.version,
            Requested::Path(_) => "",
        }
    }
    /// The resource's plural name; empty for paths.
    pub fn resource(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => target.resource.resource(),
            Requested::Unrouted(path) => &path.resource,
            Requested::Path(_) => "",
        }
    }
    /// The subresource.
    pub fn subresource(&self) -> Option<&Subresource> {
        match &self.requested {
            Requested::Resource(target) => target.subresource.as_ref(),
            Requested::Unrouted(path) => path.subresource.as_ref(),
            Requested::Path(_) => None,
        }
    }
    /// The namespace; empty for cluster scope, for all namespaces and for paths.
    pub fn namespace(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => &target.namespace,
            Requested::Unrouted(path) => &path.namespace,
            Requested::Path(_) => "",
        }
    }
    /// The namespace whose rights count. A Namespace object is in its own namespace, so that a role
    /// of the namespace may allow to read it.
    pub fn scope(&self) -> &str {
        match &self.requested {
            Requested::Resource(target)
                if target.resource.resource() == "namespaces" && self.group().is_empty() =>
            {
                &target.name
            }
            Requested::Resource(target) => &target.namespace,
            Requested::Unrouted(path) => &path.namespace,
            Requested::Path(_) => "",
        }
    }
    /// The object's name; empty for collections and for paths. A list or watch whose field selector
    /// has a term `metadata.name=x` is about `x`, so that a user who may read one object may watch
    /// it.
    pub fn name(&self) -> &str {
        let name = match &self.requested {
            Requested::Resource(target) => &target.name,
            Requested::Unrouted(path) => &path.name,
            Requested::Path(_) => return "",
        };
        if name.is_empty() && matches!(self.verb, Verb::List | Verb::Watch) {
            return required_name(&self.field_selector).unwrap_or_default();
        }
        name
    }

    /// Adds a warning to the answer, once. Drops an empty one, and any if there are
    /// [`WARNINGS_MAX`] already.
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        if text.is_empty() {
            return;
        }
        let mut warnings = self.notes.warnings.lock();
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    /// Adds time that a layer of the server has taken for the request.
    pub fn took(&self, layer: Layer, took: Duration) {
        self.notes.latencies.add(layer, took);
    }
    /// How long others had the request wait so far: flow control, webhooks.
    pub fn waited(&self) -> Duration {
        let others = [Layer::Queue, Layer::MutatingWebhooks, Layer::ValidatingWebhooks];
        others.iter().map(|layer| self.notes.latencies.of(*layer)).sum()
    }
    /// Annotates a request that took so long with the times of the layers
    /// (`apiserver.latency.k8s.io/…`), as kube-apiserver does if it took longer than half a second.
    pub fn annotate_latencies(&self, total: Duration) {
        if total > SLOW {
            let all = self.notes.latencies.annotations(total);
            all.for_each(|(key, value)| self.annotate(key, value));
        }
    }
    /// Notes that a patch is an apply.
    pub fn note_apply(&self) {
        self.notes.is_apply.store(true, Ordering::Relaxed);
    }
    /// Whether a patch is known to be an apply.
    pub fn is_apply(&self) -> bool {
        self.notes.is_apply.load(Ordering::Relaxed)
    }
    /// Has the object of a write kept as it is decoded ([`Attributes::decoded`]).
    pub fn keep_decoded(&self) {
        self.notes.keeps_decoded.store(true, Ordering::Relaxed);
    }
    /// Whether it is kept.
    pub(crate) fn keeps_decoded(&self) -> bool {
        self.notes.keeps_decoded.load(Ordering::Relaxed)
    }
    /// Notes the object of a write as it is decoded. The first one stays: a write may be repeated.
    pub(crate) fn note_decoded(&self, object: &Value) {
        self.notes.decoded.get_or_init(|| match self.keeps_decoded() {
            true => Decoded::Object(to_bytes(object)),
            false => Decoded::Dropped,
        });
    }
    /// Notes that the labels of a named object, which had none, are a default.
    pub(crate) fn note_default_labels(&self) {
        self.notes.has_default_labels.store(true, Ordering::Relaxed);
    }
    /// Whether the labels of the object are a default.
    pub(crate) fn has_default_labels(&self) -> bool {
        self.notes.has_default_labels.load(Ordering::Relaxed)
    }
    /// The object that a create or an update sends, once it is decoded; `None`: not yet, or its
    /// body was refused, or the request sends none.
    pub fn decoded(&self) -> Option<&Decoded> {
        self.notes.decoded.get()
    }
    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.notes.warnings.lock().clone()
    }
    /// The number of warnings so far.
    pub(crate) fn n_warnings(&self) -> usize {
        self.notes.warnings.lock().len()
    }
    /// Drops all but the first `n` warnings, because the step that caused them runs again.
    pub(crate) fn forget_warnings(&self, n: usize) {
        self.notes.warnings.lock().truncate(n);
    }
    /// Adds an audit annotation. The first value of a key stays. Drops it if there are
    /// [`AUDIT_ANNOTATIONS_MAX`] already.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.annotate_with(Cow::Owned(key.into()), Cow::Owned(value.into()));
    }
    /// As [`Attributes::annotate`], without a copy of constants.
    pub(crate) fn annotate_with(&self, key: Cow<'static, str>, value: Cow<'static, str>) {
        let mut annotations = self.notes.audit_annotations.lock();
        let is_new = !annotations.iter().any(|(known, _)| *known == key);
        if is_new && annotations.len() < AUDIT_ANNOTATIONS_MAX {
            annotations.push((key, value));
        }
    }
    /// The audit annotations so far.
    pub fn audit_annotations(&self) -> BTreeMap<String, String> {
        self.first_audit_annotations(usize::MAX)
    }
    /// The first `n` audit annotations, in the order in which they were added.
    pub fn first_audit_annotations(&self, n: usize) -> BTreeMap<String, String> {
        let annotations = self.notes.audit_annotations.lock();
        let owned =
            |(key, value): &(Cow<'_, str>, Cow<'_, str>)| (key.to_string(), value.to_string());
        annotations.iter().take(n).map(owned).collect()
    }
    /// The number of audit annotations so far.
    pub fn n_audit_annotations(&self) -> usize {
        self.notes.audit_annotations.lock().len()
    }
}

#[cfg(test)]
mod tests;
