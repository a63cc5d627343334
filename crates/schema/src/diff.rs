//! Comparison of trees for what makes `generation` step (spec: api-server §5.4, §13).
use serde_json::Value;

/// Members at the root that never count: the type, and what every write may touch.
const IGNORED: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Whether two trees differ, `apiVersion`, `kind`, `metadata` and (with `ignore_status`) `status`
/// at the root aside: what makes `generation` step.
///
/// A member that is null equals one that is absent. Trees of built-in kinds come out of
/// [`crate::decode::conform`], where empty optional fields have one form, so nothing else needs
/// forgiving.
pub fn spec_differs(a: &Value, b: &Value, ignore_status: bool) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a != b };
    let counts = |name: &str| !(IGNORED.contains(&name) || ignore_status && name == "status");
    a.iter().any(|(name, value)| counts(name) && !same_member(value, b.get(name)))
        || b.iter().any(|(name, value)| counts(name) && !a.contains_key(name) && !value.is_null())
}

fn same_member(value: &Value, other: Option<&Value>) -> bool {
    match other {
        Some(other) => same(value, other),
        None => value.is_null(),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter().all(|(name, value)| same_member(value, b.get(name)))
                && b.iter().all(|(name, value)| a.contains_key(name) || value.is_null())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::spec_differs;
    use serde_json::json;

    #[test]
    fn only_spec_counts() {
        let a = json!({"apiVersion": "v1", "metadata": {"name": "a"}, "spec": {"x": [1, {"y": null}]}, "status": {"s": 1}});
        let b = json!({"apiVersion": "v2", "metadata": {"name": "b"}, "spec": {"x": [1, {}]}, "status": {"s": 2}});
        assert!(!spec_differs(&a, &b, true));
        assert!(spec_differs(&a, &b, false));
        assert!(spec_differs(&a, &json!({"spec": {"x": [1, {"z": 1}]}}), true));
        assert!(spec_differs(&json!({}), &json!({"spec": {}}), true));
    }
}
