//! What admission webhooks are told of deletes, Scales, and objects that others have changed.

use crate::admission_webhooks::{
    MUTATING, PODS, VALIDATING, configure, hook, map, patched, plane, pod, review, server,
};
use crate::https::{Ca, Reviews, with_user};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A server whose hooks rename objects (`/rename`) or make them of another kind (`/other`).
async fn changing(ca: &Ca) -> (crate::https::Hooks, Reviews) {
    let reviews = Reviews::default();
    let seen = reviews.clone();
    let answer = move |path: &str, request: Value| {
        let replace =
            |path: &str, value: &str| json!([{"op": "replace", "path": path, "value": value}]);
        match path {
            "/probe" => return review(&request, json!({"allowed": false})),
            "/rename" => return patched(&request, replace("/metadata/name", "other")),
            "/other" => return patched(&request, replace("/kind", "Other")),
            _ => {}
        }
        seen.add(path, &request);
        review(&request, json!({"allowed": true}))
    };
    (ca.serve_raw(answer).await, reviews)
}

#[tokio::test]
async fn a_renamed_object_is_reviewed_by_the_name_that_it_came_with() {
    let ca = Ca::new();
    let (hooks, reviews) = changing(&ca).await;
    with_user(plane(), async |user, _| {
        let rename = hook("m", hooks.config("/rename"), &["configmaps"]);
        configure(&user, &hooks, MUTATING, "m", &[rename]).await;
        let allow = hook("v", hooks.config("/allow"), &["configmaps"]);
        configure(&user, &hooks, VALIDATING, "v", &[allow]).await;
        reviews.take();
        assert_eq!(user.create(MAPS, &map("a")).await["metadata"]["name"], "other");
        let taken = reviews.take();
        let [(_, request)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(request["name"], "a");
        assert_eq!(request["object"]["metadata"]["name"], "other");
    })
    .await;
}

#[tokio::test]
async fn an_object_of_no_known_kind_is_refused() {
    let ca = Ca::new();
    let (hooks, _) = changing(&ca).await;
    with_user(plane(), async |user, _| {
        let other = hook("m", hooks.config("/other"), &["configmaps"]);
        configure(&user, &hooks, MUTATING, "m", &[other]).await;
        assert_eq!(
            user.send("POST", MAPS, &map("a")).await.shown(),
            r#"500 Internal error occurred: no kind "Other" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#
        );
    })
    .await;
}

#[tokio::test]
async fn a_delete_of_a_pod_says_how_long_it_takes() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let allow = hook("v", hooks.config("/allow"), &["pods"]);
        configure(&user, &hooks, VALIDATING, "v", &[allow]).await;
        let mut placed = pod("a");
        placed["spec"]["nodeName"] = "n".into();
        user.create(PODS, &placed).await;
        user.create(PODS, &pod("b")).await;
        let seconds = async |path: &str, options: Value| {
            reviews.take();
            user.send("DELETE", path, &options).await.ok();
            let all = reviews.take().into_iter();
            all.map(|(_, request)| request["options"]["gracePeriodSeconds"].clone())
                .collect::<Vec<_>>()
        };
        let (a, b) = (format!("{PODS}/a"), format!("{PODS}/b"));
        assert_eq!(seconds(&b, json!({"gracePeriodSeconds": 5})).await, [json!(0)]);
        assert_eq!(seconds(&a, Value::Null).await, [json!(30)]);
        // It goes on as before.
        assert!(seconds(&a, Value::Null).await.is_empty());
        assert_eq!(seconds(&a, json!({"gracePeriodSeconds": 5})).await, [json!(5)]);
        assert_eq!(seconds(&a, json!({"gracePeriodSeconds": 0})).await, [json!(0)]);
    })
    .await;
}

#[tokio::test]
async fn a_scale_is_in_the_namespace_of_its_request() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let mut allow = hook("m", hooks.config("/allow"), &["deployments/scale"]);
        allow["objectSelector"] = json!({});
        configure(&user, &hooks, MUTATING, "m", &[allow]).await;
        let template = json!({"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
        user.create(DEPLOYMENTS, &deployment).await;
        reviews.take();
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "d"}, "spec": {"replicas": 2}});
        user.send("PUT", &format!("{DEPLOYMENTS}/d/scale"), &scale).await.ok();
        let taken = reviews.take();
        let [(_, request)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(request["object"]["metadata"]["namespace"], "default");
        assert_eq!(request["oldObject"]["status"]["replicas"], 0);
    })
    .await;
}

#[tokio::test]
async fn a_claim_is_pending_once_it_is_stored() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let allow = hook("v", hooks.config("/allow"), &["persistentvolumeclaims"]);
        configure(&user, &hooks, VALIDATING, "v", &[allow]).await;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}});
        reviews.take();
        let made = user.create("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;
        assert_eq!(made["status"], json!({"phase": "Pending"}));
        let taken = reviews.take();
        let [(_, request)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(request["object"]["status"], json!({}));
    })
    .await;
}
