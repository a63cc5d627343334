//! One request as one value: who sends it and what it is about. It has no HTTP types.
use crate::catalog::Resource;
use crate::subresource::Subresource;
use crate::verb::Verb;
use parking_lot::Mutex;
use setpoint_object::{ApiError, Origin};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";

/// Warnings kept for one answer.
///
/// The headers of an answer hold 4096 characters at most, so that of more than a thousand texts the
/// last ones are never sent.
pub const WARNINGS_MAX: usize = 1024;
/// Audit annotations kept for one request.
///
/// 64: kube-apiserver's own admission adds a handful; a plugin in a loop must not fill the memory.
pub const AUDIT_ANNOTATIONS_MAX: usize = 64;

/// A user: name, uid, groups and what an authenticator knows besides. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name: `system:admin`.
    pub user: Arc<str>,
    /// Which of several users that had this name over time. Empty when nobody says.
    pub uid: Arc<str>,
    /// Groups.
    pub groups: Arc<[Arc<str>]>,
    /// What else the authenticator knows, for authorizers and audit.
    pub extra: Arc<BTreeMap<String, Vec<String>>>,
}

impl Identity {
    /// A user in groups.
    pub fn new<'a>(user: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            user: user.into(),
            uid: "".into(),
            groups: groups.into_iter().map(Arc::from).collect(),
            extra: Arc::default(),
        }
    }
    /// The server itself: `system:apiserver` in `system:masters`.
    pub fn loopback() -> Self {
        Self::new("system:apiserver", [MASTERS])
    }
    /// The administrator: `system:admin` in `system:masters`.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, "system:authenticated"])
    }
    /// Whoever comes over a listener without authentication: `system:unsecured` in
    /// `system:masters`.
    pub fn unsecured() -> Self {
        Self::new("system:unsecured", [MASTERS, "system:authenticated"])
    }
    /// Whoever shows no credentials: `system:anonymous` in `system:unauthenticated`.
    pub fn anonymous() -> Self {
        // Every request begins as this one: it is made once.
        static ANONYMOUS: LazyLock<Identity> =
            LazyLock::new(|| Identity::new("system:anonymous", ["system:unauthenticated"]));
        ANONYMOUS.clone()
    }
    /// Whether a group holds it.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}

/// What a resource request is about, with the row that serves it. `name` empty: the collection;
/// `namespace` empty: cluster scope or all namespaces.
#[derive(Debug, Clone)]
pub struct Target {
    /// The row it was routed to.
    pub resource: Arc<Resource>,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Subresource; `None` for the main endpoint.
    pub subresource: Option<Subresource>,
}
impl Target {
    /// A collection, or an object when `name` is not empty.
    pub fn new(
        resource: Arc<Resource>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self { resource, namespace: namespace.into(), name: name.into(), subresource: None }
    }
    /// A subresource of it.
    pub fn subresource(self, subresource: Subresource) -> Self {
        Self { subresource: Some(subresource), ..self }
    }
    /// The subresource's name; empty for the main endpoint.
    pub fn subresource_name(&self) -> &str {
        self.subresource.as_ref().map_or("", Subresource::as_str)
    }
}

/// What the path of a resource says when no row of this server serves it: another server may, or
/// nobody.
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

/// What a request is about.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Requested {
    /// A resource of this server.
    Resource(Target),
    /// A resource by its names: not routed yet, or no row of this server serves it.
    Unrouted(ResourcePath),
    /// A path that names no resource: `/version`, `/healthz`.
    Path(String),
}

/// One request: who sends it and what it is about. Made once where a request enters, over HTTP,
/// from the in-process client or from an in-process source, and handed down: every stage of the API
/// server and the registry decides by this value.
///
/// ```
/// use setpoint_registry::{Attributes, Identity, Requested, Verb};
///
/// let request = Attributes::new(Identity::admin(), Verb::Get, Requested::Path("/version".to_owned()));
/// assert_eq!((&*request.identity.user, request.path(), request.resource()), ("system:admin", "/version", ""));
/// ```
#[derive(Debug)]
pub struct Attributes {
    /// The user.
    pub identity: Identity,
    /// Which reconcile the request comes from, as the client says.
    pub origin: Option<Arc<Origin>>,
    /// The `User-Agent` header. Its first word is the default field manager.
    pub user_agent: String,
    /// What it does.
    pub verb: Verb,
    /// What it is about.
    pub requested: Requested,
    /// `labelSelector` as it was sent: list, watch and deletecollection.
    pub label_selector: String,
    /// `fieldSelector` as it was sent: list, watch and deletecollection.
    pub field_selector: String,
    /// Nothing is to be committed. A delete may say so in its body only, which is not read yet when
    /// this is made.
    pub dry_run: bool,
    /// The id under which the request is found in logs.
    pub audit_id: String,
    /// What the stages say beside the answer.
    pub notes: Notes,
}

/// What the stages of a request say beside its answer ([`Attributes::warn`],
/// [`Attributes::annotate`]).
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts of `Warning` headers, in order, once each.
    warnings: Mutex<Vec<String>>,
    /// For the audit log.
    audit_annotations: Mutex<BTreeMap<String, String>>,
}

