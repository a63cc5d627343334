//! The definition's own name, the names it defines, and who may take a protected group.
use super::text;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::url::Url;
use std::mem::discriminant;

/// What is wrong with a definition's name besides its form: it is made of plural and group.
pub fn name_fault(crd: &Value, given: &str) -> Option<String> {
    let spec = crd.get("spec").unwrap_or(&Value::Null);
    let plural = spec.pointer("/names/plural").and_then(Value::as_str).unwrap_or("");
    let is_right = given == format!("{plural}.{}", text(spec, "group"));
    (!is_right).then(|| "must be spec.names.plural+\".\"+spec.group".to_owned())
}

/// `spec.names`.
pub(super) fn names(names: &Value, errors: &mut Errors) {
    let path = Path::new("spec.names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(names, field).is_empty() {
            errors.push(Error::required(path.child(field), ""));
        }
    }
    forms(names, &path, errors);
}

/// The forms of those names that are given.
pub(super) fn forms(names: &Value, path: &Path, errors: &mut Errors) {
    let mut check = |path: Path, value: &str, mixed_case: bool| {
        if value.is_empty() {
            return;
        }
        let problems =
            name::dns1035_label(&if mixed_case { value.to_lowercase() } else { value.to_owned() });
        if !problems.is_empty() {
            let prefix = match mixed_case {
                true => "may have mixed case, but should otherwise match: ",
                false => "",
            };
            let detail = format!("{prefix}{}", problems.join(","));
            errors.push(Error::invalid(path, &Value::from(value), detail));
        }
    };
    check(path.child("plural"), text(names, "plural"), false);
    check(path.child("singular"), text(names, "singular"), false);
    check(path.child("kind"), text(names, "kind"), true);
    check(path.child("listKind"), text(names, "listKind"), true);
    labels(names, "shortNames", path, errors);
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(Error::invalid(path.child("listKind"), &list_kind.into(), detail));
    }
    labels(names, "categories", path, errors);
}

fn labels(names: &Value, field: &str, path: &Path, errors: &mut Errors) {
    let list = names.get(field).and_then(Value::as_array).into_iter().flatten();
    for (i, label) in list.enumerate() {
        let label = label.as_str().unwrap_or("");
        let problems = name::dns1035_label(label);
        if !problems.is_empty() {
            errors.push(Error::invalid(
                path.child(field).index(i),
                &label.into(),
                problems.join(","),
            ));
        }
    }
}

/// The annotation by which a protected group is taken.
const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The approval annotation of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// The group is nobody's.
    NotNeeded,
    /// There is no annotation, or an empty one.
    Missing,
    /// A URL with a scheme and a host.
    Approved(String),
    /// A reason that starts with `unapproved`.
    Unapproved(String),
    /// Something else.
    Invalid(String),
}

/// Reads the approval annotation, when the group needs one.
pub fn approval_of(crd: &Value) -> Approval {
    let group = crd.pointer("/spec/group").and_then(Value::as_str).unwrap_or("");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !protected {
        return Approval::NotNeeded;
    }
    let annotation = crd.meta().and_then(|meta| meta.get("annotations")?.get(APPROVAL)?.as_str());
    let Some(annotation) = annotation else { return Approval::Missing };
    let is_url = Url::parse_request(annotation)
        .is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty());
    if annotation.is_empty() {
        Approval::Missing
    } else if annotation.starts_with("unapproved") {
        Approval::Unapproved(annotation.to_owned())
    } else if is_url {
        Approval::Approved(annotation.to_owned())
    } else {
        Approval::Invalid(annotation.to_owned())
    }
}

/// Reports an annotation that is missing or wrong, unless that of the stored definition is so, too.
pub(super) fn approval(crd: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::new("metadata.annotations").key(APPROVAL);
    let must = format!("protected groups must have approval annotation {APPROVAL:?}");
    let approval = approval_of(crd);
    let is_as_before = |old| discriminant(&approval_of(old)) == discriminant(&approval);
    if old.is_some_and(is_as_before) {
        return;
    }
    match approval {
        Approval::Missing => {
            errors.push(Error::required(path, format!("{must}, {APPROVAL_SEE}")));
        }
        Approval::Invalid(given) => errors.push(Error::invalid(
            path,
            &Value::from(given),
            format!(
                "{must} with either a URL or a reason starting with \"unapproved\", {APPROVAL_SEE}"
            ),
        )),
        Approval::NotNeeded | Approval::Approved(_) | Approval::Unapproved(_) => {}
    }
}
