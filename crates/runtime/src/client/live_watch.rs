//! Watching straight at the server, without a cache: for programs that wait for something, or print
//! what happens (CLI-10).

use std::{fmt, sync::Arc, vec};

use kube_core::params::ListParams;
use setpoint_informer::{
    Cacheable, ClientSource, RetryWatcher,
    retry_watcher::{Change, RetryWatcherError},
};

use super::{Api, Call, ClientError, api::decode};

/// How many objects a watch that begins with those that exist asks for at a time: 500, as
/// client-go's pager.
const PAGE_OBJECTS_MAX: u32 = 500;

/// One thing that happened to one object.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LiveEvent<K> {
    /// It came to be or came to match; or it was there when the watch began.
    Added(K),
    /// It is another now.
    Modified(K),
    /// It is gone, or matches no more; this is how it was last.
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

/// Why a [`LiveWatch`] ended. Nothing comes after it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveWatchError {
    /// What exists could not be listed, or an object does not fit the type.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The watch cannot go on: its version is too old, so that what happened meanwhile is lost, or
    /// it is not allowed.
    #[error("{call}")]
    Watch {
        /// What was asked.
        call: Call,
        /// Why not.
        #[source]
        source: Box<RetryWatcherError>,
    },
}

/// What happens to the objects of a type, from the server; from [`Api::watch_live`].
///
/// A broken connection is mended where it broke. It holds one page of a list at most, and reads
/// from the server as fast as it is asked.
pub struct LiveWatch<K: Cacheable> {
    // Inputs.
    api: Api<K>,
    namespace: Option<Arc<str>>,
    params: ListParams,
    seed: u64,
    // State.
    stage: Stage<K>,
}

enum Stage<K> {
    /// What exists is yet to be listed, from the continue token of the parameters on.
    List,
    /// A page is being given out; then comes the next, or the watch from this version.
    Page(vec::IntoIter<K>, String),
    Watch(Box<RetryWatcher>),
    Over,
}

impl<K: Cacheable> Api<K> {
    /// Watches the objects that `params` select: first come those that exist, as
    /// [`LiveEvent::Added`], unless `params` name a resourceVersion to begin behind. No namespace
    /// is all of them. Nothing is asked yet. `seed` draws how long its requests last.
    pub fn watch_live(
        &self,
        namespace: Option<&str>,
        params: &ListParams,
        seed: u64,
    ) -> LiveWatch<K> {
        LiveWatch {
            api: self.clone(),
            namespace: namespace.map(Arc::from),
            params: params.clone(),
            seed,
            stage: Stage::List,
        }
    }
}

impl<K: Cacheable> LiveWatch<K> {
    /// What happens next; `None` after an error. Cancel safe: a dropped call has taken nothing.
    ///
    /// # Errors
    ///
    /// The watch cannot go on: see [`LiveWatchError`].
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
        RetryWatcher::new(Arc::new(source), resource_version, self.seed)
            .map(|watch| Stage::Watch(Box::new(watch)))
            .map_err(|source| LiveWatchError::Watch { call: self.call(), source: Box::new(source) })
    }

    fn event(&self, change: &Change) -> Result<LiveEvent<K>, LiveWatchError> {
        let object = decode(self.call(), change.object())?;
        match change {
            Change::Added(_) => Ok(LiveEvent::Added(object)),
            Change::Modified(_) => Ok(LiveEvent::Modified(object)),
            Change::Deleted(_) => Ok(LiveEvent::Deleted(object)),
            // No other is known; it would be one of a newer crate.
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
