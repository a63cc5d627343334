//! Tests of both informer sources for a control plane in this process: HTTP requests and direct
//! calls.

use bytes::Bytes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, ConfigMap, Namespace};
use kube_client::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use kube_core::dynamic::{ApiResource, DynamicObject};
use kube_core::{GroupVersionKind, ResourceExt};
use serde_json::{Value, json};
use setpoint::informer::SourceError;
use setpoint::informer::source::{ListPart, ListRequest, WatchFrame, WatchRequest, WatchStream};
use setpoint::prelude::*;
use setpoint::{ControlPlane, InProcessSource};
use std::time::Duration;

/// Compares both sources.
struct Sources {
    client: Client,
    server: setpoint::apiserver::ApiServer,
}

/// The namespace and selectors of a request.
#[derive(Clone, Copy, Default)]
struct Scope {
    namespace: Option<&'static str>,
    labels: &'static str,
    fields: &'static str,
}

async fn with_asker<T>(act: impl AsyncFnOnce(Sources) -> T) -> T {
    let plane = ControlPlane::builder().simulated(0).build();
    let asker = Sources { client: plane.client(), server: plane.server().clone() };
    let stop = CancellationToken::new();
    let (ended, answer) = tokio::join!(plane.run(stop.clone()), async {
        let answer = act(asker).await;
        stop.cancel();
        answer
    });
    ended.unwrap();
    answer
}

impl Sources {
    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, labels: Value) -> String {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        let map = serde_json::from_value(map).unwrap();
        let made = self.config_maps().create(&PostParams::default(), &map).await.unwrap();
        made.resource_version().unwrap()
    }

    /// The HTTP source and the direct source.
    fn sources<K: kube_core::Resource>(
        &self,
        dynamic_type: &K::DynamicType,
        scope: Scope,
    ) -> [Box<dyn ListWatch>; 2] {
        let requests =
            ClientSource::dynamic::<K>(self.client.clone(), dynamic_type, scope.namespace);
        let calls = InProcessSource::dynamic::<K>(&self.server, dynamic_type, scope.namespace);
        [
            Box::new(requests.labels(scope.labels).fields(scope.fields)),
            Box::new(calls.labels(scope.labels).fields(scope.fields)),
        ]
    }

    /// The response of both to a list, which must be equal, also in parts.
    async fn list(&self, scope: Scope, request: ListRequest) -> String {
        let mut answers = Vec::new();
        for source in self.sources::<ConfigMap>(&(), scope) {
            let whole = shown(source.list(request.clone()).await);
            assert_eq!(parts(&*source, request.clone()).await, whole);
            answers.push(whole);
        }
        assert_eq!(answers[0], answers[1]);
        answers.remove(0)
    }

    async fn watches(&self, scope: Scope, request: WatchRequest) -> [WatchStream; 2] {
        let [requests, calls] = self.sources::<ConfigMap>(&(), scope);
        [
            requests.watch(request.clone()).await.ok().unwrap(),
            calls.watch(request).await.ok().unwrap(),
        ]
    }
}

fn list_request(version: &str, limit: Option<u32>, token: Option<&str>) -> ListRequest {
    let mut request = ListRequest::default();
    request.resource_version = version.to_owned();
    request.limit = limit;
    request.continue_token = token.map(str::to_owned);
    request
}

fn watch_request(version: &str, send_initial_events: bool) -> WatchRequest {
    let mut request = WatchRequest::default();
    request.resource_version = version.to_owned();
    request.timeout = Duration::from_secs(300);
    request.send_initial_events = send_initial_events;
    request
}

