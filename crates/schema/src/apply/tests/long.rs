//! Objects with many managers, fields and long names: what would take the square, of time or of
//! memory, takes neither.

use super::*;

/// More than a quadratic walk gets through in the time of a test.
const N: usize = 20_000;

fn manager(name: &str) -> Manager<'_> {
    Manager { name, api_version: "v1", subresource: "", now: Timestamp(Duration::from_secs(1)) }
}

/// A ConfigMap of which each entry has a manager of its own.
fn crowded() -> Value {
    let entries: Vec<Value> = (0..N)
        .map(|i| {
            let field = format!("f:k{i:05}");
            json!({"manager": format!("m{i:05}"), "operation": "Apply", "apiVersion": "v1", "time": "1970-01-01T00:00:00Z",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {field: {}}}})
        })
        .collect();
    let data: serde_json::Map<String, Value> =
        (0..N).map(|i| (format!("k{i:05}"), json!("1"))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "managedFields": entries}, "data": data})
}

fn with_typing<T>(run: impl FnOnce(&Typing<'_>) -> T) -> T {
    let schema = builtin::type_schema("", "v1", "ConfigMap").unwrap();
    let versions: Vec<String> = vec!["v1".to_owned()];
    run(&Typing {
        schema: &schema,
        kind: "ConfigMap",
        reset: &BTreeSet::new(),
        custom: false,
        versions: &versions,
        others: None,
    })
}

#[test]
fn updates_among_many_managers() {
    let old = crowded();
    let mut new = old.clone();
    for value in new["data"].as_object_mut().unwrap().values_mut().take(N / 2) {
        *value = json!("2");
    }
    with_typing(|typing| update(typing, Some(&old), &mut new, &manager("late")));
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), N / 2 + 1);
    let mut same = new.clone();
    for entry in same["metadata"]["managedFields"].as_array_mut().unwrap() {
        entry["time"] = json!("1970-01-01T00:00:09Z");
    }
    settle_times(Some(&new), &mut same);
    assert_eq!(same, new);
}

#[test]
fn applies_among_many_managers() {
    let live = crowded();
    let mut config = live.clone();
    config["metadata"] = json!({"name": "x"});
    let merged =
        with_typing(|typing| apply(typing, Some(&live), &config, &manager("late"), false)).unwrap();
    assert_eq!(merged.object["metadata"]["managedFields"].as_array().unwrap().len(), N + 1);
    for value in config["data"].as_object_mut().unwrap().values_mut() {
        *value = json!("2");
    }
    let error = with_typing(|typing| apply(typing, Some(&live), &config, &manager("late"), false))
        .expect_err("others own all of it");
    assert!(error.0.message.starts_with("Apply failed with 20000 conflicts: "));
    assert!(error.0.message.ends_with(" more") && error.0.message.len() < 1 << 20);
}

#[test]
fn old_updates_are_united_at_once() {
    let mut old = crowded();
    for entry in old["metadata"]["managedFields"].as_array_mut().unwrap() {
        entry["operation"] = json!("Update");
    }
    let mut new = old.clone();
    new["data"]["new"] = json!("1");
    with_typing(|typing| update(typing, Some(&old), &mut new, &manager("late")));
    let entries = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), UPDATE_ENTRIES_MAX);
    let ancient = entries.iter().find(|entry| entry["manager"] == ANCIENT_CHANGES).unwrap();
    let united = ancient["fieldsV1"]["f:data"].as_object().unwrap();
    assert_eq!(united.len(), N + 1 - UPDATE_ENTRIES_MAX + 1);
}

#[test]
fn refusals_repeat_long_names_within_bounds() {
    let mut config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let annotations: serde_json::Map<String, Value> =
        (0..2_000).map(|i| (format!("{}{i}", "k".repeat(1_000)), json!(1))).collect();
    config["metadata"]["annotations"] = annotations.into();
    let error = with_typing(|typing| apply(typing, None, &config, &manager("m"), false))
        .expect_err("annotations are text");
    assert!(error.0.message.len() < 256 << 10, "{}", error.0.message.len());
}
