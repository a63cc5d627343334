//! kube-rs over HTTPS: typed and dynamic, watcher, server-side apply.

use crate::server::Server;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config, discovery};
use kube_core::GroupVersionKind;
use kube_runtime::watcher;
use network::api::{CRD_YAML, Network, NetworkSpec};
use serde_json::json;

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

#[tokio::test]
async fn custom_resource_is_found_and_used_typed_and_dynamic() {
    let server = Server::start();
    let client = client(&server).await;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd: CustomResourceDefinition = serde_saphyr::from_str(CRD_YAML).unwrap();
    crds.create(&PostParams::default(), &crd).await.unwrap();
    kube_runtime::wait::await_condition(
        crds,
        "networks.samplecrd.k8s.io",
        kube_runtime::wait::conditions::is_crd_established(),
    )
    .await
    .unwrap();

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