/// A summary of a page: its version, its token, its items without their type.
fn shown(page: Result<setpoint::informer::source::ListPage, SourceError>) -> String {
    match page {
        Ok(page) => {
            let items: Vec<Value> = page.items.iter().map(untyped).collect();
            format!("{} {:?} {}", page.resource_version, page.continue_token, Value::from(items))
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &SourceError) -> String {
    format!("{:?} {:?} {error}", error.code(), error.retry_after())
}

async fn parts(source: &dyn ListWatch, request: ListRequest) -> String {
    let mut parts = match source.list_in_parts(request).await {
        Ok(parts) => parts,
        Err(error) => return failed(&error),
    };
    let mut items = Vec::new();
    while let Some(part) = parts.next().await {
        match part {
            Ok(ListPart::Items(part)) => items.extend(part.iter().map(|item| untyped(&item.bytes))),
            Ok(ListPart::End(head)) => {
                assert!(parts.next().await.is_none());
                let token = head.continue_token;
                return format!("{} {token:?} {}", head.resource_version, Value::from(items));
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => return failed(&error),
        }
    }
    panic!("a list without an end")
}

fn untyped(object: &Bytes) -> Value {
    let mut object: Value = serde_json::from_slice(object).unwrap();
    let members = object.as_object_mut().unwrap();
    members.remove("kind");
    members.remove("apiVersion");
    object
}

/// A summary of a frame: verb, name, version.
fn short(frame: Option<Result<WatchFrame, SourceError>>) -> String {
    let (verb, object) = match frame {
        Some(Ok(WatchFrame::Added(object))) => ("+", object),
        Some(Ok(WatchFrame::Modified(object))) => ("~", object),
        Some(Ok(WatchFrame::Deleted(object))) => ("-", object),
        Some(Ok(WatchFrame::Bookmark(object))) => ("@", object),
        Some(Ok(WatchFrame::Error(error))) => return failed(&error.into()),
        Some(Err(error)) => return failed(&error),
        None => return "end".to_owned(),
        Some(other) => panic!("{other:?}"),
    };
    let object: Value = serde_json::from_slice(&object).unwrap();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let metadata = &object["metadata"];
    let marker = metadata["annotations"]["k8s.io/initial-events-end"] == "true";
    let name = metadata["name"].as_str().unwrap_or_default();
    let version = metadata["resourceVersion"].as_str().unwrap();
    format!("{verb}{name}@{version}{}", if marker { "!" } else { "" })
}

/// The next frames of both, which must be equal.
async fn next(watches: &mut [WatchStream; 2], n: usize) -> Vec<String> {
    let mut frames = Vec::new();
    for _ in 0..n {
        let frame = short(watches[0].next().await);
        assert_eq!(short(watches[1].next().await), frame);
        frames.push(frame);
    }
    frames
}

const EVERYWHERE: Scope = Scope { namespace: None, labels: "", fields: "" };
const DEFAULT: Scope = Scope { namespace: Some("default"), labels: "", fields: "" };

#[tokio::test(start_paused = true)]
async fn lists_are_equal_in_pages_with_selectors_and_in_errors() {
    with_asker(async |asker| {
        let mut last = String::new();
        for n in 0..5 {
            last = asker.create(&format!("m{n}"), json!({"odd": (n % 2).to_string()})).await;
        }
        let all = asker.list(DEFAULT, list_request("", None, None)).await;
        assert!(all.starts_with(&format!("{last} None")) && all.contains("m4"), "{all}");
        // REF-1: any state, with the limit that a cache ignores; not older than; the most recent.
        assert_eq!(asker.list(DEFAULT, list_request("0", Some(2), None)).await, all);
        assert_eq!(asker.list(DEFAULT, list_request(&last, None, None)).await, all);
        asker.list(EVERYWHERE, list_request("", None, None)).await;
        let before = (last.parse::<u64>().unwrap() - 1).to_string();
        let mut exactly = list_request(&before, None, None);
        exactly.exact = true;
        let exactly = asker.list(DEFAULT, exactly).await;
        assert!(exactly.starts_with(&before) && !exactly.contains("m4"), "{exactly}");
        let odd = Scope { labels: "odd in (1)", ..DEFAULT };
        let odd = asker.list(odd, list_request("", None, None)).await;
        assert!(odd.contains("m3") && !odd.contains("m2"), "{odd}");
        let named = Scope { fields: "metadata.name=m2", ..EVERYWHERE };
        assert!(asker.list(named, list_request("0", None, None)).await.contains("m2"));

        // REF-2: the second page needs only its token.
        let page = asker.sources::<ConfigMap>(&(), DEFAULT)[1]
            .list(list_request("", Some(2), None))
            .await
            .unwrap();
        let token = page.continue_token.unwrap();
        let second = asker.list(DEFAULT, list_request("", Some(2), Some(&token))).await;
        assert!(second.contains("m2") && !second.contains("m4"), "{second}");

        // REF-6, and invalid requests.
        let future = asker.list(DEFAULT, list_request("999999", None, None)).await;
        assert!(
            future.contains("504") && future.contains("Too large resource version"),
            "{future}"
        );
        let bad = Scope { labels: "a in (", ..DEFAULT };
        assert!(asker.list(bad, list_request("", None, None)).await.contains("400"));
        let bad = Scope { fields: "spec.nope=1", ..DEFAULT };
        assert!(asker.list(bad, list_request("", None, None)).await.contains("400"));
        assert!(asker.list(DEFAULT, list_request("x", None, None)).await.contains("400"));
        assert!(asker.list(DEFAULT, list_request("", None, Some("no"))).await.contains("400"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ref_11_streamed_lists_and_later_events_are_equal() {
    with_asker(async |asker| {
        asker.create("a", json!({"app": "x"})).await;
        asker.create("b", json!({"app": "y"})).await;
        let scope = Scope { labels: "app=x", ..DEFAULT };
        let mut watches = asker.watches(scope, watch_request("", true)).await;
        let first = next(&mut watches, 2).await;
        assert!(first[0].starts_with("+a@") && first[1].starts_with('@'), "{first:?}");
        assert!(first[1].ends_with('!'), "{first:?}");
        let maps = asker.config_maps();
        let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
        for (name, value) in [("b", "x"), ("b", "x"), ("a", "z")] {
            let patch = Patch::Merge(label(value));
            maps.patch(name, &PatchParams::default(), &patch).await.unwrap();
        }
        let more = json!({"data": {"k": "v"}});
        maps.patch("b", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
        maps.delete("b", &DeleteParams::default()).await.unwrap();
        let verbs: Vec<String> =
            next(&mut watches, 4).await.iter().map(|frame| frame[..2].to_owned()).collect();
        assert_eq!(verbs, ["+b", "-a", "~b", "-b"]);
        // Without changes, a bookmark arrives, and the watch ends at its timeout.
        let [one, two] = watches;
        let (one, two): (Vec<_>, Vec<_>) = futures::join!(one.collect(), two.collect());
        for frames in [one, two] {
            let mut frames: Vec<_> = frames.into_iter().map(|frame| short(Some(frame))).collect();
            frames.dedup();
            assert!(matches!(&frames[..], [bookmark] if bookmark.starts_with('@')), "{frames:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ref_26_expired_version_ends_both_watches_the_same_way() {
    with_asker(async |asker| {
        // Changes before the server's start are not in the history.
        asker.create("a", json!({})).await;
        let mut watches = asker.watches(DEFAULT, watch_request("1", false)).await;
        let results = next(&mut watches, 2).await;
        assert!(results[0].starts_with("Some(410)") && results[1] == "end", "{results:?}");
        let [source, _] = asker.sources::<ConfigMap>(&(), DEFAULT);
        let now = source.list(list_request("", None, None)).await.unwrap().resource_version;
        let mut watches = asker.watches(DEFAULT, watch_request(&now, false)).await;
        let made = asker.create("b", json!({})).await;
        assert_eq!(next(&mut watches, 1).await, [format!("+b@{made}")]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unserved_resources_are_the_same_error() {
    with_asker(async |asker| {
        let unknown = ApiResource::from_gvk(&GroupVersionKind::gvk("no.such", "v1", "Thing"));
        let no_such = asker.sources::<DynamicObject>(&unknown, EVERYWHERE);
        let misplaced = asker.sources::<Namespace>(&(), DEFAULT);
        let bindings = asker.sources::<Binding>(&(), EVERYWHERE);
        for (sources, code) in [(no_such, 404), (misplaced, 404), (bindings, 404)] {
            let mut results = Vec::new();
            for source in &sources {
                let list = source.list(ListRequest::default()).await.unwrap_err();
                let Err(watch) = source.watch(watch_request("1", false)).await else {
                    panic!("it opened")
                };
                assert_eq!((list.code(), watch.code()), (Some(code), Some(code)));
                results.push((failed(&list), failed(&watch)));
            }
            assert_eq!(results[0], results[1]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unstarted_server_is_waited_for_and_then_an_error() {
    let plane = ControlPlane::builder().simulated(0).build();
    let asker = Sources { client: plane.client(), server: plane.server().clone() };
    let results = asker.list(DEFAULT, ListRequest::default()).await;
    assert!(results.starts_with("Some(503) Some(1s)"), "{results}");
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_the_server_drains() {
    with_asker(async |asker| {
        let made = asker.create("a", json!({})).await;
        let mut watches = asker.watches(DEFAULT, watch_request("0", false)).await;
        asker.server.drain();
        let results = next(&mut watches, 3).await;
        assert_eq!(results[0], format!("+a@{made}"));
        assert_eq!(results[2], "end", "{results:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn objects_are_shared_and_not_copied() {
    with_asker(async |asker| {
        asker.create("a", json!({})).await;
        let source = InProcessSource::namespaced::<ConfigMap>(&asker.server, "default");
        let one = source.list(list_request("", None, None)).await.unwrap();
        let two = source.list(list_request("0", None, None)).await.unwrap();
        assert_eq!(one.items[0].as_ptr(), two.items[0].as_ptr());
        let mut watch = source.watch(watch_request("0", false)).await.ok().unwrap();
        let Some(Ok(WatchFrame::Added(added))) = watch.next().await else { panic!("not added") };
        assert_eq!(added.as_ptr(), one.items[0].as_ptr());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn informers_over_both_have_the_servers_objects() {
    with_asker(async |asker| {
        let requests = ClientSource::all::<ConfigMap>(asker.client.clone());
        for streams in [true, false] {
            let calls = InProcessSource::all::<ConfigMap>(&asker.server).stream_list(streams);
            let (one, one_worker) =
                SharedInformer::<ConfigMap>::builder(requests.clone().stream_list(streams))
                    .seed(1)
                    .build();
            let (two, two_worker) = SharedInformer::<ConfigMap>::builder(calls).seed(1).build();
            let stop = CancellationToken::new();
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(one_worker.run(stop.clone()));
            tasks.spawn(two_worker.run(stop.clone()));
            one.synced().await.unwrap();
            two.synced().await.unwrap();
            for n in 0..3 {
                asker.create(&format!("c{n}-{streams}"), json!({})).await;
            }
            asker
                .config_maps()
                .delete(&format!("c0-{streams}"), &DeleteParams::default())
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            let held = |informer: &SharedInformer<ConfigMap>| {
                let objects = informer.lister().snapshot();
                objects.iter().map(|object| format!("{object:?}")).collect::<Vec<_>>()
            };
            assert_eq!(held(&one), held(&two));
            assert!(held(&one).iter().any(|object| object.contains("c2")), "{:?}", held(&one));
            assert!(!held(&one).iter().any(|object| object.contains(&format!("c0-{streams}"))));
            stop.cancel();
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap();
            }
        }
    })
    .await;
}
