//! The selectors that an access review asks about.
use crate::kind::{list, text};
use serde_json::Value;
use setpoint_object::field::{self, Path};
use setpoint_object::field_selector::FieldSelector;
use setpoint_object::label::Selector;
use setpoint_object::name;

/// The members of a review with selectors.
pub(super) const MEMBERS: [&str; 2] = ["fieldSelector", "labelSelector"];

/// Checks a selector: either as text, or as requirements.
pub(super) fn check(selector: &Value, path: &Path, errors: &mut field::Errors) {
    if !selector.is_object() {
        return;
    }
    let (raw, requirements) = (text(selector, "rawSelector"), list(selector, "requirements"));
    if !raw.is_empty() && !requirements.is_empty() {
        errors.push(field::Error::invalid(
            path.child("rawSelector"),
            &selector["rawSelector"],
            "may not specified at the same time as requirements",
        ));
    }
    if raw.is_empty() && requirements.is_empty() {
        let why = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(field::Error::required(path.child("requirements"), why));
    }
    let is_of_labels = path.text().ends_with("labelSelector");
    for (i, requirement) in requirements.iter().enumerate() {
        let at = path.child("requirements").index(i);
        let (key, values) = (text(requirement, "key"), list(requirement, "values"));
        if !is_of_labels && key.is_empty() {
            errors.push(field::Error::required(at.child("key"), "must be specified"));
        }
        match text(requirement, "operator") {
            "In" | "NotIn" if values.is_empty() => errors.push(field::Error::required(
                at.child("values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(field::Error::forbidden(
                    at.child("values"),
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                ));
            }
            // Other operators may be those of later releases.
            _ => {}
        }
        if !is_of_labels {
            continue;
        }
        for message in name::qualified_name(key) {
            errors.push(field::Error::invalid(at.child("key"), &key.into(), message));
        }
        for (j, value) in values.iter().enumerate() {
            for message in name::label_value(value.as_str().unwrap_or_default()) {
                let at = at.child("values").index(j);
                errors.push(field::Error::invalid(at, value, message));
            }
        }
    }
}

/// The field selector of a review as a request has it. What it cannot say is left out: the request
/// is then about more, and needs more rights.
pub(super) fn fields(selector: &Value) -> String {
    let requirements = list(selector, "requirements").iter().filter_map(|requirement| {
        let [value] = list(requirement, "values") else { return None };
        let operator = match text(requirement, "operator") {
            "In" => "=",
            "NotIn" => "!=",
            _ => return None,
        };
        let value = value.as_str()?;
        let escaped: String = value
            .chars()
            .flat_map(|c| matches!(c, '\\' | ',' | '=').then_some('\\').into_iter().chain([c]))
            .collect();
        Some(format!("{}{operator}{escaped}", text(requirement, "key")))
    });
    joined(selector, requirements)
}

/// The same of a label selector.
pub(super) fn labels(selector: &Value) -> String {
    let requirements = list(selector, "requirements").iter().filter_map(|requirement| {
        let key = text(requirement, "key");
        let values = list(requirement, "values").iter().filter_map(Value::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        Some(match text(requirement, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        })
    });
    joined(selector, requirements)
}

/// What is said of selectors that the question could not take whole: the question was then about
/// more.
pub(super) fn ignored(resource: &Value) -> Vec<String> {
    let said = |member: &str, n_fit: usize, n_all: usize, fits_raw: bool| {
        let how = match (n_all, fits_raw) {
            (0, true) => return None,
            (0, false) => "",
            _ if n_fit == n_all => return None,
            _ if n_fit > 0 => "partially ",
            _ => "",
        };
        Some(format!("spec.resourceAttributes.{member} {how}ignored due to parse error"))
    };
    let of = |member: &str, fits: fn(&Value) -> bool, parses: fn(&str) -> bool| {
        let selector = &resource[member];
        let all = list(selector, "requirements");
        let n_fit = all.iter().filter(|requirement| fits(requirement)).count();
        said(member, n_fit, all.len(), parses(text(selector, "rawSelector")))
    };
    let of_fields = of(
        "fieldSelector",
        |requirement| {
            let operator = text(requirement, "operator");
            matches!(operator, "In" | "NotIn") && list(requirement, "values").len() == 1
        },
        |raw| FieldSelector::parse(raw).is_ok(),
    );
    let of_labels = of(
        "labelSelector",
        |requirement| {
            matches!(text(requirement, "operator"), "In" | "NotIn" | "Exists" | "DoesNotExist")
        },
        |raw| Selector::parse(raw).is_ok(),
    );
    of_fields.into_iter().chain(of_labels).collect()
}

fn joined(selector: &Value, requirements: impl Iterator<Item = String>) -> String {
    match text(selector, "rawSelector") {
        "" => requirements.collect::<Vec<_>>().join(","),
        raw => raw.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_that_cannot_be_read_are_said_to_be_ignored() {
        let of = |resource: Value| ignored(&resource).join("; ");
        let one = |operator: &str| json!({"key": "a", "operator": operator, "values": ["b"]});
        assert_eq!(of(json!({})), "");
        let all = json!({"labelSelector": {"requirements": [one("In"), one("NotIn")]}});
        assert_eq!(of(all), "");
        assert_eq!(
            of(json!({
                "fieldSelector": {"rawSelector": "10.0.0.256"},
                "labelSelector": {"requirements": [one("In"), one("Equal")]},
            })),
            "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector partially ignored due to parse error"
        );
    }

    #[test]
    fn requirements_are_selectors_of_requests() {
        let selector = json!({"requirements": [
            {"key": "spec.nodeName", "operator": "In", "values": ["a=b,c"]},
            {"key": "metadata.name", "operator": "NotIn", "values": ["x"]},
            {"key": "a", "operator": "In", "values": ["x", "y"]},
            {"key": "b", "operator": "Exists"},
        ]});
        let parsed = FieldSelector::parse(&fields(&selector)).unwrap();
        let terms: Vec<_> =
            parsed.terms().iter().map(|t| (&*t.path, &*t.value, t.negated)).collect();
        assert_eq!(terms, [("spec.nodeName", "a=b,c", false), ("metadata.name", "x", true)]);
        let selector = json!({"requirements": [
            {"key": "a", "operator": "In", "values": ["x", "y"]},
            {"key": "b", "operator": "Exists"},
            {"key": "c", "operator": "DoesNotExist"},
            {"key": "d", "operator": "NotIn", "values": ["z"]},
        ]});
        assert_eq!(labels(&selector), "a in (x,y),b,!c,d notin (z)");
        assert!(Selector::parse(&labels(&selector)).is_ok());
        assert_eq!(labels(&json!({"rawSelector": "a=b"})), "a=b");
    }
}
