//! Conversion that may wait: a converter in place of a webhook, which takes 20 ms per batch.
use crate::definitions::DEFINITIONS;
use crate::server::{Server, refused};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::GroupKind;
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_registry::conversion::{BATCH_OBJECTS_MAX, CALL_TIMEOUT};
use setpoint_registry::{
    Conversion, ConversionError, ConversionProvider, ConversionRequest, DeleteOptions, EventKind,
    ListOptions, RegistryBuilder, Verb, WatchStream, WriteOptions,
};
use setpoint_store::{MemoryStore, Op, Store as _, Txn};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const V1: &str = "/apis/ex.io/v1/namespaces/default/foos";
pub(crate) const V2: &str = "/apis/ex.io/v2/namespaces/default/foos";
const BATCH_PERIOD: Duration = Duration::from_millis(20);

/// The field `size` of v1 is `length` in v2, and v2 has a label with its value.
#[derive(Debug, Default)]
struct Converter {
    state: Arc<Mutex<State>>,
}
#[derive(Debug, Default)]
pub(crate) struct State {
    /// How often each object was converted: by target version, name and size.
    converted: BTreeMap<(String, String, i64), usize>,
    n_calls: usize,
    /// Refuses everything with this text.
    pub(crate) failure: Option<&'static str>,
    /// Never answers.
    is_stuck: bool,
    /// Changes its answers in this way.
    pub(crate) spoil: Option<fn(&mut Value)>,
}
impl ConversionProvider for Converter {
    fn conversion(&self, kind: &GroupKind, spec: &Value) -> Option<Arc<dyn Conversion>> {
        assert_eq!((&*kind.kind, &spec["strategy"]), ("Foo", &json!("Webhook")));
        Some(Arc::new(Self { state: self.state.clone() }))
    }
}
impl Conversion for Converter {
    fn convert(
        &self,
        request: ConversionRequest,
    ) -> BoxFuture<'static, Result<Vec<Bytes>, ConversionError>> {
        let state = self.state.clone();
        Box::pin(async move {
            assert!(request.objects.len() <= BATCH_OBJECTS_MAX);
            state.lock().n_calls += 1;
            tokio::time::sleep(BATCH_PERIOD).await;
            if state.lock().is_stuck {
                std::future::pending::<()>().await;
            }
            let mut state = state.lock();
            if let Some(text) = state.failure {
                return Err(ConversionError::Refused(text.to_owned()));
            }
            let convert = |object: &Bytes| {
                let mut object: Value = serde_json::from_slice(object).unwrap();
                assert_ne!(object["apiVersion"], *request.api_version, "nothing to convert");
                object["apiVersion"] = request.api_version.clone().into();
                let (was, is) = match request.api_version.as_str() {
                    "ex.io/v2" => ("size", "length"),
                    _ => ("length", "size"),
                };
                let size = object["spec"].get(was).cloned().unwrap_or_default();
                if let Some(spec) = object["spec"].as_object_mut().filter(|_| !size.is_null()) {
                    spec.remove(was);
                    spec.insert(is.to_owned(), size.clone());
                }
                if is == "length" {
                    object["metadata"]["labels"]["length"] = size.to_string().into();
                } else if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
                    labels.remove("length");
                }
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let what = (request.api_version.clone(), name, size.as_i64().unwrap_or_default());
                *state.converted.entry(what).or_default() += 1;
                if let Some(spoil) = state.spoil {
                    spoil(&mut object);
                }
                Bytes::from(object.to_string())
            };
            Ok(request.objects.iter().map(convert).collect())
        })
    }
}
impl State {
    pub(crate) fn n_calls(&self) -> usize {
        self.n_calls
    }
    fn n_converted(&self) -> usize {
        self.converted.values().sum()
    }
    fn assert_once(&self) {
        let twice: Vec<_> = self.converted.iter().filter(|(_, n)| **n != 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}

fn definition(color: bool) -> Value {
    let version = |name: &str, field: &str, is_storage: bool| {
        let mut fields = json!({field: {"type": "integer"}});
        if color {
            fields["color"] = json!({"type": "string"});
        }
        json!({
            "name": name, "served": true, "storage": is_storage,
            "selectableFields": [{"jsonPath": format!(".spec.{field}")}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties":
                {"spec": {"type": "object", "properties": fields}}}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version("v1", "size", true), version("v2", "length", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://localhost/convert"},
                "conversionReviewVersions": ["v1"]}},
        },
    })
}
/// A server that serves `foos`, and the state of its converter.
pub(crate) async fn serving() -> (Server, Arc<Mutex<State>>) {
    serving_with(|builder| builder).await
}
pub(crate) async fn serving_with(
    configure: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
) -> (Server, Arc<Mutex<State>>) {
    let converter = Converter::default();
    let state = converter.state.clone();
    let store = Arc::new(MemoryStore::default());
    let configure = |b: RegistryBuilder| configure(b.seed(7).converter(Arc::new(converter)));
    let server = Server::configured(store.clone(), store, configure).await;
    server.create(DEFINITIONS, definition(false)).await.unwrap();
    let mut catalogs = server.registry.catalog_changes();
    catalogs.wait_for(|catalog| catalog.get("ex.io", "v2", "foos").is_some()).await.unwrap();
    (server, state)
}
pub(crate) fn foo(version: &str, name: &str, size: i64) -> Value {
    let field = if version == "v1" { "size" } else { "length" };
    json!({"apiVersion": format!("ex.io/{version}"), "kind": "Foo",
        "metadata": {"name": name, "namespace": "default"}, "spec": {field: size}})
}
/// Writes stored objects without the write path, 1,000 at a time.
pub(crate) async fn store(server: &Server, foos: impl Iterator<Item = (String, i64)>) {
    let foos: Vec<_> = foos.collect();
    for foos in foos.chunks(1000) {
        let ops = foos.iter().map(|(name, size)| {
            let key = format!("/registry/ex.io/foos/default/{name}");
            let mut object = foo("v1", name, *size);
            object["metadata"]["uid"] = format!("uid-{name}").into();
            Op::Put(key.into(), object.to_string().into())
        });
        server.store.commit(Txn { ops: ops.collect(), ..Txn::default() }).await.unwrap();
    }
}
pub(crate) fn watching_from(revision: u64) -> ListOptions {
    ListOptions { resource_version: revision.to_string(), ..ListOptions::default() }
}
pub(crate) async fn watch(server: &Server, path: &str, options: &ListOptions) -> WatchStream {
    server.registry.watch(&server.request(Verb::Watch, path), options).await.unwrap()
}
/// The next event as `+name=length`.
pub(crate) async fn next(stream: &mut WatchStream) -> String {
    match stream.next().await {
        None => "end".to_owned(),
        Some(Err(error)) => format!("{} {error}", error.code()),
        Some(Ok(event)) => {
            let sign = match event.kind {
                EventKind::Added => "+",
                EventKind::Modified => "~",
                EventKind::Deleted => "-",
                EventKind::Bookmark => "*",
            };
            let object: Value = serde_json::from_slice(&event.object()).unwrap();
            assert_eq!(object["metadata"]["resourceVersion"], event.revision.to_string());
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let v1 = object["spec"]["size"].as_i64().map(|n| format!("(v1)={n}"));
            let v2 = object["spec"]["length"].as_i64().map(|n| format!("={n}"));
            format!("{sign}{name}{}", v1.or(v2).unwrap_or_default())
        }
    }
}
/// `name=length …` of a list, and its revision.
pub(crate) async fn list(
    server: &Server,
    path: &str,
    options: &ListOptions,
) -> Result<(String, u64), String> {
    let list = server.registry.list(&server.request(Verb::List, path), options).await;
    let list = list.map_err(|error| format!("{} {error}", error.code()))?;
    let words = list.items.iter().map(|item| {
        let object: Value = serde_json::from_slice(&item.bytes()).unwrap();
        format!("{}={}", object["metadata"]["name"].as_str().unwrap(), object["spec"]["length"])
    });
    Ok((words.collect::<Vec<_>>().join(" "), list.revision))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_and_a_list_of_ten_thousand_convert_each_object_version_once() {
    const WATCHERS: usize = 1000;
    const OBJECTS: usize = 10_000;
    const UPDATES: i64 = 20;
    let (server, state) = serving().await;
    store(&server, (0..OBJECTS).map(|n| (format!("{n:05}"), 0))).await;
    let started = Instant::now();
    let request = server.request(Verb::List, "/apis/ex.io/v2/foos");
    let options = ListOptions::default();
    let lists = (0..3).map(|_| server.registry.list(&request, &options));
    let lists = join_all(lists).await;
    let listed = lists.into_iter().map(Result::unwrap).last().unwrap();
    assert_eq!(listed.items.len(), OBJECTS);
    // Four batches at a time.
    let n_batches = OBJECTS.div_ceil(BATCH_OBJECTS_MAX);
    assert_eq!(state.lock().n_calls, n_batches);
    assert_eq!(started.elapsed(), BATCH_PERIOD * (n_batches as u32 / 4));
    state.lock().assert_once();

    let from = watching_from(listed.revision);
    let mut converted = Vec::new();
    for _ in 0..WATCHERS {
        converted.push(watch(&server, V2, &from).await);
    }
    let mut as_stored = watch(&server, V1, &from).await;
    let mut elsewhere = watch(&server, "/api/v1/configmaps", &watching_from(0)).await;
    let started = Instant::now();
    for n in 1..=UPDATES {
        store(&server, [("00000".to_owned(), n)].into_iter()).await;
    }
    let map = json!({"metadata": {"name": "other", "namespace": "default"}});
    server.create("/api/v1/namespaces/default/configmaps", map).await.unwrap();
    // Watches of the stored version, or of another resource, do not wait for the converter.
    for n in 1..=UPDATES {
        assert_eq!(next(&mut as_stored).await, format!("~00000(v1)={n}"));
    }
    while next(&mut elsewhere).await != "+other" {}
    assert_eq!(started.elapsed(), Duration::ZERO);
    for watcher in &mut converted {
        for n in 1..=UPDATES {
            assert_eq!(next(watcher).await, format!("~00000={n}"));
        }
    }
    // Changes that came during the first batch are the second.
    assert!(started.elapsed() <= 3 * BATCH_PERIOD, "{:?}", started.elapsed());
    state.lock().assert_once();
    assert_eq!(state.lock().n_converted(), OBJECTS + UPDATES as usize);
    // The object's last state is made from cached objects.
    let delete = Txn {
        ops: vec![Op::Delete("/registry/ex.io/foos/default/00000".into())],
        ..Txn::default()
    };
    server.store.commit(delete).await.unwrap();
    assert_eq!(next(&mut converted[0]).await, format!("-00000={UPDATES}"));
    assert_eq!(state.lock().n_converted(), OBJECTS + UPDATES as usize);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn writes_are_converted_to_storage_and_back_and_cached_for_readers() {
    let (server, state) = serving().await;
    let mut watcher = watch(&server, V2, &ListOptions::default()).await;
    let created = server.create(V2, foo("v2", "a", 1)).await.unwrap();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]),
        (&json!("ex.io/v2"), &json!({"length": 1}))
    );
    assert_eq!(created["metadata"]["labels"], json!({"length": "1"}));
    let stored = server.get(&format!("{V1}/a")).await.unwrap();
    assert_eq!(
        (&stored["spec"], &stored["metadata"]["labels"]),
        (&json!({"size": 1}), &Value::Null)
    );
    assert_eq!(stored["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(next(&mut watcher).await, "+a=1");
    // To the storage version, and the answer: the watcher's event and a GET use the same.
    assert_eq!(state.lock().n_converted(), 2);
    let path = format!("{V2}/a");
    assert_eq!(server.get(&path).await.unwrap(), created);
    assert_eq!(state.lock().n_converted(), 2);

    let patched = server.patch(&path, json!({"spec": {"length": 2}})).await.unwrap();
    assert_eq!(
        (&patched["spec"], &patched["metadata"]["generation"]),
        (&json!({"length": 2}), &json!(2))
    );
    assert_eq!(next(&mut watcher).await, "~a=2");
    let mut object = patched.clone();
    object["spec"]["length"] = 3.into();
    let replaced = server.update(&path, object).await.unwrap();
    assert_eq!(replaced["spec"], json!({"length": 3}));
    assert_eq!(next(&mut watcher).await, "~a=3");
    assert_eq!(state.lock().n_converted(), 6);
    // A dry run stores and caches nothing.
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let kind = setpoint_registry::PatchType::Merge;
    let shown = server.patch_with(&path, kind, json!({"spec": {"length": 9}}), &dry).await.unwrap();
    assert_eq!(shown["spec"], json!({"length": 9}));
    assert_eq!(server.get(&path).await.unwrap()["spec"], json!({"length": 3}));
    server.delete(&path).await.unwrap();
    assert_eq!(next(&mut watcher).await, "-a=3");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_converted_is_deleted_in_its_stored_version_only() {
    let (server, state) = serving().await;
    store(&server, ["a", "b"].into_iter().map(|name| (name.to_owned(), 1))).await;
    state.lock().failure = Some("broken");
    let error = server.delete(&format!("{V2}/a")).await.unwrap_err();
    let read = server.get(&format!("{V2}/a")).await.unwrap_err();
    assert_eq!((error.code(), error.to_string()), (500, read.to_string()));
    server.delete(&format!("{V1}/a")).await.unwrap();
    state.lock().failure = None;
    server.delete(&format!("{V2}/b")).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn selectors_and_pages_use_the_requested_version() {
    let (server, state) = serving().await;
    store(&server, (0..10).map(|n| (format!("foo-{n}"), n % 3))).await;
    let fields = |text: &str| ListOptions {
        fields: FieldSelector::parse(text).unwrap(),
        ..ListOptions::default()
    };
    let labels = |text: &str| ListOptions {
        labels: Selector::parse(text).unwrap(),
        ..ListOptions::default()
    };
    let ones = "foo-1=1 foo-4=1 foo-7=1";
    let (listed, revision) = list(&server, V2, &fields("spec.length=1")).await.unwrap();
    assert_eq!(listed, ones);
    // A label that only the conversion sets.
    assert_eq!(list(&server, V2, &labels("length=1")).await.unwrap().0, ones);
    let mut by_field = watch(
        &server,
        V2,
        &ListOptions { resource_version: revision.to_string(), ..fields("spec.length=1") },
    )
    .await;
    let mut by_label = watch(
        &server,
        V2,
        &ListOptions { resource_version: revision.to_string(), ..labels("length=1") },
    )
    .await;
    store(&server, [("foo-1".to_owned(), 2), ("foo-2".to_owned(), 1)].into_iter()).await;
    for watcher in [&mut by_field, &mut by_label] {
        assert_eq!([next(watcher).await, next(watcher).await], ["-foo-1=1", "+foo-2=1"]);
    }
    let mut options = ListOptions { limit: 4, ..ListOptions::default() };
    let mut pages = Vec::new();
    loop {
        let request = server.request(Verb::List, V2);
        let page = server.registry.list(&request, &options).await.unwrap();
        pages.push(page.items.len());
        options.continue_token = page.continue_token;
        if options.continue_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [4, 4, 2]);
    state.lock().assert_once();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_conversion_ends_watches_of_that_version_only() {
    let (server, state) = serving().await;
    store(&server, (0..3).map(|n| (format!("foo-{n}"), n))).await;
    let (_, revision) = list(&server, V2, &ListOptions::default()).await.unwrap();
    let from = watching_from(revision);
    let (mut first, mut second) =
        (watch(&server, V2, &from).await, watch(&server, V2, &from).await);
    let mut as_stored = watch(&server, V1, &from).await;
    state.lock().failure = Some("out of order");
    store(&server, [("foo-0".to_owned(), 7)].into_iter()).await;
    let failure = "500 conversion webhook for ex.io/v1, Kind=Foo failed: out of order";
    for watcher in [&mut first, &mut second] {
        assert_eq!(next(watcher).await, failure);
        assert_eq!(next(watcher).await, "end");
    }
    assert_eq!(next(&mut as_stored).await, "~foo-0(v1)=7");
    assert_eq!(list(&server, V2, &ListOptions::default()).await.unwrap_err(), failure);
    let error = server.get(&format!("{V2}/foo-0")).await.unwrap_err();
    let told: Value = serde_json::from_slice(&error.to_json()).unwrap();
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": failure[4..], "code": 500});
    assert_eq!(told, status);
    assert_eq!(refused(server.create(V2, foo("v2", "new", 1)).await), failure.replace("v1", "v2"));
    // Objects that were converted before are still served, and so is the stored version.
    assert_eq!(server.get(&format!("{V2}/foo-1")).await.unwrap()["spec"], json!({"length": 1}));
    assert_eq!(server.get(&format!("{V1}/foo-0")).await.unwrap()["spec"], json!({"size": 7}));
    let only = ListOptions {
        fields: FieldSelector::parse("metadata.name=foo-1").unwrap(),
        ..ListOptions::default()
    };
    assert_eq!(list(&server, V2, &only).await.unwrap().0, "foo-1=1");
    // Once the converter works again, a client continues where it was, and only missing objects are
    // converted.
    state.lock().failure = None;
    let mut again = watch(&server, V2, &from).await;
    assert_eq!(next(&mut again).await, "~foo-0=7");
    assert_eq!(
        list(&server, V2, &ListOptions::default()).await.unwrap().0,
        "foo-0=7 foo-1=1 foo-2=2"
    );
    state.lock().assert_once();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_converter_that_never_answers_times_out() {
    let (server, state) = serving().await;
    store(&server, [("a".to_owned(), 1)].into_iter()).await;
    state.lock().is_stuck = true;
    let started = Instant::now();
    let everywhere = "/apis/ex.io/v2/foos";
    let error = list(&server, everywhere, &ListOptions::default()).await.unwrap_err();
    assert_eq!(error, "500 conversion webhook for ex.io/v1, Kind=Foo failed: no answer after 30 s");
    assert_eq!(started.elapsed(), CALL_TIMEOUT);
    assert_eq!(server.get(&format!("{V1}/a")).await.unwrap()["spec"], json!({"size": 1}));
    // A list of a namespace waits no longer than a list of everything, or a get.
    let started = Instant::now();
    let of_namespace = list(&server, V2, &ListOptions::default()).await.unwrap_err();
    assert_eq!((&of_namespace, started.elapsed()), (&error, CALL_TIMEOUT));
    let of_one = server.get(&format!("{V2}/a")).await.unwrap_err();
    assert_eq!(format!("{} {of_one}", of_one.code()), error);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn when_a_converting_request_is_dropped_the_next_one_takes_over() {
    let (server, state) = serving().await;
    store(&server, [("a".to_owned(), 1)].into_iter()).await;
    let path = format!("{V2}/a");
    let mut first = Box::pin(server.get(&path));
    let second = async {
        tokio::time::sleep(BATCH_PERIOD / 2).await;
        server.get(&path).await
    };
    let mut second = Box::pin(second);
    tokio::select! {
        _ = &mut first => panic!("it takes longer"),
        _ = &mut second => panic!("it takes longer"),
        () = tokio::time::sleep(BATCH_PERIOD * 3 / 4) => {}
    }
    drop(first);
    assert_eq!(second.await.unwrap()["spec"], json!({"length": 1}));
    let counted = {
        let state = state.lock();
        (state.n_calls, state.n_converted())
    };
    assert_eq!(counted, (2, 1));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_changes_during_a_list_ends_watches_and_lets_the_list_finish() {
    let (server, state) = serving().await;
    store(&server, (0..3).map(|n| (format!("foo-{n}"), n))).await;
    let mut watcher = watch(&server, V2, &ListOptions::default()).await;
    let everything = ListOptions::default();
    let listing = list(&server, V2, &everything);
    let changing = async {
        tokio::time::sleep(BATCH_PERIOD / 2).await;
        let path = format!("{DEFINITIONS}/foos.ex.io");
        let mut now = server.get(&path).await.unwrap();
        now["spec"]["versions"] = definition(true)["spec"]["versions"].clone();
        server.update(&path, now).await.unwrap();
    };
    let (listed, ()) = futures::join!(listing, changing);
    assert_eq!(listed.unwrap().0, "foo-0=0 foo-1=1 foo-2=2");
    let mut seen = Vec::new();
    loop {
        match next(&mut watcher).await {
            end if end == "end" => break,
            event => seen.push(event),
        }
    }
    // It may have been served before the change came, but it did not get an error.
    assert!(seen.is_empty() || seen == ["+foo-0=0", "+foo-1=1", "+foo-2=2"], "{seen:?}");
    let (listed, _) = list(&server, V2, &ListOptions::default()).await.unwrap();
    assert_eq!(listed, "foo-0=0 foo-1=1 foo-2=2");
    assert!(state.lock().failure.is_none());
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_may_change_no_metadata_but_labels_and_annotations() {
    let (server, state) = serving().await;
    let prefix = "500 conversion webhook for ex.io/v1, Kind=Foo";
    type Spoil = fn(&mut Value);
    let spoils: [(Spoil, &str); 11] = [
        (
            |o| o["kind"] = "Bar".into(),
            "returned invalid object at index 0: invalid kind (expected Foo, received Bar)",
        ),
        (
            |o| o["apiVersion"] = "ex.io/v9".into(),
            "returned invalid object at index 0: invalid groupVersion (expected ex.io/v2, received ex.io/v9)",
        ),
        (
            |o| o["metadata"]["name"] = "b".into(),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |o| o["metadata"]["namespace"] = "b".into(),
            "returned invalid object: must have the same namespace: default != b",
        ),
        (
            |o| o["metadata"]["uid"] = "b".into(),
            "returned invalid object: must have the same UID: uid-a != b",
        ),
        (
            |o| _ = o.as_object_mut().unwrap().remove("metadata"),
            "returned invalid object: must have the same name: a != ",
        ),
        (
            |o| o["metadata"]["labels"] = json!({"n": 1}),
            "returned invalid metadata: metadata.labels[n] must be a string, but is int64 in converted object",
        ),
        (
            |o| o["metadata"]["annotations"] = json!({"n": null}),
            "returned invalid metadata: metadata.annotations[n] must be a string, but is <nil> in converted object",
        ),
        (
            |o| o["metadata"]["labels"] = json!(["x"]),
            "returned invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        ),
        (
            |o| o["metadata"]["annotations"] = json!({"?": "x"}),
            "returned invalid metadata: metadata.annotation: Invalid value: \"?\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            |o| o["metadata"]["labels"] = json!({"?": "x"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"?\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    ];
    store(&server, [("a".to_owned(), 1)].into_iter()).await;
    for (spoil, text) in spoils {
        state.lock().spoil = Some(spoil);
        assert_eq!(refused(server.get(&format!("{V2}/a")).await), format!("{prefix} {text}"));
    }
    // Other metadata is restored; fields that the version does not declare are dropped.
    state.lock().spoil = Some(|object| {
        object["metadata"]["finalizers"] = json!(["ex.io/mine"]);
        object["metadata"]["generation"] = 99.into();
        object["metadata"]["annotations"] = json!({"by": "converter"});
        object["spec"]["unknown"] = true.into();
    });
    let revision = server.revision().await;
    assert_eq!(
        server.get(&format!("{V2}/a")).await.unwrap(),
        json!({"apiVersion": "ex.io/v2", "kind": "Foo", "spec": {"length": 1}, "metadata":
            {"name": "a", "namespace": "default", "uid": "uid-a", "labels": {"length": "1"},
             "annotations": {"by": "converter"}, "resourceVersion": revision.to_string()}})
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_view_without_readers_ends() {
    let (server, state) = serving().await;
    store(&server, (0..3).map(|n| (format!("foo-{n}"), n))).await;
    list(&server, V2, &ListOptions::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let n_before = state.lock().n_calls;
    store(&server, [("foo-0".to_owned(), 7)].into_iter()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(state.lock().n_calls, n_before, "nobody asked for it");
    // Earlier objects are cached for a while; the new one is converted on request.
    let (listed, _) = list(&server, V2, &ListOptions::default()).await.unwrap();
    assert_eq!(listed, "foo-0=7 foo-1=1 foo-2=2");
    state.lock().assert_once();
    let options = DeleteOptions::default();
    server.delete_with(&format!("{V1}/foo-0"), &options).await.unwrap();
    server.stop().await;
}
