//! Quotas.
use crate::kind::at::{At, check};
use crate::kind::resources::{is_of_quotas, quantities, quota_name};
use crate::kind::{Kind, Report, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use setpoint_object::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// ResourceQuota.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    validate,
    validate_status,
    warnings,
    cells: Some(cells),
    rules: "names of resources, amounts, scopes; immutable scopes; `status`",
    ..Kind::with_status("", "ResourceQuota", StatusMeta::All, "{}")
};

/// Amounts that are requested should be less than those that are allowed.
fn warnings(quota: &Value) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let of = |name: String| {
        let amount = Quantity::parse(hard.get(&name)?.as_str()?).ok()?;
        Some((name, amount))
    };
    let mut all = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let bare = || of(resource.to_owned()).filter(|_| matches!(resource, "cpu" | "memory"));
        let requested = of(format!("requests.{resource}")).or_else(bare);
        let Some((request, limit)) = requested.zip(of(format!("limits.{resource}"))) else {
            continue;
        };
        if request.1.compare(&limit.1).is_gt() {
            all.push(format!(
                "ResourceQuota {} ({}) should be less than {} ({})",
                request.0, request.1, limit.0, limit.1
            ));
        }
    }
    all
}

/// Groups of objects that a quota can be restricted to.
const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
/// Scopes that a pod is in or not, without further values.
const PLAIN_SCOPES: [&str; 5] =
    ["BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"];

/// Validates a quota: amounts of known resources, and scopes that go together and never change.
fn validate(quota: &Value, old: Option<&Value>, errors: &mut Report) {
    check(quota, old, errors, |at| {
        let spec = at.get("spec");
        quantities(&spec.get("hard"), quota_name);
        let scopes = spec.get("scopes");
        let names: Vec<&str> = spec.texts_of("scopes").collect();
        let unfit = Unfit::of(&spec);
        for scope in &names {
            if !SCOPES.contains(scope) {
                scopes.invalid("unsupported scope");
            }
            for _ in (0..unfit.resources(scope)).take_while(|_| !scopes.is_full()) {
                scopes.invalid("unsupported scope applied to resource");
            }
        }
        for _ in 0..conflicts(&names) {
            scopes.invalid("conflicting scopes");
        }
        selector(&spec, &unfit);
    });
    let Some(old) = old else { return };
    let set = |quota: &Value| -> HashSet<String> {
        let scopes = crate::kind::list(&quota["spec"], "scopes").iter();
        scopes.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(quota) != set(old) {
        check(quota, None, errors, |at| at.get("spec.scopes").invalid("field is immutable"));
    }
}
/// For each scope, the number of limited resources that it does not make sense for. The API reports
/// each of them.
struct Unfit(HashMap<&'static str, usize>);
impl Unfit {
    fn of(spec: &At<'_, '_>) -> Self {
        Self(SCOPES.into_iter().map(|scope| (scope, unfit(spec, scope))).collect())
    }
    /// An unknown scope makes sense for every resource.
    fn resources(&self, scope: &str) -> usize {
        self.0.get(scope).copied().unwrap_or(0)
    }
}
fn unfit(spec: &At<'_, '_>, scope: &str) -> usize {
    const COMPUTE: [&str; 7] =
        ["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    let resources: &[&str] = match scope {
        "BestEffort" => &COMPUTE[..1],
        "VolumeAttributesClass" => &["persistentvolumeclaims", "requests.storage"],
        _ => &COMPUTE,
    };
    let limited = spec.get("hard").value.as_object().into_iter().flatten();
    let is_unfit = |name: &str| is_of_quotas(name) && !resources.contains(&name);
    limited.filter(|(name, _)| is_unfit(name)).count()
}
/// The number of pairs of scopes that exclude each other.
fn conflicts(scopes: &[&str]) -> usize {
    const PAIRS: [[&str; 2]; 2] =
        [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    PAIRS.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}
fn selector(spec: &At<'_, '_>, unfit: &Unfit) {
    let selector = spec.get("scopeSelector");
    let list = selector.get("matchExpressions");
    let mut names = Vec::new();
    for item in list.items() {
        let scope = item.text_of("scopeName");
        // The API's paths lack the index.
        let at = |member: &'static str| (member, item.get(member).value);
        let place = |(member, value)| list.shown_as(member, value);
        if !SCOPES.contains(&scope) {
            place(at("scopeName")).invalid("unsupported scope");
        }
        for _ in (0..unfit.resources(scope)).take_while(|_| !list.is_full()) {
            list.invalid_as(selector.value, "unsupported scope applied to resource");
        }
        let (operator, values) = (place(at("operator")), place(at("values")));
        if PLAIN_SCOPES.contains(&scope) && operator.text() != "Exists" {
            operator.invalid("must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        match operator.text() {
            "In" | "NotIn" => {
                values.need_for("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector");
            }
            "Exists" | "DoesNotExist" => {
                if values.len() > 0 {
                    values.invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector");
                }
            }
            _ => operator.invalid("not a valid selector operator"),
        }
        names.push(scope);
    }
    for _ in 0..conflicts(&names) {
        list.invalid_as(spec.get("scopes").value, "conflicting scopes");
    }
}

fn validate_status(quota: &Value, old: Option<&Value>, errors: &mut Report) {
    check(quota, old, errors, |at| {
        for member in ["hard", "used"] {
            quantities(&at.get("status").get(member), quota_name);
        }
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut hard: Vec<&String> = cell::at(object, "status.hard")
        .as_object()
        .into_iter()
        .flat_map(|hard| hard.keys())
        .collect();
    hard.sort_unstable();
    for resource in hard {
        // Resource names contain dots, so they cannot be part of a path.
        let of = |path: &str| match cell::at(object, path).get(resource) {
            Some(Value::String(amount)) => amount.clone(),
            Some(other) => other.to_string(),
            None => "0".to_owned(),
        };
        let entry = format!("{resource}: {}/{}", of("status.used"), of("status.hard"));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![
        cell::name(object),
        requests.join(", ").into(),
        limits.join(", ").into(),
        cell::age(object, now),
    ]
}
