//! Validating admission policies: failures, actions, params, variables, budgets.

use crate::admission_webhooks::plane;
use crate::https::{Answered, User, with_user};
use serde_json::{Value, json};
use setpoint::apiserver::{AuditQueue, Stage};
use setpoint::store::{MemoryStore, Op, Store as _, Txn};
use std::sync::Arc;

pub(crate) const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const NAME: &str = r#"configmaps "a" is forbidden: "#;

pub(crate) fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}
/// Constraints on some resources of all groups and versions.
pub(crate) fn on(resources: &[&str], operations: &[&str]) -> Value {
    json!({"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": resources,
        "operations": operations}]})
}
fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
}
/// A validating policy; its constraints are config maps unless `spec` has others.
pub(crate) fn policy(name: &str, mut spec: Value) -> Value {
    if spec["matchConstraints"].is_null() {
        spec["matchConstraints"] = on(&["configmaps"], &["CREATE", "UPDATE"]);
    }
    object("ValidatingAdmissionPolicy", name, spec)
}
fn binding(name: &str, policy: &str, mut spec: Value) -> Value {
    spec["policyName"] = policy.into();
    if spec["validationActions"].is_null() {
        spec["validationActions"] = json!(["Deny"]);
    }
    object("ValidatingAdmissionPolicyBinding", name, spec)
}
/// Writes a policy with one binding, and waits until they have an effect.
async fn enforce(user: &User, name: &str, spec: Value, bound: Value) {
    user.create(&format!("{GROUP}/validatingadmissionpolicies"), &policy(name, spec)).await;
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    user.create(&path, &binding(&format!("{name}-binding"), name, bound)).await;
    settled(user, name).await;
}
/// Waits until all that was written before has an effect: later writes are seen later.
pub(crate) async fn settled(user: &User, name: &str) {
    let marker = format!("marker-{name}");
    let spec = json!({"validations": [
        {"expression": format!("object.metadata.name != '{marker}'")}]});
    user.create(&format!("{GROUP}/validatingadmissionpolicies"), &policy(&marker, spec)).await;
    let path = format!("{GROUP}/validatingadmissionpolicybindings");
    user.create(&path, &binding(&marker, &marker, json!({}))).await;
    let dry = format!("{MAPS}?dryRun=All");
    let is_refused = |answer: &Answered| answer.shown().contains(&format!("'{marker}'"));
    user.until("POST", &dry, &map(&marker, json!({"x": "1"})), is_refused).await;
}
/// The answer to a dry run of a config map `a`.
async fn dry(user: &User, data: Value) -> Answered {
    user.send("POST", &format!("{MAPS}?dryRun=All"), &map("a", data)).await
}

/// Changes an object.
type Change<'a> = &'a dyn Fn(&mut Value);

#[tokio::test]
async fn failures_are_denied_with_their_message_reason_and_code() {
    with_user(plane(), async |user, _| {
        let spec = json!({"variables": [{"name": "size", "expression": "size(object.data)"}],
            "validations": [
            {"expression": "variables.size < 5", "messageExpression": "'has ' + string(variables.size) + ' keys'", "message": "unused"},
            {"expression": "variables.size < 4", "message": " too many ", "reason": "Forbidden"},
            {"expression": "variables.size < 3", "reason": "RequestEntityTooLarge", "messageExpression": "'two\\nlines'"},
            {"expression": "variables.size < 2", "messageExpression": "string(object.data.absent)"},
            {"expression": " object.data.must == '1' "},
        ]});
        enforce(&user, "p", spec, json!({})).await;
        let with = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: ";
        let data = |n: usize| (0..n).map(|n| (n.to_string(), json!("x"))).collect::<Value>();
        for (n, code, reason, text) in [
            (5, 422, "Invalid", "has 5 keys"),
            (4, 403, "Forbidden", "too many"),
            (3, 413, "RequestEntityTooLarge", "failed expression: variables.size < 3"),
            (2, 422, "Invalid", "failed expression: variables.size < 2"),
            (1, 422, "Invalid", "expression 'object.data.must == '1'' resulted in error: no such key: must"),
        ] {
            let refused = dry(&user, data(n)).await;
            assert_eq!(refused.shown(), format!("{code} {NAME}{with}{text}"));
            assert_eq!(refused.body["reason"], reason);
            let details = &refused.body["details"];
            assert_eq!(details["causes"], json!([{"message": format!("{with}{text}")}]));
            assert_eq!((&details["name"], &details["kind"]), (&json!("a"), &json!("configmaps")));
        }
        assert_eq!(dry(&user, json!({"must": "1"})).await.shown(), "201 ok");
        // Updates too; deletes are not matched.
        user.create(MAPS, &map("a", json!({"must": "1"}))).await;
        let path = format!("{MAPS}/a");
        let refused = user.send("PATCH", &path, &json!({"data": {"must": "2"}})).await;
        assert!(refused.shown().ends_with("failed expression: object.data.must == '1'"), "{refused:?}");
        user.send("DELETE", &path, &Value::Null).await.ok();
    })
    .await;
}

