//! Kinds with a rule or two: namespaces, volumes, budgets, roles, leases, ingresses, autoscalers, priority classes, certificate requests.
use super::Context;
use super::pod::{list, not_negative, text};
use super::workload::validate_label_selector;
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;

/// The highest value of a PriorityClass that is not the system's: one billion, as Kubernetes' `HighestUserDefinablePriority`.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;
/// The classes that carry the reserved prefix.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// A namespace has its name as a label: by default, so that its writer owns it.
pub(crate) fn name_label(namespace: &mut Value) {
    let name = namespace.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = namespace.meta_mut().entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name.into();
}
/// A namespace has its finalizer from the start and its name as a label always.
pub(super) fn prepare_namespace(_: &Context<'_>, namespace: &mut Value, old: Option<&Value>) {
    name_label(namespace);
    match old {
        Some(old) => namespace["spec"] = old["spec"].clone(),
        None => {
            if !namespace["spec"].is_object() {
                namespace["spec"] = json!({});
            }
            let finalizers = &mut namespace["spec"]["finalizers"];
            if !finalizers.is_array() {
                *finalizers = json!([]);
            }
            if let Some(finalizers) = finalizers.as_array_mut()
                && !finalizers.contains(&json!("kubernetes"))
            {
                finalizers.push("kubernetes".into());
            }
        }
    }
}
/// The first DELETE of a namespace: its contents go before it does.
pub(super) fn mark_namespace(_: &Context<'_>, namespace: &mut Value) {
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = "Terminating".into();
}
/// A volume tells when its phase began.
pub(super) fn prepare_volume(context: &Context<'_>, volume: &mut Value, old: Option<&Value>) {
    if old.is_none() {
        volume["status"]["lastPhaseTransitionTime"] = context.now.rfc3339().into();
    }
}
/// Claims: something to claim; nearly nothing may change.
pub(super) fn validate_claim(claim: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let path = field::Path::new("spec");
    let spec = &claim["spec"];
    if let Some(old) = old {
        let rest = |claim: &Value| {
            let mut spec = claim["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("volumeAttributesClassName");
                spec.remove("resources");
                // A binder names the volume once.
                if old["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
                    spec.remove("volumeName");
                }
            }
            spec
        };
        if rest(claim) != rest(old) {
            errors.push(field::Error::forbidden(
                path,
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n",
            ));
        }
        return;
    }
    if list(spec, "accessModes").is_empty() {
        errors.push(field::Error::required(
            path.child("accessModes"),
            "at least 1 access mode is required",
        ));
    }
    if spec["resources"]["requests"].get("storage").is_none() {
        errors.push(field::Error::required(path.child("resources").key("storage"), ""));
    }
}
/// Budgets: one of two bounds.
pub(super) fn validate_budget(
    budget: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &budget["spec"];
    if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
        errors.push(field::Error::invalid(
            path.clone(),
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        ));
    }
    for member in ["minAvailable", "maxUnavailable"] {
        not_negative(spec, member, &path, errors);
    }
    if let Some(selector) = spec.get("selector") {
        validate_label_selector(selector, &path.child("selector"), errors);
    }
}
/// Roles and bindings.
pub(super) fn validate_rbac(object: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let kind = text(object, "kind");
    if kind.ends_with("Role") {
        for (i, rule) in list(object, "rules").iter().enumerate() {
            validate_rule(rule, kind == "Role", &field::Path::new("rules").index(i), errors);
        }
        return;
    }
    let path = field::Path::new("roleRef");
    let role = &object["roleRef"];
    if text(role, "apiGroup") != "rbac.authorization.k8s.io" {
        errors.push(field::Error::not_supported(
            path.child("apiGroup"),
            &text(role, "apiGroup").into(),
            &["rbac.authorization.k8s.io"],
        ));
    }
    let kinds: &[&str] =
        if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.push(field::Error::not_supported(
            path.child("kind"),
            &text(role, "kind").into(),
            kinds,
        ));
    }
    if text(role, "name").is_empty() {
        errors.push(field::Error::required(path.child("name"), ""));
    }
    for (i, subject) in list(object, "subjects").iter().enumerate() {
        let path = field::Path::new("subjects").index(i);
        if text(subject, "name").is_empty() {
            errors.push(field::Error::required(path.child("name"), ""));
        }
        match text(subject, "kind") {
            "ServiceAccount" if text(subject, "namespace").is_empty() && kind != "RoleBinding" => {
                errors.push(field::Error::required(path.child("namespace"), ""));
            }
            "ServiceAccount" | "User" | "Group" => {}
            other => errors.push(field::Error::not_supported(
                path.child("kind"),
                &other.into(),
                &["ServiceAccount", "User", "Group"],
            )),
        }
    }
    if old.is_some_and(|old| old["roleRef"] != object["roleRef"]) {
        errors.push(field::Error::invalid(path, role, "cannot change roleRef"));
    }
}
fn validate_rule(
    rule: &Value,
    is_namespaced: bool,
    path: &field::Path,
    errors: &mut Vec<field::Error>,
) {
    if list(rule, "verbs").is_empty() {
        errors.push(field::Error::required(
            path.child("verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !list(rule, "nonResourceURLs").is_empty() {
        if is_namespaced {
            errors.push(field::Error::invalid(
                path.child("nonResourceURLs"),
                &rule["nonResourceURLs"],
                "namespaced rules cannot apply to non-resource URLs",
            ));
        }
        if !list(rule, "apiGroups").is_empty() || !list(rule, "resources").is_empty() {
            errors.push(field::Error::invalid(
                path.child("nonResourceURLs"),
                &rule["nonResourceURLs"],
                "rules cannot apply to both regular resources and non-resource URLs",
            ));
        }
        return;
    }
    for (member, message) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if list(rule, member).is_empty() {
            errors.push(field::Error::required(path.child(member), message));
        }
    }
}
/// Leases: positive durations.
pub(super) fn validate_lease(lease: &Value, _old: Option<&Value>, errors: &mut Vec<field::Error>) {
    let path = field::Path::new("spec");
    let spec = &lease["spec"];
    if let Some(seconds) =
        spec.get("leaseDurationSeconds").and_then(Value::as_i64).filter(|s| *s <= 0)
    {
        errors.push(field::Error::invalid(
            path.child("leaseDurationSeconds"),
            &seconds.into(),
            "must be greater than 0",
        ));
    }
    not_negative(spec, "leaseTransitions", &path, errors);
}
/// Ingresses: where to, and how paths match.
pub(super) fn validate_ingress(
    ingress: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &ingress["spec"];
    if list(spec, "rules").is_empty() && spec.get("defaultBackend").is_none() {
        errors.push(field::Error::invalid(
            path.clone(),
            spec,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        let path = path.child("rules").index(i).child("http.paths");
        let Some(http) = rule.get("http") else { continue };
        if list(http, "paths").is_empty() {
            errors.push(field::Error::required(path.clone(), ""));
        }
        for (j, entry) in list(http, "paths").iter().enumerate() {
            let path = path.index(j);
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            match text(entry, "pathType") {
                "" => errors.push(field::Error::required(
                    path.child("pathType"),
                    "pathType must be specified",
                )),
                kind if !supported.contains(&kind) => {
                    errors.push(field::Error::not_supported(
                        path.child("pathType"),
                        &kind.into(),
                        &supported,
                    ));
                }
                "ImplementationSpecific" if text(entry, "path").is_empty() => {}
                _ if !text(entry, "path").starts_with('/') => errors.push(field::Error::invalid(
                    path.child("path"),
                    &text(entry, "path").into(),
                    "must be an absolute path",
                )),
                _ => {}
            }
            let service = entry["backend"].get("service");
            if service.is_none() && entry["backend"].get("resource").is_none() {
                errors.push(field::Error::required(
                    path.child("backend"),
                    "resource or service backend is required",
                ));
            } else if service.is_some_and(|s| text(s, "name").is_empty()) {
                errors.push(field::Error::required(path.child("backend.service.name"), ""));
            }
        }
    }
}
/// Autoscalers: bounds and a target.
pub(super) fn validate_autoscaler(
    autoscaler: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let path = field::Path::new("spec");
    let spec = &autoscaler["spec"];
    let (min, max) =
        (spec["minReplicas"].as_i64().unwrap_or(1), spec["maxReplicas"].as_i64().unwrap_or(0));
    if min < 1 {
        errors.push(field::Error::invalid(
            path.child("minReplicas"),
            &min.into(),
            "must be greater than or equal to 1",
        ));
    }
    if max < 1 {
        errors.push(field::Error::invalid(
            path.child("maxReplicas"),
            &max.into(),
            "must be greater than 0",
        ));
    }
    if max < min {
        errors.push(field::Error::invalid(
            path.child("maxReplicas"),
            &max.into(),
            "must be greater than or equal to `minReplicas`",
        ));
    }
    let target = &spec["scaleTargetRef"];
    for member in ["kind", "name"] {
        if text(target, member).is_empty() {
            errors.push(field::Error::required(path.child("scaleTargetRef").child(member), ""));
        }
    }
}
/// Priority classes: bounded, and not another value tomorrow.
pub(super) fn validate_priority_class(
    class: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let value = class["value"].as_i64().unwrap_or(0);
    let name = class.name();
    let system = SYSTEM_CLASSES.iter().find(|(n, _)| *n == name);
    if let Some(old) = old {
        if old["value"].as_i64().unwrap_or(0) != value {
            errors.push(field::Error::forbidden(
                field::Path::new("value"),
                "may not be changed in an update.",
            ));
        }
        return;
    }
    if name.starts_with("system-") {
        match system {
            Some((_, known)) if *known == value => {}
            Some((name, known)) => errors.push(field::Error::forbidden(
                field::Path::new("metadata.name"),
                format!("value of {name} PriorityClass must be {known}"),
            )),
            None => errors.push(field::Error::forbidden(
                field::Path::new("metadata.name"),
                "priority class names with 'system-' prefix are reserved for system use only",
            )),
        }
    } else if value > USER_PRIORITY_MAX {
        errors.push(field::Error::forbidden(
            field::Path::new("value"),
            format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"),
        ));
    }
}
/// Who asks for a certificate is what the server knows, not what the body says.
pub(super) fn prepare_certificate_request(
    context: &Context<'_>,
    request: &mut Value,
    old: Option<&Value>,
) {
    match old {
        Some(old) => request["spec"] = old["spec"].clone(),
        None => {
            request["spec"]["username"] = context.user.into();
            request["spec"]["groups"] = context.groups.into();
            if context.groups.is_empty()
                && let Some(spec) = request["spec"].as_object_mut()
            {
                spec.remove("groups");
            }
        }
    }
}
/// Approval has an endpoint of its own.
pub(super) fn prepare_certificate_status(_: &Context<'_>, request: &mut Value, old: &Value) {
    let is_decision = |c: &Value| matches!(text(c, "type"), "Approved" | "Denied");
    let mut conditions: Vec<Value> = list(&request["status"], "conditions")
        .iter()
        .filter(|c| !is_decision(c))
        .cloned()
        .collect();
    let decided = list(&old["status"], "conditions").iter().filter(|c| is_decision(c)).cloned();
    let mut all: Vec<Value> = decided.collect();
    all.append(&mut conditions);
    if !all.is_empty() {
        request["status"]["conditions"] = all.into();
    }
}
/// Certificate requests.
pub(super) fn validate_certificate_request(
    request: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    if old.is_some() {
        return;
    }
    let path = field::Path::new("spec");
    let spec = &request["spec"];
    for member in ["request", "signerName"] {
        if text(spec, member).is_empty() {
            errors.push(field::Error::required(path.child(member), ""));
        }
    }
    if list(spec, "usages").is_empty() {
        errors.push(field::Error::required(path.child("usages"), ""));
    }
}
/// Events live in the namespace of what they are about; cluster-scoped things have theirs in `default`.
pub(super) fn validate_event(event: &Value, old: Option<&Value>, errors: &mut Vec<field::Error>) {
    if old.is_some() {
        return;
    }
    let about = text(&event["involvedObject"], "namespace");
    let agrees = if about.is_empty() {
        matches!(event.namespace(), "" | "default")
    } else {
        about == event.namespace()
    };
    if !agrees {
        errors.push(field::Error::invalid(
            field::Path::new("involvedObject.namespace"),
            &about.into(),
            "does not match event.namespace",
        ));
    }
}
/// Storage classes: who provisions does not change.
pub(super) fn validate_storage_class(
    class: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    if text(class, "provisioner").is_empty() {
        errors.push(field::Error::required(field::Path::new("provisioner"), ""));
    }
    let Some(old) = old else { return };
    for member in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old.get(member) != class.get(member) {
            errors.push(field::Error::forbidden(
                field::Path::new(member),
                format!("updates to {member} are forbidden."),
            ));
        }
    }
}
/// Slices: of one family.
pub(super) fn validate_endpoint_slice(
    slice: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let family = text(slice, "addressType");
    let path = field::Path::new("addressType");
    if family.is_empty() {
        errors.push(field::Error::required(path.clone(), ""));
    } else if !["FQDN", "IPv4", "IPv6"].contains(&family) {
        errors.push(field::Error::not_supported(
            path.clone(),
            &family.into(),
            &["FQDN", "IPv4", "IPv6"],
        ));
    }
    for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
        if list(endpoint, "addresses").is_empty() {
            errors.push(field::Error::required(
                field::Path::new("endpoints").index(i).child("addresses"),
                "must contain at least 1 address",
            ));
        }
    }
    if old.is_some_and(|old| text(old, "addressType") != family) {
        errors.push(field::Error::invalid(path, &family.into(), "field is immutable"));
    }
}
