//! Rules of admission policies, validating and mutating (spec: admission §5, §6).
use super::expression::{Environment, Wanted};
use super::rules::{conditions, enumeration, match_resources, mutable_operations};
use crate::kind::at::check;
use crate::kind::{Report, condition, list, text};
use serde_json::Value;
use setpoint_cel::escape::is_reserved;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::jsonpath::JsonPath;
use setpoint_object::name;
use std::collections::BTreeSet;

/// Maximum number of audit annotations of a policy.
const ANNOTATIONS_MAX: usize = 20;
/// Maximum bytes of an expression for an audit annotation.
const ANNOTATION_BYTES_MAX: usize = 5 << 10;
/// ValidatingAdmissionPolicy.
pub(super) fn validating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let mut environment = common(spec, false, &path, errors);
    if !list(spec, "variables").is_empty() {
        environment = environment.with_variables();
    }
    variables(spec, &mut environment, &path, errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.push(Error::required(path.child("validations"), detail));
        errors.push(Error::required(path.child("auditAnnotations"), detail));
        return;
    }
    for (i, validation) in validations.iter().enumerate() {
        self::validation(validation, &environment, &path.child("validations").index(i), errors);
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.push(Error::invalid(path.clone(), &spec["auditAnnotations"], detail));
    }
    let mut keys = BTreeSet::new();
    // The others are not compiled: the write is refused anyway.
    for (i, given) in annotations.iter().take(ANNOTATIONS_MAX).enumerate() {
        let path = path.index(i);
        annotation(text(&object["metadata"], "name"), given, &environment, &path, errors);
        if !keys.insert(text(given, "key")) {
            errors.push(Error::duplicate(path.child("key"), &given["key"]));
        }
    }
}

/// What the type check reports, and conditions.
pub(super) fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        for warning in at.each("status.typeChecking.expressionWarnings") {
            warning.get("warning").need();
            let reference = warning.get("fieldRef");
            let path = reference.text().trim();
            if path.is_empty() {
                reference.required("");
            } else if let Err(fault) = JsonPath::parse(&format!("{{{path}}}")) {
                reference.invalid_as(&path.into(), format!("invalid JSONPath: {fault}"));
            }
        }
        condition::conditions(&at.get("status.conditions"));
    });
}

/// MutatingAdmissionPolicy.
pub(super) fn mutating(object: &Value, errors: &mut Errors) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let mut environment = common(spec, true, &path, errors).with_patches().with_variables();
    variables(spec, &mut environment, &path, errors);
    let mutations = list(spec, "mutations");
    if mutations.is_empty() {
        let detail = "mutations must contain at least one item";
        errors.push(Error::required(path.child("mutations"), detail));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        self::mutation(mutation, &environment, &path.child("mutations").index(i), errors);
    }
    match text(spec, "reinvocationPolicy") {
        "" => errors.push(Error::required(path.child("reinvocationPolicy"), "")),
        _ => enumeration(spec, "reinvocationPolicy", &["IfNeeded", "Never"], &path, errors),
    }
}

/// The fields of both kinds except variables. Returns what expressions may refer to.
fn common(spec: &Value, mutates: bool, path: &Path, errors: &mut Errors) -> Environment {
    enumeration(spec, "failurePolicy", &["Fail", "Ignore"], path, errors);
    let has_params = spec.get("paramKind").is_some_and(Value::is_object);
    if has_params {
        param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let constraints = &spec["matchConstraints"];
    let constraints_path = path.child("matchConstraints");
    if constraints.is_object() {
        match_resources(constraints, &constraints_path, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.push(Error::required(constraints_path.child("resourceRules"), ""));
        }
        if mutates {
            mutable_operations(constraints, &constraints_path, errors);
        }
    } else {
        errors.push(Error::required(constraints_path, ""));
    }
    let environment = Environment::new(has_params);
    let given = list(spec, "matchConditions");
    conditions(given, &environment, &path.child("matchConditions"), errors);
    environment
}

fn param_kind(kind: &Value, path: &Path, errors: &mut Errors) {
    let (version, shown) = (text(kind, "apiVersion"), &kind["apiVersion"]);
    let version_path = path.child("apiVersion");
    match (version, version.split('/').collect::<Vec<_>>().as_slice()) {
        ("", _) => errors.push(Error::required(version_path, "")),
        (_, parts) if parts.len() > 2 => {
            let detail = format!("unexpected GroupVersion string: {version}");
            errors.push(Error::invalid(version_path, shown, detail));
        }
        (_, parts) => {
            let group = if parts.len() == 2 { parts[0] } else { "" };
            let version = parts.last().copied().unwrap_or_default();
            let faults = name::dns1123_subdomain(group);
            if !group.is_empty() && !faults.is_empty() {
                let path = version_path.clone();
                errors.push(Error::invalid(path, &group.into(), faults.join(",")));
            }
            let faults = name::dns1035_label(version);
            if version.is_empty() {
                errors.push(Error::invalid(version_path, shown, "version must be specified"));
            } else if !faults.is_empty() {
                errors.push(Error::invalid(version_path, &version.into(), faults.join(",")));
            }
        }
    }
    let faults = name::dns1035_label(&text(kind, "kind").to_lowercase());
    if text(kind, "kind").is_empty() {
        errors.push(Error::required(path.child("kind"), ""));
    } else if !faults.is_empty() {
        let detail =
            format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.push(Error::invalid(path.child("kind"), &kind["kind"], detail));
    }
}

fn variables(spec: &Value, environment: &mut Environment, path: &Path, errors: &mut Errors) {
    let is_name = |name: &str| {
        let is_letter = |c: char| c == '_' || c.is_ascii_alphabetic();
        name.starts_with(is_letter)
            && name.chars().all(|c| is_letter(c) || c.is_ascii_digit())
            && !is_reserved(name)
    };
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        let path = path.child("variables").index(i);
        let name = text(variable, "name");
        if name.trim().is_empty() {
            errors.push(Error::required(path.child("name"), "name is not specified"));
        } else if !is_name(name) {
            let detail = "must be a valid CEL identifier";
            errors.push(Error::invalid(path.child("name"), &name.into(), detail));
        }
        let path = path.child("expression");
        let given = &variable["expression"];
        match text(variable, "expression") {
            blank if blank.trim().is_empty() => {
                errors.push(Error::required(path, "expression is not specified"));
            }
            expression => {
                if let Err(fault) = environment.variable(name, expression) {
                    errors.push(fault.of_field(path, given));
                }
            }
        }
    }
}

