//! Readers of several types over one informer: one watch, one store of bytes.
use crate::support::*;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use kube_core::{DynamicObject, ObjectMeta, Resource};
use parking_lot::Mutex;
use serde::Deserialize;
use setpoint_informer::source::scripted::{Answer, Script};
use setpoint_informer::{CachePolicy, Cacheable, Event, HandlerOptions, SharedInformer};
use std::borrow::Cow;
use std::sync::Arc;

/// The fields of a ConfigMap that one reader declares.
#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    metadata: ObjectMeta,
    pub(crate) data: Data,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Data {
    pub(crate) v: String,
}

impl Resource for Version {
    type DynamicType = ();
    type Scope = <ConfigMap as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        "".into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A handler that records what it reads of each object.
fn record<K: Cacheable>(
    informer: &SharedInformer<K>,
    read: impl Fn(&K) -> String + Send + 'static,
) -> Arc<Mutex<Vec<String>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = log.clone();
    let handler = move |event: Event<K>| {
        lines.lock().extend(event.object().map(|object| read(&object.get().unwrap())));
    };
    informer.add_handler(handler, HandlerOptions::default()).unwrap();
    log
}

#[tokio::test(start_paused = true)]
async fn readers_of_four_types_share_one_list_and_one_watch() {
    let script = Script::new([
        page("5", &[("a", 1), ("b", 2)]),
        Answer::Watch(vec![wait(1), modified("a", 6), deleted("b", 7), wait(600)]),
    ]);
    let running = Running::start(builder(&script));
    let maps = &running.informer;
    let versions = maps.view::<Version>().unwrap();
    let metadata = maps.view::<PartialObjectMeta<ConfigMap>>().unwrap();
    let dynamic = maps.view::<DynamicObject>().unwrap();
    let of_maps = record(maps, |map| map.data.clone().unwrap_or_default()["v"].clone());
    let of_versions = record(&versions, |map| map.data.v.clone());
    let of_metadata = record(&metadata, |map| map.metadata.name.clone().unwrap_or_default());
    let of_dynamic = record(&dynamic, |map| map.data["data"]["v"].to_string());
    pass(2).await;
    assert_eq!(asked(&script), [r#"list "0" limit=500"#, r#"watch "5""#]);
    assert_eq!(*of_maps.lock(), ["1", "2", "6", "7"]);
    assert_eq!(*of_versions.lock(), ["1", "2", "6", "7"]);
    assert_eq!(*of_metadata.lock(), ["a", "b", "a", "b"]);
    assert_eq!(*of_dynamic.lock(), [r#""1""#, r#""2""#, r#""6""#, r#""7""#]);

    // Each reads its own type, and the next reader of that type gets the cached value.
    let map = maps.lister().get("ns", "a").unwrap().unwrap();
    let version = versions.lister().get("ns", "a").unwrap().unwrap();
    assert_eq!(map.data.as_ref().unwrap()["v"], version.data.v);
    assert!(Arc::ptr_eq(&map, &maps.lister().get("ns", "a").unwrap().unwrap()));
    assert!(Arc::ptr_eq(&version, &versions.lister().get("ns", "a").unwrap().unwrap()));
    let bytes = |object: Option<&bytes::Bytes>| object.unwrap().as_ptr();
    let key = setpoint_informer::Key::new("ns", "a");
    assert_eq!(
        bytes(maps.lister().object(&key).unwrap().bytes()),
        bytes(dynamic.lister().object(&key).unwrap().bytes()),
        "one copy"
    );
    assert!(versions.has_synced() && versions.status().degraded.is_none());
    running.end().await;
    assert!(dynamic.has_stopped());
}

#[tokio::test(start_paused = true)]
async fn an_index_of_one_type_is_read_by_another() {
    let script = Script::new([page("5", &[("a", 1), ("b", 2)])]);
    let running = Running::start(builder(&script));
    let versions = running.informer.view::<Version>().unwrap();
    versions.add_index("v", |map| vec![map.data.v.clone()]).unwrap();
    running.informer.synced().await.unwrap();
    let found = running.informer.lister().by_index("v", "2").unwrap();
    assert_eq!(found[0].metadata.name.as_deref(), Some("b"));
    let taken = running.informer.add_index("v", |_| vec![]);
    assert_eq!(taken.unwrap_err().to_string(), r#"the index "v" exists already"#);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_one_reader_is_read_by_the_others() {
    let odd =
        r#"{"metadata":{"namespace":"ns","name":"odd","resourceVersion":"3"},"data":{"w":"1"}}"#;
    let page = setpoint_informer::source::ListPage::new("5", vec![odd.into()]);
    let running = Running::start(builder(&Script::new([Answer::List(Ok(page))])));
    running.informer.synced().await.unwrap();
    let versions = running.informer.view::<Version>().unwrap();
    assert!(versions.lister().get("ns", "odd").is_err());
    assert!(running.informer.lister().get("ns", "odd").unwrap().is_some());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn values_of_one_type_are_for_its_readers_only() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let running = Running::start(builder(&script).policy(CachePolicy::Decoded));
    assert!(running.informer.view::<Version>().is_none());
    assert!(running.informer.view::<ConfigMap>().is_some());
    running.end().await;
}
