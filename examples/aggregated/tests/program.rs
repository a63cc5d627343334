//! The program as a process beside the server that it extends.

use aggregated::{loads, notes};
use http::Request;
use serde_json::{Value, json};
use setpoint::apiserver::{Credentials, Identity};
use setpoint::kube_client::config::{KubeConfigOptions, Kubeconfig};
use setpoint::kube_client::{Client, Config, Error};
use setpoint::prelude::BoxError;
use setpoint::{ControlPlane, ServeOptions};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LOADS: &str = "/apis/metrics.example.dev/v1/loads";
const NOTES: &str = "/apis/store.example.dev/v1/namespaces/default/notes";

/// The program.
struct Program(Child);

impl Program {
    fn start(folder: &Path) -> std::io::Result<Self> {
        let mut program = Command::new(env!("CARGO_BIN_EXE_aggregated"));
        program.args(["--here", "--data"]).arg(folder.join("data"));
        program.env("KUBECONFIG", folder.join("kubeconfig")).env("RUST_LOG", "warn");
        Ok(Self(program.spawn()?))
    }

    /// As a crash does.
    fn kill(mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Already gone when the test went well.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Sends a request; returns the code and the answer.
async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).body(bytes).expect("a request");
    match client.request::<Value>(request).await {
        Ok(answer) => (200, answer),
        Err(Error::Api(status)) => (status.code, json!({"message": status.message})),
        Err(error) => (0, json!({"message": error.to_string()})),
    }
}

/// Repeats a GET request until its code is as wanted.
async fn until(client: &Client, path: &str, code: u16) -> Value {
    let mut last = (0, Value::Null);
    for _ in 0..6000 {
        last = send(client, "GET", path, &Value::Null).await;
        if last.0 == code {
            return last.1;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} is never answered with {code}, last: {last:?}")
}

/// A client with exactly these credentials.
async fn client_of(kubeconfig: &str, server: Option<String>, user: Value) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    if let Some(auth) = kubeconfig.auth_infos.first_mut()
        && !user.is_null()
    {
        auth.auth_info = Some(serde_json::from_value(user).expect("credentials"));
    }
    let options = KubeConfigOptions::default();
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
    // A 503 is an answer too.
    config.default_retry = false;
    if let Some(server) = server {
        config.cluster_url = server.parse().expect("a URL");
        config.accept_invalid_certs = true;
    }
    Client::try_from(config).expect("a client")
}

async fn grant(admin: &Client, name: &str, rules: Value) {
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let made = send(admin, "POST", &format!("{group}/clusterroles"), &role).await;
    assert_eq!(made.0, 200, "{made:?}");
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    });
    let made = send(admin, "POST", &format!("{group}/clusterrolebindings"), &binding).await;
    assert_eq!(made.0, 200, "{made:?}");
}

/// What a test needs of the host.
struct Host {
    kubeconfig: String,
    admin: Client,
    bob: Client,
    folder: tempfile::TempDir,
}

/// Runs a host with RBAC while `act` uses it.
async fn with_host(act: impl AsyncFnOnce(&Host) -> Result<(), BoxError>) -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let credentials = Credentials::none().token("bobs", Identity::new("bob", ["devs"]));
    let options = ServeOptions::new((Ipv4Addr::LOCALHOST, 0)).credentials(credentials);
    let plane = ControlPlane::builder().rbac().build();
    let serving = plane.serve(options.kubeconfig(folder.path().join("kubeconfig"))).await?;
    let kubeconfig = serving.kubeconfig().to_owned();
    let admin = client_of(&kubeconfig, None, Value::Null).await;
    let bob = client_of(&kubeconfig, None, json!({"token": "bobs"})).await;
    let host = Host { kubeconfig, admin, bob, folder };
    let stop = CancellationToken::new();
    let acting = async {
        let acted = act(&host).await;
        stop.cancel();
        acted
    };
    let (served, acted) = tokio::join!(serving.run(stop.clone()), acting);
    served?;
    acted
}

