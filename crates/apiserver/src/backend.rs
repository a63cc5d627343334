//! Group versions that other servers or handlers serve.
//!
//! # Theory
//!
//! A [`Backend`] is one group version: the [`Handler`] that answers its requests, its position in
//! discovery, and its discovery and OpenAPI documents. It is a value. [`Backends`] holds all of
//! them in one immutable table, which is replaced as a whole when a backend is put, removed or
//! changes its availability. A request uses one table from its beginning to its end.
//!
//! The server calls a backend only to answer its clients' requests. Documents are part of the
//! backend: a caller that gets them from another server reads them there, and puts the backend
//! again when they change.
//!
//! | a backend is | its requests     | aggregated discovery    | its OpenAPI v3 document |
//! |--------------|------------------|-------------------------|-------------------------|
//! | available    | its handler      | listed with resources   | as it was put           |
//! | unavailable  | 503              | listed as `Stale`, unless its document [is known to be current](Backend::with_discovery) | in the index, 503 |
//! | removed      | the catalog      | from the catalog        | from the catalog        |
//!
//! Until it is removed, legacy discovery lists its group version and OpenAPI v2 contains its
//! documents.
//!
//! A [`Registration`] is a group version that is only listed: an `APIService` without a service. It
//! gives the position of what the catalog serves. Of Kubernetes' own group versions, legacy
//! discovery shows those that are registered; aggregated discovery shows what is served.
//!
//! A backend replaces rows of the same group version, built in or from a definition. Other versions
//! of the group are not affected.

mod documents;
mod served;
mod table;

use crate::extra::Handler;
use bytes::Bytes;
use documents::Documents;
use parking_lot::RwLock;
use setpoint_object::{GroupVersion, name};
use std::fmt;
use std::sync::Arc;

pub(crate) use documents::{Digest, Swagger, digest};
pub(crate) use served::{Generation, Served};
pub(crate) use table::{Found, Table};

/// Maximum number of backends.
///
/// 1024: clusters have a handful. Each adds an entry to discovery.
pub const BACKENDS_MAX: usize = 1024;
/// Maximum length of a document of a backend, in bytes.
///
/// 4 MiB: the largest OpenAPI document of a built-in group version has less than one.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Maximum total length of the documents of all backends that are put at run time, in bytes.
///
/// 64 MiB: a thousand of the size that a group version with one or two kinds has.
pub const DOCUMENTS_BYTES_MAX: usize = 64 << 20;

/// Why a backend cannot be built or put.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The group is not a DNS subdomain, or is the core group, which is always served by this
    /// server.
    #[error("the group {group:?} is not a DNS subdomain")]
    Group {
        /// The group.
        group: String,
    },
    /// The version is not a DNS label.
    #[error("the version {version:?} is not a DNS label")]
    Version {
        /// The version.
        version: String,
    },
    /// A priority is outside the range of an `APIService`.
    #[error("the {what} {value} is not between 1 and {max}")]
    Priority {
        /// Which priority.
        what: &'static str,
        /// Its value.
        value: u32,
        /// Its maximum.
        max: u32,
    },
    /// A document is longer than [`DOCUMENT_BYTES_MAX`].
    #[error("the {what} has {bytes} bytes, the most is {DOCUMENT_BYTES_MAX}")]
    TooLarge {
        /// Which document.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// A document is not JSON.
    #[error("read the {what}")]
    Json {
        /// Which document.
        what: &'static str,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// A document lacks a member, or the member has another type.
    #[error("the {what} has no {member}")]
    Member {
        /// Which document.
        what: &'static str,
        /// The member.
        member: &'static str,
    },
    /// There are [`BACKENDS_MAX`] already.
    #[error("{BACKENDS_MAX} group versions have backends already")]
    TooMany,
    /// All documents together would be longer than [`DOCUMENTS_BYTES_MAX`].
    #[error(
        "the documents of all backends would have {bytes} bytes, the most is {DOCUMENTS_BYTES_MAX}"
    )]
    TooMuch {
        /// Their total length.
        bytes: usize,
    },
}

