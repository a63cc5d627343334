//! What agents of nodes may write: the admission plugin NodeRestriction.
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::{AdmissionOptions, AlwaysDeny, Identity};
use setpoint_store::MemoryStore;
use std::sync::Arc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
/// A certificate request of `system:node:n1`, of `system:masters`, with its names in BMPString.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkNUQ0JzQUlCQURCT01TVXdJd1lEVlFRS0hod0Fjd0I1QUhNQWRBQmxBRzBBT2dCdEFHRUFjd0IwQUdVQQpjZ0J6TVNVd0l3WURWUVFESGh3QWN3QjVBSE1BZEFCbEFHMEFPZ0J1QUc4QVpBQmxBRG9BYmdBeE1Ga3dFd1lICktvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUUwNExjdk5rZ0NsQVMxaWhvSTl2QytEOVE0S3hLNExRUXZNQTAKcVEycFhDQXhNcWRMTVloLy9Zd2xRb2Z4TVd1N1VnbjBuajJpQ05laE1TUStVZUVCVzZBQU1Bb0dDQ3FHU000OQpCQU1DQTBnQU1FVUNJQUU5TTkvNlJXUmRYOXhsTUxhL0FjekU3dnN2ZVlRNG9taHJHcDVXRUZUV0FpRUFnekxHClBwK3JRSHFndzZpbzc0Q0RWOHlmR0VDWmJzN251RWpPUG1QcThLOD0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// A server whose authorizer allows nothing. Its user is `alice`.
async fn server() -> Server {
    let store = Arc::new(MemoryStore::default());
    let plugins = AdmissionOptions::default().enable("NodeRestriction").build().unwrap();
    let configure = |builder: setpoint_registry::RegistryBuilder| {
        builder.seed(7).admission_plugins(plugins).authorizer(Arc::new(AlwaysDeny))
    };
    Server::configured(store.clone(), store, configure).await
}
fn agent(node: &str) -> Identity {
    Identity::new(&format!("system:node:{node}"), ["system:nodes"])
}
fn pod(name: &str, node: &str, volumes: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": node, "volumes": volumes, "containers": [{"name": "c", "image": "i"}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_mirror_pod_is_owned_by_its_node_and_refers_to_no_objects() {
    let mut server = server().await;
    let node = server.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await.unwrap();
    server.identity = agent("n1");
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"],
        "controller": true,
    });
    let with = |member: &str, value: Value| {
        let mut owner = owner.clone();
        owner[member] = value;
        json!([owner])
    };
    let mirror = |owners: Value, volumes: Value| {
        let mut pod = pod("m", "n1", volumes);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        pod["metadata"]["ownerReferences"] = owners;
        pod
    };
    let own = "an owner reference set to itself";
    for (owners, why) in [
        (json!([]), own),
        (json!([owner, with("uid", json!("u"))[0]]), "a single owner reference set to itself"),
        (with("name", json!("n2")), own),
        (with("kind", json!("Pod")), own),
        (with("apiVersion", json!("v2")), own),
        (with("controller", json!(false)), "a controller owner reference set to itself"),
    ] {
        let error = refused(server.create(PODS, mirror(owners, json!([]))).await);
        let why = format!(r#"node "n1" can only create pods with {why}"#);
        assert_eq!(error, format!(r#"403 pods "m" is forbidden: {why}"#));
    }
    let error = refused(server.create(PODS, mirror(with("uid", json!("u")), json!([]))).await);
    assert!(error.contains("node n1 UID mismatch: expected u got "), "{error}");
    let blocking = mirror(with("blockOwnerDeletion", json!(true)), json!([]));
    let error = refused(server.create(PODS, blocking).await);
    assert!(error.ends_with("must not set blockOwnerDeletion on an owner reference"), "{error}");
    let volumes = json!([{"name": "v", "configMap": {"name": "other"}}]);
    assert_eq!(
        refused(server.create(PODS, mirror(json!([owner]), volumes)).await),
        r#"403 pods "m" is forbidden: node "n1" can not create pods that reference configmaps"#
    );
    let volumes = json!([{"name": "v", "hostPath": {"path": "/"}}]);
    server.create(PODS, mirror(json!([owner]), volumes)).await.unwrap();
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_pod_keeps_its_labels_and_claims() {
    let mut server = server().await;
    server.create(PODS, pod("p", "n1", json!([]))).await.unwrap();
    server.identity = agent("n1");
    let status = format!("{PODS}/p/status");
    for (patch, why) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), "update labels through pod status"),
        (
            json!({"status": {"resourceClaimStatuses": [{"name": "a"}]}}),
            "update resource claim statues",
        ),
        (
            json!({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "a"}}}),
            "update extended resource claim status",
        ),
    ] {
        let error = refused(server.patch(&status, patch).await);
        assert_eq!(error, format!(r#"403 pods "p" is forbidden: node "n1" cannot {why}"#));
    }
    server.patch(&status, json!({"status": {"phase": "Running"}})).await.unwrap();
    let error = refused(server.patch(&format!("{PODS}/p/resize"), json!({"spec": {}})).await);
    assert!(error.contains(r#"unexpected pod subresource "resize""#), "{error}");
    let eviction = json!({"metadata": {"name": "gone"}});
    let error = refused(server.create(&format!("{PODS}/gone/eviction"), eviction).await);
    assert_eq!(error, r#"404 pod "gone" not found"#);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_a_claim_an_agent_writes_sizes_and_conditions() {
    let mut server = server().await;
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    server.create(CLAIMS, claim).await.unwrap();
    server.identity = agent("n1");
    let status = format!("{CLAIMS}/c/status");
    for patch in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"},
        ]}}),
        json!({"status": {"phase": "Bound"}}),
    ] {
        let error = refused(server.patch(&status, patch).await);
        assert!(error.contains("not allowed to update fields other than"), "{error}");
    }
    let sizes = json!({"status": {
        "capacity": {"storage": "1Gi"},
        "conditions": [{"type": "Resizing", "status": "True"}],
    }});
    server.patch(&status, sizes).await.unwrap();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        refused(server.patch(&format!("{CLAIMS}/c"), labels).await),
        r#"403 persistentvolumeclaims "c" is forbidden: may only update PVC status"#
    );
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_and_certificates_are_the_nodes_own() {
    let mut server = server().await;
    server.identity = agent("n2");
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.ex.io", "nodeName": "n1",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        },
    });
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let refusal = |verb: &str| {
        format!(
            r#"403 resourceslices.resource.k8s.io "s" is forbidden: can only {verb} ResourceSlice with the same NodeName as the requesting node"#
        )
    };
    assert_eq!(refused(server.create(slices, slice.clone()).await), refusal("create"));
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({
        "metadata": {"name": "r"},
        "spec": {
            "request": REQUEST, "signerName": "kubernetes.io/kubelet-serving",
            "usages": ["digital signature", "server auth"],
        },
    });
    assert_eq!(
        refused(server.create(requests, request.clone()).await),
        r#"403 certificatesigningrequests.certificates.k8s.io "r" is forbidden: can only create a node CSR with CN=system:node:n2"#
    );
    server.identity = agent("n1");
    server.create(slices, slice).await.unwrap();
    server.create(requests, request.clone()).await.unwrap();
    server.identity = agent("n2");
    assert_eq!(refused(server.delete(&format!("{slices}/s")).await), refusal("delete"));
    // The groups of a request count in every encoding.
    let mut client = request;
    client["metadata"]["name"] = "x".into();
    client["spec"]["signerName"] = "kubernetes.io/kube-apiserver-client".into();
    client["spec"]["usages"] = json!(["digital signature", "client auth"]);
    let error = refused(server.create(requests, client).await);
    assert!(error.ends_with("signer with system:masters group is not allowed"), "{error}");
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_is_for_an_audience_that_its_pod_uses() {
    let mut server = server().await;
    let driver = json!({
        "metadata": {"name": "d.ex.io"}, "spec": {"tokenRequests": [{"audience": "driver"}]},
    });
    server.create("/apis/storage.k8s.io/v1/csidrivers", driver).await.unwrap();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.create(accounts, json!({"metadata": {"name": "a"}})).await.unwrap();
    let volumes = json!([
        {"name": "t", "projected": {"sources": [
            {"serviceAccountToken": {"path": "t", "audience": "vault"}},
        ]}},
        {"name": "d", "csi": {"driver": "d.ex.io"}},
    ]);
    let mut uses = pod("p", "n1", volumes);
    uses["spec"]["serviceAccountName"] = "a".into();
    let uid = server.create(PODS, uses).await.unwrap()["metadata"]["uid"].clone();
    server.identity = agent("n1");
    let ask = async |audiences: Value, name: &str| {
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
            },
        });
        let made = server.create(&format!("{accounts}/a/token"), request).await;
        made.map_or_else(|error| error.0.message, |_| String::new())
    };
    for audience in ["vault", "driver"] {
        let error = ask(json!([audience]), "p").await;
        assert!(!error.contains("audience"), "{audience}: {error}");
    }
    assert_eq!(
        ask(json!(["other"]), "p").await,
        r#"serviceaccounts "a" is forbidden: audience "other" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience"#
    );
    assert_eq!(
        ask(json!(["vault", "driver"]), "p").await,
        r#"serviceaccounts "a" is forbidden: node may only request 0 or 1 audiences"#
    );
    assert_eq!(ask(json!(["vault"]), "q").await, r#"pod "q" not found"#);
    // Who may not ask does not learn which accounts there are.
    let request = json!({"spec": {"audiences": ["vault"]}});
    assert_eq!(
        refused(server.create(&format!("{accounts}/none/token"), request).await),
        r#"403 serviceaccounts "none" is forbidden: node requested token not bound to a pod"#
    );
    server.stop().await;
}
