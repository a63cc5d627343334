//! From client-side to server-side apply: the annotation kubectl leaves behind (spec: patch §5.6).

use super::compare::Comparison;
use super::fieldset::FieldSet;
use super::leaves::leaves;
use super::types::Type;
use super::validate::validate;
use serde_json::Value;
use std::fmt::Write as _;

/// Where client-side apply stores what it applied.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The manager whose applies take over from client-side apply.
pub const KUBECTL: &str = "kubectl";
/// The most bytes that the annotations of an object may take: 256 KiB, as validation allows.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

fn annotation(object: &Value) -> Option<&str> {
    let annotations = object.get("metadata")?.get("annotations")?;
    annotations.get(LAST_APPLIED_ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The fields that client-side apply set and that still have the value it gave them: an apply by
/// kubectl may change those without a conflict. `None` when the object was not applied like that,
/// or in another version.
pub(super) fn taken_over(
    ty: Type<'_>,
    live: &Value,
    api_version: &str,
) -> Option<FieldSet<'static>> {
    let applied: Value = serde_json::from_str(annotation(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(api_version) {
        return None;
    }
    validate(ty, &applied).ok()?;
    let mut set = leaves(ty, &applied);
    let Comparison { added, removed, modified } = Comparison::of(ty, &applied, live);
    set.subtract(&modified);
    set.subtract(&added);
    set.subtract(&removed);
    Some(set.into_owned())
}

/// Brings the annotation of an object that has one up to date with what was applied now.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let text = encode(config);
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    let others = annotations.iter().filter(|(name, _)| *name != LAST_APPLIED_ANNOTATION);
    let bytes: usize =
        others.map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    let bytes = bytes + LAST_APPLIED_ANNOTATION.len() + text.len();
    let text = if bytes > ANNOTATIONS_BYTES_MAX { String::new() } else { text };
    annotations.insert(LAST_APPLIED_ANNOTATION.to_owned(), Value::from(text));
}

/// The applied body without the annotation itself: keys sorted, HTML-safe as Go encodes, one
/// newline at the end.
fn encode(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(Value::Object(metadata)) = config.get_mut("metadata")
        && metadata.get("annotations").is_some_and(Value::is_null)
    {
        metadata.remove("annotations");
    }
    if let Some(annotations) =
        config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED_ANNOTATION);
        for value in annotations.values_mut().filter(|value| value.is_null()) {
            *value = Value::from("");
        }
    }
    let mut text = String::new();
    for c in config.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('\n');
    text
}
