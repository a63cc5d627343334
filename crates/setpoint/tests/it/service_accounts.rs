//! Service accounts: what each namespace gets, and what admission gives to pods.

use crate::plane::{Person, with_person, with_person_of};
use serde_json::{Value, json};
use setpoint::{ControlPlane, ServeOptions};
use tokio_util::sync::CancellationToken;

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    });
    for (member, value) in spec.as_object().unwrap() {
        pod["spec"][member] = value.clone();
    }
    pod
}

/// The message of the refusal of a pod.
async fn refused(person: &Person, pod: &Value) -> String {
    match person.request("POST", PODS, "application/json", pod).await {
        Err(kube_client::Error::Api(status)) => format!("{} {}", status.code, status.message),
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_namespace_keeps_its_default_account() {
    with_person(async |person| {
        for namespace in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            let account = person.until(&path, "it exists", Option::is_some).await.unwrap();
            let members: Vec<&String> = account.as_object().unwrap().keys().collect();
            assert_eq!(members, ["apiVersion", "kind", "metadata"]);
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
        person.create("/api/v1/namespaces", &namespace).await;
        let path = "/api/v1/namespaces/a/serviceaccounts/default";
        let first = person.until(path, "it exists", Option::is_some).await.unwrap();
        person.delete(path, "Background").await;
        let second = person
            .until(path, "it exists again", |account| {
                account.as_ref().is_some_and(|a| a["metadata"]["uid"] != first["metadata"]["uid"])
            })
            .await;
        assert!(second.is_some());
        // It does not hold up the deletion of its namespace.
        person.delete("/api/v1/namespaces/a", "Background").await;
        person.gone("/api/v1/namespaces/a").await;
        assert_eq!(person.get(path).await, None);
    })
    .await;
}

#[tokio::test]
async fn each_namespace_keeps_the_ca_of_the_listener() {
    let serving = ControlPlane::builder()
        .build()
        .serve(ServeOptions::new(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let person = Person { client: serving.client() };
    let stop = CancellationToken::new();
    let acting = async {
        for namespace in ["default", "kube-system"] {
            let path = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
            person.until(&path, "it exists", Option::is_some).await;
        }
        let path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
        let map = person.get(path).await.unwrap();
        assert!(map["data"]["ca.crt"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
        let description = &map["metadata"]["annotations"]["kubernetes.io/description"];
        assert!(description.as_str().unwrap().starts_with("Contains a CA bundle"));
        // A change is undone: data, further keys and the description.
        let is_restored = |found: &Option<Value>| {
            found.as_ref().is_some_and(|found| {
                let annotations = |map: &Value| map["metadata"]["annotations"].clone();
                found["data"] == map["data"] && annotations(found) == annotations(&map)
            })
        };
        let patch = json!({
            "metadata": {"annotations": {"kubernetes.io/description": null}},
            "data": {"ca.crt": "other", "more": "1"},
        });
        person.patch(path, &patch).await;
        person.until(path, "it is restored", is_restored).await;
        person.delete(path, "Background").await;
        person.until(path, "it exists again", is_restored).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(serving.run(stop.clone()), acting);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_an_account_its_token_and_its_pull_secrets() {
    with_person(async |person| {
        // At once: the pod waits for the account, which a controller creates.
        let mut wanted = pod("a", &json!({"initContainers": [{"name": "init", "image": "a"}]}));
        wanted["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "mine", "mountPath": "/mine"}]);
        wanted["spec"]["volumes"] = json!([{"name": "mine", "emptyDir": {}}]);
        let made = person.create(PODS, &wanted).await;
        let spec = &made["spec"];
        assert_eq!(spec["serviceAccountName"], "default");
        assert_eq!(spec["serviceAccount"], "default");
        assert_eq!(spec["volumes"][0], json!({"name": "mine", "emptyDir": {}}));
        let volume = &spec["volumes"][1];
        let name = volume["name"].as_str().unwrap();
        assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
        assert_eq!(
            volume["projected"],
            json!({
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {
                        "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }},
                    {"downwardAPI": {"items": [{
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }]}},
                ],
                "defaultMode": 420,
            })
        );
        let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH});
        assert_eq!(spec["containers"][0]["volumeMounts"][1], mount);
        assert_eq!(spec["initContainers"][0]["volumeMounts"], json!([mount]));
        let owned = made["metadata"]["managedFields"].to_string();
        assert!(!owned.contains("kube-api-access"), "{owned}");

        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"},
            "imagePullSecrets": [{"name": "registry"}], "automountServiceAccountToken": false,
        });
        person.create(ACCOUNTS, &account).await;
        let spec = async |name: &str, spec: &Value| {
            person.create(PODS, &pod(name, spec)).await["spec"].clone()
        };
        let of_robot = spec("b", &json!({"serviceAccountName": "robot"})).await;
        assert_eq!(of_robot["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(of_robot.get("volumes"), None);
        // The older name; the pod's setting takes precedence, and so do its pull secrets.
        let own = json!({
            "serviceAccount": "robot", "automountServiceAccountToken": true,
            "imagePullSecrets": [{"name": "own"}],
        });
        let own = spec("c", &own).await;
        assert_eq!(own["serviceAccountName"], "robot");
        assert_eq!(own["imagePullSecrets"], json!([{"name": "own"}]));
        assert_eq!(own["volumes"].as_array().unwrap().len(), 1);
        // A container with a mount there keeps it, and no volume is added.
        let mounts = json!([{"name": "mine", "mountPath": MOUNT_PATH}]);
        let mounted = json!({
            "containers": [{"name": "main", "image": "a", "volumeMounts": mounts}],
            "volumes": [{"name": "mine", "emptyDir": {}}],
        });
        let mounted = spec("d", &mounted).await;
        assert_eq!(mounted["containers"][0]["volumeMounts"], mounts);
        assert_eq!(mounted["volumes"].as_array().unwrap().len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_its_account_and_a_mirror_pod_with_one_are_refused() {
    with_person(async |person| {
        let answer = refused(&person, &pod("p", &json!({"serviceAccountName": "x"}))).await;
        assert_eq!(
            answer,
            "403 pods \"p\" is forbidden: error looking up service account default/x: serviceaccount \"x\" not found"
        );
        let mirror = |spec: Value| {
            let mut pod = pod("m", &spec);
            pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
            pod["spec"]["nodeName"] = "n".into();
            pod
        };
        for (spec, why) in [
            (json!({"serviceAccountName": "default"}), "reference service accounts"),
            (
                json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
                "reference secrets",
            ),
            (
                json!({"containers": [{"name": "c", "image": "a",
                    "envFrom": [{"secretRef": {"name": "s"}}]}]}),
                "reference secrets",
            ),
            (
                json!({"volumes": [{"name": "v", "projected":
                    {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
                "use ServiceAccountToken volume projections",
            ),
        ] {
            let answer = refused(&person, &mirror(spec)).await;
            assert_eq!(answer, format!("403 pods \"m\" is forbidden: a mirror pod may not {why}"));
        }
        let made = person.create(PODS, &mirror(json!({}))).await;
        assert_eq!(made["spec"].get("serviceAccountName"), None);
        assert_eq!(made["spec"].get("volumes"), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_controllers_pods_need_no_account() {
    let plane = ControlPlane::builder().simulated(0).controllers(false).build();
    with_person_of(plane, async |person| {
        let made = person.create(PODS, &pod("p", &json!({"serviceAccountName": "x"}))).await;
        assert_eq!(made["spec"].get("volumes"), None);
    })
    .await;
    // Asked for, a missing account is an error after a second.
    let plane = ControlPlane::builder().simulated(0).controllers(false).service_accounts(true);
    with_person_of(plane.build(), async |person| {
        let begun = tokio::time::Instant::now();
        let answer = refused(&person, &pod("p", &json!({}))).await;
        assert!(answer.ends_with("serviceaccount \"default\" not found"), "{answer}");
        let took = begun.elapsed().as_millis();
        assert!((1000..2000).contains(&took), "{took}");
    })
    .await;
}
