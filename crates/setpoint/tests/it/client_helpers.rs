//! Helpers for reconcilers over a real API server: children, adoption, finalizers, upserts
//! (UTL-1…6).

use crate::client_calls::{Beside, beside, key, map, plain};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::{DeleteParams, ListParams, Patch};
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::object::label::Selector;
use setpoint::object::time::Timestamp;
use setpoint::runtime::client::layer::{Interceptor, Next};
use setpoint::runtime::{
    Action, Api, Apply, BoxError, Children, Clock, Context, Controller, Manager, Request, Watch,
    adopt::{Claim, ClaimError},
    children::{Child, ChildrenError, ChildrenOutcome},
    create_or_patch,
    finalizer::Finalizers,
    owner::{OwnerError, controller_of, set_controller_reference},
    upsert::Upserted,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A control plane that caches config maps, with an owner object.
async fn owned(n_writes: Arc<AtomicUsize>) -> (Beside, Api<ConfigMap>, ConfigMap) {
    let world = beside(Interceptor::new(move |call, request, next: Next| {
        n_writes.fetch_add(usize::from(call.verb.is_write()), Ordering::Relaxed);
        next.run(request)
    }))
    .await;
    world.cache_maps().await;
    let maps = world.client.api::<ConfigMap>();
    let owner = maps.create(&map("owner", "")).await.unwrap();
    (world, maps, owner)
}

async fn names(maps: &Api<ConfigMap>) -> String {
    let live = maps.list_live(Some("default"), &ListParams::default()).await.unwrap();
    let names: Vec<_> = live.iter().map(|map| map.metadata.name.clone().unwrap()).collect();
    names.join(" ")
}

fn keys(names: &[&str]) -> Vec<Request> {
    names.iter().map(|name| key(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn children_become_the_declared_ones_and_a_second_run_writes_nothing() {
    let n_writes = Arc::new(AtomicUsize::new(0));
    let (_world, maps, owner) = owned(n_writes.clone()).await;
    let made = |name: &str, data: &str| {
        let made = map(name, data);
        Child::make(key(name), move |existing: Option<ConfigMap>| {
            let mut object = existing.unwrap_or_else(|| made.clone());
            object.data = made.data;
            object
        })
    };
    let children = Children::of(&owner, &()).unwrap();
    let run = |declared: Vec<Child<ConfigMap>>| children.run(&maps, declared);
    // A child of another owner.
    let mut other = map("other", "");
    set_controller_reference(&maps.create(&map("owner2", "")).await.unwrap(), &(), &mut other)
        .unwrap();
    maps.create(&other).await.unwrap();

    let first = run(vec![made("b", "1"), made("a", "1")]).await.unwrap();
    assert_eq!(first.created, keys(&["b", "a"]), "in the order of the declaration");
    assert_eq!(
        controller_of(&maps.get_live(&key("a")).await.unwrap().unwrap()).unwrap().name,
        "owner"
    );
    let before = n_writes.load(Ordering::Relaxed);
    let again = run(vec![made("b", "1"), made("a", "1")]).await.unwrap();
    assert_eq!(again.unchanged, keys(&["b", "a"]));
    assert_eq!(n_writes.load(Ordering::Relaxed), before, "idempotent");

    let apply = Apply::<ConfigMap>::new(&key("c")).set("/data/k", "1").force();
    let third = run(vec![made("a", "2"), apply.clone().into()]).await.unwrap();
    assert_eq!(third.updated, keys(&["a"]));
    assert_eq!(third.applied, keys(&["c"]));
    assert_eq!(third.deleted, keys(&["b"]));
    let fourth = run(vec![made("a", "2"), apply.into()]).await.unwrap();
    assert_eq!(fourth.deleted, [], "what is gone is not deleted again");
    assert_eq!(names(&maps).await, "a c other owner owner2");

    let taken = run(vec![made("other", "1")]).await.unwrap_err();
    assert!(matches!(taken, ChildrenError::Owner { source: OwnerError::AlreadyOwned { .. }, .. }));
    let taken = run(vec![Apply::new(&key("other")).into()]).await.unwrap_err();
    assert!(matches!(taken, ChildrenError::Owner { .. }), "{taken:?}");
    let twice = run(vec![made("x", "1"), made("x", "2")]).await.unwrap_err();
    assert!(matches!(twice, ChildrenError::Twice(_)));
    let abroad = Child::make(Request::new("kube-system", "x"), |_| {
        let mut abroad = map("x", "");
        abroad.metadata.namespace = Some("kube-system".into());
        abroad
    });
    let applied = Apply::new(&Request::new("kube-system", "x")).into();
    for abroad in [abroad, applied] {
        let abroad = run(vec![abroad]).await.unwrap_err();
        let ChildrenError::Owner { source, .. } = abroad else { panic!("{abroad:?}") };
        assert!(matches!(source, OwnerError::Namespaces { .. }), "{source:?}");
    }
    assert_eq!(names(&maps).await, "a c other owner owner2", "nothing goes when a write fails");

    assert_eq!(run(vec![]).await.unwrap().deleted, keys(&["a", "c"]));
    assert_eq!(run(vec![]).await.unwrap(), ChildrenOutcome::default());
}

#[tokio::test(start_paused = true)]
async fn children_of_one_set_among_several_and_of_a_type_that_is_not_cached() {
    let world = plain().await;
    let maps = world.client.api::<ConfigMap>();
    let owner = maps.create(&map("owner", "")).await.unwrap();
    let child = |name: &str, set: &str| {
        Apply::<ConfigMap>::new(&key(name)).label("set", set).set("/data/k", name)
    };
    let of = |set: &str| {
        Children::of(&owner, &())
            .unwrap()
            .labels(Selector::parse(&format!("set={set}")).unwrap())
            .concurrency(3)
    };
    of("x").run(&maps, ["a", "b", "c", "d"].map(|name| child(name, "x"))).await.unwrap();
    of("y").run(&maps, [child("e", "y")]).await.unwrap();
    let outcome = of("x").run(&maps, [child("b", "x")]).await.unwrap();
    assert_eq!(outcome.deleted, keys(&["a", "c", "d"]));
    assert_eq!(names(&maps).await, "b e owner");
}

#[tokio::test(start_paused = true)]
async fn owner_adopts_matching_objects_and_releases_others() {
    let n_writes = Arc::new(AtomicUsize::new(0));
    let (_world, maps, owner) = owned(n_writes.clone()).await;
    let other = maps.create(&map("owner2", "")).await.unwrap();
    let selector = Selector::parse("app=web").unwrap();
    let create = async |name: &str, app: &str, owner: Option<&ConfigMap>| {
        let mut object = map(name, "");
        object.metadata.labels.as_mut().unwrap().insert("app".into(), app.into());
        if let Some(owner) = owner {
            set_controller_reference(owner, &(), &mut object).unwrap();
        }
        maps.create(&object).await.unwrap();
    };
    create("orphan", "web", None).await;
    create("stranger", "db", None).await;
    create("kept", "web", Some(&owner)).await;
    create("lost", "db", Some(&owner)).await;
    create("others", "web", Some(&other)).await;
    let claim = Claim::of(&maps, &owner, &selector).unwrap();
    let candidates = async || {
        maps.lister_own().await.unwrap();
        maps.list(Some("default"), &Selector::everything()).unwrap()
    };
    let claimed = claim.claim(&maps, candidates().await).await.unwrap();
    let children = |claimed: &[Arc<ConfigMap>]| {
        claimed.iter().map(|map| map.metadata.name.clone().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(children(&claimed.children), "kept orphan");
    assert_eq!((claimed.adopted, claimed.released), (keys(&["orphan"]), keys(&["lost"])));
    let before = n_writes.load(Ordering::Relaxed);
    let again = claim.claim(&maps, candidates().await).await.unwrap();
    assert_eq!(children(&again.children), "kept orphan");
    assert_eq!(n_writes.load(Ordering::Relaxed), before, "idempotent");

    // An outdated cache: the candidate was recreated under its name, and is neither adopted nor
    // released.
    create("anew", "web", None).await;
    let stale = candidates().await;
    maps.delete(&key("anew"), &DeleteParams::default()).await.unwrap();
    create("anew", "web", None).await;
    let refused = claim.claim(&maps, stale).await.unwrap_err();
    assert!(matches!(&refused, ClaimError::Patch(failed) if failed[0].1.is_invalid()), "{refused}");
    assert!(controller_of(&maps.get_live(&key("anew")).await.unwrap().unwrap()).is_none());

    // The owner was deleted meanwhile: it adopts nothing, although it was read before.
    let candidates = candidates().await;
    maps.delete(&key("owner"), &DeleteParams::orphan()).await.unwrap();
    let gone = claim.claim(&maps, candidates).await.unwrap_err();
    assert!(matches!(gone, ClaimError::OwnerGone { .. }), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn utl_2_object_and_status_are_patched_separately() {
    let world = plain().await;
    let deployments = world.client.api::<Deployment>();
    world.client.cache().informer::<Deployment>();
    while deployments.lister().is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let set = |replicas: i32, ready: i32| {
        move |existing: Option<Deployment>| {
            let mut object = existing.unwrap_or_else(|| {
                serde_json::from_value(json!({
                    "metadata": {"name": "web", "namespace": "default"},
                    "spec": {
                        "selector": {"matchLabels": {"app": "web"}},
                        "template": {
                            "metadata": {"labels": {"app": "web"}},
                            "spec": {"containers": [{"name": "c", "image": "i"}]},
                        },
                    },
                }))
                .unwrap()
            });
            object.spec.replicas = Some(replicas);
            object.status.get_or_insert_default().replicas = Some(ready);
            object
        }
    };
    let mut log = Vec::new();
    for (replicas, ready) in [(1, 1), (1, 1), (1, 1), (2, 1), (2, 2), (3, 3), (3, 3)] {
        let (object, upserted) =
            create_or_patch(&deployments, &key("web"), set(replicas, ready)).await.unwrap();
        log.push((upserted, object.status.and_then(|status| status.replicas)));
        deployments.get_own(&key("web")).await.unwrap();
    }
    assert_eq!(
        log,
        [
            (Upserted::Created, None),
            (Upserted::UpdatedStatusOnly, Some(1)),
            (Upserted::Unchanged, Some(1)),
            (Upserted::Updated, Some(1)),
            (Upserted::UpdatedStatusOnly, Some(2)),
            (Upserted::UpdatedStatus, Some(3)),
            (Upserted::Unchanged, Some(3)),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn utl_6_several_finalizers_clean_up_independently() {
    let plane = ControlPlane::builder().simulated(1).build();
    let kube = plane.client();
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let mut manager = Manager::builder(kube).clock(clock).seed(1).build();
    let log = Arc::new(Mutex::new(Vec::new()));
    let clean_up = |name: &'static str, fails: bool| {
        let log = log.clone();
        move |_, context: Context| {
            let is_failure = fails && context.attempt() == 0;
            log.lock()
                .unwrap()
                .push(format!("{name} {}", if is_failure { "fails" } else { "cleans" }));
            async move { if is_failure { Err(BoxError::from("not yet")) } else { Ok(()) } }
        }
    };
    let finalizers = Finalizers::<ConfigMap>::new()
        .with("example.com/one", clean_up("one", true))
        .unwrap()
        .with("example.com/two", clean_up("two", false))
        .unwrap();
    let finalizers = Arc::new(finalizers);
    let passes = log.clone();
    let reconcile = move |request: Request, context: Context| {
        let (finalizers, log) = (finalizers.clone(), passes.clone());
        async move {
            let maps = context.client().api::<ConfigMap>();
            let Some(map) = maps.get(&request)? else { return Ok(Action::await_change()) };
            if map.metadata.labels.is_none() {
                return Ok(Action::await_change());
            }
            let pass = async |map: Arc<ConfigMap>| {
                let finalizers = map.metadata.finalizers.clone().unwrap_or_default();
                log.lock().unwrap().push(format!("pass under {}", finalizers.join(" ")));
                Ok::<_, BoxError>(Action::await_change())
            };
            Ok::<_, BoxError>(finalizers.run(&maps, map, &context, pass).await?)
        }
    };
    let controller = Controller::builder("test").for_(Watch::<ConfigMap>::new()).build(reconcile);
    manager.add(controller.unwrap()).unwrap();
    let maps = manager.client().api::<ConfigMap>();
    let mut ready = plane.ready();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { plane.run(CancellationToken::new()).await.unwrap() });
    tasks.spawn(async move { manager.run(CancellationToken::new()).await.unwrap() });
    ready.wait_for(|ready| *ready).await.unwrap();
    let mut object = map("a", "");
    object.metadata.finalizers = Some(vec!["example.com/others".into()]);
    maps.create(&object).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut seen = std::mem::take(&mut *log.lock().unwrap());
    seen.dedup();
    assert_eq!(seen, ["pass under example.com/others example.com/one example.com/two"]);
    maps.delete(&key("a"), &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    // One failed and stayed; two was cleaned up, and not called again.
    assert_eq!(*log.lock().unwrap(), ["one fails", "two cleans", "one cleans"]);
    let left = maps.get_live(&key("a")).await.unwrap().unwrap().metadata.finalizers.unwrap();
    assert_eq!(left, ["example.com/others"]);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch(&key("a"), &patch).await.unwrap();
    assert_eq!(maps.get_live(&key("a")).await.unwrap(), None);
}
