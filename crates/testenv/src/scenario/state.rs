//! The final state of a play: every object, without parts that differ between any two plays.

use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_store::{RangeRequest, Store, StoreError};
use std::collections::BTreeMap;

/// Metadata that differs between any two plays.
const VOLATILE: [&str; 5] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The objects of a store, by key. An object with a generated name is keyed by its prefix and a
/// number, in the order of the objects' content.
pub(super) async fn of(store: &dyn Store) -> Result<BTreeMap<String, Value>, StoreError> {
    let range = store.range(RangeRequest::prefix("")).await?;
    let mut found = Vec::new();
    for entry in range.value.entries {
        let key = String::from_utf8_lossy(&entry.key).into_owned();
        let tree = serde_json::from_slice::<Value>(&entry.value).ok();
        let tree = tree.filter(|tree| tree["kind"].is_string() && tree["metadata"].is_object());
        if let Some(tree) = tree.filter(|tree| !is_ignored(tree)) {
            found.push((key, tree));
        }
    }
    let mut names = BTreeMap::new();
    for (_, tree) in &found {
        let metadata = &tree["metadata"];
        let Some(name) = metadata["name"].as_str() else { continue };
        let prefix = stable_name(metadata);
        if let Some(uid) = metadata["uid"].as_str() {
            names.insert(uid.to_owned(), format!("<uid of {}>", prefix.unwrap_or(name)));
        }
        if let Some(prefix) = prefix {
            names.insert(name.to_owned(), format!("{prefix}*"));
        }
    }
    let mut plain = BTreeMap::new();
    let mut generated: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (key, mut tree) in found {
        let prefix = stable_name(&tree["metadata"]).map(str::to_owned);
        normalize(&mut tree, &names);
        let Some(prefix) = prefix else {
            plain.insert(key, tree);
            continue;
        };
        tree["metadata"]["name"] = format!("{prefix}*").into();
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        generated.entry(format!("{folder}/{prefix}*")).or_default().push(tree);
    }
    for (key, mut trees) in generated {
        trees.sort_by_cached_key(Value::to_string);
        plain.extend(trees.into_iter().enumerate().map(|(n, tree)| (format!("{key}{n}"), tree)));
    }
    Ok(plain)
}

/// Whether an object is an Event or a Lease.
fn is_ignored(tree: &Value) -> bool {
    let version = tree["apiVersion"].as_str().unwrap_or_default();
    match tree["kind"].as_str() {
        Some("Event") => version == "v1" || version.starts_with("events.k8s.io/"),
        Some("Lease") => version.starts_with("coordination.k8s.io/"),
        _ => false,
    }
}

/// The prefix of a generated name; `None` for other names.
fn stable_name(metadata: &Value) -> Option<&str> {
    metadata["generateName"].as_str()
}

/// Removes the parts that differ between any two plays. `names` has what stands for uids and for
/// generated names, which other objects may contain: as the name of an owner, in a status.
fn normalize(tree: &mut Value, names: &BTreeMap<String, String>) {
    if let Some(metadata) = tree["metadata"].as_object_mut() {
        metadata.retain(|name, _| !VOLATILE.contains(&name.as_str()));
    }
    normalize_values(tree, names);
}