#[tokio::test]
async fn bindings_warn_audit_and_annotate() {
    let audit = AuditQueue::new(1000);
    with_user(plane().audit(audit.clone()), async |user, _| {
        let spec = json!({
            "validations": [{"expression": "true"}, {"expression": "false", "message": "m"}],
            "auditAnnotations": [
                {"key": "who", "valueExpression": "request.userInfo.username + ' ' + object.metadata.name"},
                {"key": "none", "valueExpression": "null"},
                {"key": "long", "valueExpression": "'x'.replace('x', '          ') + 'y'"},
            ],
        });
        enforce(&user, "p", spec, json!({"validationActions": ["Warn", "Audit"]})).await;
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        user.create(&path, &binding("q", "p", json!({"validationActions": ["Audit"]}))).await;
        let made = user.send("POST", MAPS, &map("a", json!({}))).await;
        assert_eq!(
            made.warnings,
            ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': m"]
        );
        made.ok();
    })
    .await;
    let mut noted = None;
    while let Some(event) = futures::FutureExt::now_or_never(audit.next()) {
        let annotations = event.request.audit_annotations();
        let is_of_a = annotations.get("p/who").is_some_and(|who| who == "alice a");
        if event.stage == Stage::ResponseComplete && is_of_a {
            noted = Some(annotations);
        }
    }
    let annotations = json!(noted.unwrap());
    assert_eq!(annotations["p/none"], Value::Null);
    assert_eq!(annotations["p/long"], "y");
    let failure = annotations["validation.policy.admission.k8s.io/validation_failure"].as_str();
    assert_eq!(
        failure.unwrap(),
        r#"[{"message":"m","policy":"p","binding":"p-binding","expressionIndex":1,"validationActions":["Warn","Audit"]}]"#
    );
}

