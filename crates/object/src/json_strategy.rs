//! Arbitrary JSON for property tests.
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Text with quotes, backslashes, control characters and letters beyond ASCII.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-zA-Z0-9./-]{0,12}",
        1 => proptest::collection::vec(any::<char>(), 0..6).prop_map(|c| c.into_iter().collect()),
        1 => "[\"\\\\{}\\[\\],: \n]{0,6}",
    ]
}
/// Any value.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Multiples of one eighth: by default, serde_json may read a float back with a wrong last
        // digit.
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths | 1) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            map(text(), inner).prop_map(Value::from),
        ]
    })
}
fn map(
    keys: impl Strategy<Value = String>,
    values: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::vec((keys, values), 0..5)
        .prop_map(|members| members.into_iter().collect())
}
/// `strategy`, or sometimes a value of any other type.
fn mostly(strategy: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![6 => strategy, 1 => value()]
}
fn texts() -> impl Strategy<Value = Value> {
    mostly(text().prop_map(Value::from))
}
fn owner() -> impl Strategy<Value = Value> {
    (texts(), texts(), texts(), texts(), any::<bool>()).prop_map(|(a, k, n, u, c)| {
        json!({"apiVersion": a, "kind": k, "name": n, "uid": u, "controller": c, "x": [c]})
    })
}
/// A tree that mostly looks like an object.
pub(crate) fn object() -> impl Strategy<Value = Value> {
    let labels = || mostly(map(text(), texts()).prop_map(Value::from));
    let metadata = proptest::collection::vec(
        prop_oneof![
            texts().prop_map(|v| ("name", v)),
            texts().prop_map(|v| ("namespace", v)),
            texts().prop_map(|v| ("uid", v)),
            texts().prop_map(|v| ("resourceVersion", v)),
            texts().prop_map(|v| ("creationTimestamp", v)),
            texts().prop_map(|v| ("deletionTimestamp", v)),
            mostly(any::<i64>().prop_map(Value::from)).prop_map(|v| ("generation", v)),
            labels().prop_map(|v| ("labels", v)),
            labels().prop_map(|v| ("annotations", v)),
            mostly(proptest::collection::vec(owner(), 0..3).prop_map(Value::from))
                .prop_map(|v| ("ownerReferences", v)),
            mostly(proptest::collection::vec(texts(), 0..3).prop_map(Value::from))
                .prop_map(|v| ("finalizers", v)),
            value().prop_map(|v| ("managedFields", v)),
            value().prop_map(|v| ("somethingElse", v)),
        ],
        0..10,
    )
    .prop_map(|members| {
        Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    });
    (texts(), texts(), mostly(metadata), map(text(), value())).prop_map(|(a, k, m, mut rest)| {
        rest.insert("apiVersion".to_owned(), a);
        rest.insert("kind".to_owned(), k);
        rest.insert("metadata".to_owned(), m);
        Value::Object(rest)
    })
}
