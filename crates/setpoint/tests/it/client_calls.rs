//! The runtime's client over a real API server: its calls, layers and reads of its own writes
//! (CLI-1…12).

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_core::DynamicObject;
use kube_core::discovery::ApiResource;
use kube_core::params::{DeleteParams, ListParams, Patch, Preconditions};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::field_selector::FieldSelector;
use setpoint::object::label::Selector;
use setpoint::object::time::Timestamp;
use setpoint::runtime::client::layer::{
    self, DryRun, FieldOwner, Interceptor, LayerError, Namespaced, Next, Verb,
};
use setpoint::runtime::{
    Apply, Client, ClientError, Clock, Manager, MergeFrom, Request,
    client::{FieldValidation, LiveEvent, Retry, ignore_already_exists, ignore_not_found},
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceBuilder;

/// A control plane with a manager that runs no controller. Dropping it ends both.
pub(crate) struct Beside {
    pub(crate) client: Client,
    pub(crate) kube: kube_client::Client,
    _tasks: JoinSet<()>,
}

/// Starts both; the manager's requests pass through `layer`.
pub(crate) async fn beside<L>(layer: L) -> Beside
where
    L: tower::Layer<layer::ClientService>,
    L::Service: tower::Service<
            http::Request<kube_client::client::Body>,
            Response = http::Response<kube_client::client::Body>,
            Error: Into<tower::BoxError>,
            Future: Send,
        > + Send
        + 'static,
{
    let plane = ControlPlane::builder().simulated(1).build();
    let kube = plane.client();
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let manager =
        Manager::builder(layer::layered(kube.clone(), &layer)).clock(clock).seed(1).build();
    let client = manager.client().clone();
    let mut ready = plane.ready();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    tasks.spawn(async move { manager.run(CancellationToken::new()).await.unwrap() });
    ready.wait_for(|ready| *ready).await.unwrap();
    Beside { client, kube, _tasks: tasks }
}

pub(crate) async fn plain() -> Beside {
    beside(tower::layer::util::Identity::new()).await
}

impl Beside {
    /// Caches config maps from now on.
    pub(crate) async fn cache_maps(&self) {
        self.client.cache().informer::<ConfigMap>();
        while self.client.api::<ConfigMap>().lister().is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) fn key(name: &str) -> Request {
    Request::new("default", name)
}

pub(crate) fn map(name: &str, value: &str) -> ConfigMap {
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"of": name}},
        "data": {"k": value},
    });
    serde_json::from_value(object).unwrap()
}

fn value(map: &ConfigMap) -> &str {
    &map.data.as_ref().unwrap()["k"]
}

