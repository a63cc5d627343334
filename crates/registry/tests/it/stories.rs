//! Patches and applies on built-in kinds as users see them: bodies in YAML, with defaulting in
//! between, as in the API server.

use expect_test::{Expect, expect};
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use setpoint_registry::kind;
use setpoint_schema::apply::{self, Manager, Typing};
use setpoint_schema::decode::{self, Format};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, patch};
use std::collections::BTreeSet;
use std::time::Duration;

/// One stored object of a kind.
struct Stored {
    group: &'static str,
    kind: &'static str,
    schema: TypeSchema,
    object: Option<Value>,
    seconds: u64,
}

impl Stored {
    fn new(group: &'static str, kind: &'static str) -> Self {
        let schema = builtin::type_schema(group, "v1", kind).expect("a built-in kind");
        Self { group, kind, schema, object: None, seconds: 0 }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    fn body(&self, yaml: &str) -> Value {
        let text = format!("apiVersion: {}\nkind: {}\n{yaml}", self.api_version(), self.kind);
        decode::parse(text.as_bytes(), Format::Yaml).expect("the body is YAML").value
    }

    fn with_manager<T>(&self, name: &str, act: impl FnOnce(&Typing<'_>, &Manager<'_>) -> T) -> T {
        let reset: BTreeSet<&str> = ["status"].into();
        let typing = Typing {
            schema: &self.schema,
            kind: self.kind,
            reset: &reset,
            custom: false,
            versions: &[],
            others: None,
        };
        let now = Timestamp(Duration::from_secs(self.seconds));
        let api_version = self.api_version();
        act(&typing, &Manager { name, api_version: &api_version, subresource: "", now })
    }

    /// Decodes and defaults, as every write does.
    fn settle(&self, object: &mut Value) {
        decode::conform(&self.schema, self.kind, object, &mut Vec::new())
            .expect("the object fits its type");
        kind::fill_defaults(self.group, "v1", self.kind, &self.schema, object);
    }

    fn try_apply(&mut self, who: &str, yaml: &str, force: bool) -> Result<(), ApiError> {
        self.seconds += 1;
        let config = self.body(yaml);
        let mut object = self
            .with_manager(who, |typing, manager| {
                apply::apply(typing, self.object.as_ref(), &config, manager, force)
            })?
            .object;
        self.settle(&mut object);
        apply::settle_times(self.object.as_ref(), &mut object);
        self.object = Some(object);
        Ok(())
    }

    fn apply(mut self, who: &str, yaml: &str) -> Self {
        self.try_apply(who, yaml, false).expect("nobody else owns what is changed");
        self
    }

    fn update(mut self, who: &str, change: impl FnOnce(&mut Value)) -> Self {
        self.seconds += 1;
        let mut object = self.object.clone().expect("it was created");
        change(&mut object);
        self.settle(&mut object);
        self.with_manager(who, |typing, manager| {
            apply::update(typing, self.object.as_ref(), &mut object, manager);
        });
        self.object = Some(object);
        self
    }

    /// A strategic merge patch in YAML.
    fn patch(self, who: &str, yaml: &str) -> Self {
        let body = decode::parse(yaml.as_bytes(), Format::Yaml).expect("the patch is YAML");
        let schema = self.schema.clone();
        self.update(who, |object| {
            let body = body.value.to_string();
            patch::strategic_merge_patch(&schema, object, body.as_bytes(), &mut Vec::new())
                .expect("the patch fits");
        })
    }

    fn get(&self, pointer: &str) -> String {
        let found = self.object.as_ref().and_then(|object| object.pointer(pointer));
        found.map_or_else(|| "absent".to_owned(), Value::to_string)
    }

    fn shows(&self, pointer: &str, expect: Expect) {
        expect.assert_eq(&self.get(pointer));
    }

    fn managers(&self) -> String {
        let entries = self.object.as_ref().and_then(|o| o.pointer("/metadata/managedFields"));
        let entries = entries.and_then(Value::as_array).into_iter().flatten();
        let names = entries.map(|entry| {
            let part = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            format!("{} {}", part("manager"), part("operation"))
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

const WEB: &str = "
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        ports: [{containerPort: 80}]
        env: [{name: A, value: '1'}, {name: B, value: '2'}]
";

fn web() -> Stored {
    Stored::new("apps", "Deployment").apply("gitops", WEB)
}

#[test]
fn a_second_identical_apply_leaves_the_object_as_it_is() {
    let first = web();
    let before = first.object.clone();
    assert_eq!(first.apply("gitops", WEB).object, before);
}

#[test]
fn an_autoscaler_owns_the_replicas_once_the_applier_drops_them() {
    let without = WEB.replace("  replicas: 3\n", "");
    let mut deployment = web().update("hpa", |object| object["spec"]["replicas"] = 7.into());
    let refused = deployment.try_apply("gitops", WEB, false).expect_err("hpa owns the replicas");
    expect![[r#"Apply failed with 1 conflict: conflict with "hpa" using apps/v1: .spec.replicas"#]]
        .assert_eq(&refused.0.message);
    let deployment = deployment.apply("gitops", &without);
    deployment.shows("/spec/replicas", expect!["7"]);
}

#[test]
fn a_field_that_is_dropped_gets_its_default_back() {
    let deployment = web().apply("gitops", &WEB.replace("  replicas: 3\n", ""));
    deployment.shows("/spec/replicas", expect!["1"]);
}

#[test]
fn a_sidecar_of_another_manager_survives_applies() {
    let sidecar = "
metadata: {name: web}
spec: {template: {spec: {containers: [{name: proxy, image: 'proxy:1'}]}}}
";
    let deployment = web().apply("mesh", sidecar).apply("gitops", &WEB.replace("web:1", "web:2"));
    deployment.shows("/spec/template/spec/containers/0/image", expect![[r#""web:2""#]]);
    deployment.shows("/spec/template/spec/containers/1/image", expect![[r#""proxy:1""#]]);
    let deployment = deployment.apply("mesh", "metadata: {name: web}");
    deployment.shows("/spec/template/spec/containers/1", expect!["absent"]);
}

#[test]
fn an_environment_variable_is_removed_when_the_applier_drops_it() {
    let deployment = web().apply("gitops", &WEB.replace(", {name: B, value: '2'}", ""));
    deployment
        .shows("/spec/template/spec/containers/0/env", expect![[r#"[{"name":"A","value":"1"}]"#]]);
}

#[test]
fn an_image_set_by_hand_conflicts_with_the_next_apply_until_forced() {
    let by_hand = "spec: {template: {spec: {containers: [{name: web, image: 'web:hotfix'}]}}}";
    let mut deployment = web().patch("kubectl-set", by_hand);
    let newer = WEB.replace("web:1", "web:2");
    let refused = deployment.try_apply("gitops", &newer, false).expect_err("it was set by hand");
    expect![[
        r#"Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.template.spec.containers[name="web"].image"#
    ]]
    .assert_eq(&refused.0.message);
    deployment.try_apply("gitops", &newer, true).expect("force wins");
    deployment.shows("/spec/template/spec/containers/0/image", expect![[r#""web:2""#]]);
    expect!["gitops Apply"].assert_eq(&deployment.managers());
}

#[test]
fn a_label_of_two_appliers_is_removed_when_the_last_one_drops_it() {
    let label = "metadata: {name: web, labels: {team: x}}";
    let deployment = web().apply("a", label).apply("b", label).apply("a", "metadata: {name: web}");
    deployment.shows("/metadata/labels", expect![[r#"{"app":"web","team":"x"}"#]]);
    let deployment = deployment.apply("b", "metadata: {name: web}");
    deployment.shows("/metadata/labels", expect![[r#"{"app":"web"}"#]]);
}

#[test]
fn kubectl_apply_replaces_a_container_and_keeps_the_rest() {
    let deployment = web().patch(
        "kubectl-client-side-apply",
        "
spec:
  template:
    spec:
      $setElementOrder/containers: [{name: api}]
      containers: [{name: api, image: 'api:1'}, {$patch: delete, name: web}]
",
    );
    let containers = deployment.get("/spec/template/spec/containers/0/name");
    assert_eq!(containers, r#""api""#);
    deployment.shows("/spec/template/spec/containers/1", expect!["absent"]);
    deployment.shows("/spec/replicas", expect!["3"]);
}

#[test]
fn a_strategy_patched_to_recreate_loses_its_rolling_update() {
    let deployment = web();
    assert_ne!(deployment.get("/spec/strategy/rollingUpdate"), "absent");
    let deployment =
        deployment.patch("kubectl", "spec: {strategy: {$retainKeys: [type], type: Recreate}}");
    deployment.shows("/spec/strategy", expect![[r#"{"type":"Recreate"}"#]]);
}

#[test]
fn replicas_patched_to_null_are_the_default() {
    let deployment = web().patch("kubectl", "spec: {replicas: null}");
    deployment.shows("/spec/replicas", expect!["1"]);
}

#[test]
fn conditions_of_a_pod_are_patched_by_type() {
    let pod = Stored::new("", "Pod")
        .apply("me", "metadata: {name: p}\nspec: {containers: [{name: c, image: i}]}")
        .update("kubelet", |object| {
            object["status"]["conditions"] = serde_json::json!([
                {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}
            ]);
        })
        .patch(
            "readiness",
            "status: {conditions: [{type: Ready, status: 'True'}, {type: Gate, status: 'True'}]}",
        );
    let types: Vec<String> =
        (0..3).map(|at| pod.get(&format!("/status/conditions/{at}/type"))).collect();
    expect![[r#""Initialized" "Ready" "Gate""#]].assert_eq(&types.join(" "));
    pod.shows("/status/conditions/1/status", expect![[r#""True""#]]);
}

#[test]
fn an_ephemeral_volume_replaces_a_volume_source_when_keys_are_retained() {
    let pod = Stored::new("", "Pod")
        .apply(
            "me",
            "metadata: {name: p}\nspec: {containers: [{name: c, image: i}], volumes: [{name: v, hostPath: {path: /x}}]}",
        )
        .patch("kubectl", "spec: {volumes: [{name: v, emptyDir: {}, $retainKeys: [name, emptyDir]}]}");
    pod.shows("/spec/volumes", expect![[r#"[{"emptyDir":{},"name":"v"}]"#]]);
}

const DNS: &str = "
metadata: {name: dns}
spec:
  selector: {app: dns}
  ports: [{name: tcp, port: 53}, {name: udp, port: 53, protocol: UDP}]
";

#[test]
fn ports_with_the_same_number_are_distinct_for_apply_and_not_for_patches() {
    let service = Stored::new("", "Service").apply("gitops", DNS);
    service.shows(
        "/spec/ports",
        expect![[
            r#"[{"name":"tcp","port":53,"protocol":"TCP","targetPort":53},{"name":"udp","port":53,"protocol":"UDP","targetPort":53}]"#
        ]],
    );
    let applied = Stored { object: service.object.clone(), ..Stored::new("", "Service") }.apply(
        "gitops",
        &DNS.replace("{name: udp, port: 53", "{name: udp, targetPort: 5353, port: 53"),
    );
    applied.shows("/spec/ports/0/targetPort", expect!["53"]);
    applied.shows("/spec/ports/1/targetPort", expect!["5353"]);
    // The first port with that number is changed, whatever its protocol.
    let patched =
        service.patch("kubectl", "spec: {ports: [{port: 53, protocol: UDP, targetPort: 5353}]}");
    patched.shows(
        "/spec/ports",
        expect![[
            r#"[{"name":"tcp","port":53,"protocol":"UDP","targetPort":5353},{"name":"udp","port":53,"protocol":"UDP","targetPort":53}]"#
        ]],
    );
}

#[test]
fn a_selector_is_one_value() {
    let mut service = Stored::new("", "Service").apply("gitops", DNS);
    let other = "metadata: {name: dns}\nspec: {selector: {tier: x}}";
    let refused = service.try_apply("other", other, false).expect_err("the selector is owned");
    expect![[r#"Apply failed with 1 conflict: conflict with "gitops": .spec.selector"#]]
        .assert_eq(&refused.0.message);
    service.try_apply("other", other, true).expect("force wins");
    service.shows("/spec/selector", expect![[r#"{"tier":"x"}"#]]);
}
