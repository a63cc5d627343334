//! A server whose key a KMS plugin has: the plugin runs in the test.

use crate::raw::{self, Answer};
use crate::server::{PATIENCE, Server};
use serde_json::{Value, json};
use setpoint_encryption::kms::testing::KmsPlugin;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const SECRET: &str = "/api/v1/namespaces/default/secrets/s";
const CHECK: &str = "/readyz/kms-providers";

/// A data folder, a configuration that names a plugin, and the plugin's socket.
struct Place {
    folder: tempfile::TempDir,
    runtime: Runtime,
}

impl Place {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let place = Self { folder: tempfile::tempdir().unwrap(), runtime };
        let socket = place.socket();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - kms: {{apiVersion: v2, name: test, endpoint: 'unix://{}', timeout: 1s}}\n",
            socket.display()
        );
        std::fs::write(place.folder.path().join("encryption.yaml"), text).unwrap();
        place
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn plugin(&self, key_id: &str) -> KmsPlugin {
        let _inside = self.runtime.enter();
        KmsPlugin::bind(&self.socket(), key_id).unwrap()
    }

    fn server(&self) -> Server {
        let (data, config) =
            (self.folder.path().join("data"), self.folder.path().join("encryption.yaml"));
        Server::start_with(&[
            "--data".as_ref(),
            data.as_os_str(),
            "--encryption-provider-config".as_ref(),
            config.as_os_str(),
        ])
    }
}

#[track_caller]
fn revision(answer: &Answer) -> String {
    assert_eq!(answer.code, 200, "{answer:?}");
    let object: Value = serde_json::from_str(&answer.body).unwrap();
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Repeats a GET until it succeeds.
fn eventually(server: &Server, path: &str) -> Answer {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = raw::get(server, path);
        if answer.code == 200 {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn secret_needs_its_plugin() {
    let place = Place::new();
    let mut plugin = place.plugin("key-1");
    let mut server = place.server();
    let body = json!({"metadata": {"name": "s"}, "stringData": {"p": "hunter2"}}).to_string();
    let json = "application/json";
    let created = raw::send(&server, "POST", SECRETS, json, body.as_bytes());
    assert_eq!(created.code, 201, "{created:?}");
    let before = raw::get(&server, SECRET);
    assert_eq!(raw::get(&server, CHECK).body, "ok");
    let all = raw::get(&server, "/healthz?verbose").body;
    assert!(all.contains("\n[+]kms-providers ok\n"), "{all}");
    assert!(!raw::get(&server, "/livez?verbose").body.contains("kms-providers"));
    let update = |server: &Server| raw::send(server, "PUT", SECRET, json, before.body.as_bytes());
    assert_eq!(revision(&update(&server)), revision(&before), "nothing has changed");
    let metrics = raw::get(&server, "/metrics").body;
    let line = "apiserver_envelope_encryption_kms_operations_latency_seconds_count{";
    assert!(metrics.contains(line), "{metrics}");
    assert!(server.stop("TERM").success());

    // With another key, an update without changes writes.
    plugin.change(|behavior| behavior.key_id = "key-2".to_owned());
    let mut server = place.server();
    assert_eq!(raw::get(&server, SECRET).body, before.body);
    let after = revision(&update(&server));
    assert_ne!(after, revision(&before));
    assert!(server.stop("TERM").success());

    // Without a plugin, everything else is served.
    place.runtime.block_on(plugin.stop());
    let server = place.server();
    let expected = "Internal error occurred: got unexpected nil transformer";
    let created =
        raw::send(&server, "POST", SECRETS, json, body.replace("\"s\"", "\"t\"").as_bytes());
    assert_eq!((created.code, &*created.message()), (500, expected));
    let failed = raw::get(&server, SECRET);
    assert!(failed.code == 500 && failed.message().contains("nil transformer"), "{failed:?}");
    let listed = raw::get(&server, "/api/v1/secrets");
    assert!(listed.code == 500 && listed.message().contains("nil transformer"), "{listed:?}");
    assert_eq!(raw::get(&server, "/api/v1/configmaps").code, 200);
    let ready = raw::get(&server, "/readyz");
    assert!(ready.code == 500 && ready.body.contains("[-]kms-providers failed: reason withheld"));
    let check = raw::get(&server, CHECK).body;
    let start = "internal server error: kms-provider-0: failed to perform status section of the healthz check for KMS Provider test, error: rpc error: code = DeadlineExceeded desc = ";
    assert!(check.starts_with(start), "{check}");
    assert_eq!(raw::get(&server, "/livez").code, 200);

    // It starts later, as a static pod does.
    let _inside = place.runtime.enter();
    plugin.start().unwrap();
    assert_eq!(revision(&eventually(&server, SECRET)), after);
    let listed = eventually(&server, "/api/v1/secrets?resourceVersion=0");
    assert!(listed.body.contains("aHVudGVyMg=="), "{listed:?}");
    eventually(&server, "/readyz");
}
