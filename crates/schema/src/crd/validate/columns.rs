//! Printer columns, the scale subresource and selectable fields.
use super::text;
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use std::collections::HashSet;

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
/// The most selectable fields of a version.
const SELECTABLE_FIELDS_MAX: usize = 8;

fn one_of(list: &str, value: &str) -> bool {
    list.split(',').any(|allowed| allowed == value)
}

/// `additionalPrinterColumns`.
pub(super) fn columns(columns: &Value, path: &Path, errors: &mut Errors) {
    for (i, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        let (ty, format) = (text(column, "type"), text(column, "format"));
        if text(column, "name").is_empty() {
            errors.push(Error::required(path.child("name"), ""));
        }
        let detail = format!("must be one of {COLUMN_TYPES}");
        if ty.is_empty() {
            errors.push(Error::required(path.child("type"), detail));
        } else if !one_of(COLUMN_TYPES, ty) {
            errors.push(Error::invalid(path.child("type"), &ty.into(), detail));
        }
        if !format.is_empty() && !one_of(COLUMN_FORMATS, format) {
            let detail = format!("must be one of {COLUMN_FORMATS}");
            errors.push(Error::invalid(path.child("format"), &format.into(), detail));
        }
        simple_path(text(column, "jsonPath"), path.child("JSONPath"), errors);
    }
}

/// A path must start with a dot; whether it may be used further.
fn simple_path(json_path: &str, path: Path, errors: &mut Errors) -> bool {
    if json_path.is_empty() {
        errors.push(Error::required(path, ""));
        return false;
    }
    if !json_path.starts_with('.') {
        let detail = "must be a simple json path starting with .";
        errors.push(Error::invalid(path, &json_path.into(), detail));
        return false;
    }
    true
}

/// `subresources.scale`.
pub(super) fn scale(subresources: &Value, path: &Path, errors: &mut Errors) {
    let Some(scale) = subresources.get("scale") else { return };
    let path = path.child("scale");
    for (field, root) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let json_path = text(scale, field);
        if simple_path(json_path, path.child(field), errors)
            && !json_path.starts_with(&format!("{root}."))
        {
            let detail = format!("should be a json path under {root}");
            errors.push(Error::invalid(path.child(field), &json_path.into(), detail));
        }
    }
    let selector = text(scale, "labelSelectorPath");
    if !selector.is_empty()
        && simple_path(selector, path.child("labelSelectorPath"), errors)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        let detail = "should be a json path under either .spec or .status";
        errors.push(Error::invalid(path.child("labelSelectorPath"), &selector.into(), detail));
    }
}

/// `selectableFields`.
pub(super) fn selectable(fields: &Value, schema: &Value, path: &Path, errors: &mut Errors) {
    let fields = fields.as_array().map_or(&[][..], Vec::as_slice);
    let all = path;
    let mut seen = HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        let json_path = text(field, "jsonPath");
        let path = path.index(i).child("jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        match target(json_path, schema) {
            Err(what) => {
                let detail = format!("is an invalid path: {what}");
                errors.push(Error::invalid(path, &json_path.into(), detail));
                continue;
            }
            Ok(target) => {
                if matches!(json_path.split('.').nth(1), Some("metadata")) {
                    let detail = "must not point to fields in metadata";
                    errors.push(Error::invalid(path.clone(), &json_path.into(), detail));
                }
                if !matches!(text(target, "type"), "string" | "boolean" | "integer") {
                    errors.push(Error::invalid(
                        path.clone(),
                        &json_path.into(),
                        "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.",
                    ));
                }
            }
        }
        if !seen.insert(json_path) {
            errors.push(Error::duplicate(path, &json_path.into()));
        }
    }
    if seen.len() > SELECTABLE_FIELDS_MAX {
        errors.push(Error::too_many(all.clone(), seen.len(), SELECTABLE_FIELDS_MAX));
    }
}

/// The schema node a simple path points at.
fn target<'a>(json_path: &str, schema: &'a Value) -> Result<&'a Value, String> {
    let token = |text: &str| match text.find(['.', '[', ']']) {
        Some(end) => end.max(1),
        None => text.len(),
    };
    let (mut node, mut rest) = (schema, json_path);
    while !rest.is_empty() {
        if rest.starts_with('[') {
            return Err("array notation is not allowed".to_owned());
        }
        let Some(inner) = rest.strip_prefix('.') else {
            return Err(format!("expected [ or . but got: {}", &rest[..token(rest)]));
        };
        if inner.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let (name, next) = inner.split_at(token(inner));
        // A map is looked into if there are no properties.
        let found = match node.get("properties") {
            Some(properties) => properties.get(name),
            None => node.get("additionalProperties").filter(|inner| inner.is_object()),
        };
        (node, rest) = (found.ok_or("does not refer to a valid field")?, next);
    }
    Ok(node)
}
