//! Maps kinds to resources, by the server's discovery.
//!
//! # Theory
//!
//! | lookup                       | requests to the server                                                              |
//! |------------------------------|-------------------------------------------------------------------------------------|
//! | the first one                | everything, by aggregated discovery: two requests                                   |
//! | a known kind                 | none                                                                                |
//! | an unknown kind              | its group and version, or its group if no version is given; again only [`MAPPER_ASK_AGAIN`] after the last answer |
//!
//! A server without aggregated discovery is asked group by group. One discovery request runs at a
//! time; concurrent lookups wait for it and then look again. A failed request is an error and is
//! not remembered: the next lookup asks again.
//!
//! Known kinds are not looked up again. A removed resource stays known until [`Mapper::forget`]. So
//! does one whose scope or plural changes, which a server does not allow while there are objects.

use std::{fmt, sync::Arc, time::Duration};

use hashbrown::HashMap;
use kube_client::{
    Client,
    discovery::{ApiCapabilities, ApiGroup, Discovery, Scope, oneshot},
};
use kube_core::{discovery::ApiResource, gvk::GroupVersion};
use parking_lot::Mutex;
use setpoint_object::GroupVersionKind;
use tokio::{sync::Semaphore, time::Instant};

use crate::error::chain;

/// How long an unknown kind is not looked up again after the server has answered.
///
/// 10 s: how long controllers usually wait before they look again for a type that is not installed.
pub const MAPPER_ASK_AGAIN: Duration = Duration::from_secs(10);

/// Maps a kind to its resource and scope, by the server's discovery (CLU-4). Cheap to clone; clones
/// share their state.
///
/// A program's own types need no mapper. Use it for kinds found in data: in references, in
/// templates, in configuration.
///
/// ```no_run
/// # use kube_core::DynamicObject;
/// # use setpoint_object::GroupVersionKind;
/// # use setpoint_runtime::{mapper::MapperError, ManagerHandle, Watch};
/// # async fn example(manager: &ManagerHandle) -> Result<(), MapperError> {
/// let kind = GroupVersionKind::new("samplecrd.k8s.io", "v1", "Network");
/// let mapping = manager.mapper().resolve(&kind).await?;
/// let networks = manager.client().api_with::<DynamicObject>(mapping.resource);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mapper(Arc<Inner>);

struct Inner {
    client: Client,
    /// Held by the one request that is running.
    discovery: Semaphore,
    state: Mutex<State>,
}

/// The known kinds.
#[derive(Default)]
struct State {
    /// By group, version and kind.
    by_kind: HashMap<GroupVersionKind, Mapping>,
    /// Versions by group and kind.
    preferred: HashMap<(String, String), String>,
    /// The time of the server's last answer about a group, or a version of it. Removed when a new
    /// request is allowed.
    answered: HashMap<Part, Instant>,
    /// All groups were discovered.
    is_filled: bool,
}

/// A group, or one version of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Part {
    group: String,
    version: Option<String>,
}

/// The resource of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// The resource, for dynamic objects and their APIs.
    pub resource: ApiResource,
    /// Whether its objects have a namespace. If not, call
    /// [`Watch::cluster_scoped`](crate::Watch::cluster_scoped) on its watch.
    pub is_namespaced: bool,
}

/// Why a kind was not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapperError {
    /// The server does not serve the kind; it may be installed later.
    #[error("no matches for kind {kind:?} in {}", sought(.group, .version.as_deref()))]
    NoMatch {
        /// The group; empty is the core group.
        group: String,
        /// The version, if given.
        version: Option<String>,
        /// The kind.
        kind: String,
    },
    /// The request failed.
    #[error("discover {}", place(.group, .version.as_deref()))]
    Discover {
        /// The requested group.
        group: String,
        /// The version, if given.
        version: Option<String>,
        /// The client's error.
        #[source]
        source: Box<kube_client::Error>,
    },
}

impl MapperError {
    /// Whether the error is that the server does not serve the kind.
    pub fn is_no_match(&self) -> bool {
        matches!(self, Self::NoMatch { .. })
    }
}

/// The group version, or the group, as Kubernetes' errors show them.
fn sought(group: &str, version: Option<&str>) -> String {
    match version {
        None => format!("group {group:?}"),
        Some(version) => format!("version {:?}", GroupVersion::gv(group, version).api_version()),
    }
}

fn place(group: &str, version: Option<&str>) -> String {
    let group = if group.is_empty() { "the core group" } else { group };
    version.map_or_else(|| group.to_owned(), |version| format!("{group}/{version}"))
}

impl Mapper {
    /// A mapper for the server of a client. Sends no request yet.
    pub fn new(client: Client) -> Self {
        let (discovery, state) = (Semaphore::new(1), Mutex::default());
        Self(Arc::new(Inner { client, discovery, state }))
    }

    /// The resource of a kind in one version. Cancel safe.
    ///
    /// # Errors
    ///
    /// The server does not serve the kind, or a request failed.
    pub async fn resolve(&self, kind: &GroupVersionKind) -> Result<Mapping, MapperError> {
        let (group, version) = (kind.group.to_string(), Some(kind.version.to_string()));
        let part = Part { group, version };
        self.find(part, &kind.kind, |state| state.by_kind.get(kind).cloned()).await
    }

