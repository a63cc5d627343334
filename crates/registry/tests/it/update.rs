//! PUT and PATCH of the main endpoint (spec: api-server §5.4, patch §1).
use crate::server::{Server, refused};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use setpoint_registry::{FieldValidation, PatchType, WriteOptions};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{At, Committed, Compare, MemoryStore, Op, Store, StoreError, Txn, delegate};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/a";

fn map(data: Value) -> Value {
    json!({"metadata": {"name": "a"}, "data": data})
}
async fn server() -> (Server, Value) {
    let server = Server::start().await;
    let stored = server.create(MAPS, map(json!({"k": "v"}))).await.unwrap();
    (server, stored)
}

#[tokio::test(start_paused = true)]
async fn a_client_cannot_change_the_generation() {
    let (server, _) = server().await;
    let of = |object: &Value| object["metadata"]["generation"].clone();
    let patch = json!({"metadata": {"generation": 5}});
    assert_eq!(of(&server.patch(MAP, patch.clone()).await.unwrap()), Value::Null);
    let mut object = map(json!({"k": "w"}));
    object["metadata"]["generation"] = 5.into();
    assert_eq!(of(&server.update(MAP, object.clone()).await.unwrap()), Value::Null);
    // A kind that does not maintain it has it from its creation, as the reference.
    object["metadata"]["name"] = "b".into();
    assert_eq!(of(&server.create(MAPS, object).await.unwrap()), 5);
    let path = format!("{MAPS}/b");
    let patch = json!({"metadata": {"generation": 4}});
    assert_eq!(of(&server.patch(&path, patch).await.unwrap()), 5);
}