#[tokio::test]
async fn policies_see_the_request_its_namespace_and_the_authorizer() {
    with_user(plane(), async |user, _| {
        let expressions = [
            "request.operation == 'CREATE' && request.resource.resource == 'configmaps'",
            "request.userInfo.username == 'alice' && request.dryRun && request.name == 'a'",
            "request.options.kind == 'CreateOptions' && oldObject == null",
            "namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'",
            "namespaceObject.metadata.creationTimestamp < timestamp('2100-01-01T00:00:00Z')",
            "object.metadata.namespace == 'default' && object.?data.?none.orValue('x') == 'x'",
            "authorizer.requestResource.check('delete').allowed()",
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('n').name('x').check('update').allowed()",
            "!authorizer.serviceAccount('ns', 'sa').path('/healthzz').check('get').errored()",
            "variables.twice == 2 && has(variables.twice) && variables.sum == 6",
            "object.data.all(k, v, k != v)",
        ];
        let validations: Vec<Value> =
            expressions.iter().map(|expression| json!({"expression": expression})).collect();
        let spec = json!({
            "variables": [
                {"name": "one", "expression": "size(object.data)"},
                {"name": "twice", "expression": "variables.one + variables.one"},
                {"name": "unread", "expression": "object.absent.absent"},
                {"name": "list", "expression": "[variables.twice, variables.twice, variables.twice]"},
                {"name": "sum", "expression": "variables.list.sum()"},
            ],
            "validations": validations,
        });
        enforce(&user, "p", spec, json!({})).await;
        assert_eq!(dry(&user, json!({"k": "v"})).await.shown(), "201 ok");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_evaluated_follows_the_failure_policy() {
    with_user(plane(), async |user, _| {
        let spec = |failure: &str| {
            json!({"failurePolicy": failure,
                "matchConstraints": on(&["configmaps"], &["CREATE"]),
                "matchConditions": [{"name": "c", "expression": "object.metadata.name == 'a'"}],
                "variables": [{"name": "b", "expression": "object.x.y"},
                    {"name": "n", "expression": "lists.range(300)"}],
                "validations": [{"expression": "has(object.data.costly) || variables.b == 1"},
                    {"expression": "!has(object.data.costly) || variables.n.all(a, variables.n.all(b, variables.n.all(c, a + b + c >= 0)))"}]})
        };
        enforce(&user, "open", spec("Ignore"), json!({})).await;
        assert_eq!(dry(&user, json!({})).await.shown(), "201 ok");
        enforce(&user, "closed", spec("Fail"), json!({})).await;
        let start = format!("422 {NAME}ValidatingAdmissionPolicy 'closed' with binding 'closed-binding' denied request: expression '");
        let shown = dry(&user, json!({"x": "1"})).await.shown();
        assert_eq!(
            shown,
            format!("{start}has(object.data.costly) || variables.b == 1' resulted in error: composited variable \"b\" fails to evaluate: no such key: x")
        );
        let shown = dry(&user, json!({"costly": "1"})).await.shown();
        assert!(shown.starts_with(&start), "{shown}");
        assert!(shown.ends_with("' resulted in error: operation cancelled: actual cost limit exceeded"), "{shown}");
        // The conditions are not met.
        let other = user.send("POST", &format!("{MAPS}?dryRun=All"), &map("b", json!({}))).await;
        assert_eq!(other.shown(), "201 ok");
    })
    .await;
}

#[tokio::test]
async fn a_bad_expression_blocks_nothing_else_and_can_be_removed() {
    // One that this server would refuse to store: of another version, say.
    let store = MemoryStore::default();
    let mut broken = policy(
        "broken",
        json!({"failurePolicy": "Fail",
        "matchConstraints": on(&["configmaps"], &["CREATE"]),
        "validations": [{"expression": "object.("}]}),
    );
    let mut bound = binding("broken", "broken", json!({}));
    for (object, prefix) in [
        (&mut broken, "validatingadmissionpolicies"),
        (&mut bound, "validatingadmissionpolicybindings"),
    ] {
        object["metadata"]["uid"] = prefix.into();
        object["metadata"]["generation"] = 1.into();
        let op = Op::Put(format!("/registry/{prefix}/broken").into(), object.to_string().into());
        store.commit(Txn { ops: vec![op], ..Txn::default() }).await.unwrap();
    }
    with_user(plane().store(Arc::new(store)), async |user, _| {
        let policies = format!("{GROUP}/validatingadmissionpolicies");
        let secrets = "/api/v1/namespaces/default/secrets";
        let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let good = json!({"matchConstraints": on(&["secrets"], &["CREATE"]),
            "validations": [{"expression": "object.metadata.name != 'no'", "message": "not this one"}]});
        user.create(&policies, &policy("good", good)).await;
        let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
        user.create(&bindings, &binding("good", "good", json!({}))).await;
        let refused = |answer: &Answered| answer.shown().ends_with("denied request: not this one");
        user.until("POST", secrets, &secret("no"), refused).await;

        // What it matches fails; everything else goes on, and so do other policies.
        let shown = dry(&user, json!({"x": "1"})).await.shown();
        assert!(shown.contains("ValidatingAdmissionPolicy 'broken'"), "{shown}");
        user.create(secrets, &secret("yes")).await;
        user.send("GET", MAPS, &Value::Null).await.ok();

        // One that fails for every resource, its own included, does not lock its writer out.
        let all = json!({"matchConstraints": on(&["*/*"], &["*"]), "failurePolicy": "Fail",
            "validations": [{"expression": "object.absent.x == 1"}]});
        user.create(&policies, &policy("all", all)).await;
        user.create(&bindings, &binding("all", "all", json!({}))).await;
        let refused = |answer: &Answered| answer.shown().contains("'all' with binding 'all'");
        user.until("POST", &format!("{secrets}?dryRun=All"), &secret("x"), refused).await;
        assert_eq!(user.send("GET", &format!("{secrets}/yes"), &Value::Null).await.code, 200);
        for name in ["all", "broken"] {
            user.send("DELETE", &format!("{bindings}/{name}"), &Value::Null).await.ok();
            user.send("DELETE", &format!("{policies}/{name}"), &Value::Null).await.ok();
        }
        let is_made = |answer: &Answered| answer.code == 201;
        user.until("POST", MAPS, &map("a", json!({"x": "1"})), is_made).await;
        user.create(secrets, &secret("x")).await;
    })
    .await;
}

#[tokio::test]
async fn expressions_of_a_policy_and_its_conditions_share_a_budget() {
    with_user(plane(), async |user, _| {
        // Each costs between 250,000 and 1,000,000, so that one alone is allowed.
        let nested = "lists.range(250).all(a, lists.range(250).all(b, a + b >= 0))";
        // Of secrets, because config maps show when a policy counts.
        let spec = |n_conditions: usize, n_validations: usize| {
            let condition = |n| json!({"name": format!("c{n}"), "expression": nested});
            let conditions: Vec<Value> = (0..n_conditions).map(condition).collect();
            let validations = vec![json!({"expression": nested}); n_validations];
            json!({"matchConstraints": on(&["secrets"], &["CREATE"]),
                "matchConditions": conditions, "validations": validations})
        };
        let create = async || {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
            let path = "/api/v1/namespaces/default/secrets?dryRun=All";
            user.send("POST", path, &secret).await.shown()
        };
        enforce(&user, "within", spec(1, 2), json!({})).await;
        assert_eq!(create().await, "201 ok");
        let out = "validation failed due to running out of cost budget, no further validation rules will be run";
        for (name, n_conditions, n_validations) in [("validations", 0, 40), ("conditions", 10, 1)] {
            enforce(&user, name, spec(n_conditions, n_validations), json!({})).await;
            let refused = format!("422 secrets \"a\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}-binding' denied request: {out}");
            assert_eq!(create().await, refused);
            // Nothing else is hindered by it.
            assert_eq!(dry(&user, json!({})).await.shown(), "201 ok");
            let path = format!("{GROUP}/validatingadmissionpolicybindings/{name}-binding");
            user.send("DELETE", &path, &Value::Null).await.ok();
        }
    })
    .await;
}

#[tokio::test]
async fn rules_exclude_resources_and_name_objects() {
    with_user(plane(), async |user, _| {
        let all = json!({"validations": [{"expression": "false", "message": "no"}]});
        let mut spec = all.clone();
        spec["matchConstraints"] = on(&["*/*"], &["*"]);
        spec["matchConstraints"]["excludeResourceRules"] = json!([
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                "resourceNames": ["allowed"], "operations": ["*"]},
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["events"], "operations": ["*"]}]);
        let bound = json!({"matchResources": {"objectSelector": {"matchLabels": {"x": "y"}}}});
        let create = format!("{GROUP}/validatingadmissionpolicies");
        user.create(&create, &policy("p", spec)).await;
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        user.create(&path, &binding("b", "p", bound)).await;
        settled(&user, "s").await;
        let labelled = |name: &str| {
            let mut map = map(name, json!({}));
            map["metadata"]["labels"] = json!({"x": "y"});
            map
        };
        let dry = format!("{MAPS}?dryRun=All");
        assert_eq!(user.send("POST", &dry, &labelled("allowed")).await.shown(), "201 ok");
        assert_eq!(user.send("POST", &dry, &map("b", json!({}))).await.shown(), "201 ok");
        let refused = user.send("POST", &dry, &labelled("b")).await;
        assert_eq!(refused.shown(), r#"422 configmaps "b" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"#);
        // Policies and reviews are never seen; webhook configurations are.
        let mut own = policy("q", all);
        own["metadata"]["labels"] = json!({"x": "y"});
        user.create(&create, &own).await;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "metadata": {"labels": {"x": "y"}}});
        user.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await;
        let hooks = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "h", "labels": {"x": "y"}}});
        let path = format!("{GROUP}/validatingwebhookconfigurations");
        assert_eq!(user.send("POST", &path, &hooks).await.code, 422);
    })
    .await;
}

