//! Encryption at rest: the bytes in the data folder, and what clients receive.

use crate::raw;
use crate::server::Server;
use serde_json::{Value, json};
use setpoint::store::{At, DiskOptions, DiskStore, Store as _};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const MARK: &str = "pa55w0rd-that-nobody-may-read";

const ONE: &str = "aesgcm: {keys: [{name: one, secret: AAECAwQFBgcICQoLDA0ODw==}]}";
const TWO: &str =
    "secretbox: {keys: [{name: two, secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=}]}";
/// Another key with the same name.
const WRONG: &str = "aesgcm: {keys: [{name: one, secret: dGhpcyBpcyBwYXNzd29yZA==}]}";
/// The key of the Secret `s`.
const KEY: &str = "/registry/secrets/default/s";
const PLAIN: &str = "identity: {}";

/// A data folder with a configuration file next to it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Encrypts Secrets with these providers.
    fn config(&self, providers: &[&str]) -> PathBuf {
        let list: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n{list}"
        );
        let path = self.folder.path().join("encryption.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// A server over the folder; without providers, one that encrypts nothing.
    fn start(&self, providers: &[&str]) -> Server {
        self.start_with(providers, &[])
    }

    fn start_with(&self, providers: &[&str], others: &[&str]) -> Server {
        let (data, config) = (self.data(), self.config(providers));
        let mut options: Vec<&OsStr> = vec!["--data".as_ref(), data.as_os_str()];
        options.extend(others.iter().map(OsStr::new));
        if !providers.is_empty() {
            options.extend(["--encryption-provider-config".as_ref(), config.as_os_str()]);
        }
        Server::start_with(&options)
    }

    /// Whether one of the store's files contains these bytes.
    fn holds(&self, bytes: &str) -> bool {
        ["store.redb", "store.journal"].iter().any(|name| {
            let file = std::fs::read(self.data().join(name)).unwrap();
            file.windows(bytes.len()).any(|window| window == bytes.as_bytes())
        })
    }

    /// A stored value, without the engine's own compression.
    fn stored(&self, key: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = DiskStore::open(self.data(), DiskOptions::default()).unwrap();
            let found = store.get(key.as_bytes(), At::Latest).await.unwrap().value.unwrap();
            store.close().await;
            String::from_utf8_lossy(&found.value).into_owned()
        })
    }
}

#[track_caller]
fn create(server: &Server, resource: &str, name: &str) {
    let data = if resource == "secrets" { "stringData" } else { "data" };
    let body = json!({"metadata": {"name": name}, data: {"p": MARK}}).to_string();
    let path = format!("/api/v1/namespaces/default/{resource}");
    let answer = raw::send(server, "POST", &path, "application/json", body.as_bytes());
    assert_eq!(answer.code, 201, "{answer:?}");
}

