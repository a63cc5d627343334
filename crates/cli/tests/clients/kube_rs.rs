//! kube-rs over HTTPS: typed and dynamic, watcher, server-side apply.

use crate::server::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config, discovery};
use kube_core::GroupVersionKind;
use kube_runtime::controller::{Action, Controller};
use kube_runtime::finalizer::{Event, finalizer};
use kube_runtime::wait::{await_condition, conditions};
use kube_runtime::watcher;
use network::api::{CRD_YAML, Network, NetworkSpec};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

async fn client(server: &Server) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn typed_api_round_trips() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&server).await);
    let cm: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"a": "1"}})).unwrap();
    let made = api.create(&PostParams::default(), &cm).await.unwrap();
    let mut changed = made.clone();
    changed.data.get_or_insert_default().insert("b".into(), "2".into());
    let replaced = api.replace("cm", &PostParams::default(), &changed).await.unwrap();
    assert_ne!(made.metadata.resource_version, replaced.metadata.resource_version);
    let stale = api.replace("cm", &PostParams::default(), &made).await.unwrap_err();
    assert!(matches!(stale, kube_client::Error::Api(status) if status.is_conflict()));
    let apply = Patch::Apply(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "9"}}),
    );
    let conflict = api.patch("cm", &PatchParams::apply("x"), &apply).await.unwrap_err();
    assert!(matches!(conflict, kube_client::Error::Api(status) if status.is_conflict()));
    let applied = api.patch("cm", &PatchParams::apply("x").force(), &apply).await.unwrap();
    assert_eq!(applied.data.unwrap()["a"], "9");
    assert!(api.delete("cm", &DeleteParams::default()).await.unwrap().is_right());
    assert!(api.get_opt("cm").await.unwrap().is_none());
}

/// Creates the definition of Networks and waits until it is established.
async fn define_networks(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd: CustomResourceDefinition = serde_saphyr::from_str(CRD_YAML).unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    await_condition(crds, "networks.samplecrd.k8s.io", conditions::is_crd_established())
        .await
        .unwrap();
}

#[tokio::test]
async fn custom_resource_is_found_and_used_typed_and_dynamic() {
    let server = Server::start();
    let client = client(&server).await;
    define_networks(&client).await;

    let gvk = GroupVersionKind::gvk("samplecrd.k8s.io", "v1", "Network");
    let (resource, capabilities) = discovery::pinned_kind(&client, &gvk).await.unwrap();
    assert_eq!(resource.plural, "networks");
    assert!(
        capabilities.subresources.iter().any(|(subresource, _)| subresource.plural == "status")
    );
    let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
    let made = DynamicObject::new("n", &resource)
        .data(json!({"spec": {"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"}}));
    dynamic.create(&PostParams::default(), &made).await.unwrap();

    let typed: Api<Network> = Api::default_namespaced(client);
    let network = typed.get("n").await.unwrap();
    assert_eq!(network.spec, NetworkSpec { cidr: "10.0.0.0/8".into(), gateway: "10.0.0.1".into() });
    let status = json!({"status": {"cidr": "10.0.0.0/8"}});
    let patched =
        typed.patch_status("n", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(patched.status.unwrap().cidr.as_deref(), Some("10.0.0.0/8"));
    let page = typed.list(&ListParams::default().limit(1)).await.unwrap();
    assert_eq!(page.items.len(), 1);
    dynamic.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    assert!(typed.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn watcher_lists_streams_and_follows() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::namespaced(client(&server).await, "kube-public");
    let cm = |name: &str| ConfigMap {
        metadata: kube_core::ObjectMeta { name: Some(name.into()), ..Default::default() },
        ..Default::default()
    };
    api.create(&PostParams::default(), &cm("a")).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let config = config.fields("metadata.name!=kube-root-ca.crt");
        let mut events = std::pin::pin!(watcher(api.clone(), config));
        let mut initial = Vec::new();
        loop {
            match events.try_next().await.unwrap().unwrap() {
                watcher::Event::Init => {}
                watcher::Event::InitApply(object) => initial.push(object.metadata.name.unwrap()),
                watcher::Event::InitDone => break,
                other => panic!("{other:?} before the initial list was done"),
            }
        }
        assert_eq!(initial, ["a"]);
        api.create(&PostParams::default(), &cm("b")).await.unwrap();
        assert!(
            matches!(events.try_next().await.unwrap(), Some(watcher::Event::Apply(object)) if object.metadata.name.as_deref() == Some("b"))
        );
        api.delete("b", &DeleteParams::default()).await.unwrap();
        assert!(
            matches!(events.try_next().await.unwrap(), Some(watcher::Event::Delete(object)) if object.metadata.name.as_deref() == Some("b"))
        );
    }
}

#[tokio::test]
async fn raw_watch_starts_where_a_list_ended() {
    let server = Server::start();
    let api: Api<ConfigMap> = Api::namespaced(client(&server).await, "kube-public");
    let version =
        api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let cm = ConfigMap {
        metadata: kube_core::ObjectMeta { name: Some("late".into()), ..Default::default() },
        ..Default::default()
    };
    api.create(&PostParams::default(), &cm).await.unwrap();
    let mut events = std::pin::pin!(
        api.watch(&WatchParams::default().fields("metadata.name=late"), &version).await.unwrap()
    );
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Added(object))) if object.metadata.name.as_deref() == Some("late"))
    );
}