#[tokio::test]
async fn deletes_are_reviewed_and_collections_name_no_object() {
    with_user(plane(), async |user, _| {
        user.create(MAPS, &map("a", json!({"keep": "1"}))).await;
        let spec = json!({"matchConstraints": on(&["configmaps"], &["DELETE"]),
            "validations": [{"expression": "object == null && !has(oldObject.data.keep)", "message": "kept"}]});
        enforce(&user, "p", spec, json!({})).await;
        let with = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: kept";
        let refused = user.send("DELETE", &format!("{MAPS}/a"), &Value::Null).await;
        assert_eq!(refused.shown(), format!("422 {NAME}{with}"));
        let refused = user.send("DELETE", MAPS, &Value::Null).await;
        assert_eq!(refused.shown(), format!("422 configmaps \"Unknown\" is forbidden: {with}"));
    })
    .await;
}

#[tokio::test]
async fn params_are_found_by_name_label_and_namespace() {
    with_user(plane(), async |user, _| {
        let limit = |name: &str, max: &str| {
            let mut limit = map(name, json!({"max": max}));
            limit["metadata"]["labels"] = json!({"limit": "yes"});
            limit
        };
        user.create(MAPS, &limit("limit", "2")).await;
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": on(&["configmaps", "namespaces", "nodes"], &["CREATE"]),
            "validations": [{"expression": "params == null || size(object.?data.orValue({})) <= int(params.data.max)",
                "messageExpression": "'at most ' + params.data.max"}]});
        enforce(&user, "p", spec, json!({"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}})).await;
        let many = json!({"1": "", "2": "", "3": ""});
        assert!(dry(&user, many.clone()).await.shown().ends_with("denied request: at most 2"));
        assert_eq!(dry(&user, json!({})).await.shown(), "201 ok");
        // The namespace of the request has none.
        let elsewhere = "/api/v1/namespaces/kube-system/configmaps?dryRun=All";
        let missing = user.send("POST", elsewhere, &map("a", json!({}))).await;
        let start = "denied request: failed to configure binding: ";
        let none = "no params found for policy binding with `Deny` parameterNotFoundAction";
        assert!(missing.shown().ends_with(&format!("{start}{none}")), "{missing:?}");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        let refused = user.send("POST", "/api/v1/nodes?dryRun=All", &node).await.shown();
        let text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
        assert!(refused.ends_with(&format!("{start}{text}")), "{refused}");

        // All that a selector finds count; where there are none, the binding is skipped.
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        user.send("DELETE", &format!("{path}/p-binding"), &Value::Null).await.ok();
        let selected = json!({"paramRef": {"selector": {"matchLabels": {"limit": "yes"}},
            "namespace": "default", "parameterNotFoundAction": "Allow"}});
        user.create(&path, &binding("selected", "p", selected)).await;
        user.create(&path, &binding("without", "p", json!({}))).await;
        user.create(MAPS, &limit("other", "1")).await;
        settled(&user, "selected").await;
        let two = json!({"1": "", "2": ""});
        let answer = user.send("POST", elsewhere, &map("a", two.clone())).await;
        assert!(answer.shown().ends_with("denied request: at most 1"), "{answer:?}");
        for name in ["limit", "other"] {
            user.send("DELETE", &format!("{MAPS}/{name}"), &Value::Null).await.ok();
        }
        user.until("POST", elsewhere, &map("a", many), |answer| answer.code == 201).await;

        let spec = json!({"paramKind": {"apiVersion": "a.b/v1", "kind": "Zork"},
            "validations": [{"expression": "true"}]});
        enforce(&user, "z", spec, json!({})).await;
        assert_eq!(
            dry(&user, json!({})).await.shown(),
            format!("422 {NAME}ValidatingAdmissionPolicy 'z' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'a.b/v1, Kind=Zork'")
        );
    })
    .await;
}

#[tokio::test]
async fn policies_and_bindings_are_checked_when_they_are_written() {
    with_user(plane(), async |user, _| {
        let good = || policy("p", json!({"validations": [{"expression": "true"}]}));
        let path = format!("{GROUP}/validatingadmissionpolicies?dryRun=All");
        let made = user.create(&path, &good()).await;
        assert_eq!(
            made["spec"]["matchConstraints"],
            json!({"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
                "resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps"], "scope": "*"}]})
        );
        assert_eq!(made["spec"]["failurePolicy"], "Fail");
        type Edit = fn(&mut Value);
        let cases: [(Edit, &str); 12] = [
            (|s| s["validations"] = json!([]), "[spec.validations: Required value: validations or auditAnnotations must contain at least one item, spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item]"),
            (|s| s["matchConstraints"] = Value::Null, "spec.matchConstraints: Required value"),
            (|s| s["validations"][0]["expression"] = "request.foo == 1".into(), "spec.validations[0].expression: Invalid value: \"request.foo == 1\": compilation failed: ERROR: <input>:1:8: undefined field 'foo'"),
            (|s| s["validations"][0]["expression"] = "namespaceObject.metadata.managedFields == []".into(), "spec.validations[0].expression: Invalid value: \"namespaceObject.metadata.managedFields == []\": compilation failed: ERROR: <input>:1:25: undefined field 'managedFields'"),
            (|s| s["validations"][0]["expression"] = "params.x".into(), "spec.validations[0].expression: Invalid value: \"params.x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"),
            (|s| s["validations"][0]["messageExpression"] = "object.a".into(), "spec.validations[0].messageExpression: Invalid value: \"object.a\": must evaluate to string but got dyn"),
            (|s| s["validations"][0]["messageExpression"] = "authorizer.path('/').check('get').reason()".into(), "spec.validations[0].messageExpression: Invalid value: \"authorizer.path('/').check('get').reason()\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer'"),
            (|s| s["validations"][0]["reason"] = "Unauthorized".into(), "spec.validations[0].reason: Unsupported value: \"Unauthorized\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\""),
            (|s| s["auditAnnotations"] = json!([{"key": "k", "valueExpression": "object.a"}]), "spec.auditAnnotations[0].valueExpression: Invalid value: \"object.a\": must evaluate to one of [string null_type] but got dyn"),
            (|s| s["variables"] = json!([{"name": "a-b", "expression": "1"}]), "spec.variables[0].name: Invalid value: \"a-b\": must be a valid CEL identifier"),
            (|s| s["paramKind"] = json!({"apiVersion": "a/b/c", "kind": "X"}), "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c"),
            (|s| s["matchConditions"] = json!([{"name": "c", "expression": "1"}]), "spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int"),
        ];
        for (edit, text) in cases {
            let mut policy = good();
            edit(&mut policy["spec"]);
            let shown = user.send("POST", &path, &policy).await.shown();
            let start = "422 ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: ";
            assert!(shown.starts_with(&format!("{start}{text}")), "{shown}\n{text}");
        }
        let path = format!("{GROUP}/validatingadmissionpolicybindings?dryRun=All");
        let reference = || json!({"name": "x", "parameterNotFoundAction": "Deny"});
        let cases: [(Change<'_>, &str); 6] = [
            (&|s| s["policyName"] = "".into(), "spec.policyName: Required value"),
            (&|s| s["validationActions"] = json!([]), "spec.validationActions: Required value"),
            (&|s| s["validationActions"] = json!(["Deny", "Warn"]), "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn"),
            (&|s| s["validationActions"] = json!(["Shout"]), "spec.validationActions[0]: Unsupported value: \"Shout\": supported values: \"Audit\", \"Deny\", \"Warn\""),
            (&|s| { s["paramRef"] = reference(); s["paramRef"]["selector"] = json!({}); }, "[spec.paramRef.name: Forbidden: name and selector are mutually exclusive"),
            (&|s| { s["paramRef"] = json!({"name": "x"}); }, "spec.paramRef.parameterNotFoundAction: Required value"),
        ];
        for (edit, text) in cases {
            let mut binding = binding("b", "p", json!({}));
            edit(&mut binding["spec"]);
            let shown = user.send("POST", &path, &binding).await.shown();
            let start = "422 ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: ";
            assert!(shown.starts_with(&format!("{start}{text}")), "{shown}\n{text}");
        }
    })
    .await;
}

