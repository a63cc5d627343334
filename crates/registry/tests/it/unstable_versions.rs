//! Alpha and beta versions, which are served if a configuration turns them on.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::RuntimeConfig;
use setpoint_store::{At, MemoryOptions, MemoryStore, Store as _};
use std::sync::Arc;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const OLD_CLAIMS: &str = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims";
const OLD_SLICES: &str = "/apis/resource.k8s.io/v1beta1/resourceslices";
const CANDIDATES: &str = "/apis/coordination.k8s.io/v1beta1/namespaces/default/leasecandidates";
const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
const QUESTIONS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
const STORAGE_VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";

async fn start(config: &str) -> Server {
    let config: RuntimeConfig = config.parse().unwrap();
    let store = Arc::new(MemoryStore::new(MemoryOptions::default()));
    Server::configured(store.clone(), store, |builder| builder.runtime_config(config)).await
}
fn named(name: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = name.into();
    object
}

#[tokio::test(start_paused = true)]
async fn a_claim_has_its_own_form_in_each_version_and_is_stored_in_v1() {
    let server = start("resource.k8s.io/v1beta1").await;
    let sent = named(
        "c",
        json!({"spec": {"devices": {"requests": [
            {"name": "one", "deviceClassName": "gpu"},
            {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]},
        ]}}}),
    );
    let made = server.create(OLD_CLAIMS, sent).await.unwrap();
    assert_eq!(made["apiVersion"], "resource.k8s.io/v1beta1");
    let count = json!({"allocationMode": "ExactCount", "count": 1, "deviceClassName": "gpu"});
    let with = |name: &str, mut object: Value| {
        object["name"] = name.into();
        object
    };
    let alternatives = json!([with("a", count.clone())]);
    let old = json!([
        with("one", count.clone()),
        {"name": "any", "deviceClassName": "", "firstAvailable": alternatives},
    ]);
    assert_eq!(made["spec"]["devices"]["requests"], old);
    let found = server.get(&format!("{CLAIMS}/c")).await.unwrap();
    let new = json!([
        {"name": "one", "exactly": count},
        {"name": "any", "firstAvailable": alternatives},
    ]);
    assert_eq!(found["spec"]["devices"]["requests"], new);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let labeled = server.patch(&format!("{OLD_CLAIMS}/c"), labels).await.unwrap();
    assert_eq!(labeled["spec"]["devices"]["requests"], old);
    assert_eq!(server.get(&format!("{CLAIMS}/c")).await.unwrap()["spec"], found["spec"]);
    let changed =
        json!({"spec": {"devices": {"requests": [{"name": "x", "deviceClassName": "y"}]}}});
    let error = refused(server.patch(&format!("{OLD_CLAIMS}/c"), changed).await);
    assert!(
        error.contains("spec: Invalid value") && error.contains("field is immutable"),
        "{error}"
    );
    let key = b"/registry/resourceclaims/default/c";
    let stored = server.store.get(key, At::Latest).await.unwrap().value.unwrap();
    assert!(
        stored.value.starts_with(br#"{"kind":"ResourceClaim","apiVersion":"resource.k8s.io/v1","#)
    );

    let slice = json!({"spec": {
        "driver": "d.example.com", "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "a", "basic": {"attributes": {"model": {"string": "x"}}}}, {"name": "b"}],
    }});
    let made = server.create(OLD_SLICES, named("s", slice)).await.unwrap();
    assert_eq!(made["spec"]["devices"][1], json!({"name": "b", "basic": {}}));
    let found = server.get("/apis/resource.k8s.io/v1/resourceslices/s").await.unwrap();
    let device = json!({"name": "a", "attributes": {"model": {"string": "x"}}});
    assert_eq!(found["spec"]["devices"][0], device);
}

#[tokio::test(start_paused = true)]
async fn other_versions_than_those_of_the_configuration_are_not_there() {
    let server = start("resource.k8s.io/v1beta1,resource.k8s.io/v1beta1/deviceclasses=false").await;
    let catalog = server.registry.catalog();
    let has = |version: &str, resource: &str| catalog.get("resource.k8s.io", version, resource);
    assert!(has("v1beta1", "resourceclaims").is_some());
    assert!(has("v1beta1", "deviceclasses").is_none());
    assert!(has("v1beta2", "resourceclaims").is_none());
    let row = has("v1", "resourceclaims").unwrap();
    assert_eq!(*row.versions, ["resource.k8s.io/v1", "resource.k8s.io/v1beta1"]);
    let warning =
        "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+";
    let old = has("v1beta1", "resourceclaims").unwrap();
    assert_eq!(old.deprecation.as_deref(), Some(warning));
    assert_eq!(old.removed_release(), Some("1.38"));
    let group = "admissionregistration.k8s.io";
    let later = start("admissionregistration.k8s.io/v1beta1").await.registry.catalog();
    let later = later.get(group, "v1beta1", "mutatingadmissionpolicies").unwrap().clone();
    assert_eq!(later.deprecation, None, "it is deprecated in v1.37+");
    let former = server.registry.catalog().get("", "v1", "endpoints").unwrap().clone();
    assert_eq!(former.deprecation.as_deref().map(|text| text.contains("in v1.33+")), Some(true));
    assert_eq!(former.removed_release(), None);
    let server = Server::start().await;
    assert!(
        server.registry.catalog().get("resource.k8s.io", "v1beta1", "resourceclaims").is_none()
    );
    assert!(server.registry.catalog().group("internal.apiserver.k8s.io").is_none());
}

