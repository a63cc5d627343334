//! Records every version of every object.

use super::child::client;
use crate::server::{PATIENCE, Server};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::Api;
use kube_client::api::{PostParams, WatchEvent, WatchParams};
use serde_json::json;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

/// One version of one object.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    /// When it was observed.
    pub seen: Instant,
    /// The writer; empty for the creator.
    pub by: String,
}

/// The versions so far, in the server's order.
#[derive(Debug, Default)]
pub(crate) struct Versions(Vec<Version>);

impl Versions {
    pub(crate) fn all(&self) -> &[Version] {
        &self.0
    }

    pub(crate) fn by(&self, name: &str) -> impl Iterator<Item = &Version> {
        self.0.iter().filter(move |version| version.by == name)
    }
}

/// A watch of all ConfigMaps of the default namespace, on its own runtime.
pub(crate) struct Witness {
    seen: Arc<(Mutex<Versions>, Condvar)>,
    runtime: tokio::runtime::Runtime,
    api: Api<ConfigMap>,
}

impl Witness {
    pub(crate) fn of(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let seen = Arc::new((Mutex::new(Versions::default()), Condvar::new()));
        let kubeconfig = server.kubeconfig();
        let api: Api<ConfigMap> = Api::default_namespaced(runtime.block_on(client(&kubeconfig)));
        let events = runtime.block_on(async {
            let version = api.list(&Default::default()).await.unwrap().metadata.resource_version;
            let events = api.watch(&WatchParams::default().timeout(290), &version.unwrap()).await;
            events.unwrap().boxed()
        });
        runtime.spawn({
            let seen = seen.clone();
            async move {
                let mut events = events;
                while let Ok(Some(event)) = events.try_next().await {
                    let (WatchEvent::Added(map) | WatchEvent::Modified(map)) = event else {
                        continue;
                    };
                    let data = map.data.unwrap_or_default();
                    let by = data.get("by").cloned().unwrap_or_default();
                    let version = Version { seen: Instant::now(), by };
                    seen.0.lock().unwrap().0.push(version);
                    seen.1.notify_all();
                }
            }
        });
        Self { seen, runtime, api }
    }

    /// Creates objects with these numbers.
    pub(crate) fn create(&self, numbers: Range<usize>) {
        self.runtime.block_on(async {
            for n in numbers {
                let map = json!({"metadata": {"name": format!("m{n}")}, "data": {"n": "0"}});
                let map = serde_json::from_value(map).unwrap();
                self.api.create(&PostParams::default(), &map).await.unwrap();
            }
        });
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Versions) -> T) -> T {
        look(&self.seen.0.lock().unwrap())
    }

    /// Waits until the recorded versions fulfil a condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Versions) -> bool) {
        let started = Instant::now();
        let mut versions = self.seen.0.lock().unwrap();
        while !is_so(&versions) {
            let left = PATIENCE.checked_sub(started.elapsed());
            let left =
                left.unwrap_or_else(|| panic!("waited until {what}: {:?}", versions.0.last()));
            versions = self.seen.1.wait_timeout(versions, left).unwrap().0;
        }
    }
}