/// What an expression sees depends on what it is for.
#[tokio::test]
async fn conditions_have_no_namespace_and_texts_no_authorizer() {
    with_user(plane(), async |user, _| {
        let condition = json!([{"name": "c", "expression": "namespaceObject == null"}]);
        let spec = json!({"matchConditions": condition, "validations": [{
            "expression": "namespaceObject == null || !has(object.data.y)", "message": "own",
            "messageExpression": "authorizer.requestResource.check('get').reason() + 'x'",
        }]});
        let path = format!("{GROUP}/validatingadmissionpolicies?dryRun=All");
        let refused = user.send("POST", &path, &policy("no", spec.clone())).await;
        assert!(refused.shown().contains("undeclared reference to 'authorizer'"), "{refused:?}");
        let mut spec = spec;
        spec["validations"][0]["messageExpression"] = "variables.asked".into();
        spec["variables"] = json!([{"name": "asked", "expression": "authorizer.requestResource.check('get').reason() + 'x'"}]);
        enforce(&user, "a", spec, json!({})).await;
        let refused = dry(&user, json!({"y": "1"})).await;
        assert!(refused.shown().ends_with("denied request: own"), "{refused:?}");
        let annotation = json!([{"key": "k", "valueExpression": "authorizer.requestResource.check('get').reason()"}]);
        let named = json!([{"name": "c", "expression": "has(object.data.z)"}]);
        let spec = json!({"matchConditions": named, "validations": [{"expression": "true"}], "auditAnnotations": annotation});
        enforce(&user, "b", spec, json!({})).await;
        let refused = dry(&user, json!({"z": "2"})).await;
        assert!(refused.shown().ends_with("resulted in error: no such attribute(s): authorizer.requestResource"), "{refused:?}");
    })
    .await;
}

