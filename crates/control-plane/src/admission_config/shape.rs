//! The shapes of configurations: which members a document may have, and of which types.

use serde_json::Value;

/// The type of a value.
#[derive(Debug)]
pub(super) enum Shape {
    /// Any value.
    Any,
    /// A string.
    Text,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A list.
    List(&'static Shape),
    /// An object with these members, and the name of its type. Any member may be absent or null.
    Members(&'static str, &'static [(&'static str, Shape)]),
}

impl Shape {
    /// As Go names the type.
    fn go(&self) -> String {
        match self {
            Self::Any => "interface {}".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Int32 => "int32".to_owned(),
            Self::Int64 => "int64".to_owned(),
            Self::List(of) => format!("[]{}", of.go()),
            Self::Members(name, _) => (*name).to_owned(),
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

/// Compares a document with its shape.
pub(super) fn misfits(document: &Value, shape: &Shape) -> Misfits {
    let mut found = Misfits::default();
    let place = Place { of: "", path: String::new(), go_path: String::new() };
    compare(&place, document, shape, &mut found);
    found
}

/// Where a value is.
struct Place {
    /// The type of the object that it is a member of.
    of: &'static str,
    /// With the positions in lists.
    path: String,
    /// Without them.
    go_path: String,
}

fn compare(place: &Place, value: &Value, shape: &Shape, found: &mut Misfits) {
    match (shape, value) {
        (Shape::Any, _) | (_, Value::Null) | (Shape::Text, Value::String(_)) => {}
        (Shape::Int64, Value::Number(number)) if number.is_i64() => {}
        (Shape::Int32, Value::Number(number))
            if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
        (Shape::List(of), Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                let path = format!("{}[{i}]", place.path);
                let place = Place { path, go_path: place.go_path.clone(), ..*place };
                compare(&place, item, of, found);
            }
        }
        (Shape::Members(of, members), Value::Object(object)) => {
            for (name, value) in object {
                let below = |path: &str| match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                let (path, go_path) = (below(&place.path), below(&place.go_path));
                match members.iter().find(|(member, _)| member == name) {
                    Some((_, shape)) => {
                        compare(&Place { of, path, go_path }, value, shape, found);
                    }
                    None if found.unknown.len() < UNKNOWN_MAX => found.unknown.push(path),
                    None => {}
                }
            }
        }
        _ => {
            found.other_type.get_or_insert_with(|| {
                let (is, wanted, Place { of, go_path, .. }) = (go_type(value), shape.go(), place);
                // The owner is named without its package.
                let of = of.rsplit('.').next().unwrap_or(of);
                match go_path.as_str() {
                    "" => format!("json: cannot unmarshal {is} into Go value of type {wanted}"),
                    path => format!(
                        "json: cannot unmarshal {is} into Go struct field {of}.{path} of type {wanted}"
                    ),
                }
            });
        }
    }
}

fn go_type(value: &Value) -> String {
    let is_small = |n: i64| i32::try_from(n).is_ok();
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.as_i64().is_some_and(is_small) => "number".to_owned(),
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
        const ITEM: Shape = Shape::Members("Limit", &[("qps", Shape::Int32), ("names", NAMES)]);
        const NAMES: Shape = Shape::List(&Shape::Text);
        const SHAPE: Shape =
            Shape::Members("K", &[("limits", Shape::List(&ITEM)), ("x", Shape::Any)]);
        let check = |document: Value| misfits(&document, &SHAPE);
        let fits = json!({"limits": [{"qps": 1, "names": ["a"]}, {"qps": null}], "x": {"y": 1}});
        assert_eq!(check(fits), Misfits::default());
        let unknown = check(json!({"limit": 1, "limits": [{"qpss": 1}]}));
        assert_eq!(unknown.unknown, ["limit", "limits[0].qpss"]);
        for (document, text) in [
            (
                json!({"limits": [{"qps": "1"}]}),
                "json: cannot unmarshal string into Go struct field Limit.limits.qps of type int32",
            ),
            (
                json!({"limits": [{"qps": 3_000_000_000_u64}]}),
                "json: cannot unmarshal number 3000000000 into Go struct field Limit.limits.qps of type int32",
            ),
            (
                json!({"limits": [{"names": 1}]}),
                "json: cannot unmarshal number into Go struct field Limit.limits.names of type []string",
            ),
            (
                json!({"limits": {}}),
                "json: cannot unmarshal object into Go struct field K.limits of type []Limit",
            ),
            (json!([]), "json: cannot unmarshal array into Go value of type K"),
        ] {
            assert_eq!(check(document).other_type.unwrap(), text);
        }
    }
}
