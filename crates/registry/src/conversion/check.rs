//! Checks the answer of a conversion (spec: crd §10).
use super::converter::Target;
use crate::kind::{validate_annotations, validate_labels};
use crate::threads::Threads;
use bytes::Bytes;
use serde_json::{Map, Value};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt as _;
use setpoint_schema::patch::go_type;
use std::sync::Arc;

/// Objects, and bytes of them, that are checked before yielding: about a millisecond.
const SLICE_OBJECTS: usize = 32;
const SLICE_BYTES: usize = 64 << 10;
/// The most bytes of a converted object: 3 MiB, as of a body. A longer one could not be stored.
const OBJECT_BYTES_MAX: usize = 3 << 20;

/// Checks the converted objects and restores their metadata from the originals, except labels and
/// annotations. Returns what `finish` makes of them. Long objects are checked and finished on
/// another thread.
///
/// # Errors
///
/// See [`Wrong`].
pub(super) async fn answer<T: Send + 'static>(
    target: &Arc<Target>,
    threads: &Threads,
    sent: &[Bytes],
    converted: Vec<Bytes>,
    finish: impl Fn(Value) -> T + Clone + Send + 'static,
) -> Result<Vec<T>, Wrong> {
    if converted.len() != sent.len() {
        let text = format!("returned {} objects, expected {}", converted.len(), sent.len());
        return Err(Wrong::Answer(text));
    }
    let mut objects = Vec::with_capacity(converted.len());
    let mut n_bytes = 0;
    for (idx, (sent, converted)) in sent.iter().zip(converted).enumerate() {
        let n_own = sent.len() + converted.len();
        n_bytes += n_own;
        let (target, sent, finish) = (target.clone(), sent.clone(), finish.clone());
        let check = async move {
            let converted = parse(&converted)?;
            object(&target, &sent, converted).map(finish)
        };
        let checked = threads.run_if(n_own > SLICE_BYTES, check).await;
        let checked = checked.unwrap_or_else(|error| Err(Fault::Type(error.to_string())));
        objects.push(checked.map_err(|fault| fault.at(idx))?);
        if n_bytes > SLICE_BYTES || idx % SLICE_OBJECTS == SLICE_OBJECTS - 1 {
            n_bytes = 0;
            tokio::task::yield_now().await;
        }
    }
    Ok(objects)
}