/// One group version that another server or handler serves. Cheap to clone.
///
/// A request for it passes the stages of every request: it is authenticated, audited, counted,
/// subject to flow control, and authorized with the verb, group, version, resource, namespace, name
/// and subresource in its path. Then its [`Handler`] gets the original request without credentials.
/// The [`Attributes`](crate::Attributes) are an extension of the request, as `Arc<Attributes>`. The
/// answer goes to the client unchanged. A streaming answer has the request's deadline like any
/// other, at most a minute. Watches and connecting subresources (`exec`, `log`, `proxy`, …) have no
/// deadline, and end when the server drains. To upgrade a connection, the handler takes hyper's
/// `OnUpgrade` from the request's extensions, and puts a [`Conversation`](crate::Conversation) into
/// those of a 101 answer.
///
/// The backend does its own admission, validation and storage: the registry never sees its objects.
///
/// ```
/// use setpoint_apiserver::{Backend, Body, RequestBody};
/// use std::sync::Arc;
///
/// async fn widgets(_request: http::Request<RequestBody>) -> http::Response<Body> {
///     http::Response::new(Body::once(r#"{"kind":"WidgetList","apiVersion":"ex.io/v1","metadata":{},"items":[]}"#))
/// }
///
/// let resources = r#"{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "ex.io/v1", "resources": [
///     {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": ["list"]}]}"#;
/// let backend = Backend::builder("ex.io", "v1", Arc::new(widgets)).resources(resources).build()?;
/// assert_eq!(backend.group_version().to_string(), "ex.io/v1");
/// # Ok::<(), setpoint_apiserver::BackendError>(())
/// ```
#[derive(Clone)]
pub struct Backend {
    group_version: GroupVersion,
    group_priority: u32,
    version_priority: u32,
    handler: Arc<dyn Handler>,
    is_available: bool,
    /// Whether its discovery document is what it serves now; `None`: if it is available.
    is_discovered: Option<bool>,
    documents: Arc<Documents>,
}

impl Backend {
    /// A builder. `group` must not be the core group.
    pub fn builder(group: &str, version: &str, handler: Arc<dyn Handler>) -> BackendBuilder {
        BackendBuilder {
            group_version: GroupVersion::new(group, version),
            group_priority: GROUP_PRIORITY,
            version_priority: VERSION_PRIORITY,
            handler,
            is_available: true,
            documents: documents::RawDocuments::default(),
        }
    }

    /// Its group version.
    pub fn group_version(&self) -> &GroupVersion {
        &self.group_version
    }

    /// Whether its handler is called.
    pub fn is_available(&self) -> bool {
        self.is_available
    }

    /// Whether aggregated discovery shows its resources, if it has any.
    pub(crate) fn is_discovered(&self) -> bool {
        self.is_discovered.unwrap_or(self.is_available)
    }

    /// The same backend, whose discovery document is what it serves now, or is not. A server may
    /// answer requests for that and still be unavailable. Default: if it is available.
    #[must_use]
    pub fn with_discovery(self, is_discovered: bool) -> Self {
        Self { is_discovered: Some(is_discovered), ..self }
    }

    /// The same backend with another availability.
    #[must_use]
    pub fn with_availability(self, is_available: bool) -> Self {
        Self { is_available, ..self }
    }

    /// The same backend at another position in discovery, as
    /// [`BackendBuilder::group_priority`] and [`BackendBuilder::version_priority`].
    ///
    /// # Errors
    ///
    /// [`BackendError::Priority`].
    pub fn with_priorities(self, group: u32, version: u32) -> Result<Self, BackendError> {
        check_priorities(group, version)?;
        Ok(Self { group_priority: group, version_priority: version, ..self })
    }

    pub(crate) fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }
}

/// Without the handler, which need not implement `Debug`.
impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("group_version", &self.group_version)
            .field("is_available", &self.is_available)
            .finish_non_exhaustive()
    }
}

/// The default priority of groups, as that of custom resources.
const GROUP_PRIORITY: u32 = 1000;
const VERSION_PRIORITY: u32 = 100;
/// The maximum of `groupPriorityMinimum` and `versionPriority` of an `APIService`.
const GROUP_PRIORITY_MAX: u32 = 20_000;
const VERSION_PRIORITY_MAX: u32 = 1000;

fn check_priorities(group: u32, version: u32) -> Result<(), BackendError> {
    for (what, value, max) in [
        ("group priority", group, GROUP_PRIORITY_MAX),
        ("version priority", version, VERSION_PRIORITY_MAX),
    ] {
        if value == 0 || value > max {
            return Err(BackendError::Priority { what, value, max });
        }
    }
    Ok(())
}