#[track_caller]
fn get(server: &Server, name: &str) -> Value {
    let answer = raw::get(server, &format!("/api/v1/namespaces/default/secrets/{name}"));
    assert_eq!(answer.code, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

/// A Secret's data is base64 in JSON, and so at rest.
fn encoded() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(MARK)
}

fn stop(mut server: Server) {
    assert!(server.stop("TERM").success());
}

#[test]
fn secret_is_encrypted_in_the_folder_and_served_in_plain() {
    let place = Place::new();
    let server = place.start(&[ONE, PLAIN]);
    create(&server, "secrets", "s");
    create(&server, "configmaps", "c");
    let kubectl = server.kubectl();
    assert_eq!(kubectl.ok("get secret s -o jsonpath={.data.p}"), encoded());
    let listed = kubectl.ok("get secrets -A -o jsonpath={.items[*].data.p}");
    assert_eq!(listed, encoded());
    let before = get(&server, "s");
    stop(server);
    assert!(place.stored("/registry/configmaps/default/c").contains(MARK), "it is not chosen");
    let stored = place.stored(KEY);
    assert!(stored.starts_with("k8s:enc:aesgcm:v1:one:") && !stored.contains("Secret"), "{stored}");
    // Encrypted values are not compressed, so the file contains them as they are.
    assert!(place.holds("k8s:enc:aesgcm:v1:one:"));
    assert!(!place.holds(&encoded()));

    let mut server = place.start(&[ONE, PLAIN]);
    assert_eq!(get(&server, "s"), before);
    create(&server, "secrets", "killed");
    assert!(!server.stop("KILL").success());
    let server = place.start(&[ONE, PLAIN]);
    assert_eq!(get(&server, "killed")["data"]["p"], encoded());
    let path = "/api/v1/secrets?watch=1&timeoutSeconds=1&resourceVersion=0";
    let events = raw::get(&server, path).body;
    assert!(events.matches(&encoded()).count() == 2 && !events.contains("k8s:enc"), "{events}");
}

/// The documented steps: the new key second, then first, everything rewritten, the old key removed.
#[test]
fn key_is_rotated() {
    let place = Place::new();
    let server = place.start(&[ONE]);
    create(&server, "secrets", "s");
    stop(server);
    stop(place.start(&[ONE, TWO]));
    let server = place.start(&[TWO, ONE]);
    let before = get(&server, "s");
    let kubectl = server.kubectl();
    let list = kubectl.ok("get secrets -A -o json");
    let file = server.file("secrets.json", &list);
    kubectl.ok(&format!("replace -f {}", file.display()));
    let after = get(&server, "s");
    assert_eq!(after["data"], before["data"]);
    assert_ne!(
        after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"],
        "it was written although nothing changed"
    );
    // Once is enough.
    let file = server.file("secrets.json", &kubectl.ok("get secrets -A -o json"));
    kubectl.ok(&format!("replace -f {}", file.display()));
    assert_eq!(get(&server, "s"), after);
    stop(server);
    assert!(place.stored(KEY).starts_with("k8s:enc:secretbox:v1:two:"));

    let server = place.start(&[TWO]);
    assert_eq!(get(&server, "s"), after);
    let listed = raw::get(&server, "/api/v1/secrets");
    assert!(listed.code == 200 && listed.body.contains(&encoded()), "{listed:?}");
    // Watches from before the rewrite must start again, because the old events cannot be decrypted.
    let from = before["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("/api/v1/secrets?watch=1&timeoutSeconds=1&resourceVersion={from}");
    let watch = raw::get(&server, &path);
    assert!(watch.body.contains("too old resource version"), "{watch:?}");
}

#[test]
fn wrong_key_is_an_error_that_loses_nothing_and_affects_nothing_else() {
    let place = Place::new();
    let server = place.start(&[ONE]);
    create(&server, "secrets", "s");
    create(&server, "configmaps", "c");
    let before = get(&server, "s");
    stop(server);

    let key = "unable to transform key \"/registry/secrets/default/s\"";
    for (providers, reason) in [
        (&[WRONG] as &[&str], "cipher: message authentication failed"),
        (&[TWO, PLAIN], "no matching prefix found"),
        (&[], "identity transformer tried to read encrypted data"),
    ] {
        let server = place.start(providers);
        let text = format!("Internal error occurred: {reason}");
        let of_list = format!("Internal error occurred: {key}: {reason}");
        for (path, text) in
            [("/api/v1/namespaces/default/secrets/s", &text), ("/api/v1/secrets", &of_list)]
        {
            let answer = raw::get(&server, path);
            assert_eq!((answer.code, &answer.message()), (500, text), "{path}");
        }
        let output = server.kubectl().fails("get secrets");
        assert!(
            output.contains("Error from server (InternalError)") && output.contains(key),
            "{output}"
        );
        let path = "/api/v1/namespaces/default/secrets/s";
        for (verb, body) in [("DELETE", ""), ("PUT", r#"{"metadata":{"name":"s"}}"#)] {
            let answer = raw::send(&server, verb, path, "application/json", body.as_bytes());
            assert_eq!((answer.code, answer.message()), (500, text.clone()), "{verb}");
        }
        let (path, body) = ("/api/v1/namespaces/default/secrets", r#"{"metadata":{"name":"s"}}"#);
        let answer = raw::send(&server, "POST", path, "application/json", body.as_bytes());
        let taken = "secrets \"s\" already exists".to_owned();
        assert_eq!((answer.code, answer.message()), (409, taken));
        // Other resources, and other namespaces, are served.
        assert_eq!(raw::get(&server, "/api/v1/configmaps").code, 200);
        assert_eq!(raw::get(&server, "/api/v1/namespaces/kube-system/secrets").code, 200);
        create(&server, "configmaps", &format!("c{}", providers.len()));
        stop(server);
    }
    let server = place.start(&[ONE]);
    assert_eq!(get(&server, "s"), before);
}

/// The answers are those of a kube-apiserver 1.36 with the same gate.
#[test]
fn what_no_key_decrypts_can_be_deleted_with_the_feature_gate() {
    const ONE_SECRET: &str = "/api/v1/namespaces/default/secrets/s";
    const IGNORE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let place = Place::new();
    let server = place.start(&[ONE]);
    for name in ["s", "t"] {
        create(&server, "secrets", name);
    }
    // Waits for nobody.
    let held = r#"{"metadata":{"finalizers":["example.com/held"]}}"#;
    let merge = "application/merge-patch+json";
    assert_eq!(raw::send(&server, "PATCH", ONE_SECRET, merge, held.as_bytes()).code, 200);
    server.kubectl().ok("create role deleter --verb=delete --resource=secrets");
    server.kubectl().ok("create rolebinding deleter --role=deleter --user=jane");
    stop(server);

    let options =
        ["--feature-gates=AllowUnsafeMalformedObjectDeletion=true", "--authorization-mode=RBAC"];
    let server = place.start_with(&[WRONG], &options);
    let send = |verb: &str, path: &str, body: &str| {
        let answer = raw::send(&server, verb, path, "application/json", body.as_bytes());
        (answer.code, answer.message())
    };
    let refused = |verb: &str, path: &str, body: &str, code: u16, text: &str| {
        assert_eq!(send(verb, path, body), (code, text.to_owned()), "{verb} {path} {body}");
    };
    let reason = "data from the storage is not transformable revision=0: cipher: message authentication failed";
    let corrupt = format!(
        "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /secrets/default/s, ResourceVersion: 0, AdditionalErrorMsg: {reason}"
    );
    refused("GET", ONE_SECRET, "", 500, &corrupt);
    refused("DELETE", ONE_SECRET, "", 500, &corrupt);
    let body = r#"{"metadata":{"name":"s"}}"#;
    refused("PUT", ONE_SECRET, body, 500, &format!("Internal error occurred: {reason}"));
    let all = "/api/v1/namespaces/default/secrets";
    let list = raw::get(&server, all);
    let status: Value = serde_json::from_str(&list.body).unwrap();
    assert_eq!(
        (status["code"].as_u64(), status["reason"].as_str(), status["message"].as_str()),
        (
            Some(500),
            Some("StorageReadError"),
            Some("failed to read one or more secrets from the storage")
        )
    );
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<_> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["/registry/secrets/default/s", "/registry/secrets/default/t"]);
    assert_eq!(
        causes[0]["message"],
        format!(
            "StorageError: corrupt object, Code: 7, Key: /registry/secrets/default/s, ResourceVersion: 0, AdditionalErrorMsg: {reason}"
        )
    );

    // Together with no other option, for no collection and no object that can be read.
    let invalid = |why: &str| format!("{IGNORE}: Invalid value: true: {why}");
    let of_options = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
    let both = format!(r#"{{"{IGNORE}":true,"gracePeriodSeconds":1}}"#);
    let text = invalid("cannot be set together with .gracePeriodSeconds");
    refused("DELETE", ONE_SECRET, &both, 422, &format!("{of_options}{text}"));
    let alone = format!(r#"{{"{IGNORE}":true}}"#);
    let text = invalid("is not allowed with DELETECOLLECTION, try again after removing the option");
    refused("DELETE", all, &alone, 422, &format!("{of_options}{text}"));
    let text = invalid(
        "is exclusively used to delete corrupt object(s), try again by removing this option",
    );
    create(&server, "secrets", "whole");
    let whole = format!("{all}/whole");
    refused("DELETE", &whole, &alone, 422, &format!("secrets \"whole\" is invalid: {text}"));

    // Who may delete may not do that.
    let query = format!("{all}/t?{IGNORE}=true");
    let output = server.kubectl().fails(&format!("delete --raw {query} --as=jane"));
    let text = r#"secrets "t" is forbidden: not permitted to do "unsafe-delete-ignore-read-errors", reason: "#;
    assert!(output.contains(text), "{output}");

    let status = raw::send(&server, "DELETE", ONE_SECRET, "application/json", alone.as_bytes());
    let status: Value = serde_json::from_str(&status.body).unwrap();
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "s", "kind": "Secret"}, "code": 200
        })
    );
    refused("GET", ONE_SECRET, "", 404, "secrets \"s\" not found");
    assert_eq!(send("DELETE", &query, "").0, 200);
    assert_eq!(raw::get(&server, all).code, 200);
}

#[test]
fn folder_is_encrypted_and_decrypted_again() {
    let place = Place::new();
    let server = place.start(&[]);
    create(&server, "secrets", "s");
    stop(server);
    assert!(place.stored(KEY).contains(&encoded()));
    let rewrite = |server: &Server| {
        let kubectl = server.kubectl();
        let file = server.file("secrets.json", &kubectl.ok("get secrets -A -o json"));
        kubectl.ok(&format!("replace -f {}", file.display()));
    };
    let server = place.start(&[ONE, PLAIN]);
    rewrite(&server);
    stop(server);
    let server = place.start(&[ONE]);
    assert_eq!(get(&server, "s")["data"]["p"], encoded());
    stop(server);
    assert!(place.stored(KEY).starts_with("k8s:enc:aesgcm:v1:one:"));

    let server = place.start(&[PLAIN, ONE]);
    rewrite(&server);
    stop(server);
    assert!(place.stored(KEY).contains(&encoded()));
    let server = place.start(&[]);
    assert_eq!(get(&server, "s")["data"]["p"], encoded());
}

#[test]
fn bad_configuration_causes_a_clear_error() {
    let place = Place::new();
    let refusal = |config: &Path| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_setpoint"));
        let arguments = ["up", "--secure-port", "0", "--encryption-provider-config"];
        let output = program.args(arguments).arg(config).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refusal(&place.config(&["kms: {name: a, endpoint: 'unix:///tmp/a'}"]));
    assert!(text.contains("resources[0].providers[0].kms: KMSv1 is deprecated"), "{text}");
    let text = refusal(&place.config(&["aesgcm: {keys: [{name: a, secret: c2hvcnQ=}]}"]));
    assert!(text.contains("keys[0].secret") && !text.contains("c2hvcnQ="), "{text}");
    let text = refusal(Path::new("/nowhere/encryption.yaml"));
    assert!(text.contains("/nowhere/encryption.yaml"), "{text}");
}