/// A variable is there although it has no value: whoever looks for it finds its error.
#[tokio::test]
async fn a_look_for_a_variable_finds_its_error() {
    with_user(plane(), async |user, _| {
        let variables = json!([{"name": "v", "expression": "object.data.missing"}]);
        let named = json!([{"name": "c", "expression": "object.metadata.name == 'a'"}]);
        let spec = json!({"matchConditions": named, "variables": variables,
            "validations": [{"expression": "has(variables.v)"}]});
        enforce(&user, "a", spec, json!({})).await;
        let refused = dry(&user, json!({"x": "1"})).await;
        assert!(
            refused
                .shown()
                .ends_with("composited variable \"v\" fails to evaluate: no such key: missing"),
            "{refused:?}"
        );
        assert_eq!(dry(&user, json!({"missing": "1"})).await.shown(), "201 ok");
    })
    .await;
}

/// As Kubernetes keeps them: without the owners of their fields.
#[tokio::test]
async fn params_of_built_in_kinds_have_no_owners_of_fields() {
    with_user(plane(), async |user, _| {
        user.create(MAPS, &map("limits", json!({"max": "1"}))).await;
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [
            {"expression": "params.kind == 'ConfigMap' && !has(params.metadata.managedFields)"},
            {"expression": "params.data.max == '1'"},
        ]});
        let bound = json!({"paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Deny"}});
        enforce(&user, "a", spec, bound).await;
        assert_eq!(dry(&user, json!({"x": "1"})).await.shown(), "201 ok");
    })
    .await;
}