fn normalize_values(tree: &mut Value, names: &BTreeMap<String, String>) {
    match tree {
        Value::String(text) => {
            if Timestamp::parse(text).is_some() {
                "<time>".clone_into(text);
            } else if text.split('/').any(|part| names.contains_key(part)) {
                // The whole text, or a part of `namespace/name`.
                let stable = |part| names.get(part).map_or(part, String::as_str);
                *text = text.split('/').map(stable).collect::<Vec<_>>().join("/");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize_values(item, names)),
        Value::Object(fields) => {
            // It follows the generation, which is removed too.
            fields.remove("observedGeneration");
            fields.values_mut().for_each(|value| normalize_values(value, names));
        }
        _ => {}
    }
}

/// The differences between two final states, one per line.
pub(super) fn differences(
    wanted: &BTreeMap<String, Value>,
    found: &BTreeMap<String, Value>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, wanted) in wanted {
        match found.get(key) {
            None => lines.push(format!("  missing: {key}")),
            Some(found) if found != wanted => {
                lines.push(format!("  {key} is\n{found:#}\n  rather than\n{wanted:#}"));
            }
            Some(_) => {}
        }
    }
    let extra = found.iter().filter(|(key, _)| !wanted.contains_key(*key));
    lines.extend(extra.map(|(key, tree)| format!("  left over: {key}\n{tree:#}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use setpoint_store::{MemoryStore, Op, Txn};

    async fn state_of(objects: &[(&str, Value)]) -> BTreeMap<String, Value> {
        let store = MemoryStore::default();
        for (key, object) in objects {
            let key = format!("/registry/{key}").into();
            let put = Op::Put(key, object.to_string().into());
            store.commit(Txn { ops: vec![put], ..Txn::default() }).await.unwrap();
        }
        of(&store).await.unwrap()
    }

    fn owned(uid: &str, suffix: &str, time: &str) -> [(String, Value); 2] {
        let owner =
            json!({"kind": "Job", "metadata": {"name": "j", "uid": uid, "resourceVersion": "9"}});
        let pod = json!({"kind": "Pod", "metadata": {
            "name": format!("j-{suffix}"), "generateName": "j-", "creationTimestamp": time,
            "ownerReferences": [{"name": "j", "uid": uid}],
        }, "status": {"startTime": time}});
        [("jobs/n/j".to_owned(), owner), (format!("pods/n/j-{suffix}"), pod)]
    }

    #[tokio::test]
    async fn uids_times_and_generated_names_make_no_difference() {
        let first = owned("u1", "abc", "2026-01-01T00:00:00Z");
        let second = owned("u2", "xyz", "2026-01-01T00:00:09Z");
        let kept_of = async |objects: &[(String, Value)]| {
            let objects: Vec<_> =
                objects.iter().map(|(key, tree)| (key.as_str(), tree.clone())).collect();
            state_of(&objects).await
        };
        let (first, second) = (kept_of(&first).await, kept_of(&second).await);
        assert_eq!(differences(&first, &second), [""; 0]);
        assert!(first.contains_key("/registry/pods/n/j-*0"), "{first:#?}");
    }

    #[tokio::test]
    async fn generated_names_make_no_difference_in_other_objects() {
        let play = async |suffix: &str| {
            let name = format!("j-{suffix}");
            let pod = json!({"kind": "Pod", "metadata": {"name": name, "generateName": "j-"}});
            let job = json!({"kind": "Job", "metadata": {"name": "j"}, "status": {
                "pod": name, "path": format!("n/{name}"), "all": [{"name": name}],
            }});
            state_of(&[("pods/n/any", pod), ("jobs/n/j", job)]).await
        };
        let (first, second) = (play("abc").await, play("xyz").await);
        assert_eq!(differences(&first, &second), [""; 0]);
        let job = &first["/registry/jobs/n/j"];
        assert_eq!(job["status"], json!({"pod": "j-*", "path": "n/j-*", "all": [{"name": "j-*"}]}));
        assert_eq!(job["metadata"]["name"], "j", "a name that was not generated");
    }

    #[tokio::test]
    async fn missing_extra_and_changed_objects_are_named() {
        let map = |color: &str| json!({"kind": "ConfigMap", "metadata": {}, "data": {"c": color}});
        let wanted = state_of(&[("cm/a", map("red")), ("cm/b", map("red"))]).await;
        let found = state_of(&[("cm/b", map("blue")), ("cm/c", map("red"))]).await;
        let lines = differences(&wanted, &found);
        assert_eq!(lines.len(), 3, "{lines:#?}");
        assert!(lines[0].contains("missing: /registry/cm/a"));
        assert!(lines[1].contains("\"blue\""));
        assert!(lines[2].contains("left over: /registry/cm/c"));
    }

    #[tokio::test]
    async fn events_and_leases_do_not_count() {
        let object = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
        let ignored = [
            ("events/n/a", object("v1", "Event")),
            ("events/n/b", object("events.k8s.io/v1", "Event")),
            ("leases/n/a", object("coordination.k8s.io/v1", "Lease")),
        ];
        assert!(state_of(&ignored).await.is_empty());
    }

    /// Parts of keys decided: whatever was in a namespace `leases` was not compared.
    #[tokio::test]
    async fn objects_count_in_namespaces_of_any_name_and_of_kinds_of_other_groups() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let lease = json!({"apiVersion": "rent.example.com/v1", "kind": "Lease", "metadata": {}});
        let objects = [
            ("configmaps/leases/a", map.clone()),
            ("configmaps/events/a", map),
            ("rent.example.com/leases/n/a", lease),
        ];
        assert_eq!(state_of(&objects).await.len(), 3);
    }
}
