use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

#[track_caller]
fn check(before: Value, after: Value, expect: Expect) {
    expect.assert_eq(
        &difference(&before, &after).map_or("equal".to_owned(), |patch| patch.to_string()),
    );
}

#[test]
fn difference_has_only_the_changes() {
    check(
        json!({"a": 1, "b": {"c": 2, "d": 3}}),
        json!({"a": 1, "b": {"c": 2, "d": 3}}),
        expect!["equal"],
    );
    check(
        json!({"a": 1, "b": {"c": 2, "d": 3}}),
        json!({"a": 1, "b": {"c": 4}}),
        expect![[r#"{"b":{"c":4,"d":null}}"#]],
    );
    check(json!({"a": [1, 2]}), json!({"a": [1]}), expect![[r#"{"a":[1]}"#]]);
    check(json!({}), json!({"a": {"b": {}}}), expect![[r#"{"a":{"b":{}}}"#]]);
    check(json!({}), json!({"a": null}), expect!["equal"]);
    check(json!({"a": {"b": 1}}), json!({"a": 2}), expect![[r#"{"a":2}"#]]);
}

/// RFC 7396, §2.
fn merged(mut target: Value, patch: &Value) -> Value {
    let Value::Object(members) = patch else { return patch.clone() };
    if !target.is_object() {
        target = json!({});
    }
    for (name, value) in members {
        let object = target.as_object_mut().unwrap();
        if value.is_null() {
            object.remove(name);
        } else {
            let old = object.remove(name).unwrap_or(Value::Null);
            object.insert(name.clone(), merged(old, value));
        }
    }
    target
}

/// Values as typed objects encode them: without nulls.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<u8>().prop_map(Value::from), "[ab]{0,2}".prop_map(Value::from)];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn merging_the_difference_leads_from_one_to_the_other(
        before in prop::collection::btree_map("[abc]", values(), 0..4),
        after in prop::collection::btree_map("[abc]", values(), 0..4),
    ) {
        let [before, after] = [before, after].map(|members| Value::Object(members.into_iter().collect()));
        match difference(&before, &after) {
            Some(patch) => prop_assert_eq!(merged(before, &patch), after),
            None => prop_assert_eq!(before, after),
        }
    }
}
