//! The API of earlier releases, as clients see it.
use crate::features::{pod, serving, stop};
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{Emulation, Feature, FeatureGates, RegistryBuilder, RuntimeConfig};
use setpoint_store::{MemoryStore, RangeRequest, Store as _};
use std::sync::Arc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

fn emulating(release: &str) -> FeatureGates {
    FeatureGates::emulating(Emulation::of(release.parse().unwrap()).unwrap())
}

/// Servers of the oldest release and of the present one.
async fn servers() -> [Server; 2] {
    [serving("", emulating("1.33")).await, serving("", FeatureGates::default()).await]
}

#[tokio::test(start_paused = true)]
async fn members_of_later_features_are_dropped() {
    let servers = servers().await;
    let volumes = json!([
        {"name": "image", "image": {"reference": "a"}}, {"name": "empty", "emptyDir": {}}]);
    let mounts = json!([
        {"name": "image", "mountPath": "/a"}, {"name": "empty", "mountPath": "/b"}]);
    let container = json!({"name": "c", "image": "i", "volumeMounts": mounts,
        "resources": {"claims": [{"name": "device"}]}});
    let device = json!([{"name": "device", "resourceClaimName": "claim"}]);
    let spec = json!({"containers": [container], "volumes": volumes, "resourceClaims": device});
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "volumeAttributesClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
    let driver = json!({"metadata": {"name": "d.example.com"}, "spec": {
        "nodeAllocatableUpdatePeriodSeconds": 60, "serviceAccountTokenInSecrets": true,
        "tokenRequests": [{"audience": "a"}]}});
    for (server, is_kept) in servers.iter().zip([false, true]) {
        let made = server.create(PODS, pod("p", spec.clone())).await.unwrap();
        let len = |list: &Value| list.as_array().map_or(0, Vec::len);
        let n = 1 + usize::from(is_kept);
        let container = &made["spec"]["containers"][0];
        assert_eq!(len(&made["spec"]["volumes"]), n, "{made:#}");
        assert_eq!(len(&container["volumeMounts"]), n);
        assert_eq!(container["resources"]["claims"].is_array(), is_kept);
        assert_eq!(made["spec"]["resourceClaims"].is_array(), is_kept);
        let made = server.create(CLAIMS, claim.clone()).await.unwrap();
        assert_eq!(made["spec"]["volumeAttributesClassName"].is_string(), is_kept);
        let made = server.create(DRIVERS, driver.clone()).await.unwrap();
        assert_eq!(made["spec"]["nodeAllocatableUpdatePeriodSeconds"].is_i64(), is_kept);
        assert_eq!(made["spec"]["serviceAccountTokenInSecrets"].is_boolean(), is_kept);
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_stored_as_an_image_stays() {
    // The feature was on before, as after an upgrade that is taken back.
    let store = Arc::new(MemoryStore::default());
    let with = async |is_on: bool| {
        let gates = emulating("1.35").with(Feature::ImageVolume, is_on);
        let config = RuntimeConfig::with_gates("", gates).unwrap();
        let configure = |builder: RegistryBuilder| builder.seed(7).runtime_config(config);
        Server::configured(store.clone(), store.clone(), configure).await
    };
    let server = with(true).await;
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "image", "image": {"reference": "a"}}]}}});
    const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";
    let mut made = server.create(TEMPLATES, template.clone()).await.unwrap();
    server.stop().await;
    let server = with(false).await;
    made["metadata"]["labels"] = json!({"a": "b"});
    let changed = server.update(&format!("{TEMPLATES}/t"), made).await.unwrap();
    assert_eq!(changed["template"]["spec"]["volumes"][0]["name"], "image");
    let mut other = template;
    other["metadata"]["name"] = "u".into();
    let made = server.create(TEMPLATES, other).await.unwrap();
    assert_eq!(made["template"]["spec"].get("volumes"), None);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rules_are_those_of_the_release() {
    let servers = servers().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {
        "ports": [{"port": 80}], "trafficDistribution": "PreferSameNode"}});
    let two = json!({"metadata": {"name": "two"}, "spec": {"clusterIPs": ["10.96.0.9", "::ffff:1.2.3.4"],
        "ports": [{"port": 80}], "ipFamilyPolicy": "PreferDualStack"}});
    let range = json!({"metadata": {"name": "r"}, "spec": {"cidrs": ["10.7.0.0/24"]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "a",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    for (server, is_present) in servers.iter().zip([false, true]) {
        let answer = server.create(SERVICES, service.clone()).await;
        match is_present {
            true => drop(answer.unwrap()),
            false => assert!(refused(answer).contains(r#"supported values: "PreferClose""#)),
        }
        let error = refused(server.create(SERVICES, two.clone()).await);
        let mapped = "must not be an IPv4-mapped IPv6 address";
        assert_eq!(error.contains(mapped), is_present, "{error}");
        let families = "may specify no more than one IP for each IP family";
        assert_eq!(error.contains(families), !is_present, "{error}");
        // Until 1.36, creates could set the status.
        let made = server.create(RANGES, range.clone()).await.unwrap();
        assert_eq!(made["status"].get("conditions").is_none(), is_present, "{made:#}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn a_shared_store_has_versions_that_the_oldest_release_reads() {
    const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
    let stored = async |release: &str| {
        let store = Arc::new(MemoryStore::default());
        let config = RuntimeConfig::with_gates("", emulating(release)).unwrap();
        let configure =
            |builder: RegistryBuilder| builder.seed(7).shared(true).runtime_config(config);
        let server = Server::configured(store.clone(), store.clone(), configure).await;
        let class = json!({"metadata": {"name": "c"}, "spec": {}});
        server.create(CLASSES, class).await.unwrap();
        // What is read is in the version that is asked for.
        let read = server.get(&format!("{CLASSES}/c")).await.unwrap();
        assert_eq!(read["apiVersion"], "resource.k8s.io/v1");
        server.stop().await;
        let prefix = RangeRequest::prefix("/registry/deviceclasses/");
        let found = store.range(prefix).await.unwrap().value.entries;
        let text = String::from_utf8_lossy(&found[0].value).into_owned();
        ["v1beta2", "v1"].map(|version| text.contains(&format!("resource.k8s.io/{version}\x12")))
    };
    assert_eq!(stored("1.34").await, [true, false]);
    assert_eq!(stored("1.35").await, [false, true]);
}