/// The tree of a converted object.
fn parse(converted: &[u8]) -> Result<Value, Fault> {
    if converted.len() > OBJECT_BYTES_MAX {
        return Err(Fault::Type(format!("it is larger than {OBJECT_BYTES_MAX} bytes")));
    }
    let object = serde_json::from_slice(converted);
    let object: Value = object.map_err(|error| Fault::Type(error.to_string()))?;
    match undecodable(&object, converted) {
        Some(text) => Err(Fault::Undecodable(text)),
        None => Ok(object),
    }
}
/// Why the reference's decoder of objects without a Go type refuses a value, in its words.
fn undecodable(value: &Value, text: &[u8]) -> Option<String> {
    let found = match value {
        Value::Null => return Some("unexpected end of JSON input".to_owned()),
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => {
            let text_of = |name: &str| value[name].as_str().unwrap_or_default();
            let has_kind = !text_of("kind").is_empty();
            // Of a version that cannot be read, the decoder does not take the kind either.
            if has_kind && text_of("apiVersion").matches('/').count() <= 1 {
                return None;
            }
            let text = String::from_utf8_lossy(text);
            return Some(format!("Object 'Kind' is missing in '{text}'"));
        }
    };
    Some(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

/// What is wrong with an answer.
#[derive(Debug)]
pub(super) enum Wrong {
    /// The text that a client sees after `conversion webhook for …, Kind=… `.
    Answer(String),
    /// An object cannot be decoded. The whole text that a client sees.
    Undecodable(String),
}

/// What is wrong with an object.
#[derive(Debug)]
enum Fault {
    /// It is no object with a type.
    Undecodable(String),
    /// It has another type.
    Type(String),
    /// It is another object.
    Object(String),
    Metadata(String),
}
impl Fault {
    fn at(self, idx: usize) -> Wrong {
        Wrong::Answer(match self {
            Self::Undecodable(text) => return Wrong::Undecodable(text),
            Self::Type(text) => format!("returned invalid object at index {idx}: {text}"),
            Self::Object(text) => format!("returned invalid object: {text}"),
            Self::Metadata(text) => format!("returned invalid metadata: {text}"),
        })
    }
}

fn object(target: &Target, sent: &[u8], mut converted: Value) -> Result<Value, Fault> {
    let undecodable = |error: serde_json::Error| Fault::Type(error.to_string());
    let mut sent: Value = serde_json::from_slice(sent).map_err(undecodable)?;
    let text = |object: &Value, name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&converted, "apiVersion"), text(&converted, "kind"));
    if version != target.api_version {
        let expected = &target.api_version;
        return Err(Fault::Type(format!(
            "invalid groupVersion (expected {expected}, received {version})"
        )));
    }
    let expected = text(&sent, "kind");
    if kind != expected {
        return Err(Fault::Type(format!("invalid kind (expected {expected}, received {kind})")));
    }
    for (what, member) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let (was, is) = (sent.meta_str(member), converted.meta_str(member));
        if was != is {
            return Err(Fault::Object(format!("must have the same {what}: {was} != {is}")));
        }
    }
    let metadata = match converted.get_mut("metadata").map(Value::take) {
        None => return Err(Fault::Metadata("missing metadata in converted object".to_owned())),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => {
            return Err(Fault::Metadata("invalid metadata in converted object".to_owned()));
        }
    };
    let original = match sent.get_mut("metadata").map(Value::take) {
        Some(Value::Object(original)) => original,
        _ => Map::new(),
    };
    converted["metadata"] = Value::Object(merge_metadata(original, metadata)?);
    target.schema.prune(&mut converted);
    Ok(converted)
}

/// The name of a value's Go type, as the reference's texts have it.
fn type_of(value: &Value) -> &'static str {
    if value.is_null() { "<nil>" } else { go_type(value) }
}

/// The original metadata with the labels and annotations of the answer.
fn merge_metadata(
    mut merged: Map<String, Value>,
    mut converted: Map<String, Value>,
) -> Result<Map<String, Value>, Fault> {
    let mut errors = field::Errors::new();
    for member in ["labels", "annotations"] {
        let Some(now) = converted.remove(member).filter(|now| !now.is_null()) else {
            merged.remove(member);
            continue;
        };
        let Some(entries) = now.as_object() else {
            return Err(Fault::Metadata(format!(
                "invalid metadata.{member} of type {} in converted object",
                type_of(&now)
            )));
        };
        if let Some((key, value)) = entries.iter().find(|(_, value)| !value.is_string()) {
            return Err(Fault::Metadata(format!(
                "metadata.{member}[{key}] must be a string, but is {} in converted object",
                type_of(value)
            )));
        }
        if merged.get(member) == Some(&now) {
            continue;
        }
        let path = |member: &str| field::Path::new("metadata").child(member);
        match member {
            "labels" => validate_labels(Some(&now), &path(member), &mut errors),
            // The reference calls them so here.
            _ => validate_annotations(Some(&now), &path("annotation"), &mut errors),
        }
        merged.insert(member.to_owned(), now);
    }
    if errors.is_empty() { Ok(merged) } else { Err(Fault::Metadata(field::aggregate(&errors))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_longer_than_a_body_is_refused() {
        let object = |n| format!("{{\"kind\":\"{}\"}}", "x".repeat(n));
        assert!(parse(object(1).as_bytes()).is_ok());
        assert!(parse(object(SLICE_BYTES).as_bytes()).is_ok());
        let Wrong::Answer(text) = parse(object(OBJECT_BYTES_MAX).as_bytes()).unwrap_err().at(2)
        else {
            panic!("it was read");
        };
        assert_eq!(text, "returned invalid object at index 2: it is larger than 3145728 bytes");
    }
}
