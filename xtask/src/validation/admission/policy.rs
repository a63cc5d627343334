//! Drawn policies, with their bindings and parameters.

use super::super::random::Random;
use super::SetUp;
use super::expression::{self, Scope};
use serde_json::{Map, Value, json};

/// The group of policies and of webhooks.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// The kinds of parameters.
pub(super) const PARAM_KINDS: [(&str, &str); 4] = [
    ("v1", "ConfigMap"),
    ("v1", "Namespace"),
    ("reads.example.com/v1", "Shape"),
    ("reads.example.com/v2", "Shape"),
];

fn param_kind(number: usize) -> Value {
    let (version, kind) = PARAM_KINDS[number % PARAM_KINDS.len()];
    json!({"apiVersion": version, "kind": kind})
}

/// What a policy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Validating,
    Mutating,
}

/// A policy with its binding, for a namespace.
pub(super) fn draw(random: &mut Random, form: Form, namespace: &str) -> Vec<SetUp> {
    let mut all = Vec::new();
    let mut scope = Scope::default();
    let mut spec = Map::new();
    scope.has_params = random.percent(35);
    if scope.has_params {
        let number = if random.percent(60) { 0 } else { random.below(PARAM_KINDS.len()) };
        scope.has_shared_params = PARAM_KINDS[number].1 == "Namespace";
        spec.insert("paramKind".into(), param_kind(number));
        all.extend(params(random, namespace));
    }
    for number in 0..random.below(3) {
        let expression = expression::value(random, &scope);
        let name = format!("v{number}");
        let variables = spec.entry("variables").or_insert_with(|| json!([]));
        if let Some(variables) = variables.as_array_mut() {
            variables.push(json!({"name": name, "expression": expression}));
        }
        scope.variables.push(name);
    }
    let conditions: Vec<Value> =
        (0..random.below(3).saturating_sub(usize::from(random.percent(40))))
            .map(|number| {
                // Variables are not there yet.
                let scope = Scope { variables: Vec::new(), ..scope.clone() };
                let expression = expression::condition(random, &scope);
                json!({"name": format!("c{number}"), "expression": expression})
            })
            .collect();
    if !conditions.is_empty() {
        spec.insert("matchConditions".into(), conditions.into());
    }
    if random.percent(40) {
        spec.insert("failurePolicy".into(), one(random, &["Fail", "Ignore"].map(Value::from)));
    }
    spec.insert("matchConstraints".into(), constraints(random, Some(namespace), true));
    match form {
        Form::Validating => validating(random, &scope, &mut spec),
        Form::Mutating => mutating(random, &scope, &mut spec),
    }
    let binding = binding(random, form, &scope, namespace);
    all.extend(objects(form, namespace, spec.into(), binding));
    all
}

/// A policy and its binding, which have the same name.
fn objects(form: Form, name: &str, spec: Value, binding: Value) -> [SetUp; 2] {
    let (kind, plural) = match form {
        Form::Validating => ("ValidatingAdmissionPolicy", "validatingadmissionpolic"),
        Form::Mutating => ("MutatingAdmissionPolicy", "mutatingadmissionpolic"),
    };
    let of = |kind: &str, plural: &str, spec: Value| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
            "spec": spec,
        });
        SetUp::new(format!("/apis/{GROUP}/v1/{plural}"), object)
    };
    let bindings = of(&format!("{kind}Binding"), &format!("{plural}ybindings"), binding);
    [of(kind, &format!("{plural}ies"), spec), bindings]
}

/// A policy that no request matches, with one of the kinds of parameters.
pub(super) fn of_nobody(form: Form, number: usize) -> [SetUp; 2] {
    let name = format!("nobody-{number}");
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"],
    });
    let nobody = json!({"matchLabels": {"example.com/nobody": "yes"}});
    let mut spec = json!({
        "paramKind": param_kind(number),
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": nobody},
    });
    let mut binding = json!({
        "policyName": name, "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"},
    });
    match form {
        Form::Validating => {
            spec["validations"] = json!([{"expression": "true"}]);
            binding["validationActions"] = json!(["Deny"]);
        }
        Form::Mutating => {
            spec["reinvocationPolicy"] = "Never".into();
            spec["mutations"] = json!([{
                "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"},
            }]);
        }
    }
    objects(form, &name, spec, binding)
}

