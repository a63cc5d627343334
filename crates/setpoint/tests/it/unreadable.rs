//! Stored values that cannot be read, of objects that give rights or restrict them: nothing is
//! allowed that was not.

use crate::admission_policies::{GROUP, MAPS, map, on};
use crate::https::{Answered, User, with_user};
use crate::rbac::{RBAC, admin, binding, bob, devs, role, send, settled};
use http::Method;
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::store::{MemoryStore, Op, Store as _, Txn};
use std::sync::Arc;

/// Replaces a stored value by one that nobody can read, as one that is encrypted with a lost key.
async fn damage(store: &MemoryStore, key: &str) {
    let op = Op::Put(format!("/registry/{key}").into(), "k8s:enc:aescbc:v1:lost:x".into());
    store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_binding_gives_no_rights() {
    let store = MemoryStore::default();
    let plane = ControlPlane::builder().simulated(0).store(Arc::new(store.clone())).rbac().build();
    let server = plane.server().clone();
    crate::plane::with_person_of(plane, async |_| {
        let of_default = |kind: &str| format!("{RBAC}/namespaces/default/{kind}");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        admin(&server, &of_default("roles"), role("Role", "reader", rules)).await;
        let bound = binding("RoleBinding", "readers", "Role", "reader", devs());
        admin(&server, &of_default("rolebindings"), bound).await;
        settled().await;
        let list = async || send(&server, bob(), Method::GET, MAPS, Value::Null).await.0;
        assert_eq!(list().await, 200);

        damage(&store, "rolebindings/default/readers").await;
        settled().await;
        assert_eq!(list().await, 403);

        let bound = binding("RoleBinding", "more", "Role", "reader", devs());
        admin(&server, &of_default("rolebindings"), bound).await;
        settled().await;
        assert_eq!(list().await, 200);
        let gone = Op::Delete("/registry/rolebindings/default/more".into());
        damage(&store, "rolebindings/default/more").await;
        store.commit(Txn { ops: vec![gone], ..Txn::default() }).await.unwrap();
        settled().await;
        assert_eq!(list().await, 403);
    })
    .await;
}

/// A policy that refuses ConfigMaps named `no`, and the answer to one.
async fn refused(user: &User, wanted: impl Fn(&Answered) -> bool) {
    let dry = format!("{MAPS}?dryRun=All");
    user.until("POST", &dry, &map("no", json!({"x": "1"})), wanted).await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_stays_as_it_was_and_after_a_restart_nothing_passes_it() {
    let store = MemoryStore::default();
    let builder = || ControlPlane::builder().store(Arc::new(store.clone()));
    let path = |kind: &str| format!("{GROUP}/validatingadmission{kind}");
    with_user(builder(), async |user, _| {
        let object = |kind: &str, spec: Value| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "p"}, "spec": spec})
        };
        let spec = json!({"matchConstraints": on(&["configmaps"], &["CREATE"]),
            "validations": [{"expression": "object.metadata.name != 'no'", "message": "not this"}]});
        user.create(&path("policies"), &object("ValidatingAdmissionPolicy", spec)).await;
        let spec = json!({"policyName": "p", "validationActions": ["Deny"]});
        user.create(&path("policybindings"), &object("ValidatingAdmissionPolicyBinding", spec))
            .await;
        refused(&user, |answer| answer.shown().ends_with("denied request: not this")).await;

        damage(&store, "validatingadmissionpolicies/p").await;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        refused(&user, |answer| answer.shown().ends_with("denied request: not this")).await;
        user.create(MAPS, &map("yes", json!({}))).await;
    })
    .await;
    with_user(builder(), async |user, _| {
        refused(&user, |answer| {
            answer.shown().ends_with(
                r#"forbidden: not yet ready to handle request: validatingadmissionpolicies "p" cannot be read"#,
            )
        })
        .await;
        // What configures policies can be mended.
        user.send("DELETE", &format!("{}/p", path("policybindings")), &Value::Null).await.ok();
        let gone = Op::Delete("/registry/validatingadmissionpolicies/p".into());
        store.commit(Txn { ops: vec![gone], ..Txn::default() }).await.unwrap();
        refused(&user, |answer| answer.code == 201).await;
    })
    .await;
}