#[tokio::test(start_paused = true)]
async fn an_update_keeps_omitted_system_fields_and_changes_the_resource_version() {
    let (server, first) = server().await;
    let second = server.update(MAP, map(json!({"k": "w"}))).await.unwrap();
    for member in ["uid", "creationTimestamp", "name", "namespace"] {
        assert_eq!(first["metadata"][member], second["metadata"][member], "{member}");
    }
    assert_eq!(second["data"], json!({"k": "w"}));
    assert_eq!(second["metadata"]["resourceVersion"], server.revision().await.to_string());
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_writes_nothing() {
    let (server, stored) = server().await;
    let before = server.revision().await;
    assert_eq!(server.update(MAP, stored.clone()).await.unwrap(), stored);
    assert_eq!(server.update(MAP, map(json!({"k": "v"}))).await.unwrap(), stored);
    assert_eq!(server.patch(MAP, json!({"data": {"k": "v"}})).await.unwrap(), stored);
    assert_eq!(server.patch(MAP, json!({"metadata": {"labels": null}})).await.unwrap(), stored);
    assert_eq!(server.revision().await, before);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_an_update() {
    let (server, stored) = server().await;
    server.patch(MAP, json!({"data": {"x": "y"}})).await.unwrap();
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let with = |meta: Value| json!({"metadata": meta, "data": {"z": "z"}});
    for (sent, expected) in [
        (stored.clone(), r#"409 Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again"#.to_owned()),
        (with(json!({"name": "b"})), "400 the name of the object (b) does not match the name on the URL (a)".to_owned()),
        (with(json!({})), "400 the name of the object (a based on URL) was undeterminable: name must be provided".to_owned()),
        (with(json!({"name": "a", "namespace": "x"})), "400 the namespace of the provided object does not match the namespace sent on the request".to_owned()),
        (with(json!({"name": "a", "resourceVersion": "foo"})), r#"500 strconv.ParseUint: parsing "foo": invalid syntax"#.to_owned()),
        (
            with(json!({"name": "a", "uid": "other"})),
            format!(r#"409 Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: other, UID in object meta: {uid}"#),
        ),
        (
            with(json!({"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z"})),
            r#"422 ConfigMap "a" is invalid: metadata.deletionTimestamp: Invalid value: "2001-01-01T00:00:00Z": field is immutable"#.to_owned(),
        ),
    ] {
        assert_eq!(refused(server.update(MAP, sent.clone()).await), expected, "{sent}");
    }
    let error = server
        .update(MAP, with(json!({"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z"})))
        .await
        .unwrap_err();
    assert_eq!(error.0.details.unwrap().causes.len(), 2, "immutable metadata is reported twice");
    assert_eq!(
        refused(server.update(&format!("{MAPS}/b"), json!({"metadata": {"name": "b"}})).await),
        r#"404 configmaps "b" not found"#
    );
}

#[tokio::test(start_paused = true)]
async fn some_kinds_are_created_by_put_and_some_need_a_version() {
    let server = Server::start().await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let sent = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}});
    let created = server.update(lease, sent.clone()).await.unwrap();
    assert!(created["metadata"]["uid"].is_string());
    let error = server.update(lease, sent).await.unwrap_err();
    assert_eq!(
        error.0.message,
        r#"leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"#
    );
    assert_eq!(error.0.details.unwrap().kind, "leases");
}

#[tokio::test(start_paused = true)]
async fn patches_of_three_types() {
    let (server, _) = server().await;
    let merged = server.patch(MAP, json!({"data": {"a": "b", "k": null}})).await.unwrap();
    assert_eq!(merged["data"], json!({"a": "b"}));
    let none = WriteOptions::default();
    let ops = json!([{"op": "test", "path": "/data/a", "value": "b"}, {"op": "add", "path": "/data/c", "value": "d"}]);
    let patched = server.patch_with(MAP, PatchType::Json, ops, &none).await.unwrap();
    assert_eq!(patched["data"], json!({"a": "b", "c": "d"}));
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let labelled = server.patch_with(MAP, PatchType::StrategicMerge, labels, &none).await.unwrap();
    assert_eq!(labelled["metadata"]["labels"], json!({"x": "y"}));
    for (patch, expected) in [
        (
            json!({"metadata": {"name": "b"}}),
            "400 the name of the object (b) does not match the name on the URL (a)",
        ),
        (
            json!({"metadata": {"resourceVersion": "1"}}),
            r#"409 Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again"#,
        ),
        (
            json!({"metadata": {"uid": "u"}}),
            r#"422 ConfigMap "a" is invalid: metadata.uid: Invalid value: "u": field is immutable"#,
        ),
    ] {
        assert_eq!(refused(server.patch(MAP, patch).await), expected);
    }
    let wrong = refused(server.patch(MAP, json!({"data": {"k": 1}})).await);
    assert!(wrong.starts_with(r#"422  "" is invalid: patch: Invalid value: ""#), "{wrong}");
    let strict =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    let unknown = server.patch_with(MAP, PatchType::Merge, json!({"foo": 1}), &strict).await;
    let unknown = refused(unknown);
    assert!(unknown.ends_with(r#"strict decoding error: unknown field "foo""#), "{unknown}");
    let unknown =
        server.patch_with(MAP, PatchType::StrategicMerge, json!({"foo": 1}), &strict).await;
    assert_eq!(
        refused(unknown),
        r#"422  "" is invalid: patch: Invalid value: "map[foo:1]": strict decoding error: unknown field "foo""#
    );
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_field_validation_is_checked_less() {
    let (server, _) = server().await;
    let ignore =
        WriteOptions { field_validation: FieldValidation::Ignore, ..WriteOptions::default() };
    // `from` is of no use for this operation.
    let ops = json!([{"op": "replace", "path": "/data/k", "value": "w", "from": 1}]);
    let patched = server.patch_with(MAP, PatchType::Json, ops.clone(), &ignore).await.unwrap();
    assert_eq!(patched["data"], json!({"k": "w"}));
    assert_eq!(
        refused(server.patch_with(MAP, PatchType::Json, ops, &WriteOptions::default()).await),
        "400 error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.from of type string"
    );
    for (kind, patch, refusal) in [
        (
            PatchType::Json,
            json!([1]),
            "400 json: cannot unmarshal number into Go value of type jsonpatch.Operation",
        ),
        (
            PatchType::Json,
            json!([{"op": 1}]),
            "422 the server rejected our request due to an error in our request",
        ),
        (PatchType::Merge, json!(1), "400 Invalid JSON Patch"),
        (
            PatchType::Merge,
            json!([]),
            r#"422  "" is invalid: patch: Invalid value: "[]": couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
        ),
    ] {
        assert_eq!(refused(server.patch_with(MAP, kind, patch, &ignore).await), refusal);
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_removes_the_version_has_none_of_the_members() {
    let (server, _) = server().await;
    let strict =
        WriteOptions { field_validation: FieldValidation::Strict, ..WriteOptions::default() };
    for version in ["", "/"] {
        let patch = json!({"apiVersion": version});
        assert_eq!(
            refused(server.patch(MAP, patch.clone()).await),
            "400 the name of the object (a based on URL) was undeterminable: name must be provided"
        );
        let told = refused(server.patch_with(MAP, PatchType::Merge, patch, &strict).await);
        assert!(told.starts_with(r#"422  "" is invalid: patch: Invalid value: "{"#), "{told}");
        let unknown = r#"strict decoding error: unknown field "data", unknown field "metadata""#;
        assert!(told.ends_with(unknown), "{told}");
    }
    for (kind, refusal) in [
        ("Secret", "converting (core.Secret) to (core.ConfigMap): unknown conversion"),
        (
            "Ingress",
            r#"no kind "Ingress" is registered for the internal version of group "" in scheme "pkg/api/legacyscheme/scheme.go:30""#,
        ),
    ] {
        let told = refused(server.patch(MAP, json!({"apiVersion": null, "kind": kind})).await);
        assert!(told.ends_with(refusal), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_strategic_merge_patch_says_that_base64_is_wrong_as_the_converter_does() {
    let server = Server::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    server.create(secrets, json!({"metadata": {"name": "a"}})).await.unwrap();
    let (path, wrong) = (format!("{secrets}/a"), json!({"data": {"k": "!!"}}));
    let none = WriteOptions::default();
    let patched = server.patch_with(&path, PatchType::StrategicMerge, wrong.clone(), &none).await;
    assert_eq!(
        refused(patched),
        r#"422  "" is invalid: patch: Invalid value: "map[data:map[k:!!]]": error decoding from json: illegal base64 data at input byte 0"#
    );
    let merged = refused(server.patch(&path, wrong).await);
    assert!(merged.ends_with(r#"}": illegal base64 data at input byte 0"#), "{merged}");
}

#[tokio::test(start_paused = true)]
async fn no_update_changes_when_an_object_is_deleted() {
    let server = Server::start().await;
    let sent = json!({"metadata": {"name": "a", "finalizers": ["ex.io/f"]}});
    server.create(MAPS, sent).await.unwrap();
    let deleted = server.delete(MAP).await.unwrap().expect("it remains");
    let at = deleted["metadata"]["deletionTimestamp"].clone();
    let other = json!({"deletionTimestamp": "2020-01-01T00:00:00Z", "labels": {"x": "y"}});
    let patched = server.patch(MAP, json!({"metadata": other})).await.unwrap();
    assert_eq!(patched["metadata"]["deletionTimestamp"], at);
    assert_eq!(patched["metadata"]["labels"], json!({"x": "y"}));
    let sooner = json!({"metadata": {"deletionGracePeriodSeconds": 5}});
    let sooner = refused(server.patch(MAP, sooner).await);
    assert!(sooner.contains("metadata.deletionGracePeriodSeconds: Invalid value: 5"), "{sooner}");
}

/// As there: a POST cannot create an object that is being deleted, but a PUT and an apply can.
#[tokio::test(start_paused = true)]
async fn an_object_that_an_apply_or_a_put_creates_may_be_deleted_already() {
    let server = Server::start().await;
    let at = "2020-01-01T00:00:00Z";
    let sent = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "deletionTimestamp": at, "finalizers": ["ex.io/f"]}})
    };
    let applied = server.apply(MAP, "m", sent("a")).await.unwrap();
    assert_eq!(applied["metadata"]["deletionTimestamp"], at);
    let last = server.apply(
        MAP,
        "m",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    );
    last.await.unwrap();
    assert_eq!(refused(server.get(MAP).await), r#"404 configmaps "a" not found"#);
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let mut slow = sent("a");
    slow["kind"] = "Endpoints".into();
    let put = server.update(&format!("{endpoints}/a"), slow.clone()).await.unwrap();
    assert_eq!(put["metadata"]["deletionTimestamp"], at);
    slow["metadata"]["name"] = "b".into();
    let posted = server.create(endpoints, slow).await.unwrap();
    assert_eq!(posted["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_finalizer_of_a_deleted_object_removes_it() {
    let server = Server::start().await;
    let sent = json!({"metadata": {"name": "a", "finalizers": ["ex.io/f"]}});
    server.create(MAPS, sent).await.unwrap();
    let deleted = server.delete(MAP).await.unwrap().expect("it remains");
    assert_eq!(deleted["metadata"]["deletionTimestamp"], "2026-11-20T07:00:00Z");
    assert_eq!(deleted["metadata"]["deletionGracePeriodSeconds"], 0);
    let version = server.revision().await;
    assert_eq!(server.delete(MAP).await.unwrap(), Some(deleted.clone()), "again: nothing happens");
    assert_eq!(server.revision().await, version);
    let added = json!({"metadata": {"finalizers": ["ex.io/f", "ex.io/g", "ex.io/g"]}});
    assert_eq!(
        refused(server.patch(MAP, added).await),
        r#"422 ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"ex.io/g"}"#
    );
    assert_eq!(
        refused(server.create(MAPS, json!({"metadata": {"name": "a"}})).await),
        r#"409 object is being deleted: configmaps "a" already exists"#
    );
    let last = server.patch(MAP, json!({"metadata": {"finalizers": null}})).await.unwrap();
    assert_eq!(last["metadata"]["resourceVersion"], deleted["metadata"]["resourceVersion"]);
    assert_eq!(refused(server.get(MAP).await), r#"404 configmaps "a" not found"#);
}

#[tokio::test(start_paused = true)]
async fn concurrent_patches_all_succeed() {
    let (server, _) = server().await;
    let patches = (0..20).map(|i| {
        let server = &server;
        async move { server.patch(MAP, json!({"data": {format!("k{i}"): "v"}})).await }
    });
    for result in futures::future::join_all(patches).await {
        result.unwrap();
    }
    let stored = server.get(MAP).await.unwrap();
    assert_eq!(stored["data"].as_object().unwrap().len(), 21);
}

/// A store in which other writes of the objects come first.
#[derive(Debug)]
struct RivalStore {
    inner: Arc<MemoryStore>,
    /// How many are to come.
    rivals: AtomicUsize,
}
impl RivalStore {
    /// Writes the object that a commit replaces.
    async fn come_first(&self, key: &Bytes) {
        let found = self.inner.get(key, At::Latest).await.unwrap().value.unwrap();
        let mut object: Value = serde_json::from_slice(&found.value).unwrap();
        object["data"]["rivals"] = found.modified.to_string().into();
        let op = Op::Put(key.clone(), object.to_string().into());
        self.inner.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
    }
}
impl Store for RivalStore {
    delegate!(inner: revision, get, range, changes, compact);

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let left = |n: usize| n.checked_sub(1);
            if let Some(Compare::Modified(key, _)) = txn.compares.first()
                && self.rivals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
            {
                self.come_first(key).await;
            }
            self.inner.commit(txn).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_patch_and_a_delete_succeed_after_hundreds_of_other_writes() {
    const RIVALS: usize = 500;
    let inner = Arc::new(MemoryStore::default());
    let store = Arc::new(RivalStore { inner: inner.clone(), rivals: AtomicUsize::new(0) });
    let server = Server::on(store.clone(), inner, 1).await;
    let map = map(json!({"k": "v"}));
    server.create(MAPS, map).await.unwrap();
    store.rivals.store(RIVALS, Ordering::Relaxed);
    let patched = server.patch(MAP, json!({"data": {"k": "w"}})).await.unwrap();
    assert_eq!(patched["data"]["k"], "w");
    assert_eq!(store.rivals.load(Ordering::Relaxed), 0);
    store.rivals.store(RIVALS, Ordering::Relaxed);
    server.delete(MAP).await.unwrap();
    assert_eq!(store.rivals.load(Ordering::Relaxed), 0);
}

/// A store that takes its time, and counts its commits.
#[derive(Debug)]
struct DistantStore {
    inner: Arc<MemoryStore>,
    n_commits: AtomicUsize,
}
impl Store for DistantStore {
    delegate!(inner: revision, get, range, changes, compact);

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            self.n_commits.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
            self.inner.commit(txn).await
        }
        .boxed()
    }
}

/// If all writers of an object started over at each of its commits, they would take n² / 2.
#[tokio::test(start_paused = true)]
async fn writers_of_one_object_take_turns() {
    const WRITERS: usize = 100;
    let inner = Arc::new(MemoryStore::default());
    let store = DistantStore { inner: inner.clone(), n_commits: AtomicUsize::new(0) };
    let store = Arc::new(store);
    let server = Server::on(store.clone(), inner, 1).await;
    server.create(MAPS, map(json!({}))).await.unwrap();
    let before = store.n_commits.load(Ordering::Relaxed);
    let patches = (0..WRITERS).map(|i| {
        let server = &server;
        async move { server.patch(MAP, json!({"data": {format!("k{i}"): "v"}})).await }
    });
    for result in futures::future::join_all(patches).await {
        result.unwrap();
    }
    let stored = server.get(MAP).await.unwrap();
    assert_eq!(stored["data"].as_object().unwrap().len(), WRITERS);
    let n_commits = store.n_commits.load(Ordering::Relaxed) - before;
    assert!(n_commits <= 2 * WRITERS, "{n_commits} commits");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_update_returns_the_present_version() {
    let (server, stored) = server().await;
    let dry = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let patch = json!({"data": {"x": "y"}});
    let answer = server.patch_with(MAP, PatchType::Merge, patch, &dry).await.unwrap();
    assert_eq!(answer["data"], json!({"k": "v", "x": "y"}));
    assert_eq!(answer["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    assert_eq!(server.get(MAP).await.unwrap(), stored);
}

#[tokio::test(start_paused = true)]
async fn an_object_over_the_size_limit_is_stored_without_managed_fields() {
    let server = Server::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    // managedFields repeats long names, not long values.
    let pod = |names: usize, value: usize| {
        let env: Vec<Value> = (0..names)
            .map(|i| json!({"name": format!("{i:0>1000}"), "value": "x".repeat(value)}))
            .collect();
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", "env": env}]}})
    };
    let stored = server.create(pods, pod(1000, 100)).await.unwrap();
    assert!(stored["metadata"].get("managedFields").is_none());
    server.delete(&format!("{pods}/p")).await.unwrap();
    assert_eq!(
        refused(server.create(pods, pod(1000, 1000)).await),
        "500 etcdserver: request is too large"
    );
    let error = refused(server.create(pods, pod(1000, 1200)).await);
    let start =
        "500 rpc error: code = ResourceExhausted desc = trying to send message larger than max (";
    assert!(error.starts_with(start) && error.ends_with(" vs. 2097152)"), "{error}");
}

/// managedFields that are the stored ones are not decoded. It shows nowhere.
#[tokio::test(start_paused = true)]
async fn a_put_of_what_was_read_equals_one_with_members_in_another_order() {
    let nodes = "/api/v1/nodes";
    let node = format!("{nodes}/n");
    let mut after = Vec::new();
    for as_read in [true, false] {
        let server = Server::start().await;
        let labels = json!({"a": "1", "b": "1"});
        server.create(nodes, json!({"metadata": {"name": "n", "labels": labels}})).await.unwrap();
        let capacity = json!({"status": {"capacity": {"cpu": "1"}}});
        server.patch(&format!("{node}/status"), capacity).await.unwrap();
        for (path, member) in [(&node, "/metadata/labels/a"), (&node, "/metadata/labels/b")] {
            let mut object = server.get(path).await.unwrap();
            *object.pointer_mut(member).unwrap() = "2".into();
            after.push(match as_read {
                true => server.update_bytes(path, to_bytes(&object)).await.unwrap(),
                false => server.update(path, object).await.unwrap(),
            });
        }
        // An outdated object is refused, whatever it has.
        let mut outdated = after[after.len() - 2].clone();
        outdated["metadata"]["labels"]["c"] = "3".into();
        let error = refused(server.update_bytes(&node, to_bytes(&outdated)).await);
        assert!(error.starts_with("409 "), "{error}");
        // Without a version, what was sent counts.
        outdated["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        after.push(server.update_bytes(&node, to_bytes(&outdated)).await.unwrap());
    }
    let (one, other) = after.split_at(3);
    assert_eq!(one, other);
    assert_eq!(one[1]["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));
}

#[tokio::test(start_paused = true)]
async fn an_empty_list_of_managers_resets_ownership() {
    for reset in [json!([]), json!([{}])] {
        let (server, stored) = server().await;
        assert!(stored["metadata"]["managedFields"].is_array());
        let patch = json!({"metadata": {"managedFields": reset}});
        let bare = server.patch(MAP, patch).await.unwrap();
        assert!(bare["metadata"].get("managedFields").is_none(), "{reset}: {bare}");
        let updated = server.patch(MAP, json!({"data": {"x": "y"}})).await.unwrap();
        assert!(updated["metadata"].get("managedFields").is_none(), "untracked until an apply");
        let mut put = stored;
        put["metadata"]["managedFields"] = reset;
        put["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        assert!(server.update(MAP, put).await.unwrap()["metadata"].get("managedFields").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_put_that_creates_ignores_the_version_and_refuses_a_uid() {
    let server = Server::start().await;
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r";
    let with = |meta: Value| json!({"metadata": meta, "rules": []});
    assert_eq!(
        refused(server.update(path, with(json!({"name": "r", "uid": "u"}))).await),
        r#"409 Operation cannot be fulfilled on roles.rbac.authorization.k8s.io "r": StorageError: invalid object, Code: 4, Key: /registry/roles/default/r, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u, UID in object meta: "#
    );
    let created = server.update(path, with(json!({"name": "r", "resourceVersion": "7"}))).await;
    assert!(created.unwrap()["metadata"]["uid"].is_string());
}

/// The reference keeps a DaemonSet's generation in a field of its own, whose absence is a zero
/// until the stored one takes its place.
#[tokio::test(start_paused = true)]
async fn who_leaves_out_the_generation_of_a_template_owns_it() {
    const GENERATION: &str = "deprecated.daemonset.template.generation";
    let server = Server::start().await;
    let labels = json!({"app": "a"});
    let container = json!({"name": "c", "image": "i"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    let set = json!({"metadata": {"name": "d"}, "spec": spec});
    let by = |name: &str| WriteOptions { field_manager: name.into(), ..WriteOptions::default() };
    let sets = "/apis/apps/v1/namespaces/default/daemonsets";
    let created = server.create_with(sets, set, &by("ann")).await.unwrap();
    assert_eq!(created["metadata"]["annotations"], json!({GENERATION: "1"}));
    let (path, none) = (format!("{sets}/d"), json!({"metadata": {"annotations": null}}));
    let updated = server.patch_with(&path, PatchType::Merge, none, &by("bob")).await.unwrap();
    assert_eq!(updated["metadata"]["annotations"], json!({GENERATION: "1"}));
    assert_eq!(updated["metadata"]["generation"], 1);
    let managers = updated["metadata"]["managedFields"].as_array().unwrap();
    let bob = managers.iter().find(|entry| entry["manager"] == "bob").unwrap();
    let owned = json!({format!("f:{GENERATION}"): {}});
    assert_eq!(bob["fieldsV1"], json!({"f:metadata": {"f:annotations": owned}}));
}