    /// The resource of a kind in the server's preferred version, or else in the most stable version
    /// that has it. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve).
    pub async fn resolve_preferred(&self, group: &str, kind: &str) -> Result<Mapping, MapperError> {
        let part = Part { group: group.to_owned(), version: None };
        let id = (group.to_owned(), kind.to_owned());
        self.find(part, kind, |state| {
            let version = state.preferred.get(&id)?;
            let kind = GroupVersionKind::new(group, version.as_str(), kind);
            state.by_kind.get(&kind).cloned()
        })
        .await
    }

    /// Forgets a group, so that it is discovered again: call it after the server answered that a
    /// resource does not exist.
    pub fn forget(&self, group: &str) {
        self.0.state.lock().forget(group);
    }

    async fn find(
        &self,
        part: Part,
        kind: &str,
        known: impl Fn(&State) -> Option<Mapping>,
    ) -> Result<Mapping, MapperError> {
        if let Some(mapping) = known(&self.0.state.lock()) {
            return Ok(mapping);
        }
        // It is never closed.
        let _permit = self.0.discovery.acquire().await;
        let is_filled = self.0.state.lock().is_filled;
        if !is_filled && self.fill(&part).await? {
            self.0.state.lock().answered.insert(part.clone(), Instant::now());
        }
        let is_due = {
            let mut state = self.0.state.lock();
            // A concurrent lookup may have found it.
            if let Some(mapping) = known(&state) {
                return Ok(mapping);
            }
            state.answered.retain(|_, at| at.elapsed() < MAPPER_ASK_AGAIN);
            !state.answered.contains_key(&part)
        };
        if is_due {
            let groups = self.ask(&part).await?;
            let mut state = self.0.state.lock();
            groups.iter().for_each(|group| state.take_in(group, part.version.is_none()));
            state.answered.insert(part.clone(), Instant::now());
            if let Some(mapping) = known(&state) {
                return Ok(mapping);
            }
        }
        let Part { group, version } = part;
        Err(MapperError::NoMatch { group, version, kind: kind.to_owned() })
    }

    /// Discovers all groups, once; returns whether the server supports that. Otherwise groups are
    /// discovered one by one. An error is about `part`, the first that was looked up.
    async fn fill(&self, part: &Part) -> Result<bool, MapperError> {
        let all = Discovery::new(self.0.client.clone()).run_aggregated().await;
        let all = match all {
            Err(error) if !is_unsupported(&error) => return Err(part.failed(error)),
            all => all,
        };
        let mut state = self.0.state.lock();
        state.is_filled = true;
        match all {
            // A server without support may answer with an empty list.
            Ok(all) if all.has_group(ApiGroup::CORE_GROUP) => {
                all.groups().for_each(|group| state.take_in(group, true));
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => {
                tracing::debug!(
                    error = chain(&error),
                    "no aggregated discovery: groups are discovered one by one"
                );
                Ok(false)
            }
        }
    }

    /// Discovers a group, or one version of it; `None` if the server has none.
    async fn ask(&self, part: &Part) -> Result<Option<ApiGroup>, MapperError> {
        use kube_client::error::DiscoveryError;

        let client = &self.0.client;
        let Part { group, version } = part;
        let answer = match version {
            Some(version) => oneshot::pinned_group(client, &GroupVersion::gv(group, version)).await,
            None => oneshot::group(client, group).await,
        };
        match answer {
            Ok(group) => Ok(Some(group)),
            Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube_client::Error::Discovery(
                DiscoveryError::MissingApiGroup(_) | DiscoveryError::EmptyApiGroup(_),
            )) => Ok(None),
            Err(error) => Err(part.failed(error)),
        }
    }
}

impl Part {
    fn failed(&self, error: kube_client::Error) -> MapperError {
        let (group, version) = (self.group.clone(), self.version.clone());
        MapperError::Discover { group, version, source: Box::new(error) }
    }
}

/// Whether the server has answered, and does not serve aggregated discovery, or not to this user.
fn is_unsupported(error: &kube_client::Error) -> bool {
    match error {
        kube_client::Error::Api(status) => matches!(status.code, 403..=406),
        // The answer is of another type.
        kube_client::Error::SerdeError(_) | kube_client::Error::Discovery(_) => true,
        _ => false,
    }
}

impl State {
    fn forget(&mut self, group: &str) {
        self.by_kind.retain(|kind, _| *kind.group != *group);
        self.preferred.retain(|(of, _), _| of != group);
        self.answered.retain(|part, _| part.group != group);
    }

    /// Adds a discovered group, whole or one version.
    fn take_in(&mut self, group: &ApiGroup, is_whole: bool) {
        if is_whole {
            self.forget(group.name());
        }
        let preferred = group.preferred_version_or_latest().to_owned();
        let others = group.versions().filter(|version| **version != *preferred);
        let versions: Vec<&str> = std::iter::once(&*preferred).chain(others).collect();
        for version in versions {
            for (resource, capabilities) in group.versioned_resources(version) {
                if is_whole {
                    let id = (resource.group.clone(), resource.kind.clone());
                    self.preferred.entry(id).or_insert_with(|| version.to_owned());
                }
                let kind =
                    GroupVersionKind::new(&*resource.group, &*resource.version, &*resource.kind);
                let ApiCapabilities { scope, .. } = capabilities;
                let is_namespaced = scope == Scope::Namespaced;
                self.by_kind.insert(kind, Mapping { resource, is_namespaced });
            }
        }
    }
}

impl fmt::Debug for Mapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapper").field("n_kinds", &self.0.state.lock().by_kind.len()).finish()
    }
}