fn deployment(name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "one", "image": "i:1"}]}},
        },
    }))
    .unwrap()
}

fn images(deployment: &Deployment) -> Vec<(&str, &str)> {
    let spec = deployment.spec.template.spec.as_ref().unwrap();
    spec.containers.iter().map(|c| (&*c.name, c.image.as_deref().unwrap())).collect()
}

#[tokio::test]
async fn patches_of_every_type_and_subresources() {
    let server = Server::start();
    let api: Api<Deployment> = Api::default_namespaced(client(&server).await);
    api.create(&PostParams::default(), &deployment("d")).await.unwrap();
    let strategic =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "two", "image": "i:2"}]}}}});
    let patched =
        api.patch("d", &PatchParams::default(), &Patch::Strategic(&strategic)).await.unwrap();
    assert_eq!(images(&patched), [("two", "i:2"), ("one", "i:1")]);
    let json = serde_json::from_value(json!([
        {"op": "test", "path": "/spec/template/spec/containers/0/name", "value": "two"},
        {"op": "remove", "path": "/spec/template/spec/containers/0"},
    ]))
    .unwrap();
    let patched = api.patch("d", &PatchParams::default(), &Patch::Json::<()>(json)).await.unwrap();
    assert_eq!(images(&patched), [("one", "i:1")]);
    let merge = json!({"spec": {"paused": true}});
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    assert_eq!(api.patch("d", &dry, &Patch::Merge(&merge)).await.unwrap().spec.paused, Some(true));
    assert_eq!(api.get("d").await.unwrap().spec.paused, None);

    let scale = api
        .patch_scale("d", &PatchParams::default(), &Patch::Merge(json!({"spec": {"replicas": 3}})))
        .await
        .unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    assert_eq!(api.get_scale("d").await.unwrap().status.unwrap().selector.as_deref(), Some("a=b"));
    let status = json!({"status": {"replicas": 3}, "spec": {"replicas": 9}});
    let patched =
        api.patch_status("d", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!((patched.status.unwrap().replicas, patched.spec.replicas), (Some(3), Some(3)));

    // Apply: created by one manager, refused to another, taken over by force, given up by leaving
    // it out.
    let apply = |replicas| {
        Patch::Apply(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": replicas}),
        )
    };
    let refused =
        api.patch("d", &PatchParams::apply("m"), &apply(json!({"replicas": 5}))).await.unwrap_err();
    let kube_client::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!(
        (refused.code, &*refused.details.as_ref().unwrap().causes[0].field),
        (409, ".spec.replicas")
    );
    let forced = api
        .patch("d", &PatchParams::apply("m").force(), &apply(json!({"replicas": 5})))
        .await
        .unwrap();
    assert_eq!(forced.spec.replicas, Some(5));
    let given_up = api.patch("d", &PatchParams::apply("m"), &apply(json!({}))).await.unwrap();
    assert_eq!(given_up.spec.replicas, Some(1), "the default, as nobody wants another");
}

