//! Comparison of trees for what makes `generation` step (spec: api-server §5.4, §13), and for what
//! an update may not change.
use crate::node::{Scalar, View};
use serde_json::Value;
use setpoint_object::quantity::Quantity;
use std::cmp::Ordering;

/// Members at the root that never count: the type, and what every write may touch.
const IGNORED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// What a null and an empty list are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Empty {
    /// Values of their own: custom resources, which are maps. A member that is null differs from
    /// one that is absent.
    IsAValue,
    /// The same as an absent member: built-in kinds. Their trees come out of
    /// [`crate::decode::conform`], where empty optional fields are missing, so that lists are
    /// required ones only.
    IsMissing,
}

/// Whether two trees differ, `apiVersion`, `kind`, `metadata` and (with `ignore_status`) `status`
/// at the root aside: what makes `generation` step.
pub fn spec_differs(a: &Value, b: &Value, ignore_status: bool, empty: Empty) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a != b };
    let counts = |name: &str| !(IGNORED.contains(&name) || ignore_status && name == "status");
    let is_value = |value: &Value| empty == Empty::IsAValue || !value.is_null();
    a.iter().any(|(name, value)| counts(name) && !same_member(value, b.get(name), empty))
        || b.iter().any(|(name, value)| counts(name) && !a.contains_key(name) && is_value(value))
}

fn same_member(value: &Value, other: Option<&Value>, empty: Empty) -> bool {
    match other {
        Some(other) => same(value, other, empty),
        None => value.is_null() && empty == Empty::IsMissing,
    }
}

fn same(a: &Value, b: &Value, empty: Empty) -> bool {
    if empty == Empty::IsAValue {
        return a == b;
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| same_member(value, b.get(name), empty))
                && b.iter().all(|(name, value)| a.contains_key(name) || value.is_null())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, empty))
        }
        (Value::Array(items), Value::Null) | (Value::Null, Value::Array(items)) => items.is_empty(),
        _ => a == b,
    }
}

/// A changed object with the stored texts of quantities that have the same value: `1Gi` is no
/// change of `1073741824`. `None` if there are no such quantities. Items of lists are compared in
/// their order.
pub fn with_stored_quantities(schema: View<'_>, new: &Value, old: &Value) -> Option<Value> {
    has_some(schema, new, old).then(|| {
        let mut aligned = new.clone();
        align(schema, &mut aligned, old);
        aligned
    })
}

/// Whether an object has equal quantities. Most updates leave the spec or the status as it is, and
/// metadata has no quantities: such a member is passed without a look at its schema.
fn has_some(schema: View<'_>, new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    new.iter().filter(|(name, _)| !IGNORED.contains(&name.as_str())).any(|(name, value)| {
        let changed = old.get(name).filter(|old| *old != value).zip(schema.member(name));
        changed.is_some_and(|(old, schema)| has_equal_quantities(schema, value, old))
    })
}

fn has_equal_quantities(schema: View<'_>, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => new.iter().any(|(name, value)| {
            let pair = old.get(name).zip(schema.member(name));
            pair.is_some_and(|(old, schema)| has_equal_quantities(schema, value, old))
        }),
        (Value::Array(new), Value::Array(old)) => schema.items().is_some_and(|schema| {
            new.iter().zip(old).any(|(new, old)| has_equal_quantities(schema, new, old))
        }),
        (Value::String(new), Value::String(old)) => {
            schema.scalar == Scalar::Quantity && new != old && are_equal(new, old)
        }
        _ => false,
    }
}

fn align(schema: View<'_>, new: &mut Value, old: &Value) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (name, value) in new {
                if let (Some(old), Some(schema)) = (old.get(name), schema.member(name)) {
                    align(schema, value, old);
                }
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            let Some(schema) = schema.items() else { return };
            new.iter_mut().zip(old).for_each(|(new, old)| align(schema, new, old));
        }
        (Value::String(new), Value::String(old))
            if schema.scalar == Scalar::Quantity && new != old && are_equal(new, old) =>
        {
            new.clone_from(old);
        }
        _ => {}
    }
}

/// Whether two texts are quantities of the same value.
fn are_equal(a: &str, b: &str) -> bool {
    match (Quantity::parse(a), Quantity::parse(b)) {
        (Ok(a), Ok(b)) => a.compare(&b) == Ordering::Equal,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Empty::{IsAValue, IsMissing};
    use super::{spec_differs, with_stored_quantities};
    use serde_json::json;

    #[test]
    fn only_spec_counts() {
        let a = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"x": [1, {"y": null}]}, "status": {"s": 1}});
        let b = json!({"apiVersion": "v2", "metadata": {"name": "b"}, "spec": {"x": [1, {}]}, "status": {"s": 2}});
        assert!(!spec_differs(&a, &b, true, IsMissing));
        assert!(spec_differs(&a, &b, false, IsMissing));
        assert!(spec_differs(&a, &b, true, IsAValue), "a null is no absent member");
        assert!(spec_differs(&json!({}), &json!({"a": null}), true, IsAValue));
        assert!(!spec_differs(&json!({}), &json!({"a": null}), true, IsMissing));
        assert!(!spec_differs(&a, &a, true, IsAValue));
        assert!(spec_differs(&a, &json!({"spec": {"x": [1, {"z": 1}]}}), true, IsAValue));
        assert!(spec_differs(&json!({}), &json!({"spec": {}}), true, IsAValue));
        let (null, list) = (json!({"ports": null}), json!({"ports": []}));
        assert!(spec_differs(&null, &list, true, IsAValue));
        assert!(!spec_differs(&null, &list, true, IsMissing));
    }

    #[test]
    fn equal_quantities_are_no_change() {
        let pod = crate::builtin::type_schema("", "v1", "Pod").unwrap();
        let object = |memory: &str, variable: &str| {
            json!({"spec": {"containers": [{
                "env": [{"name": "A", "value": variable}],
                "resources": {"limits": {"memory": memory}},
            }]}})
        };
        let stored = object("1073741824", "1024");
        let same = with_stored_quantities(pod.view(), &object("1Gi", "1Ki"), &stored);
        assert_eq!(same, Some(object("1073741824", "1Ki")), "a variable is no quantity");
        assert_eq!(with_stored_quantities(pod.view(), &object("2Gi", "1024"), &stored), None);
        assert_eq!(with_stored_quantities(pod.view(), &stored, &stored), None);
    }
}
