//! What webhooks and policies see of requests that are no plain writes of an object.

use crate::admission_policies::{GROUP, on};
use crate::admission_webhooks::{
    MAPS, MUTATING, PODS, VALIDATING, configure, hook, map, plane, pod, server,
};
use crate::https::{Ca, with_user};
use serde_json::{Value, json};
use setpoint::ControlPlane;

/// The owners of fields, without their times.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let shown = |entry: &Value| {
        assert_eq!(entry["operation"], "Update");
        format!("{} {} {}", entry["apiVersion"], entry["subresource"], entry["fieldsV1"])
    };
    entries.map(shown).collect()
}

#[tokio::test]
async fn mutating_webhooks_see_what_was_sent_and_its_owner() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let all = |name: &str| hook(name, hooks.config("/allow"), &["*/*"]);
        configure(&user, &hooks, MUTATING, "m", &[all("m")]).await;
        configure(&user, &hooks, VALIDATING, "v", &[all("v")]).await;
        let both = |name: &str| {
            let taken = reviews.take();
            let [(_, mutating), (_, validating)] = &taken[..] else { panic!("{name}: {taken:#?}") };
            (mutating.clone(), validating.clone())
        };

        // A PUT without a resourceVersion has none, until it is known which object it replaces.
        let made = user.create(MAPS, &map("a")).await;
        reviews.take();
        let mut changed = map("a");
        changed["data"] = json!({"x": "2"});
        user.send("PUT", &format!("{MAPS}/a"), &changed).await.ok();
        let (mutating, validating) = both("a PUT");
        let version = &made["metadata"]["resourceVersion"];
        assert_eq!(mutating["object"]["metadata"]["resourceVersion"], Value::Null);
        assert_eq!(mutating["oldObject"]["metadata"]["resourceVersion"], *version);
        assert_eq!(validating["object"]["metadata"]["resourceVersion"], *version);

        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let labels = json!({"app": "a"});
        let template = json!({"metadata": {"labels": labels}, "spec": pod("x")["spec"]});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": labels}, "template": template}});
        user.create(deployments, &deployment).await;
        reviews.take();
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "d", "namespace": "default", "annotations": {"a": "b"}},
            "spec": {"replicas": 2}});
        user.send("PUT", &format!("{deployments}/d/scale"), &scale).await.ok();
        let (mutating, validating) = both("a Scale");
        let mut sent = mutating["object"].clone();
        let of_scale = r#""autoscaling/v1" "scale" {"f:metadata":{"f:annotations":{".":{},"f:a":{}}},"f:spec":{"f:replicas":{}}}"#;
        assert_eq!(owners(&sent).last().map(String::as_str), Some(of_scale));
        sent["metadata"].as_object_mut().unwrap().remove("managedFields");
        let mut wanted = scale.clone();
        wanted["status"] = json!({"replicas": 0});
        assert_eq!(sent, wanted);
        assert!(mutating["oldObject"]["metadata"]["managedFields"].is_array());
        // The others see the Scale of the result.
        assert_eq!(validating["object"]["status"]["selector"], "app=a");
        assert_eq!(validating["object"]["spec"]["replicas"], 2);
        assert_eq!(validating["object"]["metadata"]["managedFields"], Value::Null);

        user.create(PODS, &pod("p")).await;
        reviews.take();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "p"}});
        user.create(&format!("{PODS}/p/eviction?dryRun=All"), &eviction).await;
        let (mutating, _) = both("an Eviction");
        assert_eq!(mutating["object"]["metadata"]["namespace"], "default");
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"kind": "Node", "name": "n"}});
        user.create(&format!("{PODS}/p/binding"), &binding).await;
        for (_, request) in reviews.take() {
            let object = &request["object"];
            assert_eq!(object["metadata"]["namespace"], "default");
            assert_eq!(owners(object), [r#""v1" "binding" {"f:target":{}}"#]);
        }
    })
    .await;
}

