//! The shapes of configurations: which members a document may have, and of which types.

use serde_json::Value;

/// The type of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// Any value.
    Any,
    /// A string.
    Text,
    /// A whole number.
    Whole,
    /// A list.
    List(&'static Shape),
    /// An object with these members. Any may be absent or null.
    Members(&'static [(&'static str, Shape)]),
}

impl Shape {
    /// As Go names the type.
    fn go(&self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Text => "string",
            Self::Whole => "int64",
            Self::List(Self::Text) => "[]string",
            Self::List(_) => "list",
            Self::Members(_) => "struct",
        }
    }
}

/// What does not fit a shape.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Misfits {
    /// The first value of another type, in the words of Go's decoder.
    pub(super) other_type: Option<String>,
    /// The paths of members that do not exist.
    pub(super) unknown: Vec<String>,
}

/// Maximum number of reported members that do not exist.
const UNKNOWN_MAX: usize = 20;

/// Compares a document of a kind with its shape.
pub(super) fn misfits(kind: &str, document: &Value, shape: &Shape) -> Misfits {
    let mut found = Misfits::default();
    compare(kind, "", document, shape, &mut found);
    found
}

fn compare(kind: &str, path: &str, value: &Value, shape: &Shape, found: &mut Misfits) {
    match (shape, value) {
        (Shape::Any, _) | (_, Value::Null) | (Shape::Text, Value::String(_)) => {}
        (Shape::Whole, Value::Number(number)) if number.is_i64() => {}
        (Shape::List(of), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                compare(kind, &format!("{path}[{i}]"), item, of, found);
            }
        }
        (Shape::Members(members), Value::Object(object)) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let is_typed = |(member, _): &&(&str, Shape)| *member == name;
                match members.iter().find(is_typed) {
                    Some((_, shape)) => compare(kind, &path, value, shape, found),
                    None if found.unknown.len() < UNKNOWN_MAX => found.unknown.push(path),
                    None => {}
                }
            }
        }
        _ => {
            found.other_type.get_or_insert_with(|| {
                let (is, wanted) = (go_type(value), shape.go());
                format!(
                    "json: cannot unmarshal {is} into Go struct field {kind}.{path} of type {wanted}"
                )
            });
        }
    }
}

fn go_type(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_i64() => "number".to_owned(),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_members_and_other_types_are_found_with_their_paths() {
        const ITEM: Shape = Shape::Members(&[("qps", Shape::Whole), ("names", NAMES)]);
        const NAMES: Shape = Shape::List(&Shape::Text);
        const SHAPE: Shape = Shape::Members(&[("limits", Shape::List(&ITEM)), ("x", Shape::Any)]);
        let check = |document: Value| misfits("K", &document, &SHAPE);
        let fits = json!({"limits": [{"qps": 1, "names": ["a"]}, {"qps": null}], "x": {"y": 1}});
        assert_eq!(check(fits), Misfits::default());
        let unknown = check(json!({"limit": 1, "limits": [{"qpss": 1}]}));
        assert_eq!(unknown.unknown, ["limit", "limits[0].qpss"]);
        for (document, text) in [
            (
                json!({"limits": [{"qps": "1"}]}),
                "json: cannot unmarshal string into Go struct field K.limits[0].qps of type int64",
            ),
            (
                json!({"limits": [{"qps": 1.5, "names": 1}]}),
                "json: cannot unmarshal number into Go struct field K.limits[0].names of type []string",
            ),
            (
                json!({"limits": {}}),
                "json: cannot unmarshal object into Go struct field K.limits of type list",
            ),
        ] {
            assert_eq!(check(document).other_type.unwrap(), text);
        }
    }
}
