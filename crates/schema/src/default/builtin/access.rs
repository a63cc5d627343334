//! Secrets, bindings, webhooks and admission policies.
use super::fill::{Fill, Object, empty};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The group of roles, users and groups.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Secret: `stringData` overwrites `data` and is not kept.
pub(super) fn secret(object: &mut Object) {
    object.absent("type", "Opaque");
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    if let Some(data) = object.object_or_new("data") {
        for (key, text) in texts {
            let bytes = text.as_str().unwrap_or_default();
            data.insert(key, Value::String(STANDARD.encode(bytes)));
        }
    }
}

/// RoleBinding, ClusterRoleBinding.
pub(super) fn binding(object: &mut Object) {
    if let Some(role) = object.object("roleRef")
        && role.text("apiGroup").is_empty()
    {
        role.insert("apiGroup".to_owned(), Value::from(RBAC));
    }
    for subject in object.each("subjects") {
        if matches!(subject.text("kind"), "User" | "Group") {
            subject.absent("apiGroup", RBAC);
        }
    }
}

/// Webhook configurations.
pub(super) fn webhooks(object: &mut Object, mutating: bool) {
    for webhook in object.each("webhooks") {
        webhook.absent("failurePolicy", "Fail");
        webhook.absent("matchPolicy", "Equivalent");
        webhook.absent("namespaceSelector", empty());
        webhook.absent("objectSelector", empty());
        webhook.absent("timeoutSeconds", 10);
        if mutating {
            webhook.absent("reinvocationPolicy", "Never");
        }
        let service = webhook.object("clientConfig").and_then(|config| config.object("service"));
        if let Some(service) = service {
            service.absent("port", 443);
        }
        webhook.each("rules").for_each(|rule| rule.absent("scope", "*"));
    }
}

/// ValidatingAdmissionPolicy, MutatingAdmissionPolicy.
pub(super) fn admission_policy(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("failurePolicy", "Fail");
    if let Some(constraints) = spec.object("matchConstraints") {
        match_resources(constraints);
    }
}

/// Their bindings.
pub(super) fn admission_policy_binding(object: &mut Object) {
    if let Some(resources) = object.object("spec").and_then(|spec| spec.object("matchResources")) {
        match_resources(resources);
    }
}

fn match_resources(resources: &mut Object) {
    resources.absent("matchPolicy", "Equivalent");
    resources.absent("namespaceSelector", empty());
    resources.absent("objectSelector", empty());
    for list in ["resourceRules", "excludeResourceRules"] {
        resources.each(list).for_each(|rule| rule.absent("scope", "*"));
    }
}
