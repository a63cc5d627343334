//! A start, what suites find, and a stop.

use crate::certificates::{Authorities, self_signed};
use crate::harness::{
    PATIENCE, Process, Start, assets, client, eventually, free_port, plain_status, tls_status,
};
use futures::future::ready;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::serde::de::DeserializeOwned;
use kube_client::Resource;
use kube_client::api::{Api, DeleteParams, PostParams, WatchEvent, WatchParams};
use kube_runtime::wait::{Condition, await_condition};
use serde_json::json;
use std::fmt::Debug;
use std::process::Command;

fn config_map(value: serde_json::Value) -> ConfigMap {
    serde_json::from_value(value).unwrap()
}

/// Waits for a condition of an object or its absence.
async fn until<K>(what: &str, api: &Api<K>, name: &str, condition: impl Condition<K>)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let wait = await_condition(api.clone(), name, condition);
    let found = tokio::time::timeout(PATIENCE, wait).await;
    found.unwrap_or_else(|_| panic!("{what}")).unwrap();
}

/// Whether an object is gone.
fn is_gone<K>(object: Option<&K>) -> bool {
    object.is_none()
}

#[tokio::test]
async fn starts_as_envtest_starts_it_serves_and_stops() {
    let mut environment = Start::default().start();
    let admin = environment.admin().await;
    let namespaces = Api::<Namespace>::all(admin.clone());
    namespaces.get("default").await.unwrap();
    for page in ["/api", "/apis", "/readyz", "/livez"] {
        let request = http::Request::get(page).body(Vec::new()).unwrap();
        assert!(!admin.request_text(request).await.unwrap().is_empty(), "{page}");
    }
    assert_eq!(tls_status(environment.port, "/readyz"), 200);
    assert_eq!(tls_status(environment.port, "/api/v1/pods"), 403, "the anonymous user");
    // A pod needs no service account: there is none, as without kube-controller-manager.
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), "default");
    assert!(accounts.list(&Default::default()).await.unwrap().items.is_empty());
    let pods = Api::<Pod>::namespaced(admin.clone(), "default");
    let pod = json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();

    // A user that is added after the start has the rights of its groups.
    let jane = environment.authorities.user("jane", &["devs"]);
    let refused = Api::<Pod>::namespaced(environment.client(&jane).await, "default");
    let error = refused.list(&Default::default()).await.unwrap_err();
    assert!(error.to_string().contains(r#"User "jane" cannot list resource "pods""#), "{error}");
    let stranger = Authorities::new().user("admin", &["system:masters"]);
    let stranger = Api::<Pod>::namespaced(environment.client(&stranger).await, "default");
    let error = stranger.list(&Default::default()).await.unwrap_err();
    assert!(error.to_string().contains("Unauthorized"), "{error}");

    let stopped = environment.api_server.terminate();
    assert!(stopped.success(), "{stopped}: {}", environment.api_server.log());
    assert!(environment.etcd.terminate().success());
    assert_eq!(tls_status(environment.port, "/healthz"), 0);
    let left: Vec<_> =
        std::fs::read_dir(environment.folder.path().join("certs")).unwrap().collect();
    assert_eq!(left.len(), 5, "only the suite's own files: {left:?}");
}

#[tokio::test]
async fn tokens_of_service_accounts_are_signed_with_the_suites_key() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let accounts = Api::<ServiceAccount>::namespaced(admin, "default");
    let robot = serde_json::from_value(json!({"metadata": {"name": "robot"}})).unwrap();
    accounts.create(&PostParams::default(), &robot).await.unwrap();
    let request =
        TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let token = accounts
        .create_token_request("robot", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token
        .unwrap();
    let decoded = |n: usize| {
        use base64::Engine as _;
        let part = token.split('.').nth(n).unwrap();
        let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap()
    };
    assert_eq!(decoded(0)["alg"], "ES256");
    assert_eq!(decoded(1)["iss"], format!("https://127.0.0.1:{}/", environment.port));
    // It is accepted, although the key file is a certificate.
    let mut kubeconfig: serde_json::Value =
        serde_json::from_str(&environment.kubeconfig(&environment.authorities.user("x", &[])))
            .unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": token});
    let robot = client(&kubeconfig.to_string()).await;
    let error = Api::<Pod>::namespaced(robot, "default").list(&Default::default()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("system:serviceaccount:default:robot"), "{error}");
}

#[tokio::test]
async fn namespaces_are_deleted_and_garbage_is_collected_on_request() {
    let environment =
        Start::default().variable("SETPOINT_CONTROLLERS", "namespace,garbagecollector").start();
    let admin = environment.admin().await;
    let namespaces = Api::<Namespace>::all(admin.clone());
    let one = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
    namespaces.create(&PostParams::default(), &one).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(admin.clone(), "one");
    let owner = config_map(json!({"metadata": {"name": "owner"}}));
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let owned = config_map(json!({"metadata": {"name": "owned", "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
    }]}}));
    maps.create(&PostParams::default(), &owned).await.unwrap();
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    until("the owned object is collected", &maps, "owned", is_gone).await;
    namespaces.delete("one", &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", &namespaces, "one", is_gone).await;
}