#[tokio::test]
async fn a_server_that_dies_and_comes_back_takes_nothing_else_with_it() -> Result<(), BoxError> {
    with_host(async |host| {
        let admin = &host.admin;
        let program = Program::start(host.folder.path())?;
        let list = until(admin, LOADS, 200).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
        let load = until(admin, &format!("{LOADS}/5m"), 200).await;
        assert_eq!(load["kind"], "Load");
        let missing = send(admin, "GET", &format!("{LOADS}/7m"), &Value::Null).await;
        assert_eq!(missing.0, 404, "{missing:?}");
        until(admin, NOTES, 200).await;
        let note = json!({
            "apiVersion": "store.example.dev/v1", "kind": "Note",
            "metadata": {"name": "first"}, "spec": {"text": "kept"},
        });
        assert_eq!(send(admin, "POST", NOTES, &note).await.0, 200);
        let mut wrong = note.clone();
        wrong["metadata"]["name"] = "second".into();
        wrong["spec"] = json!({});
        assert_eq!(send(admin, "POST", NOTES, &wrong).await.0, 422);

        let shop = "/api/v1/namespaces/shop";
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        assert_eq!(send(admin, "POST", "/api/v1/namespaces", &namespace).await.0, 200);

        program.kill()?;
        // At once an error, soon a condition.
        assert_eq!(send(admin, "GET", NOTES, &Value::Null).await.0, 503);
        let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.store.example.dev";
        let mut shown = Value::Null;
        for _ in 0..6000 {
            shown = until(admin, service, 200).await["status"]["conditions"][0].clone();
            if shown["status"] == "False" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(shown["reason"], "FailedDiscoveryCheck", "{shown}");
        // Others are as they were, and discovery has the group still.
        assert_eq!(send(admin, "GET", "/api/v1/namespaces", &Value::Null).await.0, 200);
        let groups = until(admin, "/apis", 200).await.to_string();
        assert!(groups.contains(notes::GROUP) && groups.contains(loads::GROUP), "{groups}");
        // A namespace that is deleted waits for it, and says so.
        assert_eq!(send(admin, "DELETE", shop, &Value::Null).await.0, 200);
        let mut waits = Value::Null;
        for _ in 0..6000 {
            waits = until(admin, shop, 200).await["status"].clone();
            if waits["conditions"].to_string().contains("DiscoveryFailed") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(waits["phase"], "Terminating", "{waits}");
        let failure = waits["conditions"].as_array().and_then(|all| {
            all.iter().find(|one| one["type"] == "NamespaceDeletionDiscoveryFailure")
        });
        let message = failure.map(|one| one["message"].to_string()).unwrap_or_default();
        assert!(message.contains(notes::GROUP), "{waits}");

        let _again = Program::start(host.folder.path())?;
        let found = until(admin, &format!("{NOTES}/first"), 200).await;
        assert_eq!(found["spec"]["text"], "kept");
        until(admin, LOADS, 200).await;
        until(admin, shop, 404).await;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn users_and_rights_are_those_of_the_host() -> Result<(), BoxError> {
    with_host(async |host| {
        let Host { admin, bob, kubeconfig, .. } = host;
        let _program = Program::start(host.folder.path())?;
        until(admin, NOTES, 200).await;
        let service = "/api/v1/namespaces/aggregated/services/api";
        let port = until(admin, service, 200).await["spec"]["ports"][0]["port"].clone();
        let direct = || Some(format!("https://localhost:{port}"));
        let bob_there = client_of(kubeconfig, direct(), json!({"token": "bobs"})).await;
        let unknown = client_of(kubeconfig, direct(), json!({"token": "x"})).await;
        let nobody = client_of(kubeconfig, direct(), json!({})).await;
        // The certificate of the host's administrator counts there too.
        let admin_there = client_of(kubeconfig, direct(), Value::Null).await;
        let get = async |client: &Client| send(client, "GET", NOTES, &Value::Null).await;
        let refused = r#"notes.store.example.dev is forbidden: User "bob" cannot list resource "notes" in API group "store.example.dev" in the namespace "default""#;
        for client in [bob, &bob_there] {
            let (code, answer) = get(client).await;
            assert_eq!((code, &answer["message"]), (403, &json!(refused)));
        }
        assert_eq!(get(&unknown).await.0, 401);
        assert_eq!(get(&nobody).await.0, 401);
        assert_eq!(get(&admin_there).await.0, 200);
        // Headers of a front proxy count with its certificate only.
        let mut forged = Request::get(NOTES).body(Vec::new())?;
        let headers = [("x-remote-user", "root"), ("x-remote-group", "system:masters")];
        for (name, value) in headers {
            forged.headers_mut().insert(name, value.parse()?);
        }
        let forged = bob_there.request::<Value>(forged).await;
        assert!(matches!(forged, Err(Error::Api(status)) if status.code == 403));

        let rules = json!([
            {"verbs": ["list", "create"], "apiGroups": ["store.example.dev"], "resources": ["notes"]},
        ]);
        grant(admin, "noter", rules).await;
        until(bob, NOTES, 200).await;
        // The other server believes its last answer for ten seconds.
        until(&bob_there, NOTES, 200).await;
        let note = json!({
            "apiVersion": "store.example.dev/v1", "kind": "Note",
            "metadata": {"name": "bobs"}, "spec": {"text": "mine"},
        });
        assert_eq!(send(bob, "POST", NOTES, &note).await.0, 200);
        assert_eq!(send(bob, "DELETE", &format!("{NOTES}/bobs"), &Value::Null).await.0, 403);
        assert_eq!(send(bob, "GET", LOADS, &Value::Null).await.0, 403);
        Ok(())
    })
    .await
}