#[tokio::test(start_paused = true)]
async fn cli_2_reads_show_own_writes_without_a_request() {
    let n_gets = Arc::new(AtomicUsize::new(0));
    let count = n_gets.clone();
    let world = beside(Interceptor::new(move |call, request, next: Next| {
        count.fetch_add(usize::from(call.verb == Verb::Get), Ordering::Relaxed);
        next.run(request)
    }))
    .await;
    world.cache_maps().await;
    let maps = world.client.api::<ConfigMap>();
    for round in 0..20 {
        assert_eq!(maps.get_own(&key("a")).await.unwrap(), None, "gone, round {round}");
        let created = maps.create(&map("a", "1")).await.unwrap();
        let read = maps.get_own(&key("a")).await.unwrap().unwrap();
        assert_eq!(read.metadata.uid, created.metadata.uid, "round {round}");
        maps.patch(&key("a"), &Patch::Merge(json!({"data": {"k": "2"}}))).await.unwrap();
        assert_eq!(value(&maps.get_own(&key("a")).await.unwrap().unwrap()), "2");
        let replaced = maps.replace(&map("a", "3")).await.unwrap();
        let version = replaced.metadata.resource_version.unwrap();
        assert_eq!(value(&maps.get_at_least(&key("a"), &version).await.unwrap().unwrap()), "3");
        maps.create(&map("b", "1")).await.unwrap();
        maps.lister_own().await.unwrap();
        assert_eq!(maps.list(None, &Selector::parse("of=b").unwrap()).unwrap().len(), 1);
        maps.delete(&key("b"), &DeleteParams::default()).await.unwrap();
        maps.lister_own().await.unwrap();
        assert_eq!(maps.list(None, &Selector::parse("of=b").unwrap()).unwrap(), []);
        maps.delete(&key("a"), &DeleteParams::default()).await.unwrap();
    }
    // With a finalizer it stays until the write that removes the finalizer.
    let mut held = map("a", "1");
    held.metadata.finalizers = Some(vec!["example.com/held".into()]);
    maps.create(&held).await.unwrap();
    maps.delete(&key("a"), &DeleteParams::default()).await.unwrap();
    let going = maps.get_own(&key("a")).await.unwrap().unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch(&key("a"), &patch).await.unwrap();
    assert_eq!(maps.get_own(&key("a")).await.unwrap(), None);
    assert_eq!(n_gets.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn outdated_cache_is_a_typed_error_after_a_bounded_wait() {
    let world = beside(Interceptor::new(|call, request, next: Next| async move {
        if call.verb != Verb::Watch {
            return next.run(request).await;
        }
        if request.uri().query().is_some_and(|query| query.contains("sendInitialEvents")) {
            let refused = setpoint::object::ApiError::bad_request("no streams of lists");
            return Ok(layer::refuse(&refused));
        }
        // The cache lists, and then receives nothing.
        std::future::pending().await
    }))
    .await;
    let maps = world.client.api::<ConfigMap>();
    assert!(matches!(maps.get_own(&key("a")).await, Ok(None) | Err(ClientError::NotCached { .. })));
    world.cache_maps().await;
    maps.create(&map("a", "1")).await.unwrap();
    let began = tokio::time::Instant::now();
    let behind = maps.get_own_within(&key("a"), Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(behind, ClientError::Behind { .. }), "{behind:?}");
    assert_eq!(began.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn cli_5_and_6_patches_of_every_kind_merge_from_base_and_apply() {
    let world = plain().await;
    let maps = world.client.field_manager("me").api::<ConfigMap>();
    let created = maps.create(&map("a", "1")).await.unwrap();
    let mut changed = created.clone();
    changed.data.as_mut().unwrap().insert("new".into(), "n".into());
    let base = MergeFrom::object(&created).locked();
    let merged = maps.merge(&base, &changed).await.unwrap().unwrap();
    assert_eq!(merged.data.as_ref().unwrap()["new"], "n");
    assert!(maps.merge(&base, &created).await.unwrap().is_none(), "nothing differs");
    assert!(maps.merge(&base, &changed).await.unwrap_err().is_conflict(), "an old version");
    let unlocked = map("a", "1");
    let refused = maps.merge(&MergeFrom::new(&unlocked).locked(), &map("a", "2")).await;
    assert!(matches!(refused, Err(ClientError::NoVersion { .. })));

    let json_patch: Vec<serde_json::Value> =
        vec![json!({"op": "replace", "path": "/data/k", "value": "json"})];
    let operations = serde_json::from_value(json!(json_patch)).unwrap();
    let patched = maps.patch(&key("a"), &Patch::<()>::Json(operations)).await.unwrap();
    assert_eq!(value(&patched), "json");
    let strategic = Patch::Strategic(json!({"data": {"k": "strategic"}}));
    assert_eq!(value(&maps.patch(&key("a"), &strategic).await.unwrap()), "strategic");

    // Apply creates the object if it does not exist, and takes over fields only by force.
    let apply =
        |name| Apply::<ConfigMap>::new(&key(name)).label("of", "me").set("/data/k", "applied");
    let made = maps.apply(&apply("b")).await.unwrap();
    assert_eq!(made.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("me"));
    let conflict = maps.field_manager("other").apply(&apply("a").set("/data/k", "mine")).await;
    assert!(conflict.unwrap_err().is_conflict());
    let forced = maps.apply(&apply("a").force().field_manager("other")).await.unwrap();
    assert_eq!(value(&forced), "applied");
    let again = maps.apply(&apply("a").force().field_manager("other")).await.unwrap();
    assert_eq!(again.metadata.resource_version, forced.metadata.resource_version, "no change");
    // Fields that are no longer applied are removed.
    let less = Apply::<ConfigMap>::new(&key("a")).label("of", "me").field_manager("other");
    assert!(!maps.apply(&less).await.unwrap().data.unwrap_or_default().contains_key("k"));
}

/// Caches drop `managedFields`: an update of what was read from one must not reset them.
#[tokio::test(start_paused = true)]
async fn an_update_of_a_cached_object_keeps_the_owners_of_its_fields() {
    let world = plain().await;
    world.cache_maps().await;
    let maps = world.client.api::<ConfigMap>();
    maps.create(&map("a", "1")).await.unwrap();
    let apply = Apply::<ConfigMap>::new(&key("a")).set("/data/applied", "x");
    let before = maps.apply(&apply.field_manager("applier")).await.unwrap();
    let owners = |map: &ConfigMap| {
        let entries = map.metadata.managed_fields.iter().flatten();
        let mut owners: Vec<_> = entries
            .map(|entry| (entry.manager.clone(), entry.operation.clone(), entry.fields_v1.clone()))
            .collect();
        owners.sort_by(|a, b| a.0.cmp(&b.0));
        owners
    };
    assert_eq!(owners(&before).len(), 2, "{:?}", owners(&before));

    let mut cached = ConfigMap::clone(&*maps.get_own(&key("a")).await.unwrap().unwrap());
    assert_eq!(cached.metadata.managed_fields, None);
    cached.data.get_or_insert_default().insert("k".to_owned(), "2".to_owned());
    maps.replace(&cached).await.unwrap();
    let after = maps.get_live(&key("a")).await.unwrap().unwrap();
    assert_eq!(value(&after), "2");
    assert_eq!(owners(&after), owners(&before));
}

fn deployment() -> Deployment {
    let object = json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    serde_json::from_value(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn cli_7_subresources_are_read_replaced_patched_and_applied() {
    let world = plain().await;
    let deployments = world.client.api::<Deployment>();
    deployments.create(&deployment()).await.unwrap();
    let web = key("web");
    let scale = deployments.scale();
    let mut read: Scale = scale.get(&web).await.unwrap().unwrap();
    assert!(scale.get(&key("other")).await.unwrap().is_none());
    read.spec.as_mut().unwrap().replicas = Some(2);
    assert_eq!(scale.replace(&web, &read).await.unwrap().spec.unwrap().replicas, Some(2));
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    assert_eq!(scale.patch(&web, &patch).await.unwrap().spec.unwrap().replicas, Some(3));
    let apply = Apply::<Scale>::new(&web).set("/spec/replicas", 4).force();
    assert_eq!(scale.apply(&apply).await.unwrap().spec.unwrap().replicas, Some(4));

    let status = deployments.status();
    let mut object = status.get(&web).await.unwrap().unwrap();
    object.status.get_or_insert_default().replicas = Some(4);
    object.spec.replicas = Some(9);
    let replaced = status.replace(&web, &object).await.unwrap();
    assert_eq!(replaced.status.as_ref().unwrap().replicas, Some(4));
    assert_eq!(replaced.spec.replicas, Some(4), "the spec stays");
    let mut merged = replaced.clone();
    merged.status.as_mut().unwrap().ready_replicas = Some(1);
    merged.spec.replicas = Some(9);
    let merged = status.merge(&MergeFrom::object(&replaced), &merged).await.unwrap().unwrap();
    assert_eq!(merged.status.unwrap().ready_replicas, Some(1));
    let apply = Apply::<Deployment>::new(&web).status(json!({"availableReplicas": 1}));
    let applied = status.apply(&apply).await.unwrap();
    assert_eq!(applied.status.unwrap().available_replicas, Some(1));

    let unknown = deployments.subresource::<Scale>("nonsense").get(&web).await.unwrap_err();
    assert!(unknown.is_not_found(), "{unknown:?}");
    let elsewhere = deployments.subresource::<Scale>("../../b").get(&web).await.unwrap_err();
    assert!(matches!(elsewhere, ClientError::Key { .. }));
    for name in ["", "a/b", "..", "a%2fb"] {
        let refused = deployments.get_live(&key(name)).await.unwrap_err();
        assert!(matches!(refused, ClientError::Key { .. }), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn cli_9_deletion_checks_preconditions() {
    let world = plain().await;
    let maps = world.client.api::<ConfigMap>();
    for name in ["a", "b", "c"] {
        maps.create(&map(name, "1")).await.unwrap();
    }
    let precondition = |preconditions| DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let uid = Preconditions { uid: Some("other".into()), resource_version: None };
    assert!(maps.delete(&key("a"), &precondition(uid)).await.unwrap_err().is_conflict());
    let version = Preconditions { uid: None, resource_version: Some("1".into()) };
    assert!(maps.delete(&key("a"), &precondition(version)).await.unwrap_err().is_conflict());
    maps.dry_run().delete(&key("a"), &DeleteParams::default()).await.unwrap();
    assert!(maps.get_live(&key("a")).await.unwrap().is_some());
    let of = |selector: &str| ListParams::default().labels(selector);
    let none = DeleteParams::default();
    maps.delete_collection(Some("default"), &none, &of("of in (a,b)")).await.unwrap();
    let left = maps.list_live(Some("default"), &of("of")).await.unwrap();
    assert_eq!(
        left.iter().map(|map| map.metadata.name.as_deref().unwrap()).collect::<Vec<_>>(),
        ["c"]
    );

    // CLI-12: existing and missing objects can be tolerated.
    assert_eq!(ignore_already_exists(maps.create(&map("c", "1")).await).unwrap(), None);
    assert_eq!(ignore_not_found(maps.replace(&map("a", "1")).await).unwrap(), None);
    let patch = Patch::Merge(json!({}));
    assert_eq!(ignore_not_found(maps.patch(&key("a"), &patch).await).unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn cli_4_metadata_and_dynamic_objects_are_read_and_patched() {
    let world = plain().await;
    let maps = world.client.api::<ConfigMap>();
    let meta = world.client.metadata::<ConfigMap>();
    maps.create(&map("a", "1")).await.unwrap();
    let mut read = meta.get_live(&key("a")).await.unwrap().unwrap();
    assert_eq!(read.types.as_ref().unwrap().kind, "PartialObjectMetadata");
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let patched = meta.patch(&key("a"), &patch).await.unwrap();
    assert_eq!(patched.metadata.labels.as_ref().unwrap()["x"], "y");
    read.metadata.name = Some("b".into());
    assert!(matches!(meta.create(&read).await, Err(ClientError::MetadataOnly { .. })));
    assert!(matches!(meta.replace(&read).await, Err(ClientError::MetadataOnly { .. })));
    assert_eq!(meta.list_live(Some("default"), &ListParams::default()).await.unwrap().len(), 1);
    assert_eq!(value(&maps.get_live(&key("a")).await.unwrap().unwrap()), "1", "the data stays");
    meta.delete(&key("a"), &DeleteParams::default()).await.unwrap();

    let dynamic = world.client.api_with::<DynamicObject>(ApiResource::erase::<ConfigMap>(&()));
    let mut object = DynamicObject::new("d", dynamic.dynamic_type()).within("default");
    object.data = json!({"data": {"k": "v"}});
    dynamic.create(&object).await.unwrap();
    let listed = dynamic.list_live(Some("default"), &ListParams::default()).await.unwrap();
    assert_eq!(listed[0].types.as_ref().unwrap().kind, "ConfigMap", "the kind is filled in");
    assert_eq!(listed[0].data["data"]["k"], "v");
}

#[tokio::test(start_paused = true)]
async fn cch_8_cached_reads_intersect_indices_fields_and_labels() {
    let world = plain().await;
    let maps = world.client.api::<ConfigMap>();
    let informer = world.client.cache().informer::<ConfigMap>();
    informer
        .add_index("data.k", |map: &ConfigMap| {
            map.data.iter().flatten().filter(|(k, _)| *k == "k").map(|(_, v)| v.clone()).collect()
        })
        .unwrap();
    informer
        .add_index("first", |map: &ConfigMap| {
            vec![map.metadata.name.clone().unwrap_or_default()[..1].to_owned()]
        })
        .unwrap();
    world.cache_maps().await;
    for (name, data) in [("a1", "x"), ("a2", "y"), ("b1", "x"), ("b2", "x")] {
        maps.create(&map(name, data)).await.unwrap();
    }
    maps.lister_own().await.unwrap();
    let names = |selected: Result<Vec<Arc<ConfigMap>>, ClientError>| {
        let selected = selected.unwrap();
        let names: Vec<_> = selected.iter().map(|map| map.metadata.name.clone().unwrap()).collect();
        names.join(" ")
    };
    let fields = |text| FieldSelector::parse(text).unwrap();
    assert_eq!(names(maps.select().index("data.k", "x").all()), "a1 b1 b2");
    assert_eq!(names(maps.select().index("data.k", "x").index("first", "b").all()), "b1 b2");
    assert_eq!(names(maps.select().fields(fields("data.k=x,first=b")).limit(1).all()), "b1");
    assert_eq!(names(maps.select().fields(fields("metadata.name=a2")).all()), "a2");
    assert_eq!(names(maps.select().namespace("other").all()), "");
    let conflicting = fields("metadata.namespace=other,data.k=x");
    assert_eq!(names(maps.select().namespace("default").fields(conflicting).all()), "");
    let labels = Selector::parse("of in (b2, a2)").unwrap();
    assert_eq!(names(maps.select().index("data.k", "x").labels(labels).all()), "b2");
    for selected in [
        maps.select().index("none", "x").all(),
        maps.select().index("data.k", "x").index("none", "x").all(),
        maps.select().fields(fields("data.k!=x")).all(),
    ] {
        assert!(matches!(selected, Err(ClientError::NotIndexed { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn cli_8_layers_compose_and_apply_to_the_kube_client_too() {
    let world = beside(
        ServiceBuilder::new()
            .layer(Namespaced::new("default"))
            .layer(FieldOwner::new("layer"))
            .layer(DryRun::new()),
    )
    .await;
    let maps = world.client.api::<ConfigMap>();
    let mut blank = map("a", "1");
    blank.metadata.namespace = None;
    let created = maps.create(&blank).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"), "filled in");
    assert_eq!(created.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("layer"));
    let named = maps.field_manager("call").create(&blank).await.unwrap();
    assert_eq!(named.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("call"));
    let elsewhere = maps.get_live(&Request::new("other", "a")).await.unwrap_err();
    assert!(matches!(
        elsewhere,
        ClientError::Layer { source: LayerError::OtherNamespace { .. }, .. }
    ));
    let namespaces = world.client.api::<Namespace>();
    assert!(
        namespaces.get_live(&Request::cluster("default")).await.unwrap().is_some(),
        "cluster-scoped"
    );

    let under = kube_client::Api::<ConfigMap>::all(world.client.kube().clone());
    under.create(&Default::default(), &blank).await.unwrap();
    assert_eq!(under.list(&ListParams::default()).await.unwrap().items.len(), 0, "a dry run");
    let seen = kube_client::Api::<ConfigMap>::namespaced(world.kube.clone(), "default");
    assert_eq!(seen.list(&ListParams::default()).await.unwrap().items.len(), 0, "all of them");

    // The cache does not wait for dry-run writes.
    world.cache_maps().await;
    seen.create(&Default::default(), &map("b", "1")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    maps.delete(&key("b"), &DeleteParams::foreground()).await.unwrap();
    assert!(maps.get_own(&key("b")).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_are_refused_in_strict_mode() {
    let world = plain().await;
    let dynamic = world.client.api_with::<DynamicObject>(ApiResource::erase::<Deployment>(&()));
    let mut object: DynamicObject =
        serde_json::from_value(serde_json::to_value(deployment()).unwrap()).unwrap();
    object.data["spec"]["nonsense"] = json!(1);
    let strict = dynamic.field_validation(FieldValidation::Strict);
    assert_eq!(strict.create(&object).await.unwrap_err().code(), Some(400));
    dynamic.field_validation(FieldValidation::Ignore).create(&object).await.unwrap();
    let patch = Patch::Merge(json!({"spec": {"nonsense": 2}}));
    assert!(strict.patch(&key("web"), &patch).await.is_err());
    dynamic.patch(&key("web"), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conflicting_update_is_retried_from_the_server_state() {
    let n_conflicts = Arc::new(AtomicUsize::new(3));
    let left = n_conflicts.clone();
    let world = beside(Interceptor::new(move |call, request, next: Next| {
        let is_refused = call.verb == Verb::Patch
            && left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok();
        async move {
            if is_refused {
                let conflict = setpoint::object::ApiError::stale(
                    &setpoint::object::GroupResource {
                        group: "".into(),
                        resource: "configmaps".into(),
                    },
                    "a",
                );
                return Ok(layer::refuse(&conflict));
            }
            next.run(request).await
        }
    }))
    .await;
    world.cache_maps().await;
    let maps = world.client.api::<ConfigMap>();
    maps.create(&map("a", "0")).await.unwrap();
    maps.get_own(&key("a")).await.unwrap();
    let mut n_tries = 0;
    let count = |map: &mut ConfigMap| {
        let counted = value(map).parse::<u32>().unwrap() + 1;
        map.data.as_mut().unwrap().insert("k".into(), counted.to_string());
    };
    let began = tokio::time::Instant::now();
    let updated = maps
        .update_with_retry(&key("a"), |map| {
            n_tries += 1;
            count(map);
        })
        .await
        .unwrap();
    assert_eq!((value(&updated), n_tries), ("1", 4));
    assert!((Duration::from_millis(30)..Duration::from_millis(40)).contains(&began.elapsed()));
    // The cache is outdated now: the first attempt really conflicts.
    maps.update_with_retry(&key("a"), count).await.unwrap();
    maps.get_own(&key("a")).await.unwrap();
    assert_eq!(value(&maps.update_with_retry(&key("a"), |_| {}).await.unwrap()), "2");
    n_conflicts.store(99, Ordering::Relaxed);
    let many = Retry::MANY_WRITERS.seed(7);
    let failed = maps.update_with_retry_as(&key("a"), many, count).await.unwrap_err();
    assert!(failed.is_conflict());
    assert_eq!(n_conflicts.load(Ordering::Relaxed), 95, "four tries");
    assert!(maps.update_with_retry(&key("none"), count).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn cli_10_live_watch_starts_with_existing_objects_and_continues() {
    let world = plain().await;
    let maps = world.client.api::<ConfigMap>();
    for n in 0..5 {
        maps.create(&map(&format!("m{n}"), "1")).await.unwrap();
    }
    let params = ListParams::default().labels("of").limit(2);
    let mut watch = maps.watch_live(Some("default"), &params).seed(1);
    let mut events = Vec::new();
    for step in 0..8 {
        match step {
            5 => drop(maps.create(&map("n", "1")).await.unwrap()),
            6 => drop(maps.replace(&map("n", "2")).await.unwrap()),
            7 => maps.delete(&key("n"), &DeleteParams::default()).await.unwrap(),
            _ => {}
        }
        let event = watch.next().await.unwrap().unwrap();
        let verb = match &event {
            LiveEvent::Added(_) => "+",
            LiveEvent::Modified(_) => "~",
            LiveEvent::Deleted(_) => "-",
            _ => "?",
        };
        events.push(format!("{verb}{}", event.object().metadata.name.as_deref().unwrap()));
    }
    assert_eq!(events.join(" "), "+m0 +m1 +m2 +m3 +m4 +n ~n -n");
}
