//! Workloads, PodGroups and the groups of pods, which are served with their feature gate.
use crate::features::serving;
use crate::server::{Server, refused};
use serde_json::{Value, json};
use setpoint_registry::Feature;

const WORKLOADS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads";
const GROUPS: &str = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const LABEL: &str = "a lowercase RFC 1123 label must consist of";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of";

async fn server(gates: &[Feature]) -> Server {
    serving("api/all", gates.into()).await
}
async fn gated() -> Server {
    server(&[Feature::GenericWorkload]).await
}

/// With a template `t` for each policy.
fn workload(name: &str, policies: &[Value]) -> Value {
    let template =
        |(i, policy): (usize, &Value)| json!({"name": format!("t{i}"), "schedulingPolicy": policy});
    let templates: Vec<Value> = policies.iter().enumerate().map(template).collect();
    json!({"metadata": {"name": name}, "spec": {"podGroupTemplates": templates}})
}
fn gang(n: i64) -> Value {
    json!({"gang": {"minCount": n}})
}
fn group(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}
fn of_template(workload: &str, template: &str) -> Value {
    json!({
        "podGroupTemplateRef": {
            "workload": {"workloadName": workload, "podGroupTemplateName": template},
        },
        "schedulingPolicy": gang(2),
    })
}

#[tokio::test(start_paused = true)]
async fn workload_has_templates_of_groups_and_is_immutable() {
    let server = gated().await;
    let check = async |spec: Value, why: &str| {
        let made = json!({"metadata": {"name": "w"}, "spec": spec});
        let error = refused(server.create(WORKLOADS, made).await);
        assert!(error.starts_with("422 Workload.scheduling.k8s.io \"w\" is invalid: "), "{error}");
        assert!(error.contains(why), "{why}: {error}");
    };
    let templates = |templates: Value| json!({"podGroupTemplates": templates});
    let one = |name: &str| json!({"name": name, "schedulingPolicy": {"basic": {}}});
    let path = "spec.podGroupTemplates[0]";
    check(json!({}), "spec.podGroupTemplates: Required value").await;
    let nine: Vec<Value> = (0..9).map(|i| one(&format!("t{i}"))).collect();
    check(templates(nine.into()), "spec.podGroupTemplates: Too many: 9: must have at most 8 items")
        .await;
    check(
        templates(json!([one("a"), one("a")])),
        r#"spec.podGroupTemplates[1]: Duplicate value: {"name":"a","schedulingPolicy":{"basic":{}},"schedulingConstraints":null}"#,
    )
    .await;
    check(templates(json!([one("")])), &format!("{path}.name: Required value")).await;
    check(templates(json!([one("A")])), &format!("{path}.name: Invalid value: \"A\": {LABEL}"))
        .await;
    check(templates(json!([one(&"a".repeat(64))])), "must be no more than 63 bytes").await;
    for (policy, why) in [
        (json!({}), "Invalid value: \"\": must specify one of: `basic`, `gang`"),
        (
            json!({"basic": {}, "gang": {"minCount": 1}}),
            "Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
        ),
    ] {
        let template = json!([{"name": "a", "schedulingPolicy": policy}]);
        check(templates(template), &format!("{path}.schedulingPolicy: {why}")).await;
    }
    for (count, why) in
        [(0, "Required value"), (-1, "Invalid value: -1: must be greater than or equal to 1")]
    {
        let template = json!([{"name": "a", "schedulingPolicy": gang(count)}]);
        check(templates(template), &format!("{path}.schedulingPolicy.gang.minCount: {why}")).await;
    }
    for (member, value, why) in [
        ("kind", "", "Required value"),
        ("name", "", "Required value"),
        ("kind", "a/b", "Invalid value: \"a/b\": may not contain '/'"),
        ("name", "..", "Invalid value: \"..\": may not be '..'"),
        ("apiGroup", "A", &*format!("Invalid value: \"A\": {SUBDOMAIN}")),
    ] {
        let mut controller = json!({"apiGroup": "batch", "kind": "Job", "name": "j"});
        controller[member] = value.into();
        let spec = json!({"podGroupTemplates": [one("a")], "controllerRef": controller});
        check(spec, &format!("spec.controllerRef.{member}: {why}")).await;
    }

    // Members of features that are off.
    let mut made = workload("w", &[gang(2), json!({"basic": {}})]);
    made["spec"]["podGroupTemplates"][0]["priorityClassName"] = "p".into();
    made["spec"]["podGroupTemplates"][0]["resourceClaims"] =
        json!([{"name": "c", "resourceClaimName": "c"}]);
    let made = server.create(WORKLOADS, made).await.unwrap();
    assert_eq!(
        made["spec"]["podGroupTemplates"][0],
        json!({"name": "t0", "schedulingPolicy": gang(2), "schedulingConstraints": null})
    );
    let path = format!("{WORKLOADS}/w");
    for (spec, why) in [
        (
            json!({"podGroupTemplates": null}),
            "[spec.podGroupTemplates: Invalid value: null: field is immutable, spec.podGroupTemplates: Required value]",
        ),
        (
            json!({"controllerRef": {"kind": "Job", "name": "j"}}),
            "spec.controllerRef: Invalid value: null: field is immutable",
        ),
    ] {
        let error = refused(server.patch(&path, json!({"spec": spec})).await);
        assert!(error.starts_with("422 ") && error.ends_with(why), "{error}");
    }
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    server.patch(&path, labels).await.unwrap();
    // It has no status.
    assert!(refused(server.get(&format!("{path}/status")).await).starts_with("404 "));
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn group_has_a_policy_and_is_immutable() {
    let server = gated().await;
    server.create(WORKLOADS, workload("w", &[gang(2)])).await.unwrap();
    for (spec, why) in [
        (
            json!({}),
            "spec.schedulingPolicy: Invalid value: \"\": must specify one of: `basic`, `gang`",
        ),
        (json!({"schedulingPolicy": gang(0)}), "spec.schedulingPolicy.gang.minCount: Required"),
        (
            json!({"schedulingPolicy": gang(1), "podGroupTemplateRef": {}}),
            "spec.podGroupTemplateRef: Invalid value: \"\": must specify one of: `workload`",
        ),
        (
            of_template("", "A"),
            "[spec.podGroupTemplateRef.workload.workloadName: Required value, spec.podGroupTemplateRef.workload.podGroupTemplateName: Invalid value: \"A\": a lowercase RFC 1123 label",
        ),
        (of_template("A", "t0"), "workloadName: Invalid value: \"A\": a lowercase RFC 1123 sub"),
    ] {
        let error = refused(server.create(GROUPS, group("g", spec)).await);
        assert!(error.starts_with("422 PodGroup.scheduling.k8s.io \"g\" is invalid: "), "{error}");
        assert!(error.contains(why), "{why}: {error}");
    }
    let mut spec = of_template("w", "t0");
    spec["disruptionMode"] = "PodGroup".into();
    spec["priority"] = 3.into();
    let made = server.create(GROUPS, group("g", spec)).await.unwrap();
    let mut expected = of_template("w", "t0");
    expected["disruptionMode"] = "Pod".into();
    assert_eq!(made["spec"], expected);
    assert_eq!(made["status"], json!({}));
    let path = format!("{GROUPS}/g");
    for (spec, why) in [
        (
            json!({"schedulingPolicy": gang(3)}),
            "schedulingPolicy: Invalid value: null: field is immutable",
        ),
        (
            json!({"podGroupTemplateRef": null}),
            "podGroupTemplateRef: Invalid value: null: field is immutable",
        ),
        (json!({"disruptionMode": "PodGroup"}), "disruptionMode: Forbidden"),
        (json!({"disruptionMode": ""}), "disruptionMode: Forbidden"),
    ] {
        let error = refused(server.patch(&path, json!({"spec": spec})).await);
        assert!(error.ends_with(&format!("is invalid: spec.{why}")), "{error}");
    }
    let dropped = json!({"priority": 3, "resourceClaims": [{"name": "a"}], "disruptionMode": null});
    let kept = server.patch(&path, json!({"spec": dropped})).await.unwrap();
    assert_eq!(kept["spec"], expected);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn status_of_a_group_has_conditions() {
    let server = gated().await;
    let made = group("g", json!({"schedulingPolicy": {"basic": {}}}));
    server.create(GROUPS, made).await.unwrap();
    let path = format!("{GROUPS}/g/status");
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let sent = json!({
        "metadata": {"labels": {"a": "b"}}, "spec": {"schedulingPolicy": gang(4)},
        "status": {
            "conditions": [condition("PodGroupScheduled", "Done")],
            "resourceClaimStatuses": [{"name": "c"}],
        },
    });
    let written = server.patch(&path, sent).await.unwrap();
    assert_eq!(
        written["status"],
        json!({"conditions": [condition("PodGroupScheduled", "Done")]}),
        "claims belong to a feature that is off"
    );
    assert_eq!(written["spec"]["schedulingPolicy"], json!({"basic": {}}));
    assert_eq!(written["metadata"]["labels"], Value::Null);
    let wrong = json!({"status": {"conditions": [condition("a b", "")]}});
    let error = refused(server.patch(&path, wrong).await);
    for why in
        ["status.conditions[0].type: Invalid value: \"a b\": name part", "reason: Required value"]
    {
        assert!(error.starts_with("422 ") && error.contains(why), "{error}");
    }
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn new_group_is_protected_and_its_template_exists() {
    let server = gated().await;
    server.create(WORKLOADS, workload("w", &[gang(2)])).await.unwrap();
    for (workload, template, why) in [
        ("x", "t0", r#"Workload "x" not found"#),
        ("w", "t1", r#"PodGroupTemplate "t1" not found in Workload "w""#),
    ] {
        let made = group("g", of_template(workload, template));
        let error = refused(server.create(GROUPS, made).await);
        assert_eq!(
            error,
            format!(
                r#"403 podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: {why}"#
            )
        );
    }
    let finalizer = "scheduling.k8s.io/podgroup-protection";
    let made = server.create(GROUPS, group("g", of_template("w", "t0"))).await.unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!([finalizer]));
    let held = json!({"metadata": {"finalizers": ["a.b/c"]}});
    server.patch(&format!("{WORKLOADS}/w"), held).await.unwrap();
    server.delete(&format!("{WORKLOADS}/w")).await.unwrap();
    let error = refused(server.create(GROUPS, group("h", of_template("w", "t0"))).await);
    assert!(error.ends_with(r#"PodGroup rejected: Workload "w" is being deleted"#), "{error}");
    // A group without a template needs none.
    let mut bare = group("h", json!({"schedulingPolicy": gang(2)}));
    bare["metadata"]["finalizers"] = json!([finalizer]);
    let made = server.create(GROUPS, bare).await.unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!([finalizer]));
    server.delete(&format!("{GROUPS}/h")).await.unwrap();
    let deleted = server.get(&format!("{GROUPS}/h")).await.unwrap();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    server.stop().await;
}

fn pod_spec(group: Value) -> Value {
    json!({
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        "schedulingGroup": group,
    })
}

#[tokio::test(start_paused = true)]
async fn pod_names_its_group() {
    for gates in [&[][..], &[Feature::GenericWorkload]] {
        let server = server(gates).await;
        let pod =
            |name: &str, group: Value| json!({"metadata": {"name": name}, "spec": pod_spec(group)});
        let named = json!({"podGroupName": "g"});
        let made = server.create(PODS, pod("p", named.clone())).await.unwrap();
        if gates.is_empty() {
            assert_eq!(made["spec"]["schedulingGroup"], Value::Null);
            server.create(PODS, pod("q", json!({}))).await.unwrap();
            server.stop().await;
            continue;
        }
        assert_eq!(made["spec"]["schedulingGroup"], named);
        let path = "spec.schedulingGroup.podGroupName";
        for (group, why) in [
            (
                json!({}),
                format!("{path}: Invalid value: null: must specify one of: `podGroupName`"),
            ),
            (json!({"podGroupName": "A"}), format!("{path}: Invalid value: \"A\": {SUBDOMAIN}")),
            (json!({"podGroupName": ""}), format!("{path}: Invalid value: \"\": {SUBDOMAIN}")),
        ] {
            let error = refused(server.create(PODS, pod("q", group)).await);
            assert!(error.starts_with("422 ") && error.contains(&why), "{error}");
        }
        let other = json!({"spec": {"schedulingGroup": {"podGroupName": "h"}}});
        let error = refused(server.patch(&format!("{PODS}/p"), other).await);
        assert!(error.contains("spec: Forbidden: pod updates may not change fields"), "{error}");
        server.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn parallelism_of_a_job_with_a_gang_stays() {
    let server = gated().await;
    let job = |name: &str, group: Value| {
        let template = json!({"spec": pod_spec(group)});
        json!({
            "metadata": {"name": name},
            "spec": {
                "parallelism": 2, "completions": 2, "completionMode": "Indexed",
                "template": template,
            },
        })
    };
    server.create(GROUPS, group("g", json!({"schedulingPolicy": gang(2)}))).await.unwrap();
    server.create(GROUPS, group("b", json!({"schedulingPolicy": {"basic": {}}}))).await.unwrap();
    let wider = json!({"spec": {"parallelism": 1}});
    let why = |job: &str, group: &str| {
        format!(
            r#"403 jobs.batch "{job}" is forbidden: cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}""#
        )
    };
    for (named, is_refused) in [("g", true), ("b", false), ("absent", false)] {
        let name = format!("of-{named}");
        server.create(JOBS, job(&name, json!({"podGroupName": named}))).await.unwrap();
        let changed = server.patch(&format!("{JOBS}/{name}"), wider.clone()).await;
        match is_refused {
            true => assert_eq!(refused(changed), why(&name, named)),
            false => assert_eq!(changed.unwrap()["spec"]["parallelism"], 1),
        }
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        server.patch(&format!("{JOBS}/{name}"), labels).await.unwrap();
    }
    // A group that the Job controls.
    let made = server.create(JOBS, job("j", Value::Null)).await.unwrap();
    let path = format!("{JOBS}/j");
    let mut owner = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"],
    });
    let mut owned = group("o", json!({"schedulingPolicy": gang(2)}));
    owned["metadata"]["ownerReferences"] = json!([owner]);
    server.create(GROUPS, owned).await.unwrap();
    let narrower = json!({"spec": {"parallelism": 3}});
    server.patch(&path, narrower).await.unwrap();
    owner["controller"] = true.into();
    let controlled = json!({"metadata": {"ownerReferences": [owner]}});
    server.patch(&format!("{GROUPS}/o"), controlled).await.unwrap();
    assert_eq!(refused(server.patch(&path, wider).await), why("j", "o"));
    server.stop().await;
}
