//! kube-runtime: its watcher and its reflector's store, with one handler on the stream of stored
//! objects.
use super::{Findings, Run};
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube_client::{Api, Resource, ResourceExt};
use kube_runtime::watcher::{self, Config, Event};
use kube_runtime::{WatchStreamExt, reflector};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;

/// `K` is a Pod, or its `PartialObjectMeta`.
pub(super) async fn run<K>(run: Run) -> anyhow::Result<Findings>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    K: Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    // An unpaged list from the server's cache, as the other clients request it; the default is
    // pages of 500.
    let config = Config::default().any_semantic();
    let config = if run.args.stream { config.streaming_lists() } else { config };
    let stream = kube_runtime::watcher(Api::<K>::all(run.client.clone()), config);
    follow(run, stream).await
}

async fn follow<K>(
    mut run: Run,
    stream: impl Stream<Item = watcher::Result<Event<K>>> + Send,
) -> anyhow::Result<Findings>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let last_version = run.facts.last_version.to_string();
    let prune = run.args.prune;
    run.sync_begins()?;
    let (store, writer) = reflector::store::<K>();
    let stream = stream.map(move |event| {
        event.map(|event| {
            event.modify(|object| {
                if prune {
                    object.managed_fields_mut().clear();
                }
            })
        })
    });
    let mut stream = pin!(stream.default_backoff().reflect(writer));
    while let Some(event) = stream.next().await {
        if matches!(event?, Event::InitDone) {
            break;
        }
    }
    run.sync_ends(store.len() as u64)?;
    if run.wants_events() {
        run.events_begin().await?;
        let mut calls = 0;
        while let Some(event) = stream.next().await {
            if let Event::Apply(object) = event? {
                calls += 1;
                if object.resource_version().is_some_and(|version| version == last_version) {
                    break;
                }
            }
        }
        run.events_end(calls)?;
    }
    Ok(run.findings)
}
