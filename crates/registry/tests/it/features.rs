//! What features turn on and off.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{
    AdmissionOptions, Feature, FeatureGates, ListOptions, RegistryBuilder, RuntimeConfig,
};
use setpoint_store::MemoryStore;
use std::sync::Arc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

async fn server(features: FeatureGates) -> Server {
    serving("", features).await
}

/// A server of these versions with these features, in which pods need no account.
pub(crate) async fn serving(served: &str, features: FeatureGates) -> Server {
    let config = RuntimeConfig::with_gates(served, features).unwrap();
    let store = Arc::new(MemoryStore::default());
    let configure = |builder: RegistryBuilder| {
        let plugins = AdmissionOptions::default().disable("ServiceAccount").build().unwrap();
        builder.seed(7).runtime_config(config).admission_plugins(plugins)
    };
    Server::configured(store.clone(), store, configure).await
}

/// Servers with a feature off and on, and all else as by default.
pub(crate) async fn both(feature: Feature) -> [Server; 2] {
    let with = |is_on: bool| server(FeatureGates::default().with(feature, is_on));
    [with(false).await, with(true).await]
}

pub(crate) async fn stop(servers: [Server; 2]) {
    for server in servers {
        server.stop().await;
    }
}

pub(crate) fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (member, value) in spec.as_object().unwrap() {
        pod["spec"][member] = value.clone();
    }
    pod
}