#[tokio::test(start_paused = true)]
async fn candidates_for_leases_are_checked() {
    let server = start("api/beta=true").await;
    let candidate = |spec: Value| server.create(CANDIDATES, named("c", json!({"spec": spec})));
    assert_eq!(
        refused(candidate(json!({})).await),
        r#"422 LeaseCandidate.coordination.k8s.io "c" is invalid: [spec.leaseName: Required value, spec.binaryVersion: Required value, spec.strategy: Required value]"#
    );
    let spec = json!({"leaseName": "l", "binaryVersion": "1.35.0", "emulationVersion": "1.36.0", "strategy": "x"});
    assert_eq!(
        refused(candidate(spec).await),
        r#"422 LeaseCandidate.coordination.k8s.io "c" is invalid: [spec.binaryVersion: Invalid value: "1.35.0": must be greater than or equal to `emulationVersion`, spec.strategy.strategy: Unsupported value: "x": supported values: "OldestEmulationVersion"]"#
    );
    let spec =
        json!({"leaseName": "l", "binaryVersion": "1.36", "strategy": "OldestEmulationVersion"});
    assert_eq!(
        refused(candidate(spec).await),
        r#"422 LeaseCandidate.coordination.k8s.io "c" is invalid: [spec.binaryVersion: Invalid value: "1.36": must be a valid semantic version, spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion']"#
    );
    let spec = json!({"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"});
    candidate(spec).await.unwrap();
    let object = format!("{CANDIDATES}/c");
    assert_eq!(
        refused(server.patch(&object, json!({"spec": {"leaseName": "m"}})).await),
        r#"422 LeaseCandidate.coordination.k8s.io "c" is invalid: spec.leaseName: Invalid value: "m": field is immutable"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_taint_for_devices_is_dated_when_its_effect_changes() {
    let server = start("api/all").await;
    let rule = json!({"spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": "NoSchedule"}}});
    let made = server.create(RULES, named("r", rule)).await.unwrap();
    let dated = &made["spec"]["taint"]["timeAdded"];
    assert!(dated.is_string() && made["metadata"]["generation"] == 1, "{made}");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    let patch = json!({"spec": {"taint": {"value": "v"}}});
    let same = server.patch(&format!("{RULES}/r"), patch).await.unwrap();
    assert_eq!(
        (&same["spec"]["taint"]["timeAdded"], &same["metadata"]["generation"]),
        (dated, &json!(2))
    );
    let patch = json!({"spec": {"taint": {"effect": "NoExecute"}}});
    let changed = server.patch(&format!("{RULES}/r"), patch).await.unwrap();
    assert_ne!(&changed["spec"]["taint"]["timeAdded"], dated);
    let wrong =
        json!({"spec": {"deviceSelector": {"device": "A"}, "taint": {"key": "", "effect": "x"}}});
    let error = refused(server.create(RULES, named("w", wrong)).await);
    for path in ["spec.deviceSelector.device", "spec.taint.key", "spec.taint.effect"] {
        assert!(error.contains(path), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_about_pools_is_answered_once() {
    let server = start("resource.k8s.io/v1alpha3").await;
    let made = server.create(QUESTIONS, named("q", json!({"spec": {"driver": "d.example.com"}})));
    assert_eq!(made.await.unwrap()["spec"]["limit"], 100);
    let status = format!("{QUESTIONS}/q/status");
    let answer = |count: i64| json!({"status": {"poolCount": count}});
    let error = refused(server.patch(&status, answer(-1)).await);
    assert!(
        error.contains("status.poolCount: Invalid value: -1: must be greater than or equal to 0"),
        "{error}"
    );
    server.patch(&status, answer(0)).await.unwrap();
    let error = refused(server.patch(&status, answer(1)).await);
    assert!(
        error.contains("status: Invalid value") && error.contains("field is immutable"),
        "{error}"
    );
    let error = refused(
        server.create(QUESTIONS, named("w", json!({"spec": {"driver": "", "limit": 1001}}))).await,
    );
    assert!(
        error.contains("spec.driver: Required value") && error.contains("spec.limit"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_common_version_of_servers_is_that_which_all_store() {
    let server = start("api/alpha=true").await;
    let error = refused(server.create(STORAGE_VERSIONS, named("x", json!({"spec": {}}))).await);
    assert!(error.contains("name must be in the form of <group>.<resource>"), "{error}");
    server.create(STORAGE_VERSIONS, named("apps.deployments", json!({"spec": {}}))).await.unwrap();
    let status = format!("{STORAGE_VERSIONS}/apps.deployments/status");
    let of = |id: &str, encoding: &str| json!({"apiServerID": id, "encodingVersion": encoding, "decodableVersions": ["apps/v1", encoding]});
    let patch = json!({"status": {"storageVersions": [of("a", "apps/v1"), of("b", "apps/v1")]}});
    let error = refused(server.patch(&status, patch).await);
    assert!(error.contains("the common encoding version is apps/v1"), "{error}");
    let patch = json!({"status": {"commonEncodingVersion": "apps/v1", "storageVersions": [of("a", "apps/v1"), of("b", "apps/v2")]}});
    let error = refused(server.patch(&status, patch).await);
    assert!(error.contains("should be nil if servers do not agree"), "{error}");
    let patch = json!({"status": {"commonEncodingVersion": "apps/v1", "storageVersions": [of("a", "apps/v1")]}});
    server.patch(&status, patch).await.unwrap();
}