#[tokio::test]
async fn subresources_show_their_own_kind() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let scale = hook("scale", hooks.config("/scale"), &["deployments/scale"]);
        let pods = hook("pods", hooks.config("/allow"), &["pods/*"]);
        configure(&user, &hooks, MUTATING, "m", &[scale, pods]).await;
        let deployments = "/apis/apps/v1/namespaces/default/deployments";
        let labels = json!({"app": "a"});
        let template = json!({"metadata": {"labels": labels}, "spec": pod("x")["spec"]});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": labels}, "template": template}});
        user.create(deployments, &deployment).await;
        let path = format!("{deployments}/d/scale");
        let scaled = user.send("PATCH", &path, &json!({"spec": {"replicas": 3}})).await.ok();
        assert_eq!(scaled["spec"]["replicas"], 7);
        let taken = reviews.take();
        let [(_, request)] = &taken[..] else { panic!("{taken:?}") };
        let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        assert_eq!((&request["kind"], &request["subResource"]), (&kind, &json!("scale")));
        assert_eq!(request["object"]["spec"]["replicas"], 3);
        assert_eq!(request["oldObject"]["spec"]["replicas"], 1);

        user.create(PODS, &pod("p")).await;
        user.send("PATCH", &format!("{PODS}/p/status"), &json!({"status": {"phase": "Running"}}))
            .await
            .ok();
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "default"}});
        user.create(&format!("{PODS}/p/eviction"), &eviction).await;
        let seen: Vec<String> = reviews
            .take()
            .iter()
            .map(|(_, r)| format!("{} {} {}", r["operation"], r["subResource"], r["kind"]["kind"]))
            .collect();
        // An eviction is one review: no delete of the pod follows.
        assert_eq!(
            seen,
            [
                "\"CREATE\" null \"Pod\"",
                "\"UPDATE\" \"status\" \"Pod\"",
                "\"CREATE\" \"eviction\" \"Eviction\"",
            ]
        );
        assert_eq!(user.send("GET", &format!("{PODS}/p"), &Value::Null).await.code, 404);
    })
    .await;
}

#[tokio::test]
async fn deletes_of_namespaces_are_deletes_of_their_uids() {
    let ca = Ca::new();
    let (hooks, reviews) = server(&ca).await;
    with_user(plane(), async |user, _| {
        let spaces = hook("n", hooks.config("/allow"), &["namespaces", "configmaps"]);
        configure(&user, &hooks, VALIDATING, "v", &[spaces]).await;
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
        let made = user.create("/api/v1/namespaces", &space).await;
        user.create(MAPS, &map("a")).await;
        reviews.take();
        user.send("DELETE", "/api/v1/namespaces/n", &Value::Null).await.ok();
        user.send("DELETE", &format!("{MAPS}/a"), &Value::Null).await.ok();
        let all = reviews.take();
        let options = |resource: &str| {
            let of = |(_, r): &&(String, Value)| {
                r["resource"]["resource"] == resource && r["operation"] == "DELETE"
            };
            all.iter().find(of).unwrap().1["options"].clone()
        };
        let uid = json!({"uid": made["metadata"]["uid"]});
        assert_eq!(options("namespaces")["preconditions"], uid);
        assert_eq!(options("configmaps")["preconditions"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn streams_are_reviewed_with_their_options() {
    with_user(ControlPlane::builder(), async |user, _| {
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        // Says in its refusal what it has seen.
        let spec = json!({
            "matchConstraints": on(&["pods/exec", "pods/attach", "pods/portforward", "pods/proxy"],
                &["CONNECT"]),
            "validations": [{
                "expression": "false",
                "messageExpression": "request.kind.kind + ': ' + object.kind + ' ' + string(has(object.stdin) && object.stdin) + ' ' + (has(object.command) && object.command != null ? object.command.join(',') : '-') + ' ' + (has(object.ports) ? string(object.ports[0]) : '-') + ' ' + (has(object.path) ? object.path : '-')",
            }],
        });
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        user.create(&policies, &policy).await;
        let bound = json!({"policyName": "p", "validationActions": ["Deny"]});
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        user.create(&bindings, &json!({"metadata": {"name": "b"}, "spec": bound})).await;
        user.create(PODS, &pod("a")).await;
        for (verb, path, seen) in [
            ("POST", "exec?command=ls&command=-l&stdin=1&tty=false", "PodExecOptions true ls,-l - -"),
            ("GET", "exec?stdin=false", "PodExecOptions false - - -"),
            ("GET", "attach?stdin=true", "PodAttachOptions true - - -"),
            ("POST", "portforward?ports=80,81", "PodPortForwardOptions false - 80 -"),
            ("GET", "proxy/x/y?z=1", "PodProxyOptions false - - /x/y"),
            ("DELETE", "proxy/", "PodProxyOptions false - - /"),
        ] {
            let (kind, _) = seen.split_once(' ').unwrap();
            let text = format!("denied request: {kind}: {seen}");
            let is_refused = |answer: &crate::https::Answered| answer.shown().contains(&text);
            user.until(verb, &format!("{PODS}/a/{path}"), &Value::Null, is_refused).await;
        }
        let wrong = user.send("POST", &format!("{PODS}/a/portforward?ports=x"), &Value::Null).await;
        let text = "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax";
        assert!(wrong.code == 400 && wrong.shown().contains(text), "{}", wrong.shown());
    })
    .await;
}
