//! Mutating admission policies: patches, order, reinvocation, failures.

use crate::admission_policies::{GROUP, MAPS, map, on, settled};
use crate::admission_webhooks::plane;
use crate::https::{User, with_user};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn policy(name: &str, mut spec: Value) -> Value {
    for (member, default) in [
        ("matchConstraints", on(&["configmaps"], &["CREATE", "UPDATE"])),
        ("reinvocationPolicy", json!("Never")),
    ] {
        if spec[member].is_null() {
            spec[member] = default;
        }
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec})
}
fn apply(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}
pub(crate) fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}
/// Writes a policy with one binding, and waits until they have an effect.
pub(crate) async fn enforce(user: &User, name: &str, spec: Value) {
    user.create(&format!("{GROUP}/mutatingadmissionpolicies"), &policy(name, spec)).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": format!("{name}-binding")}, "spec": {"policyName": name}});
    user.create(&format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await;
    settled(user, name).await;
}

#[tokio::test]
async fn a_sidecar_is_injected_into_pods_of_labelled_namespaces() {
    with_user(plane(), async |user, _| {
        let mut constraints = on(&["pods"], &["CREATE"]);
        constraints["namespaceSelector"] = json!({"matchLabels": {"inject": "yes"}});
        let container = r#"Object{spec: Object.spec{containers: [
            Object.spec.containers{name: "sidecar", image: "proxy:" + namespaceObject.metadata.labels["version"]}]}}"#;
        let conditions = json!([{"name": "once",
            "expression": "!object.spec.containers.exists(c, c.name == 'sidecar')"}]);
        enforce(&user, "inject", json!({"matchConstraints": constraints,
            "matchConditions": conditions, "mutations": [apply(container)]})).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "image": "a"}]}});
        assert_eq!(user.create(PODS, &pod).await["spec"]["containers"].as_array().unwrap().len(), 1);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "mesh", "labels": {"inject": "yes", "version": "7"}}});
        user.create("/api/v1/namespaces", &namespace).await;
        let made = user.create("/api/v1/namespaces/mesh/pods", &pod).await;
        let injected = &made["spec"]["containers"][1];
        assert_eq!(
            (&injected["name"], &injected["image"], &injected["imagePullPolicy"]),
            (&json!("sidecar"), &json!("proxy:7"), &json!("IfNotPresent"))
        );
        assert_eq!(made["spec"]["containers"][0]["name"], "main");
        // It is owned by nobody.
        assert!(!made["metadata"]["managedFields"].to_string().contains("sidecar"));
    })
    .await;
}

#[tokio::test]
async fn mutations_run_in_order_and_see_each_other() {
    with_user(plane(), async |user, _| {
        let mutations = [
            apply("Object{data: {'a': 'x'}, metadata: Object.metadata{labels: {'k': 'v'}}}"),
            patch("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('b/c'), value: object.data.a + variables.y},
                JSONPatch{op: 'copy', from: '/data/a', path: '/data/d'}]"),
            patch("[JSONPatch{op: 'test', path: '/data/a', value: 'other'}, JSONPatch{op: 'remove', path: '/data/a'}]"),
            patch("has(object.data.d) ? [JSONPatch{op: 'add', path: '/metadata/annotations', value: Object.metadata.annotations{note: 'n'}}] : []"),
        ];
        let variables = json!([{"name": "y", "expression": "'y'"}]);
        enforce(&user, "m", json!({"mutations": mutations, "variables": variables})).await;
        let made = user.create(MAPS, &map("m", json!({"given": "1"}))).await;
        assert_eq!(made["data"], json!({"given": "1", "a": "x", "d": "x"}));
        assert_eq!(made["metadata"]["labels"], json!({"k": "v", "b/c": "xy"}));
        assert_eq!(made["metadata"]["annotations"], json!({"note": "n"}));
    })
    .await;
}

#[tokio::test]
async fn policies_are_reinvoked_if_needed() {
    with_user(plane(), async |user, _| {
        let count = r#"[JSONPatch{op: "add", path: "/data/NAME", value: string(int(object.?data.NAME.orValue("0")) + 1)}]"#;
        let counting = |name: &str, policy: &str| {
            json!({"reinvocationPolicy": policy, "mutations": [patch(&count.replace("NAME", name))]})
        };
        enforce(&user, "a", counting("a", "IfNeeded")).await;
        enforce(&user, "b", counting("b", "IfNeeded")).await;
        enforce(&user, "c", counting("c", "Never")).await;
        let made = user.create(MAPS, &map("m", json!({"x": "1"}))).await;
        // The last one's change is seen by both that want to.
        assert_eq!(made["data"], json!({"x": "1", "a": "2", "b": "2", "c": "1"}));
    })
    .await;
}

