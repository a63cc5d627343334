//! Lists of tolerations.
use crate::kind::text;
use serde_json::Value;

/// Both lists without tolerations that another one covers; of equal ones the first stays.
pub(super) fn merged(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut kept: Vec<Value> = Vec::with_capacity(all.len());
    for (i, toleration) in all.iter().enumerate() {
        let before = kept.iter().any(|other| covers(other, toleration));
        let after =
            || all[i + 1..].iter().any(|other| other != toleration && covers(other, toleration));
        if !before && !after() {
            kept.push((*toleration).clone());
        }
    }
    kept
}

/// Whether `wide` tolerates every taint that `narrow` tolerates, for as long.
pub(super) fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let (wide_key, exists) = (text(wide, "key"), text(wide, "operator") == "Exists");
    if text(narrow, "key") != wide_key && !(wide_key.is_empty() && exists) {
        return false;
    }
    let effect = text(wide, "effect");
    if text(narrow, "effect") != effect && !effect.is_empty() {
        return false;
    }
    if effect == "NoExecute"
        && let Some(most) = wide["tolerationSeconds"].as_i64()
        && narrow["tolerationSeconds"].as_i64().is_none_or(|seconds| seconds > most)
    {
        return false;
    }
    match text(wide, "operator") {
        "Exists" => true,
        "" | "Equal" => {
            matches!(text(narrow, "operator"), "" | "Equal")
                && text(narrow, "value") == text(wide, "value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn covered_tolerations_are_dropped() {
        let narrow = json!({"key": "a", "operator": "Equal", "value": "1", "effect": "NoSchedule"});
        let wide = json!({"key": "a", "operator": "Exists"});
        let other = json!({"key": "b", "value": "1"});
        let all = |first: &[&Value], second: &[&Value]| {
            let owned = |list: &[&Value]| list.iter().map(|t| (*t).clone()).collect::<Vec<_>>();
            merged(&owned(first), &owned(second))
        };
        assert_eq!(all(&[&narrow], &[&wide]), std::slice::from_ref(&wide));
        assert_eq!(all(&[&wide], &[&narrow, &other]), [wide.clone(), other.clone()]);
        assert_eq!(all(&[&other], &[&other]), [other]);
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60});
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30});
        assert!(covers(&long, &short) && !covers(&short, &long));
        assert!(covers(&json!({"operator": "Exists"}), &long));
    }
}