#[tokio::test(start_paused = true)]
async fn tolerations_compare_numbers() {
    let [off, on] = both(Feature::TaintTolerationComparisonOperators).await;
    let tolerating = |name: &str, value: &str| {
        pod(name, json!({"tolerations": [{"key": "sla", "operator": "Gt", "value": value}]}))
    };
    let path = "spec.tolerations[0]";
    let error = refused(off.create(PODS, tolerating("p", "95")).await);
    let why =
        r#"operator: Unsupported value: "Gt": supported values: "Equal", "Exists", "Lt", "Gt""#;
    assert!(error.ends_with(&format!("{path}.{why}")), "{error}");

    on.create(PODS, tolerating("p", "-95")).await.unwrap();
    let form = "must be a valid decimal integer in canonical form";
    let parse = "strconv.ParseInt: parsing";
    for (value, expected) in [
        ("", vec!["must be non-empty".to_owned(), format!("{parse} \"\": invalid syntax")]),
        ("007", vec![form.to_owned()]),
        ("-0", vec![form.to_owned()]),
        ("-", vec![form.to_owned(), format!("{parse} \"-\": invalid syntax")]),
        ("9a", vec![form.to_owned(), format!("{parse} \"9a\": invalid syntax")]),
        (
            "9223372036854775808",
            vec![format!("{parse} \"9223372036854775808\": value out of range")],
        ),
    ] {
        let error = refused(on.create(PODS, tolerating("q", value)).await);
        let faults =
            expected.iter().map(|why| format!("{path}.value: Invalid value: {value:?}: {why}"));
        let faults: Vec<_> = faults.collect();
        let faults = match &faults[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        assert!(error.ends_with(&format!("is invalid: {faults}")), "{value}: {error}");
    }
    stop([off, on]).await;
}

#[tokio::test(start_paused = true)]
async fn members_are_kept_or_dropped() {
    for (feature, spec) in [
        (Feature::HostnameOverride, json!({"hostnameOverride": "h"})),
        (
            Feature::ContainerStopSignals,
            json!({"os": {"name": "linux"}, "containers": [
                {"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGUSR1"}}]}),
        ),
    ] {
        let servers = both(feature).await;
        for (server, is_kept) in servers.iter().zip([false, true]) {
            let made = server.create(PODS, pod("p", spec.clone())).await.unwrap();
            let sent = match feature {
                Feature::HostnameOverride => made["spec"].get("hostnameOverride"),
                _ => made["spec"]["containers"][0].get("lifecycle"),
            };
            assert_eq!(sent.is_some(), is_kept, "{feature:?}: {made:#}");
        }
        stop(servers).await;
    }
    let servers = both(Feature::HPAConfigurableTolerance).await;
    for (server, is_kept) in servers.iter().zip([false, true]) {
        let made = json!({"metadata": {"name": "a"}, "spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "behavior": {"scaleUp": {"tolerance": "0.2"}},
        }});
        let made = server.create(AUTOSCALERS, made).await.unwrap();
        let rules = &made["spec"]["behavior"]["scaleUp"];
        assert_eq!(rules.get("tolerance").is_some(), is_kept, "{made:#}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn stateful_sets_replace_several_pods() {
    let sets = "/apis/apps/v1/namespaces/default/statefulsets";
    let servers = both(Feature::MaxUnavailableStatefulSet).await;
    for (server, is_on) in servers.iter().zip([false, true]) {
        for (rolling, expected) in
            [(json!({"maxUnavailable": "50%"}), "50%".into()), (json!({}), json!(1))]
        {
            let set = json!({"metadata": {"generateName": "s-"}, "spec": {
                "selector": {"matchLabels": {"app": "a"}}, "serviceName": "s",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "template": {"metadata": {"labels": {"app": "a"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
            let made = server.create(sets, set).await.unwrap();
            let found = made["spec"]["updateStrategy"]["rollingUpdate"].get("maxUnavailable");
            assert_eq!(found, is_on.then_some(&expected), "{made:#}");
        }
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn label_keys_of_spread_constraints() {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"b": "c"}}, "matchLabelKeys": ["app"],
    });
    let spec = json!({"topologySpreadConstraints": [constraint]});
    let off = FeatureGates::default()
        .with(Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge, false);
    let dropped = off.with(Feature::MatchLabelKeysInPodTopologySpread, false);
    for (features, is_kept, is_merged) in
        [(FeatureGates::default(), true, true), (off, true, false), (dropped, false, false)]
    {
        let server = server(features).await;
        let made = server.create(PODS, pod("p", spec.clone())).await.unwrap();
        let found = &made["spec"]["topologySpreadConstraints"][0];
        assert_eq!(found.get("matchLabelKeys").is_some(), is_kept, "{found}");
        assert_eq!(found["labelSelector"].get("matchExpressions").is_some(), is_merged, "{found}");
        // Beside the selector, a key of it is refused; in it, one of an expression that repeats it.
        let mut twice = spec.clone();
        twice["topologySpreadConstraints"][0]["matchLabelKeys"] = json!(["b"]);
        let refused = server.create(PODS, pod("q", twice)).await.err();
        assert_eq!(refused.is_some(), is_kept && !is_merged, "{refused:?}");
        server.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_network_with_own_users() {
    let [off, on] = both(Feature::UserNamespacesHostNetworkSupport).await;
    let spec = json!({"hostUsers": false, "hostNetwork": true});
    let error = refused(off.create(PODS, pod("p", spec.clone())).await);
    assert!(error.ends_with("spec.hostNetwork: Forbidden: when `hostUsers` is false"), "{error}");
    on.create(PODS, pod("p", spec)).await.unwrap();
    stop([off, on]).await;
}

#[tokio::test(start_paused = true)]
async fn autoscalers_may_have_no_replicas() {
    let [off, on] = both(Feature::HPAScaleToZero).await;
    let autoscaler = |metrics: Value| {
        json!({"metadata": {"name": "a"}, "spec": {
            "minReplicas": 0, "maxReplicas": 3, "metrics": metrics,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        }})
    };
    let external = json!([{"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "5"}}}]);
    let error = refused(off.create(AUTOSCALERS, autoscaler(external.clone())).await);
    let why = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1";
    assert!(error.ends_with(why), "{error}");
    on.create(AUTOSCALERS, autoscaler(external)).await.unwrap();
    let cpu = json!([{"type": "Resource", "resource": {
        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
    let error = refused(on.create(AUTOSCALERS, autoscaler(cpu)).await);
    let why = "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas";
    assert!(error.ends_with(why), "{error}");
    stop([off, on]).await;
}

#[tokio::test(start_paused = true)]
async fn suspended_jobs_change() {
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let resized = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}}});
    let placed = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    let ran = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "m",
         "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": "2026-01-01T00:00:00Z"}]}});
    let path = format!("{JOBS}/j");

    let servers = both(Feature::MutablePodResourcesForSuspendedJobs).await;
    for (server, may) in servers.iter().zip([false, true]) {
        server.create(JOBS, job.clone()).await.unwrap();
        let changed = server.patch(&path, resized.clone()).await;
        assert_eq!(changed.is_ok(), may, "{changed:?}");
        // A Job that has not run is placed anew in any case.
        server.patch(&path, placed.clone()).await.unwrap();
    }
    stop(servers).await;

    let servers = both(Feature::MutableSchedulingDirectivesForSuspendedJobs).await;
    for (server, may) in servers.iter().zip([false, true]) {
        server.create(JOBS, job.clone()).await.unwrap();
        server.patch(&format!("{path}/status"), ran.clone()).await.unwrap();
        let changed = server.patch(&path, placed.clone()).await;
        assert_eq!(changed.is_ok(), may, "{changed:?}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn volumes_move() {
    let servers = both(Feature::MutablePVNodeAffinity).await;
    let on = |node: &str| {
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}})
    };
    for (server, may) in servers.iter().zip([false, true]) {
        let volume = json!({"metadata": {"name": "v"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/a"}, "nodeAffinity": on("n1")}});
        server.create(VOLUMES, volume).await.unwrap();
        let moved = json!({"spec": {"nodeAffinity": on("n2")}});
        let changed = server.patch(&format!("{VOLUMES}/v"), moved).await;
        assert_eq!(changed.is_ok(), may, "{changed:?}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn pods_get_the_labels_of_their_nodes() {
    let servers = both(Feature::PodTopologyLabelsAdmission).await;
    for (server, are_copied) in servers.iter().zip([false, true]) {
        let zone = "topology.kubernetes.io/zone";
        let node = json!({"metadata": {"name": "n", "labels": {zone: "z"}}});
        server.create("/api/v1/nodes", node).await.unwrap();
        let made = server.create(PODS, pod("p", json!({"nodeName": "n"}))).await.unwrap();
        assert_eq!(made["metadata"]["labels"].get(zone).is_some(), are_copied, "{made:#}");
    }
    stop(servers).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_for_another_uid_is_refused_or_made_with_a_warning() {
    let servers = both(Feature::TokenRequestServiceAccountUIDValidation).await;
    for (server, is_refused) in servers.iter().zip([false, true]) {
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        let account = json!({"metadata": {"name": "a"}});
        server.create(accounts, account).await.unwrap();
        let request = json!({"metadata": {"uid": "other"}, "spec": {"audiences": ["x"]}});
        let answer = server.create(&format!("{accounts}/a/token"), request).await;
        assert_eq!(answer.is_err(), is_refused, "{answer:?}");
        if let Ok(answer) = answer {
            assert_eq!(answer["metadata"]["uid"], "other");
        }
        let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": "a/b"});
        let request = json!({"spec": {"audiences": ["x"], "boundObjectRef": bound}});
        assert_eq!(
            refused(server.create(&format!("{accounts}/a/token"), request).await),
            r#"400 Name parameter invalid: "a/b": may not contain '/'"#
        );
    }
    stop(servers).await;
}

#[test]
fn initial_events_of_watches_need_a_feature() {
    let options = ListOptions {
        send_initial_events: Some(true),
        resource_version_match: Some("NotOlderThan".into()),
        ..ListOptions::default()
    };
    let on = FeatureGates::default();
    assert!(options.validate(true, on).is_ok());
    let error = options.validate(true, on.with(Feature::WatchList, false)).unwrap_err();
    let why = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    assert!(error.to_string().ends_with(why), "{error}");
}