fn validating(random: &mut Random, scope: &Scope, spec: &mut Map<String, Value>) {
    let validations: Vec<Value> = (0..=random.below(3))
        .map(|_| {
            let mut one = json!({"expression": expression::condition(random, scope)});
            if random.percent(25) {
                one["message"] = "it may not".into();
            }
            if random.percent(45) {
                one["messageExpression"] = expression::text(random, scope).into();
            }
            if random.percent(30) {
                let reasons = ["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"];
                one["reason"] = self::one(random, &reasons.map(Value::from));
            }
            one
        })
        .collect();
    spec.insert("validations".into(), validations.into());
    if random.percent(25) {
        let expression = expression::text(random, scope);
        spec.insert(
            "auditAnnotations".into(),
            json!([{"key": "note", "valueExpression": expression}]),
        );
    }
}

fn mutating(random: &mut Random, scope: &Scope, spec: &mut Map<String, Value>) {
    let mutations: Vec<Value> = (0..=random.below(3))
        .map(|_| match random.percent(50) {
            true => json!({
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": expression::mutation(random, scope)},
            }),
            false => json!({
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": expression::patch(random, scope)},
            }),
        })
        .collect();
    spec.insert("mutations".into(), mutations.into());
    let policy = one(random, &["Never", "IfNeeded"].map(Value::from));
    spec.insert("reinvocationPolicy".into(), policy);
}

/// Objects that may be parameters.
fn params(random: &mut Random, namespace: &str) -> Vec<SetUp> {
    let mut all = Vec::new();
    for number in 0..random.below(3) {
        let mut map = json!({
            "metadata": {"name": format!("limits-{number}"), "labels": {"env": (one(random, &["prod", "test"].map(Value::from)))}},
            "data": {"max": (one(random, &["1", "2", "x"].map(Value::from)))},
        });
        if random.percent(15) {
            map["data"].take();
        }
        let place = if random.percent(80) { namespace } else { "default" };
        if place == "default" {
            map["metadata"]["name"] = format!("limits-{number}-{namespace}").into();
        }
        all.push(SetUp::new(format!("/api/v1/namespaces/{place}/configmaps"), map));
    }
    if random.percent(40) {
        let shape = json!({
            "apiVersion": "reads.example.com/v1", "kind": "Shape",
            "metadata": {"name": "limits-0", "labels": {"env": "prod"}}, "spec": {"color": "red"},
        });
        let path = format!("/apis/reads.example.com/v1/namespaces/{namespace}/shapes");
        all.push(SetUp::new(path, shape));
    }
    all
}

