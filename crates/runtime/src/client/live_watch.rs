//! Watches the server directly, without a cache: for programs that wait for something, or print
//! changes (CLI-10).

use std::{fmt, sync::Arc, vec};

use kube_core::params::ListParams;
use setpoint_informer::{
    Cacheable, ClientSource, RetryWatcher,
    retry_watcher::{Change, RetryWatcherError},
};

use super::{Api, Call, ClientError, api::decode};

/// The page size of a watch's initial list: 500 objects, as client-go's pager.
const PAGE_OBJECTS_MAX: u32 = 500;

/// A change of one object.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LiveEvent<K> {
    /// Created, starts to match, or part of the initial list.
    Added(K),
    /// Changed.
    Modified(K),
    /// Deleted, or no longer matches; with its last state.
    Deleted(K),
}

impl<K> LiveEvent<K> {
    /// The object.
    pub fn object(&self) -> &K {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => object,
        }
    }
}

/// Why a [`LiveWatch`] ended. It is the last item.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveWatchError {
    /// The initial list failed, or an object cannot be decoded.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The watch cannot continue: its version is too old, so changes were missed, or it is
    /// forbidden.
    #[error("{call}")]
    Watch {
        /// The call.
        call: Call,
        /// The cause.
        #[source]
        source: Box<RetryWatcherError>,
    },
}

/// Changes of the objects of a type, from the server; from [`Api::watch_live`].
///
/// Reconnects where a connection broke. Holds at most one page of a list, and reads from the server
/// only as fast as the caller does.
pub struct LiveWatch<K: Cacheable> {
    // Inputs.
    api: Api<K>,
    namespace: Option<Arc<str>>,
    params: ListParams,
    seed: Option<u64>,
    // State.
    stage: Stage<K>,
}

enum Stage<K> {
    /// The initial list is to be requested, from the parameters' continue token on.
    List,
    /// A page is being returned; next is the next page, or the watch from this version.
    Page(vec::IntoIter<K>, String),
    Watch(Box<RetryWatcher>),
    Over,
}

impl<K: Cacheable> Api<K> {
    /// Watches the objects that `params` select. The existing ones come first, as
    /// [`LiveEvent::Added`], unless `params` set a resourceVersion to start after. Without a
    /// namespace: all namespaces. Sends no request yet.
    pub fn watch_live(&self, namespace: Option<&str>, params: &ListParams) -> LiveWatch<K> {
        LiveWatch {
            api: self.clone(),
            namespace: namespace.map(Arc::from),
            params: params.clone(),
            seed: None,
            stage: Stage::List,
        }
    }
}

impl<K: Cacheable> LiveWatch<K> {
    /// The seed of the random time-outs of its requests, for a simulation. Default: the operating
    /// system's entropy.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The next event; `None` after an error. Cancel safe: a dropped call loses nothing.
    ///
    /// # Errors
    ///
    /// The watch cannot continue: see [`LiveWatchError`].
    ///
    /// # Panics
    ///
    /// If there is no seed and the operating system provides no randomness.
    pub async fn next(&mut self) -> Option<Result<LiveEvent<K>, LiveWatchError>> {
        loop {
            let failed = match &mut self.stage {
                Stage::Over => return None,
                Stage::List => match self.list().await {
                    Ok(stage) => {
                        self.stage = stage;
                        continue;
                    }
                    Err(error) => error,
                },
                Stage::Page(objects, resource_version) => match objects.next() {
                    Some(object) => return Some(Ok(LiveEvent::Added(object))),
                    None if self.params.continue_token.is_some() => {
                        self.stage = Stage::List;
                        continue;
                    }
                    None => {
                        let resource_version = std::mem::take(resource_version);
                        match self.watch(&resource_version) {
                            Ok(stage) => {
                                self.stage = stage;
                                continue;
                            }
                            Err(error) => error,
                        }
                    }
                },
                Stage::Watch(watch) => match watch.next().await {
                    Some(Ok(change)) => match self.event(&change) {
                        Ok(event) => return Some(Ok(event)),
                        Err(error) => error,
                    },
                    Some(Err(source)) => {
                        LiveWatchError::Watch { call: self.call(), source: Box::new(source) }
                    }
                    None => return None,
                },
            };
            self.stage = Stage::Over;
            return Some(Err(failed));
        }
    }

    async fn list(&mut self) -> Result<Stage<K>, LiveWatchError> {
        if let Some(resource_version) = self.params.resource_version.clone() {
            return self.watch(&resource_version);
        }
        let mut params = self.params.clone();
        params.limit.get_or_insert(PAGE_OBJECTS_MAX);
        let page = self.api.page_live(self.namespace.as_deref(), &params).await?;
        self.params.continue_token = Some(page.continue_token).filter(|token| !token.is_empty());
        Ok(Stage::Page(page.items.into_iter(), page.resource_version))
    }

    fn watch(&self, resource_version: &str) -> Result<Stage<K>, LiveWatchError> {
        let (api, params) = (&self.api, &self.params);
        let client = kube_client::Client::clone(api.client.kube());
        let source =
            ClientSource::dynamic::<K>(client, &api.dynamic_type, self.namespace.as_deref())
                .labels(params.label_selector.clone().unwrap_or_default())
                .fields(params.field_selector.clone().unwrap_or_default())
                .metadata_only(K::metadata_api());
        let seeded = |watch: RetryWatcher| match self.seed {
            Some(seed) => watch.seed(seed),
            None => watch,
        };
        RetryWatcher::new(Arc::new(source), resource_version)
            .map(|watch| Stage::Watch(Box::new(seeded(watch))))
            .map_err(|source| LiveWatchError::Watch { call: self.call(), source: Box::new(source) })
    }

    fn event(&self, change: &Change) -> Result<LiveEvent<K>, LiveWatchError> {
        let object = decode(self.call(), change.object())?;
        match change {
            Change::Added(_) => Ok(LiveEvent::Added(object)),
            Change::Modified(_) => Ok(LiveEvent::Modified(object)),
            Change::Deleted(_) => Ok(LiveEvent::Deleted(object)),
            // Unreachable today; a kind of a newer version of the crate.
            _ => Ok(LiveEvent::Modified(object)),
        }
    }

    fn call(&self) -> Call {
        self.api.call("watch", self.namespace.as_deref().unwrap_or_default())
    }
}

impl<K: Cacheable> fmt::Debug for LiveWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveWatch")
            .field("resource", &self.api.resource)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
