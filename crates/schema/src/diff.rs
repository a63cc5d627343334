//! Comparison of trees for what makes `generation` step (spec: api-server §5.4, §13).
use serde_json::Value;

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

#[cfg(test)]
mod tests {
    use super::Empty::{IsAValue, IsMissing};
    use super::spec_differs;
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
}