#[tokio::test]
async fn failures_follow_the_failure_policy() {
    with_user(plane(), async |user, _| {
        let constraints = on(&["deployments", "configmaps"], &["CREATE"]);
        let cases = [
            ("absent", apply("Object{data: {'a': object.absent}}"), "expression 'Object{data: {'a': object.absent}}' resulted in error: no such key: absent"),
            ("unknown", apply("Object{datum: 'x'}"), "error applying patch: failed to convert patch object to typed object: .datum: field not declared in schema"),
            ("remove", patch("[JSONPatch{op: 'remove', path: '/data/nope'}]"), "JSON Patch: error in remove for path: '/data/nope': Unable to remove nonexistent key: nope: missing value"),
            ("names", apply("Object{metadata: Object.spec{}}"), "type mismatch: unexpected type name \"Object.spec\", expected \"Object.metadata\", which matches field name path from root Object type"),
        ];
        for (name, mutation, _) in &cases {
            let condition = json!([{"name": "c", "expression": format!("object.metadata.name == '{name}'")}]);
            let spec = json!({"matchConstraints": constraints, "matchConditions": condition, "mutations": [mutation]});
            enforce(&user, name, spec).await;
        }
        for (name, _, text) in cases {
            let refused = user.send("POST", MAPS, &map(name, json!({"x": "1"}))).await;
            let text = format!("policy '{name}' with binding '{name}-binding' denied request: {text}");
            assert_eq!(refused.shown(), format!("403 {text}"));
            assert_eq!(refused.body["reason"], "Invalid");
            assert_eq!(
                refused.body["details"],
                json!({"name": name, "kind": "configmaps", "causes": [{"message": text}]})
            );
        }
        let atomic = apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [
            Object.spec.template.spec.containers{name: 'main', args: ['a']}]}}}}");
        let strict = patch("[JSONPatch{op: 'add', path: '/spec/wrong', value: 1}]");
        for (name, mutation) in [("atomic", atomic), ("strict", strict)] {
            let condition = json!([{"name": "c", "expression": format!("object.metadata.name == '{name}'")}]);
            let spec = json!({"matchConstraints": constraints, "matchConditions": condition, "mutations": [mutation]});
            enforce(&user, name, spec).await;
        }
        let deployment = |name: &str| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "main", "image": "a"}]}}}});
        let refused = user.send("POST", DEPLOYMENTS, &deployment("atomic")).await.shown();
        assert!(refused.ends_with("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args"), "{refused}");
        let refused = user.send("POST", DEPLOYMENTS, &deployment("strict")).await.shown();
        assert_eq!(refused, "500 Internal error occurred: strict decoding error: unknown field \"spec.wrong\"");

        let mut open = json!({"mutations": [apply("Object{data: {'a': object.absent}}"), apply("Object{data: {'b': 'c'}}")]});
        open["failurePolicy"] = "Ignore".into();
        enforce(&user, "open", open).await;
        let made = user.create(MAPS, &map("other", json!({"x": "1"}))).await;
        assert_eq!(made["data"], json!({"x": "1", "b": "c"}));
    })
    .await;
}

