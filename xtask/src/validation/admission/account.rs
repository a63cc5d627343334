//! Drawn quotas and ranges, and namespaces that say what plugins do with their pods.

use super::super::random::Random;
use super::SetUp;
use serde_json::{Map, Value, json};

/// What a quota may count, with limits that are small.
const COUNTED: &[(&str, &[&str])] = &[
    ("pods", &["0", "1", "2", "3"]),
    ("count/pods", &["1", "2"]),
    ("configmaps", &["1", "2"]),
    ("count/configmaps", &["1", "2", "0"]),
    ("secrets", &["1"]),
    ("services", &["1", "2"]),
    ("services.nodeports", &["0", "1", "2"]),
    ("services.loadbalancers", &["0", "1"]),
    ("persistentvolumeclaims", &["1", "2"]),
    ("requests.storage", &["1Gi", "3Gi"]),
    ("fast.storageclass.storage.k8s.io/requests.storage", &["1Gi"]),
    ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", &["1"]),
    ("cpu", &["500m", "1", "2"]),
    ("requests.cpu", &["500m", "1"]),
    ("limits.cpu", &["1", "2"]),
    ("memory", &["64Mi", "1Gi"]),
    ("requests.memory", &["64Mi", "1Gi"]),
    ("limits.memory", &["128Mi", "1Gi"]),
    ("requests.ephemeral-storage", &["1Gi"]),
    ("limits.ephemeral-storage", &["1Gi"]),
    ("requests.example.com/gpu", &["1", "2"]),
    ("requests.hugepages-2Mi", &["4Mi"]),
    ("hugepages-2Mi", &["4Mi"]),
    ("count/deployments.apps", &["0", "1"]),
    ("count/shapes.reads.example.com", &["1", "2"]),
    ("count/services", &["1"]),
    ("replicationcontrollers", &["1"]),
];

/// What a quota counts of the pods of a scope.
const OF_PODS: &[(&str, &[&str])] = &[
    ("pods", &["0", "1", "2"]),
    ("cpu", &["500m", "1"]),
    ("requests.memory", &["64Mi"]),
    ("limits.cpu", &["1"]),
];

/// One to three quotas.
pub(super) fn quotas(random: &mut Random, namespace: &str) -> Vec<SetUp> {
    let more = if random.percent(25) { random.below(3) } else { 0 };
    (0..=more)
        .map(|number| {
            let scopes = scopes(random);
            let is_best_effort = scopes.to_string().contains("BestEffort");
            let from = match scopes.is_null() {
                true => COUNTED,
                false if is_best_effort && random.percent(80) => &OF_PODS[..1],
                false => OF_PODS,
            };
            let mut hard = Map::new();
            for _ in 0..=random.below(3) {
                if let Some((name, limits)) = random.pick(from) {
                    let limit = random.pick(limits).copied().unwrap_or_default();
                    hard.insert((*name).to_owned(), limit.into());
                }
            }
            let mut spec = json!({"hard": hard});
            if let Some(scopes) = scopes.as_object() {
                for (name, value) in scopes {
                    spec[name] = value.clone();
                }
            }
            let zero = |hard: &Map<String, Value>| -> Value {
                hard.keys().map(|name| (name.clone(), "0".into())).collect::<Map<_, _>>().into()
            };
            let mut status = json!({"hard": hard, "used": zero(&hard)});
            if random.percent(10) {
                status["used"] = json!({});
            }
            let object = json!({
                "apiVersion": "v1", "kind": "ResourceQuota",
                "metadata": {"name": format!("q{number}")}, "spec": spec,
            });
            let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
            // Of one that nothing was counted for yet.
            let status = (!random.percent(5)).then_some(status);
            SetUp { path, body: object, status }
        })
        .collect()
}

