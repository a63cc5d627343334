//! Properties of every kind and every body.
use crate::kinds::REQUEST;
use crate::server::Server;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint_registry::{PatchType, Subresource, WriteOptions};

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1000m"}}}]})
}
fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": pod_spec()})
}
/// Collections with a minimal object each.
fn objects() -> Vec<(&'static str, Value)> {
    let selector = json!({"matchLabels": {"a": "b"}});
    let workload = || json!({"spec": {"selector": selector, "template": template()}});
    let mut stateful = workload();
    stateful["spec"]["serviceName"] = "s".into();
    let mut never = template();
    never["spec"]["restartPolicy"] = "Never".into();
    vec![
        ("/api/v1/namespaces", json!({})),
        ("/api/v1/nodes", json!({})),
        (
            "/api/v1/persistentvolumes",
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        ),
        ("/api/v1/namespaces/default/configmaps", json!({"data": {"a": "b"}})),
        ("/api/v1/namespaces/default/secrets", json!({"stringData": {"a": "b"}})),
        ("/api/v1/namespaces/default/serviceaccounts", json!({})),
        (
            "/api/v1/namespaces/default/services",
            json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}),
        ),
        (
            "/api/v1/namespaces/default/endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 1}]}]}),
        ),
        ("/api/v1/namespaces/default/events", json!({"involvedObject": {"namespace": "default"}})),
        (
            "/api/v1/namespaces/default/limitranges",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        ),
        (
            "/api/v1/namespaces/default/persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        ("/api/v1/namespaces/default/pods", json!({"spec": pod_spec()})),
        ("/api/v1/namespaces/default/podtemplates", json!({"template": template()})),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            json!({"spec": {"template": template()}}),
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            json!({"spec": {"hard": {"configmaps": "100"}}}),
        ),
        ("/apis/apps/v1/namespaces/default/deployments", workload()),
        ("/apis/apps/v1/namespaces/default/replicasets", workload()),
        ("/apis/apps/v1/namespaces/default/daemonsets", workload()),
        ("/apis/apps/v1/namespaces/default/statefulsets", stateful),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            json!({"revision": 1, "data": {"x": 1}}),
        ),
        ("/apis/batch/v1/namespaces/default/jobs", json!({"spec": {"template": never}})),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": never}}}}),
        ),
        (
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
        ),
        (
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}),
        ),
        ("/apis/networking.k8s.io/v1/ingressclasses", json!({"spec": {"controller": "a.b/c"}})),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({"spec": {"podSelector": {}}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            json!({"spec": {"minAvailable": 1, "selector": selector}}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]}),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"spec": {"renewTime": "2026-01-01T00:00:00.500000Z"}}),
        ),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", json!({"value": 5})),
        ("/apis/storage.k8s.io/v1/storageclasses", json!({"provisioner": "a.b/c"})),
        ("/apis/storage.k8s.io/v1/csidrivers", json!({"spec": {}})),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.2"]}]}),
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            json!({"spec": {"request": REQUEST, "signerName": "ex.io/s", "usages": ["client auth"]}}),
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            json!({"metadata": {"name": "v1.ex.io"}, "spec": {"group": "ex.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}}),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            json!({"spec": {"priorityLevelConfiguration": {"name": "x"}, "matchingPrecedence": 2}}),
        ),
        (
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
            json!({"webhooks": []}),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn writing_back_an_object_that_was_read_changes_nothing() {
    let server = Server::start().await;
    for (i, (path, mut object)) in objects().into_iter().enumerate() {
        let name = object["metadata"]["name"].as_str().map_or(format!("a{i}"), str::to_owned);
        object["metadata"]["name"] = name.as_str().into();
        let created = server.create(path, object).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        let one = format!("{path}/{name}");
        assert_eq!(server.get(&one).await.unwrap(), created, "{path}");
        let revision = server.revision().await;
        assert_eq!(server.update(&one, created.clone()).await.unwrap(), created, "PUT {path}");
        assert_eq!(server.patch(&one, json!({})).await.unwrap(), created, "PATCH {path}");
        let resource = server.target(path).resource;
        if resource.subresource(&Subresource::Status).is_some() {
            let status = format!("{one}/status");
            assert_eq!(server.update(&status, created.clone()).await.unwrap(), created, "{status}");
        }
        assert_eq!(server.revision().await, revision, "{path} was written");
        assert_eq!(
            created["metadata"]["generation"].is_i64(),
            resource.tracks_generation,
            "{path}: {created}"
        );
    }
}

/// JSON with the members that writes use, of any type.
fn body() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..70_000).prop_map(Value::from),
        "[a-z./]{0,6}".prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "generateName",
        "uid",
        "resourceVersion",
        "template",
        "selector",
        "matchLabels",
        "containers",
        "ports",
        "port",
        "type",
        "clusterIP",
        "data",
        "immutable",
        "replicas",
        "conditions",
        "rules",
        "verbs",
        "deletionTimestamp",
        "managedFields",
    ]);
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(names.clone(), inner, 0..6)
                .prop_map(|m| m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn no_body_causes_a_panic_or_a_partial_write(
        bodies in vec((0..64_usize, body()), 1..12),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let server = Server::start().await;
            let objects = objects();
            for (i, mut sent) in bodies {
                let path = objects[i % objects.len()].0;
                // With a name, so that some pass the metadata checks.
                if i % 2 == 0 && let Some(meta) = sent.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.insert("name".into(), "x".into());
                }
                let before = server.revision().await;
                let created = server.create(path, sent.clone()).await;
                let one = format!("{path}/x");
                match created {
                    Ok(object) => {
                        assert_eq!(server.revision().await, before + 1);
                        let name = object["metadata"]["name"].as_str().unwrap();
                        let same = server.update(&format!("{path}/{name}"), object.clone()).await;
                        assert_eq!(same.unwrap(), object);
                    }
                    Err(_) => assert_eq!(server.revision().await, before),
                }
                let none = WriteOptions { field_manager: "m".to_owned(), ..WriteOptions::default() };
                for kind in [PatchType::Merge, PatchType::StrategicMerge, PatchType::Json, PatchType::Apply] {
                    let _ = server.patch_with(&one, kind, sent.clone(), &none).await;
                }
                let _ = server.update(&one, sent).await;
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_list_of_errors_takes_linear_time() {
    // Quadratic checks of so many elements would show in the duration of the test.
    const ELEMENTS: usize = 8_000;
    let server = Server::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let owner =
        json!({"apiVersion": "v1", "kind": "A", "name": "o", "uid": "u", "controller": true});
    let owners: Vec<Value> = (0..ELEMENTS)
        .map(|i| {
            let mut owner = owner.clone();
            owner["uid"] = (i % (ELEMENTS / 2)).to_string().into();
            owner
        })
        .collect();
    let sent = json!({"metadata": {"name": "a", "ownerReferences": owners}});
    assert_eq!(server.create(maps, sent).await.unwrap_err().code(), 422);
    let containers: Vec<Value> = (0..ELEMENTS).map(|i| json!({"name": format!("C{i}")})).collect();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": containers}});
    let error = server.create("/api/v1/namespaces/default/pods", pod).await.unwrap_err();
    // The causes that a Status shows, and the count of the rest.
    let n_causes = error.0.details.unwrap().causes.len();
    assert!((1_000..2 * ELEMENTS).contains(&n_causes), "{n_causes}");
    let more = format!(" and {} more", 2 * ELEMENTS - n_causes);
    assert!(error.0.message.ends_with(&more), "{more}");
    let ports: Vec<Value> =
        (1..ELEMENTS).map(|i| json!({"name": format!("p{i}"), "port": i})).collect();
    let service = json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": ports}});
    let error = server.create("/api/v1/namespaces/default/services", service).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Internal error occurred: failed to allocate a nodePort: range is full"
    );
    let unknown: serde_json::Map<String, Value> =
        (0..ELEMENTS).map(|i| (format!("f{i}"), Value::from(1))).collect();
    server.create(maps, unknown.into()).await.unwrap_err();
}