fn binding(random: &mut Random, form: Form, scope: &Scope, namespace: &str) -> Value {
    let mut spec = json!({"policyName": namespace});
    if form == Form::Validating {
        let actions = one(
            random,
            &[
                json!(["Deny"]),
                json!(["Deny"]),
                json!(["Deny"]),
                json!(["Deny", "Audit"]),
                json!(["Warn"]),
                json!(["Warn", "Audit"]),
                json!(["Audit"]),
                json!(["Deny", "Warn"]),
                json!([]),
            ],
        );
        spec["validationActions"] = actions;
    }
    if scope.has_params != random.percent(6) {
        // Both servers have other Namespaces of other cases.
        let forms = if scope.has_shared_params { 7 } else { 10 };
        let mut params = match random.below(forms) {
            0..4 => json!({"name": "limits-0"}),
            4..6 => json!({"name": "limits-1"}),
            6 => json!({"name": namespace}),
            7 => json!({"selector": {}}),
            8 => json!({"selector": {"matchLabels": {"env": "prod"}}}),
            _ => {
                json!({"selector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}})
            }
        };
        if random.percent(85) {
            let action = one(random, &["Allow", "Deny"].map(Value::from));
            params["parameterNotFoundAction"] = action;
        }
        if random.percent(40) {
            params["namespace"] = one(random, &[namespace, "default"].map(Value::from));
        }
        spec["paramRef"] = params;
    }
    if random.percent(30) {
        spec["matchResources"] = constraints(random, None, false);
    }
    spec
}

/// What a policy or a binding matches. `namespace`: only there.
pub(super) fn constraints(random: &mut Random, namespace: Option<&str>, has_rules: bool) -> Value {
    let mut matches = json!({});
    if let Some(namespace) = namespace {
        matches["namespaceSelector"] =
            json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    } else if random.percent(50) {
        matches["namespaceSelector"] = selector(random, "env", &["prod", "test"]);
    }
    if random.percent(20) {
        matches["objectSelector"] = selector(random, "app", &["a", "b"]);
    }
    if has_rules || random.percent(40) {
        let rules: Vec<Value> = (0..=random.below(2)).map(|_| rule(random)).collect();
        matches["resourceRules"] = rules.into();
    }
    let mut excluded = Vec::new();
    if random.percent(15) {
        excluded.push(rule(random));
    }
    if namespace.is_some() {
        // Objects that the original creates for a Service, at the request of nobody, and what
        // other cases are made of.
        for (group, resource) in
            [("networking.k8s.io", "ipaddresses"), ("admissionregistration.k8s.io", "*")]
        {
            excluded.push(json!({
                "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }));
        }
    }
    if !excluded.is_empty() {
        matches["excludeResourceRules"] = excluded.into();
    }
    if random.percent(40) {
        matches["matchPolicy"] = one(random, &["Exact", "Equivalent"].map(Value::from));
    }
    matches
}

fn selector(random: &mut Random, key: &str, values: &[&str]) -> Value {
    let value = random.pick(values).copied().unwrap_or_default();
    match random.below(4) {
        0 => json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}),
        1 => json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [value]}]}),
        2 => json!({}),
        _ => json!({"matchLabels": {key: value}}),
    }
}

fn rule(random: &mut Random) -> Value {
    let (group, version, resources) = random
        .pick(&[
            ("*", "*", json!(["*"])),
            ("*", "*", json!(["*"])),
            ("*", "*", json!(["*/*"])),
            ("", "v1", json!(["configmaps", "pods"])),
            ("", "v1", json!(["pods", "pods/*"])),
            ("", "*", json!(["pods/status", "pods/eviction", "services"])),
            ("apps", "v1", json!(["deployments"])),
            ("apps", "*", json!(["deployments", "deployments/scale"])),
            ("*", "v1", json!(["*/scale", "*/status"])),
            ("reads.example.com", "v1", json!(["shapes"])),
            ("reads.example.com", "v2", json!(["shapes", "shapes/status"])),
            ("reads.example.com", "v1", json!(["*"])),
            ("", "v1", json!(["namespaces", "persistentvolumeclaims", "secrets"])),
        ])
        .cloned()
        .unwrap_or_default();
    let operations = one(
        random,
        &[
            json!(["*"]),
            json!(["CREATE", "UPDATE"]),
            json!(["CREATE", "UPDATE"]),
            json!(["CREATE", "UPDATE", "DELETE"]),
            json!(["DELETE"]),
            json!(["CREATE"]),
            json!(["UPDATE", "CONNECT"]),
        ],
    );
    let mut rule = json!({
        "apiGroups": [group], "apiVersions": [version], "resources": resources,
        "operations": operations,
    });
    if random.percent(20) {
        rule["scope"] = one(random, &["*", "Namespaced", "Cluster"].map(Value::from));
    }
    if random.percent(10) {
        rule["resourceNames"] = json!(["a"]);
    }
    rule
}

fn one(random: &mut Random, from: &[Value]) -> Value {
    random.pick(from).cloned().unwrap_or_default()
}