/// A group version with its position in discovery ([`Backends::register`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The group version.
    pub group_version: GroupVersion,
    /// As [`BackendBuilder::group_priority`].
    pub group_priority: u32,
    /// As [`BackendBuilder::version_priority`].
    pub version_priority: u32,
}

/// Builds a [`Backend`].
#[must_use]
pub struct BackendBuilder {
    group_version: GroupVersion,
    group_priority: u32,
    version_priority: u32,
    handler: Arc<dyn Handler>,
    is_available: bool,
    documents: documents::RawDocuments,
}

impl BackendBuilder {
    /// Position of the group in discovery, from 1 to 20000: higher ones first, then by name. A
    /// group with several versions has their highest priority. Built-in groups have 16100
    /// to 17900. Default: 1000, as custom resources.
    pub fn group_priority(mut self, priority: u32) -> Self {
        self.group_priority = priority;
        self
    }

    /// Position of the version in its group, from 1 to 1000: higher ones first, then in Kubernetes'
    /// order of versions. The first is the preferred one. Default: 100, as custom resources.
    pub fn version_priority(mut self, priority: u32) -> Self {
        self.version_priority = priority;
        self
    }

    /// Whether its handler is available. Default: yes.
    pub fn available(mut self, is_available: bool) -> Self {
        self.is_available = is_available;
        self
    }

    /// Its `APIResourceList` in JSON: the answer to `GET /apis/<group>/<version>`, and the source
    /// of aggregated discovery unless [`Self::discovery`] is set. Default: the handler gets that
    /// path.
    pub fn resources(mut self, list: impl Into<Bytes>) -> Self {
        self.documents.resources = Some(list.into());
        self
    }

    /// Its `APIVersionDiscovery` (`apidiscovery.k8s.io/v2`) in JSON, for aggregated discovery.
    /// Default: made from [`Self::resources`]; without either it is listed as `Stale`.
    pub fn discovery(mut self, version: impl Into<Bytes>) -> Self {
        self.documents.discovery = Some(version.into());
        self
    }

    /// Whether the handler gets `GET /apis/<group>/<version>` even if [`Self::resources`] is set.
    /// Default: no.
    pub fn forward_discovery(mut self, enabled: bool) -> Self {
        self.documents.forward_discovery = enabled;
        self
    }

    /// Its OpenAPI v3 document in JSON, served unchanged at `/openapi/v3/apis/<group>/<version>`.
    /// Default: none.
    pub fn open_api_v3(mut self, document: impl Into<Bytes>) -> Self {
        self.documents.v3 = Some(document.into());
        self
    }

    /// The OpenAPI v3 documents that its handler answers: pairs of a key (`apis/ex.io/v1`) and the
    /// URL that the index shows for it (`/openapi/v3/apis/ex.io/v1?hash=1`). GET requests for
    /// `/openapi/v3/<key>` go to the handler. A key of another group version that this server or an
    /// earlier backend has is ignored. Default: none.
    pub fn open_api_v3_index(
        mut self,
        documents: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        self.documents.v3_index = documents.into_iter().collect();
        self
    }

    /// An OpenAPI v2 document in JSON. The paths of this group version and all definitions are
    /// merged into `/openapi/v2`. A definition that differs from another one of the same name gets
    /// the suffix `_v2` (`_v3`, …), and references to it are renamed. Default: none.
    pub fn open_api_v2(mut self, document: impl Into<Bytes>) -> Self {
        self.documents.v2 = Some(document.into());
        self
    }

    /// Builds the backend. Parses its documents: if they have megabytes, call this on a blocking
    /// thread.
    ///
    /// # Errors
    ///
    /// Names and priorities that are invalid in an `APIService`, and documents that are too long or
    /// have another format.
    pub fn build(self) -> Result<Backend, BackendError> {
        let GroupVersion { group, version } = &self.group_version;
        if !name::dns1123_subdomain(group).is_empty() {
            return Err(BackendError::Group { group: group.to_string() });
        }
        if !name::dns1035_label(version).is_empty() {
            return Err(BackendError::Version { version: version.to_string() });
        }
        check_priorities(self.group_priority, self.version_priority)?;
        Ok(Backend {
            documents: Arc::new(self.documents.read(&self.group_version)?),
            group_version: self.group_version,
            group_priority: self.group_priority,
            version_priority: self.version_priority,
            handler: self.handler,
            is_available: self.is_available,
            is_discovered: None,
        })
    }
}

