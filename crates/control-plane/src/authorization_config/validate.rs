//! The checks of an authorization configuration, in kube-apiserver's words and order.

use super::document::{AuthorizationConfig, WebhookConfig};
use crate::remote::{CONDITIONS_MAX, MatchConditions};
use serde_json::json;
use setpoint_object::field::{Error, Path};
use setpoint_object::name::dns1123_subdomain;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// The types of the reference, sorted.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);

pub(super) fn validate(config: &AuthorizationConfig) -> Vec<Error> {
    let mut errors = Vec::new();
    let root = Path::new("authorizers");
    if config.authorizers.is_empty() {
        let detail = "at least one authorization mode must be defined";
        errors.push(Error::required(root.clone(), detail));
    }
    let (mut types, mut names) = (HashSet::new(), HashSet::new());
    for (i, one) in config.authorizers.iter().enumerate() {
        let path = root.index(i);
        let (kind, at) = (&*one.kind, path.child("type"));
        if kind.is_empty() {
            errors.push(Error::required(at, ""));
            continue;
        }
        if !TYPES.contains(&kind) {
            errors.push(Error::not_supported(at, &json!(kind), &TYPES));
            continue;
        }
        if !types.insert(kind) && kind != "Webhook" {
            errors.push(Error::duplicate(at, &json!(kind)));
            continue;
        }
        let at = path.child("name");
        if one.name.is_empty() {
            errors.push(Error::required(at, ""));
        } else if !names.insert(&one.name) {
            errors.push(Error::duplicate(at, &json!(one.name)));
        } else {
            let faults = dns1123_subdomain(&one.name);
            if !faults.is_empty() {
                let detail = format!("authorizer name is invalid: {}", faults.join(", "));
                errors.push(Error::invalid(at, &json!(one.name), detail));
            }
        }
        let at = path.child("webhook");
        match (kind, &one.webhook) {
            ("Webhook", None) => errors.push(Error::required(at, "required when type=Webhook")),
            ("Webhook", Some(webhook)) => check_webhook(webhook, &path, &mut errors),
            (_, None) => {}
            (_, Some(_)) => {
                let detail = "may only be specified when type=Webhook";
                errors.push(Error::invalid(at, &json!("non-null"), detail));
            }
        }
    }
    errors
}

fn check_webhook(webhook: &WebhookConfig, path: &Path, errors: &mut Vec<Error>) {
    let at = path.child("timeout");
    if webhook.timeout.is_zero() {
        errors.push(Error::required(at, ""));
    } else if webhook.timeout.is_negative() || webhook.timeout.max() > TIMEOUT_MAX {
        let shown = json!(webhook.timeout.shown());
        errors.push(Error::invalid(at, &shown, "must be > 0s and <= 30s"));
    }
    for (member, ttl) in
        [("authorizedTTL", webhook.authorized_ttl), ("unauthorizedTTL", webhook.unauthorized_ttl)]
    {
        if ttl.is_negative() {
            let shown = json!(ttl.shown());
            errors.push(Error::invalid(path.child(member), &shown, "must be > 0s"));
        }
    }
    let at = path.child("subjectAccessReviewVersion");
    match &*webhook.subject_access_review_version {
        "" => errors.push(Error::required(at, "")),
        "v1" | "v1beta1" => {}
        other => errors.push(Error::not_supported(at, &json!(other), &["v1", "v1beta1"])),
    }
    let at = path.child("matchConditionSubjectAccessReviewVersion");
    match &*webhook.match_condition_subject_access_review_version {
        "" if webhook.match_conditions.is_empty() => {}
        "" => errors.push(Error::required(at, "required if match conditions are specified")),
        "v1" => {}
        other => errors.push(Error::not_supported(at, &json!(other), &["v1"])),
    }
    let at = path.child("failurePolicy");
    match &*webhook.failure_policy {
        "" => errors.push(Error::required(at, "")),
        "NoOpinion" | "Deny" => {}
        other => errors.push(Error::not_supported(at, &json!(other), &["NoOpinion", "Deny"])),
    }
    connection(webhook, &path.child("connectionInfo"), errors);
    conditions(webhook, &path.child("matchConditions"), errors);
}

fn connection(webhook: &WebhookConfig, path: &Path, errors: &mut Vec<Error>) {
    let info = &webhook.connection_info;
    let at = path.child("kubeConfigFile");
    let file = info.kube_config_file.as_deref();
    match (&*info.kind, file) {
        ("", _) => errors.push(Error::required(path.child("type"), "")),
        ("InClusterConfig", None) => {}
        ("InClusterConfig", Some(file)) => {
            let detail = "can only be set when type=KubeConfigFile";
            errors.push(Error::invalid(at, &json!(file), detail));
        }
        ("KubeConfigFile", None | Some("")) => errors.push(Error::required(at, "")),
        ("KubeConfigFile", Some(file)) => {
            let path = std::path::Path::new(file);
            let detail = match path.metadata() {
                _ if !path.is_absolute() => "must be an absolute path".to_owned(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    format!("error loading file: stat {file}: no such file or directory")
                }
                Err(error) => format!("error loading file: stat {file}: {error}"),
                Ok(metadata) if !metadata.is_file() => "must be a regular file".to_owned(),
                Ok(_) => return,
            };
            errors.push(Error::invalid(at, &json!(file), detail));
        }
        (other, _) => {
            let known = ["InClusterConfig", "KubeConfigFile"];
            // As the reference, which shows more than the type.
            let mut error = Error::not_supported(path.child("type"), &json!(other), &known);
            let (kind, file) = (json!(other), json!(file));
            error.shown = Some(format!(r#"{{"Type":{kind},"KubeConfigFile":{file}}}"#));
            errors.push(error);
        }
    }
}

fn conditions(webhook: &WebhookConfig, path: &Path, errors: &mut Vec<Error>) {
    let conditions = &webhook.match_conditions;
    if conditions.len() > CONDITIONS_MAX {
        errors.push(Error::too_many(path.clone(), conditions.len(), CONDITIONS_MAX));
        return;
    }
    let mut seen = HashSet::new();
    for (i, condition) in conditions.iter().enumerate() {
        let at = path.index(i).child("expression");
        let expression = &condition.expression;
        if expression.trim().is_empty() {
            errors.push(Error::required(at, ""));
        } else if !seen.insert(expression) {
            errors.push(Error::duplicate(at, &json!(expression)));
        } else if let Err(detail) = MatchConditions::compile(expression) {
            errors.push(Error::invalid(at, &json!(expression), detail));
        }
    }
}

/// Checks the names of authorizers other than webhooks, and that the `required` types are there.
///
/// # Errors
///
/// What is wrong.
pub(super) fn names(config: &AuthorizationConfig, required: &[&str]) -> Result<(), String> {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for one in config.authorizers.iter().filter(|one| one.kind != "Webhook") {
        seen.insert(&*one.kind);
        let expected = one.kind.to_lowercase();
        if one.name != expected {
            let (kind, name) = (&one.kind, &one.name);
            errors
                .push(format!("expected name {expected} for authorizer {kind} instead of {name}"));
        }
    }
    let mut missing: Vec<&str> =
        required.iter().copied().filter(|kind| !seen.contains(kind)).collect();
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        errors.push(format!("missing required types: [{}]", missing.join(" ")));
    }
    match &errors[..] {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("[{}]", errors.join(", "))),
    }
}

#[cfg(test)]
mod tests;