#[tokio::test]
async fn pages_metadata_and_selectors() {
    let server = Server::start();
    let client = client(&server).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    // A controller makes it.
    while api.get_opt("kube-root-ca.crt").await.unwrap().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for i in 0..7 {
        let cm: ConfigMap = serde_json::from_value(json!({"metadata": {"name": format!("p{i}"), "labels": {"odd": (i % 2).to_string()}}, "data": {"a": "b"}})).unwrap();
        api.create(&PostParams::default(), &cm).await.unwrap();
    }
    let mut params = ListParams::default().limit(3);
    let (mut names, mut remaining) = (Vec::new(), Vec::new());
    loop {
        let page = api.list(&params).await.unwrap();
        names.extend(page.items.iter().map(|cm| cm.metadata.name.clone().unwrap()));
        remaining.push(page.metadata.remaining_item_count);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(names, ["kube-root-ca.crt", "p0", "p1", "p2", "p3", "p4", "p5", "p6"]);
    assert_eq!(remaining, [Some(5), Some(2), None]);
    let odd = api.list_metadata(&ListParams::default().labels("odd=1")).await.unwrap();
    assert_eq!(odd.items.len(), 3);
    let all: Api<ConfigMap> = Api::all(client);
    let one = all
        .list(&ListParams::default().fields("metadata.name=p3,metadata.namespace=default"))
        .await
        .unwrap();
    assert_eq!(one.items.len(), 1);
    let mut events = std::pin::pin!(
        api.watch_metadata(&WatchParams::default().labels("odd=1"), "0").await.unwrap()
    );
    for _ in 0..3 {
        assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    }
    let leave = json!({"metadata": {"labels": {"odd": null}}});
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Bookmark(_)))),
        "the end of what there was"
    );
    api.patch("p1", &PatchParams::default(), &Patch::Merge(&leave)).await.unwrap();
    let left = events.next().await.unwrap().unwrap();
    assert!(
        matches!(&left, WatchEvent::Deleted(object) if object.metadata.name.as_deref() == Some("p1")),
        "{left:?}"
    );
}

#[tokio::test]
async fn controller_reconciles_a_custom_resource_until_it_is_removed() {
    let server = Server::start();
    let client = client(&server).await;
    define_networks(&client).await;
    let api: Api<Network> = Api::default_namespaced(client.clone());
    let spec = NetworkSpec { cidr: "10.0.0.0/8".into(), gateway: "10.0.0.1".into() };
    api.create(&PostParams::default(), &Network::new("n", spec)).await.unwrap();

    // Writes the observed state to the status, and holds the object until its deletion was
    // observed.
    let reconcile = async |network: Arc<Network>, api: Arc<Api<Network>>| {
        finalizer(&api, "tests/hold", network, async |event| {
            if let Event::Apply(network) = event {
                let status = json!({"status": {"cidr": network.spec.cidr}});
                api.patch_status("n", &PatchParams::default(), &Patch::Merge(&status)).await?;
            }
            Ok::<_, kube_client::Error>(Action::await_change())
        })
        .await
    };
    let controller = Controller::new(api.clone(), watcher::Config::default())
        .run(
            move |n, a| Box::pin(reconcile(n, a)),
            |_, _: &kube_runtime::finalizer::Error<kube_client::Error>, _| {
                Action::requeue(Duration::from_millis(10))
            },
            Arc::new(api.clone()),
        )
        .for_each(async |_| {});
    let story = async {
        let shown = await_condition(api.clone(), "n", |n: Option<&Network>| {
            n.is_some_and(|n| n.status.as_ref().is_some_and(|s| s.cidr.is_some()))
        })
        .await
        .unwrap();
        assert_eq!(shown.unwrap().metadata.finalizers.unwrap(), ["tests/hold"]);
        let uid = api.get("n").await.unwrap().metadata.uid.unwrap();
        api.delete("n", &DeleteParams::default()).await.unwrap();
        await_condition(api.clone(), "n", conditions::is_deleted(&uid)).await.unwrap();
    };
    tokio::select! {
        () = controller => panic!("the controller ended"),
        () = story => {}
    }
    assert!(api.get_opt("n").await.unwrap().is_none());
}