impl fmt::Debug for BackendBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendBuilder")
            .field("group_version", &self.group_version)
            .finish_non_exhaustive()
    }
}

/// The backends of a server: a handle, cheap to clone. A change applies to later requests.
#[derive(Debug, Clone, Default)]
pub struct Backends(Arc<RwLock<Arc<Table>>>);

impl Backends {
    /// The backends at start. Of two for the same group version, the later one is used.
    pub(crate) fn of(backends: Vec<Backend>) -> Self {
        let mut table = Table::default();
        for backend in backends {
            table.insert(backend);
        }
        Self(Arc::new(RwLock::new(Arc::new(table))))
    }

    /// Adds a backend, or replaces the one of the same group version.
    ///
    /// # Errors
    ///
    /// [`BackendError::TooMany`] and [`BackendError::TooMuch`]; nothing is changed then.
    pub fn put(&self, backend: Backend) -> Result<(), BackendError> {
        self.change(|table| {
            let GroupVersion { group, version } = backend.group_version();
            let former = table.get(group, version).map(|former| former.documents.len());
            let bytes = table.bytes - former.unwrap_or_default() + backend.documents.len();
            if former.is_none() && table.len() >= BACKENDS_MAX {
                return (None, Err(BackendError::TooMany));
            }
            if bytes > DOCUMENTS_BYTES_MAX {
                return (None, Err(BackendError::TooMuch { bytes }));
            }
            let mut next = table.next();
            next.insert(backend);
            (Some(next), Ok(()))
        })
    }

    /// Sets whether the handler of a group version is called. Returns false if there is no such
    /// backend.
    pub fn set_available(&self, group_version: &GroupVersion, is_available: bool) -> bool {
        let GroupVersion { group, version } = group_version;
        self.change(|table| match table.get(group, version) {
            None => (None, false),
            Some(known) if known.is_available == is_available => (None, true),
            Some(known) => {
                let mut next = table.next();
                next.insert(Backend { is_available, ..Backend::clone(known) });
                (Some(next), true)
            }
        })
    }

    /// Removes a backend: the group version is served by rows of the catalog again, if there are
    /// any. Requests in its handler continue. Returns false if there was none.
    pub fn remove(&self, group_version: &GroupVersion) -> bool {
        let GroupVersion { group, version } = group_version;
        self.change(|table| {
            if table.get(group, version).is_none() {
                return (None, false);
            }
            let mut next = table.next();
            next.remove(group, version);
            (Some(next), true)
        })
    }

    /// Sets the group versions that legacy discovery lists besides those of backends, definitions
    /// and compiled-in kinds, and the positions of what the catalog serves. `None`: legacy
    /// discovery lists everything that is served, at the positions that Kubernetes gives its own
    /// groups. That is so at start.
    pub fn register(&self, registrations: Option<Arc<Vec<Registration>>>) {
        self.change(|table| {
            if table.registrations == registrations {
                return (None, ());
            }
            let mut next = table.next();
            next.registrations = registrations;
            (Some(next), ())
        });
    }

    /// The backend of a group version.
    pub fn get(&self, group_version: &GroupVersion) -> Option<Backend> {
        let table = self.table();
        table.get(&group_version.group, &group_version.version).map(|known| Backend::clone(known))
    }

    /// Their group versions, ordered by name.
    pub fn group_versions(&self) -> Vec<GroupVersion> {
        self.table().iter().map(|backend| backend.group_version.clone()).collect()
    }

    pub(crate) fn table(&self) -> Arc<Table> {
        self.0.read().clone()
    }

    /// Replaces the table. The old table is dropped without the lock.
    fn change<T>(&self, change: impl FnOnce(&Table) -> (Option<Table>, T)) -> T {
        let mut newest = self.0.write();
        let (next, answer) = change(&newest);
        let former = next.map(|next| std::mem::replace(&mut *newest, Arc::new(next)));
        drop(newest);
        drop(former);
        answer
    }
}

#[cfg(test)]
mod tests;