#[tokio::test]
async fn no_controllers_run_unless_they_are_asked_for_and_nodes_neither() {
    let environment = Start::default().start();
    let admin = environment.admin().await;
    let namespaces = Api::<Namespace>::all(admin.clone());
    let one = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
    namespaces.create(&PostParams::default(), &one).await.unwrap();
    namespaces.delete("one", &DeleteParams::default()).await.unwrap();
    let one = namespaces.get("one").await.unwrap();
    assert_eq!(one.status.unwrap().phase.as_deref(), Some("Terminating"));

    let environment = Start::default()
        .variable("SETPOINT_CONTROLLERS", "*")
        .variable("SETPOINT_NODES", "2")
        .start();
    let admin = environment.admin().await;
    // A watch from the beginning shows what there is, and then what comes.
    let nodes = Api::<Node>::all(admin.clone());
    let nodes = nodes.watch(&WatchParams::default(), "0").await.unwrap();
    let added = nodes.try_filter(|event| ready(matches!(event, WatchEvent::Added(_)))).take(2);
    let added = tokio::time::timeout(PATIENCE, added.try_collect::<Vec<_>>()).await;
    assert_eq!(added.expect("both nodes are made").unwrap().len(), 2);
    let pods = Api::<Pod>::namespaced(admin.clone(), "default");
    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let is_running = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some("Running")
    };
    until("the pod runs", &pods, "a", is_running).await;
}

/// jenvtest's and fabric8's flags: two arguments each, a private key as key file, self-signed
/// certificates, no bind address; readiness by `/readyz`; SIGKILL at the end.
#[tokio::test]
async fn starts_as_jenvtest_starts_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server =
        self_signed("example.org", &[], &["127.0.0.1", "kubernetes", "kubernetes.default"]);
    let user = self_signed("jenvtest", &["system:masters"], &[]);
    let key = include_str!("../../../jwt/testdata/rsa.key");
    for (name, pem) in [
        ("apiserver.crt", &*server.certificate),
        ("apiserver.key", &*server.key),
        ("sa.key", key),
        ("client.crt", &*user.certificate),
    ] {
        std::fs::write(folder.path().join(name), pem).unwrap();
    }
    let (port, etcd_port) = (free_port().to_string(), free_port());
    let etcd_url = format!("http://0.0.0.0:{etcd_port}");
    let peer = format!("http://localhost:{}", free_port());
    let etcd = Process::start(
        Command::new(assets().join("etcd")).args([
            "-data-dir",
            &path("data"),
            "-wal-dir",
            &path("wal"),
            "--listen-client-urls",
            &etcd_url,
            "--advertise-client-urls",
            &etcd_url,
            "--initial-cluster",
            &format!("default={peer}"),
            "--initial-advertise-peer-urls",
            &peer,
            "--listen-peer-urls",
            &peer,
        ]),
        folder.path().join("etcd.log"),
    );
    eventually("etcd is healthy", || plain_status(etcd_port, "/health") == 200);
    let mut api_server = Process::start(
        Command::new(assets().join("kube-apiserver")).args([
            "--cert-dir",
            &path(""),
            "--secure-port",
            &port,
            "--etcd-servers",
            &etcd_url,
            "--authorization-mode",
            "RBAC",
            "--service-account-issuer",
            "https://localhost",
            "--service-account-signing-key-file",
            &path("sa.key"),
            "--service-account-signing-key-file",
            &path("sa.key"),
            "--service-account-issuer",
            &path("sa.key"),
            "--service-account-key-file",
            &path("sa.key"),
            "--disable-admission-plugins",
            "ServiceAccount",
            "--client-ca-file",
            &path("client.crt"),
            "--service-cluster-ip-range",
            "10.0.0.0/24",
            "--allow-privileged",
        ]),
        folder.path().join("kube-apiserver.log"),
    );
    let port: u16 = port.parse().unwrap();
    eventually("kube-apiserver is ready", || {
        assert!(api_server.child.try_wait().unwrap().is_none(), "{}", api_server.log());
        tls_status(port, "/readyz") == 200
    });
    use base64::Engine as _;
    let encoded = |pem: &str| base64::engine::general_purpose::STANDARD.encode(pem);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
        }}],
        "users": [{"name": "a", "user": {
            "client-certificate-data": encoded(&user.certificate), "client-key-data": encoded(&user.key),
        }}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    let admin = client(&kubeconfig.to_string()).await;
    Api::<Namespace>::all(admin).get("default").await.unwrap();
    drop((api_server, etcd));
}

/// Its client certificate is missing, so nobody but tokens is known.
#[tokio::test]
async fn users_of_a_token_file_need_no_client_ca() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "secret,admin,1,system:masters\n").unwrap();
    let environment = Start::default()
        .without("client-ca-file")
        .without("disable-admission-plugins")
        .flag(format!("--token-auth-file={}", tokens.display()))
        .flag("--disable-admission-plugins=")
        .start();
    let mut kubeconfig: serde_json::Value =
        serde_json::from_str(&environment.kubeconfig(&environment.authorities.user("x", &[])))
            .unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": "secret"});
    let admin = client(&kubeconfig.to_string()).await;
    Api::<Namespace>::all(admin).get("default").await.unwrap();
    assert!(environment.etcd_port != environment.port);
}