impl Attributes {
    /// A request of a user. All else is empty.
    pub fn new(identity: Identity, verb: Verb, requested: Requested) -> Self {
        Self {
            identity,
            origin: None,
            user_agent: String::new(),
            verb,
            requested,
            label_selector: String::new(),
            field_selector: String::new(),
            dry_run: false,
            audit_id: String::new(),
            notes: Notes::default(),
        }
    }
    /// The server's own request on a resource: `system:apiserver` in `system:masters`.
    pub fn loopback(verb: Verb, target: Target) -> Self {
        Self::new(Identity::loopback(), verb, Requested::Resource(target))
    }
    /// The same user, origin and agent with another request: a secondary check, or one object of a
    /// collection.
    #[must_use]
    pub fn with(&self, verb: Verb, requested: Requested) -> Self {
        Self {
            origin: self.origin.clone(),
            user_agent: self.user_agent.clone(),
            dry_run: self.dry_run,
            audit_id: self.audit_id.clone(),
            ..Self::new(self.identity.clone(), verb, requested)
        }
    }
    /// The same request with nothing noted yet, for work on another thread.
    pub(crate) fn to_owned(&self) -> Self {
        Self {
            label_selector: self.label_selector.clone(),
            field_selector: self.field_selector.clone(),
            ..self.with(self.verb.clone(), self.requested.clone())
        }
    }
    /// Takes over what was noted there.
    pub(crate) fn take_notes(&self, other: &Self) {
        other.warnings().into_iter().for_each(|text| self.warn(text));
        let annotations = other.audit_annotations();
        annotations.into_iter().for_each(|(key, value)| self.annotate(key, value));
    }
    /// What the request is about, where a row of this server serves it.
    ///
    /// # Errors
    ///
    /// 404: nothing here serves it.
    pub fn target(&self) -> Result<&Target, ApiError> {
        match &self.requested {
            Requested::Resource(target) => Ok(target),
            Requested::Unrouted(_) | Requested::Path(_) => Err(ApiError::no_route()),
        }
    }
    /// Whether it is about a resource, served here or not.
    pub fn is_resource(&self) -> bool {
        !matches!(self.requested, Requested::Path(_))
    }
    /// Whether it goes on for as long as its client wants: a watch, or a stream to something behind
    /// the API.
    pub fn is_long_running(&self) -> bool {
        self.verb == Verb::Watch || self.subresource().is_some_and(Subresource::is_connect)
    }
    /// The path of a request that is not about a resource; empty for others.
    pub fn path(&self) -> &str {
        match &self.requested {
            Requested::Path(path) => path,
            Requested::Resource(_) | Requested::Unrouted(_) => "",
        }
    }
    /// The resource's group; empty for the core group and for paths.
    pub fn group(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => &target.resource.gvk.group,
            Requested::Unrouted(path) => &path.group,
            Requested::Path(_) => "",
        }
    }
    /// The resource's version; empty for paths.
    pub fn version(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => &target.resource.gvk.version,
            Requested::Unrouted(path) => &path.version,
            Requested::Path(_) => "",
        }
    }
    /// The resource's plural name; empty for paths.
    pub fn resource(&self) -> &str {
        match &self.requested {
            Requested::Resource(target) => &target.resource.resource,
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
    /// The object's name; empty for collections and for paths. A list or watch whose field selector
    /// is `metadata.name=x` and nothing else is about `x`, so that who may read one object may
    /// follow it.
    pub fn name(&self) -> &str {
        let name = match &self.requested {
            Requested::Resource(target) => &target.name,
            Requested::Unrouted(path) => &path.name,
            Requested::Path(_) => return "",
        };
        if name.is_empty() && matches!(self.verb, Verb::List | Verb::Watch) {
            let selected = self.field_selector.strip_prefix("metadata.name=").unwrap_or_default();
            let selected = selected.strip_prefix('=').unwrap_or(selected);
            return if selected.contains([',', '\\', '=']) { "" } else { selected };
        }
        name
    }

    /// Adds a warning to the answer, once; nothing beyond [`WARNINGS_MAX`].
    pub fn warn(&self, text: impl Into<String>) {
        let text = text.into();
        let mut warnings = self.notes.warnings.lock();
        if warnings.len() < WARNINGS_MAX && !warnings.contains(&text) {
            warnings.push(text);
        }
    }
    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.notes.warnings.lock().clone()
    }
    /// How many warnings there are.
    pub(crate) fn n_warnings(&self) -> usize {
        self.notes.warnings.lock().len()
    }
    /// Forgets all but the first `n` warnings: what they were about is done again.
    pub(crate) fn forget_warnings(&self, n: usize) {
        self.notes.warnings.lock().truncate(n);
    }
    /// Tells the audit log something. The first value of a key stays; nothing beyond
    /// [`AUDIT_ANNOTATIONS_MAX`].
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.notes.audit_annotations.lock();
        if annotations.len() < AUDIT_ANNOTATIONS_MAX {
            annotations.entry(key.into()).or_insert_with(|| value.into());
        }
    }
    /// The audit annotations so far.
    pub fn audit_annotations(&self) -> BTreeMap<String, String> {
        self.notes.audit_annotations.lock().clone()
    }
}