#[tokio::test]
async fn policies_are_checked_when_they_are_written() {
    with_user(plane(), async |user, _| {
        let path = format!("{GROUP}/mutatingadmissionpolicies?dryRun=All");
        let good = || policy("p", json!({"mutations": [apply("Object{}")]}));
        user.create(&path, &good()).await;
        type Edit = fn(&mut Value);
        let cases: [(Edit, &str); 7] = [
            (|s| s["reinvocationPolicy"] = Value::Null, "spec.reinvocationPolicy: Required value"),
            (|s| s["matchConstraints"]["resourceRules"][0]["operations"] = json!(["DELETE"]), "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\""),
            (|s| s["mutations"] = json!([]), "spec.mutations: Required value"),
            (|s| s["mutations"] = json!([patch("[]")]), "spec.mutations[0].jsonPatch.expression: Invalid value: \"[]\": must evaluate to list(JSONPatch) but got list(dyn)"),
            (|s| s["mutations"] = json!([patch("[dyn(1)]")]), "spec.mutations[0].jsonPatch.expression: Invalid value: \"[dyn(1)]\": must evaluate to list(JSONPatch) but got list(dyn)"),
            (|s| s["mutations"] = json!([apply("'a'")]), "spec.mutations[0].applyConfiguration.expression: Invalid value: \"'a'\": must evaluate to Object but got string"),
            (|s| s["mutations"][0]["patchType"] = "JSONPatch".into(), "[spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch, spec.mutations[0].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch]"),
        ];
        for (edit, text) in cases {
            let mut policy = good();
            edit(&mut policy["spec"]);
            let shown = user.send("POST", &path, &policy).await.shown();
            let start = "422 MutatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: ";
            assert!(shown.starts_with(&format!("{start}{text}")), "{shown}\n{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_object_cannot_grow_without_end() {
    with_user(plane(), async |user, _| {
        // Each copy is far below the limit of one patch.
        let copy = |n: usize| {
            patch(&format!("[JSONPatch{{op: 'copy', from: '/data/a', path: '/data/x{n}'}}]"))
        };
        let mutations: Vec<Value> = (0..40).map(copy).collect();
        let condition =
            json!([{"name": "c", "expression": "has(object.data) && 'a' in object.data"}]);
        enforce(&user, "grow", json!({"mutations": mutations, "matchConditions": condition})).await;
        let grown = map("grown", json!({"a": "x".repeat(500_000)}));
        let refused = user.send("POST", MAPS, &grown).await.shown();
        let start = "500 rpc error: code = ResourceExhausted desc = trying to send message larger";
        assert!(refused.starts_with(start), "{refused}");
        let small = user.create(MAPS, &map("small", json!({"a": "1"}))).await;
        assert_eq!(small["data"]["x39"], "1");
    })
    .await;
}

/// What the last policy of a round has patched, it sees again, too.
#[tokio::test]
async fn one_policy_is_asked_again_after_its_own_patch() {
    with_user(plane(), async |user, _| {
        let count = patch(
            r#"[JSONPatch{op: "add", path: "/data/n", value: string(int(object.?data.n.orValue("0")) + 1)}]"#,
        );
        let spec = json!({"reinvocationPolicy": "IfNeeded", "mutations": [count]});
        enforce(&user, "a", spec).await;
        let made = user.create(MAPS, &map("m", json!({"x": "1"}))).await;
        assert_eq!(made["data"], json!({"x": "1", "n": "2"}));
    })
    .await;
}

#[tokio::test]
async fn kinds_of_other_groups_subresources_have_no_type() {
    with_user(plane(), async |user, _| {
        let constraints = on(&["pods/eviction", "deployments/scale"], &["*"]);
        let spec = json!({
            "matchConstraints": constraints,
            "mutations": [apply("Object{metadata: Object.metadata{labels: {'a': 'b'}}}")],
        });
        enforce(&user, "a", spec).await;
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "main", "image": "a"}]}});
        user.create(PODS, &pod).await;
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let refused = user.send("POST", &format!("{PODS}/p/eviction"), &eviction).await;
        assert_eq!(
            refused.shown(),
            "403 policy 'a' with binding 'a-binding' denied request: error applying patch: failed to convert patch object to typed object: no corresponding type for policy/v1, Kind=Eviction"
        );
    })
    .await;
}

#[tokio::test]
async fn values_that_are_not_json_are_named() {
    with_user(plane(), async |user, _| {
        for (name, value, why) in [
            ("key", "{1: 'a'}", "unsupported type conversion from 'int' to string"),
            ("bool", "{true: 'a'}", "type conversion error from bool to 'string'"),
            (
                "quantity",
                "quantity('1')",
                "type conversion error from 'Quantity' to '*structpb.Value'",
            ),
            ("type", "type(1)", "type conversion not supported for 'type'"),
        ] {
            let expression = format!("[JSONPatch{{op: 'add', path: '/data/x', value: {value}}}]");
            let condition =
                json!([{"name": "c", "expression": format!("object.metadata.name == '{name}'")}]);
            enforce(
                &user,
                name,
                json!({"matchConditions": condition, "mutations": [patch(&expression)]}),
            )
            .await;
            let refused = user.send("POST", MAPS, &map(name, json!({"a": "b"}))).await;
            let text =
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
            assert!(
                refused.shown().ends_with(&format!("denied request: {text}: {why}")),
                "{refused:?}"
            );
        }
    })
    .await;
}