fn scopes(random: &mut Random) -> Value {
    let class = ["low", "high"][random.below(2)];
    match random.below(16) {
        0 => json!({"scopes": ["BestEffort"]}),
        1 => json!({"scopes": ["NotBestEffort"]}),
        2 => json!({"scopes": ["Terminating"]}),
        3 => json!({"scopes": ["NotTerminating", "NotBestEffort"]}),
        4 => json!({"scopes": ["CrossNamespacePodAffinity"]}),
        5 => {
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [class]}]}})
        }
        6 => {
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": [class]}]}})
        }
        7 => {
            json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}})
        }
        _ => Value::Null,
    }
}

/// A range. Of several, the original asks one by chance first.
pub(super) fn ranges(random: &mut Random, namespace: &str) -> Vec<SetUp> {
    let limits: Vec<Value> = (0..=random.below(4)).map(|_| limit(random)).collect();
    let object = json!({
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"name": "r"}, "spec": {"limits": limits},
    });
    vec![SetUp::new(format!("/api/v1/namespaces/{namespace}/limitranges"), object)]
}

fn limit(random: &mut Random) -> Value {
    let ty = ["Container", "Container", "Pod", "PersistentVolumeClaim"][random.below(4)];
    if ty == "PersistentVolumeClaim" {
        return match random.below(3) {
            0 => json!({"type": ty, "max": {"storage": "2Gi"}}),
            1 => json!({"type": ty, "min": {"storage": "2Gi"}}),
            _ => json!({"type": ty, "min": {"storage": "1Gi"}, "max": {"storage": "1Gi"}}),
        };
    }
    let (name, [low, middle, high]) = random
        .pick(&[
            ("cpu", ["100m", "500m", "1"]),
            ("memory", ["32Mi", "64Mi", "1Gi"]),
            ("example.com/gpu", ["1", "1", "2"]),
            ("ephemeral-storage", ["1Mi", "1Gi", "2Gi"]),
        ])
        .copied()
        .unwrap_or_default();
    let mut limit = json!({"type": ty});
    if random.percent(50) {
        limit["min"] = json!({name: low});
    }
    if random.percent(50) {
        limit["max"] = json!({name: high});
    }
    if random.percent(25) {
        limit["maxLimitRequestRatio"] = json!({name: (["1", "2", "1500m"][random.below(3)])});
    }
    if ty == "Container" {
        if random.percent(40) {
            limit["default"] = json!({name: middle});
        }
        if random.percent(40) {
            limit["defaultRequest"] =
                json!({name: (if random.percent(50) { low } else { middle })});
        }
    }
    limit
}

/// Annotations and labels of a namespace that plugins look at.
pub(super) fn of_pods(random: &mut Random) -> (Value, Value) {
    let (mut labels, mut annotations) = (json!({}), json!({}));
    for mode in ["enforce", "warn", "audit"] {
        if random.percent(40) {
            let level = ["privileged", "baseline", "restricted", "other"][random.below(4)];
            labels[format!("pod-security.kubernetes.io/{mode}")] = level.into();
            if random.percent(30) {
                let version = ["latest", "v1.24", "v1.0", "v1.99", "1.24"][random.below(5)];
                labels[format!("pod-security.kubernetes.io/{mode}-version")] = version.into();
            }
        }
    }
    let texts: [(&str, &[&str]); 3] = [
        ("node-selector", &["a=b", "a=b,c=d", "", "a", "a=c"]),
        (
            "defaultTolerations",
            &[
                r#"[{"key":"a","operator":"Exists"}]"#,
                r#"[{"key":"b","operator":"Equal","value":"x","effect":"NoSchedule"},{"key":"a","operator":"Exists"}]"#,
                "[]",
                "x",
                "",
            ],
        ),
        (
            "tolerationsWhitelist",
            &[
                r#"[{"key":"a","operator":"Exists"}]"#,
                r#"[{"operator":"Exists"}]"#,
                "[]",
                "{}",
                r#"[{"key":"b","operator":"Exists","effect":"NoSchedule"},{"operator":"Exists","effect":"NoExecute"}]"#,
            ],
        ),
    ];
    for (name, values) in texts {
        if random.percent(35) {
            let value = random.pick(values).copied().unwrap_or_default();
            annotations[format!("scheduler.alpha.kubernetes.io/{name}")] = value.into();
        }
    }
    (labels, annotations)
}