/// Compiles an expression in a member of `value`.
fn expression(
    value: &Value,
    member: &str,
    wanted: Wanted,
    environment: &Environment,
    path: &Path,
    errors: &mut Errors,
) {
    let given = text(value, member);
    let trimmed = given.trim();
    // The API leaves out the space around some expressions.
    let (compiled, shown) = match wanted {
        Wanted::Bool | Wanted::Message | Wanted::Anything => (given, given),
        Wanted::TextOrNull => (trimmed, given),
        Wanted::Configuration | Wanted::Operations => (trimmed, trimmed),
    };
    if trimmed.is_empty() {
        errors.push(Error::required(path.child(member), format!("{member} is not specified")));
    } else if let Err(fault) = environment.compile(compiled, wanted) {
        errors.push(fault.of_field(path.child(member), &shown.into()));
    }
}

fn validation(value: &Value, environment: &Environment, path: &Path, errors: &mut Errors) {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    expression(value, "expression", Wanted::Bool, environment, path, errors);
    let given = text(value, "messageExpression");
    if !given.is_empty() && given.trim().is_empty() {
        let path = path.child("messageExpression");
        errors.push(Error::invalid(path, &given.into(), "must be non-empty if specified"));
    } else if !given.is_empty() {
        expression(value, "messageExpression", Wanted::Message, environment, path, errors);
    }
    let message = text(value, "message");
    let detail = match message.trim() {
        "" if message.is_empty() => None,
        "" => Some("must be non-empty if specified"),
        text if text.contains(['\n', '\r']) => Some("must not contain line breaks"),
        _ => None,
    };
    if let Some(detail) = detail {
        errors.push(Error::invalid(path.child("message"), &message.into(), detail));
    }
    enumeration(value, "reason", &REASONS, path, errors);
}

/// An audit annotation of the policy with this name.
fn annotation(
    policy: &str,
    value: &Value,
    environment: &Environment,
    path: &Path,
    errors: &mut Errors,
) {
    let key = text(value, "key");
    if policy.is_empty() {
        let detail = "requires metadata.name be non-empty";
        errors.push(Error::invalid(path.child("key"), &key.into(), detail));
    } else {
        let whole = format!("{policy}/{key}");
        for fault in name::qualified_name(&whole) {
            errors.push(Error::invalid(path.child("key"), &whole.as_str().into(), fault));
        }
    }
    if text(value, "valueExpression").trim().len() > ANNOTATION_BYTES_MAX {
        let detail = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
        errors.push(Error::required(path.child("valueExpression"), detail));
    } else {
        expression(value, "valueExpression", Wanted::TextOrNull, environment, path, errors);
    }
}

fn mutation(value: &Value, environment: &Environment, path: &Path, errors: &mut Errors) {
    let (own, other, wanted) = match text(value, "patchType") {
        "" => return errors.push(Error::required(path.child("patchType"), "")),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Wanted::Operations),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Wanted::Configuration),
        _ => {
            let known = ["ApplyConfiguration", "JSONPatch"];
            return enumeration(value, "patchType", &known, path, errors);
        }
    };
    let kind = text(value, "patchType");
    match value.get(own).filter(|member| member.is_object()) {
        Some(member) if text(member, "expression").trim().is_empty() => {
            errors.push(Error::required(path.child(own).child("expression"), ""));
        }
        Some(member) => {
            expression(member, "expression", wanted, environment, &path.child(own), errors);
        }
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            errors.push(Error::required(path.child(own), detail));
        }
    }
    if value.get(other).is_some_and(Value::is_object) {
        let detail = format!("must not be specified when patchType is {kind}");
        let shown = format!("{{{other}}}");
        errors.push(Error::invalid(path.child(other), &shown.into(), detail));
    }
}
