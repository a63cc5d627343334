//! Objects without what differs between any two runs: times, identities, names made by chance.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How aggregated events begin.
const COMBINED: &str = "(combined from similar events)";

/// A difference: what, here, there.
type Found = (String, String, String);

/// Names by chance and what stands for them, and the order of changes.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Replaced parts of texts.
    replaced: BTreeMap<String, String>,
    /// ReplicaSets: a refused pod is named in a text, but never seen.
    replica_sets: BTreeSet<String>,
    /// Changes, as they were seen.
    changes: Vec<(String, String)>,
    /// The last size of each ReplicaSet.
    sizes: BTreeMap<String, i64>,
    ready: BTreeMap<String, bool>,
}

impl Names {
    /// Takes note of a change.
    pub(super) fn see(&mut self, change: &str, object: &Value) {
        let meta = &object["metadata"];
        let name = meta["name"].as_str().unwrap_or_default().to_owned();
        let owner = meta["ownerReferences"][0]["name"].as_str();
        let label = |label: &str| meta["labels"][label].as_str().map(str::to_owned);
        match object["kind"].as_str().unwrap_or_default() {
            "ReplicaSet" => {
                let revision = meta["annotations"]["deployment.kubernetes.io/revision"].as_str();
                self.replica_sets.insert(name.clone());
                let Some(hash) = label("pod-template-hash") else { return };
                // The first revision that it had stays its name.
                if let (Some(revision), false) = (revision, self.replaced.contains_key(&hash)) {
                    self.replaced.insert(hash.clone(), format!("revision{revision}"));
                }
                let size = object["spec"]["replicas"].as_i64().unwrap_or(0);
                if self.sizes.insert(hash.clone(), size) != Some(size) {
                    self.changes.push((format!("sizes of {}", name.replace(&hash, "*")), {
                        let of = self.replaced.get(&hash).cloned().unwrap_or_default();
                        format!("{of}={size}")
                    }));
                }
            }
            "ControllerRevision" => {
                let hash = label("controller.kubernetes.io/hash")
                    .or_else(|| label("controller-revision-hash"));
                if let Some(hash) = hash {
                    let revision = format!("revision{}", object["revision"]);
                    self.replaced.entry(hash).or_insert(revision);
                }
            }
            "Job" => {
                if let Some(owner) = owner {
                    self.replaced.insert(name, format!("{owner}-*"));
                }
            }
            "EndpointSlice" | "Pod" => match meta["generateName"].as_str() {
                Some(prefix) => {
                    self.replaced.insert(name, format!("{prefix}*"));
                }
                None if object["kind"] == "Pod" => {
                    let is = |condition: &Value| {
                        condition["type"] == "Ready" && condition["status"] == "True"
                    };
                    let conditions = object["status"]["conditions"].as_array();
                    let ready = conditions.is_some_and(|all| all.iter().any(is));
                    let was = self.ready.insert(name.clone(), ready);
                    let text = match change {
                        "ADDED" => Some("created"),
                        "DELETED" => Some("deleted"),
                        _ if ready && was == Some(false) => Some("ready"),
                        _ => None,
                    };
                    if let Some(text) = text {
                        self.changes.push(("pods".to_owned(), format!("{name} {text}")));
                    }
                }
                None => {}
            },
            _ => {}
        }
    }

    /// The changes by what changes, with names that two runs share. Sizes between two turning
    /// points are left out: how many pods a step has depends on when others became ready.
    pub(super) fn orders(&self) -> BTreeMap<String, Vec<String>> {
        let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut sizes: BTreeMap<&str, (i64, bool, usize)> = BTreeMap::new();
        for (what, change) in &self.changes {
            let order = orders.entry(what.clone()).or_default();
            if let Some((of, size)) = change.split_once('=')
                && let Ok(size) = size.parse::<i64>()
            {
                let (last, grew, at) = *sizes.get(of).unwrap_or(&(-1, true, usize::MAX));
                let grows = size > last;
                let same = grows == grew && at < order.len();
                let place = if same { at } else { order.len() };
                sizes.insert(of, (size, grows, place));
                if same {
                    order[place].clone_from(change);
                    continue;
                }
            }
            order.push(change.clone());
        }
        orders
    }

    /// A text without names by chance, identities, addresses and times.
    fn text(&self, text: &str) -> String {
        if text.starts_with("-----BEGIN CERTIFICATE-----") {
            return "CERTIFICATE".to_owned();
        }
        // The text of an aggregated event is that of the last one.
        if text.starts_with(COMBINED) {
            return COMBINED.to_owned();
        }
        let mut text = text.to_owned();
        for owner in &self.replica_sets {
            text = without_chance(&text, owner);
        }
        // A pod's name contains the hash of its ReplicaSet: longer names first.
        let mut replaced: Vec<_> = self.replaced.iter().collect();
        replaced.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, with) in replaced {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), with);
            }
        }
        // Names that stand for pods contain hashes again.
        for (name, with) in &self.replaced {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), with);
            }
        }
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
        let mut out = String::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            out.push_str(&stands_for(word));
            let skip = tail.chars().next().map_or(0, char::len_utf8);
            out.push_str(&tail[..skip]);
            rest = &tail[skip..];
        }
        out
    }
}

/// A text with `OWNER-*` in place of names by chance that begin with the owner's.
fn without_chance(text: &str, owner: &str) -> String {
    /// The length of what is added, and its characters.
    const LENGTH: usize = 5;
    const CHARACTERS: &str = "bcdfghjklmnpqrstvwxz2456789";
    let prefix = format!("{owner}-");
    let mut parts = text.split(prefix.as_str());
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(&prefix);
        let end = part.find(|c| !CHARACTERS.contains(c)).unwrap_or(part.len());
        let is_end = !part[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        if end == LENGTH && is_end {
            out.push('*');
            out.push_str(&part[end..]);
        } else {
            out.push_str(part);
        }
    }
    out
}

/// A word, or what stands for it.
fn stands_for(word: &str) -> String {
    let dashes: Vec<usize> = word.match_indices('-').map(|(at, _)| at).collect();
    let is_uid = word.len() == 36 && dashes == [8, 13, 18, 23];
    let is_time = word.len() >= 20
        && word.ends_with('Z')
        && word.as_bytes().get(10) == Some(&b'T')
        && word.starts_with(|c: char| c.is_ascii_digit());
    let is_address = word.parse::<std::net::IpAddr>().is_ok() && !word.starts_with("192.0.2.");
    let is_node = word
        .strip_prefix("node-")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()));
    let is_id = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match () {
        () if is_id => "ID".to_owned(),
        () if word.starts_with("kube-api-access-") => "kube-api-access-*".to_owned(),
        () if word.len() == 6 && word.starts_with("zone-") => "ZONE".to_owned(),
        () if is_uid => "UID".to_owned(),
        () if is_time => "TIME".to_owned(),
        () if is_address => "ADDRESS".to_owned(),
        () if is_node => "NODE".to_owned(),
        () => word.to_owned(),
    }
}

/// The objects and events of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Objects that have the same name without its chance part stand together.
    objects: BTreeMap<String, Vec<String>>,
    /// How often each was seen.
    events: BTreeMap<String, i64>,
}

impl Snapshot {
    pub(super) fn add(&mut self, mut object: Value, names: &Names) {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if kind == "Event" {
            let text = |value: &Value| names.text(value.as_str().unwrap_or_default());
            let about = &object["involvedObject"];
            let count = object["series"]["count"].as_i64().or(object["count"].as_i64());
            let by = [&object["source"]["component"], &object["reportingComponent"]];
            let by = by.into_iter().filter_map(Value::as_str).find(|by| !by.is_empty());
            let key = format!(
                "{} {}/{} by {}: {} {}",
                text(&object["type"]),
                text(&about["kind"]),
                text(&about["name"]),
                by.unwrap_or_default(),
                text(&object["reason"]),
                text(&object["message"]),
            );
            *self.events.entry(key).or_default() += count.unwrap_or(1);
            return;
        }
        let generation = object["metadata"]["generation"].clone();
        if let Some(seen) = object.pointer_mut("/status/observedGeneration") {
            *seen = json!(if *seen == generation { "current" } else { "behind" });
        }
        if let Some(meta) = object["metadata"].as_object_mut() {
            for field in ["uid", "resourceVersion", "managedFields", "generation"] {
                meta.remove(field);
            }
        }
        clean(&mut object, names);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = format!("{kind}/{name}");
        let all = self.objects.entry(key).or_default();
        all.push(object.to_string());
        all.sort();
    }

    /// The differences between this and the original's.
    pub(super) fn differences(&self, other: &Snapshot) -> Vec<Found> {
        let mut found = Vec::new();
        let keys = self.objects.keys().chain(other.objects.keys());
        for key in keys.collect::<BTreeSet<_>>() {
            let none = Vec::new();
            let mut ours = self.objects.get(key).unwrap_or(&none).clone();
            let mut theirs = other.objects.get(key).unwrap_or(&none).clone();
            if ours.len() != theirs.len() {
                found.push((key.clone(), ours.len().to_string(), theirs.len().to_string()));
            }
            ours.retain(|one| match theirs.iter().position(|other| other == one) {
                Some(at) => {
                    theirs.remove(at);
                    false
                }
                None => true,
            });
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let parsed = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
                tree(key, &parsed(ours), &parsed(theirs), &mut found);
            }
        }
        let keys = self.events.keys().chain(other.events.keys());
        for key in keys.collect::<BTreeSet<_>>() {
            let count = |snapshot: &Snapshot| snapshot.events.get(key).copied().unwrap_or(0);
            let (ours, theirs) = (count(self), count(other));
            if ours != theirs {
                found.push((format!("event {key}"), ours.to_string(), theirs.to_string()));
            }
        }
        found
    }
}

/// Replaces texts, and sorts what has no order.
fn clean(value: &mut Value, names: &Names) {
    match value {
        Value::String(text) => *text = names.text(text),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| clean(item, names));
            let has = |field: &str| items.iter().all(|item| item.get(field).is_some());
            if has("type") || has("addresses") || has("ip") || has("port") || has("ports") {
                items.sort_by_key(Value::to_string);
            }
        }
        Value::Object(object) => {
            let old = std::mem::take(object);
            *object = old
                .into_iter()
                .map(|(key, mut item)| {
                    clean(&mut item, names);
                    (names.text(&key), item)
                })
                .collect::<Map<_, _>>();
        }
        _ => {}
    }
}

/// The places where two trees differ.
fn tree(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<Found>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                tree(&format!("{path}.{key}"), &of(a), &of(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            let typed = |items: &[Value]| items.iter().all(|item| item["type"].is_string());
            if typed(a) && typed(b) {
                let kinds = a.iter().chain(b).filter_map(|item| item["type"].as_str());
                for kind in kinds.collect::<BTreeSet<_>>() {
                    let of = |items: &[Value]| {
                        items.iter().find(|item| item["type"] == kind).cloned().unwrap_or_default()
                    };
                    tree(&format!("{path}[{kind}]"), &of(a), &of(b), found);
                }
            } else if a.len() == b.len() {
                for (at, (a, b)) in a.iter().zip(b).enumerate() {
                    tree(&format!("{path}[{at}]"), a, b, found);
                }
            } else {
                found.push((path.to_owned(), ours.to_string(), theirs.to_string()));
            }
        }
        _ if ours == theirs => {}
        _ => found.push((path.to_owned(), ours.to_string(), theirs.to_string())),
    }
}

/// The differences between orders of changes.
pub(super) fn orders(
    ours: &BTreeMap<String, Vec<String>>,
    theirs: &BTreeMap<String, Vec<String>>,
) -> Vec<Found> {
    let keys = ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>();
    let of = |orders: &BTreeMap<String, Vec<String>>, key: &str| {
        orders.get(key).map(|order| order.join(", ")).unwrap_or_default()
    };
    keys.into_iter()
        .map(|key| (format!("order: {key}"), of(ours, key), of(theirs, key)))
        .filter(|(_, ours, theirs)| ours != theirs)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, hash: &str) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {
                "name": name, "generateName": format!("web-{hash}-"), "namespace": "n",
                "uid": "7f4b2c1e-0000-4000-8000-000000000000",
                "labels": {"pod-template-hash": hash},
            },
            "spec": {"nodeName": "node-3"},
            "status": {"podIP": "10.0.0.7", "startTime": "2026-01-02T03:04:05Z"},
        })
    }

    fn snapshot(name: &str, hash: &str) -> Snapshot {
        let mut names = Names::default();
        let set = json!({
            "kind": "ReplicaSet",
            "metadata": {
                "name": format!("web-{hash}"), "labels": {"pod-template-hash": hash},
                "annotations": {"deployment.kubernetes.io/revision": "1"},
            },
            "spec": {"replicas": 2},
        });
        names.see("ADDED", &set);
        names.see("ADDED", &pod(name, hash));
        let mut snapshot = Snapshot::default();
        snapshot.add(pod(name, hash), &names);
        let event = json!({
            "kind": "Event", "type": "Normal", "reason": "SuccessfulCreate", "count": 1,
            "message": format!("Created pod: {name}"),
            "involvedObject": {"kind": "ReplicaSet", "name": format!("web-{hash}")},
        });
        snapshot.add(event, &names);
        snapshot
    }

    #[test]
    fn names_by_chance_are_no_difference() {
        let (a, b) =
            (snapshot("web-1234abcd-x7k2p", "1234abcd"), snapshot("web-98fe-zzzzz", "98fe"));
        assert_eq!(a.differences(&b), Vec::new());
        assert_eq!(a.objects.keys().collect::<Vec<_>>(), ["Pod/web-revision1-*"]);
    }

    #[test]
    fn a_refused_pod_has_no_name_of_its_own() {
        let check = |text: &str, clean: &str| {
            assert_eq!(without_chance(text, "web-98fe"), clean, "{text}");
        };
        check("pods \"web-98fe-jzrtb\" is forbidden", "pods \"web-98fe-*\" is forbidden");
        check("web-98fe-jzrtb, web-98fe-4x7k2", "web-98fe-*, web-98fe-*");
        for other in ["web-98fe", "web-98fe-jzrt", "web-98fe-jzrtbb", "web-98fe-jzrtb-x", "web"] {
            check(other, other);
        }
    }

    #[test]
    fn steps_between_turning_points_are_no_difference() {
        let mut names = Names::default();
        for change in ["a=8", "b=2", "a=6", "b=4", "a=4", "b=8", "a=0", "a=3"] {
            names.changes.push(("sizes".to_owned(), change.to_owned()));
        }
        assert_eq!(names.orders()["sizes"], ["a=8", "b=8", "a=0", "a=3"]);
    }

    #[test]
    fn other_fields_are_differences() {
        let mut found = Vec::new();
        let conditions = |reason: &str| json!({"conditions": [{"type": "A", "reason": reason}]});
        tree("x", &conditions("one"), &conditions("two"), &mut found);
        let (ours, theirs) = ("\"one\"".to_owned(), "\"two\"".to_owned());
        assert_eq!(found, [("x.conditions[A].reason".to_owned(), ours, theirs)]);
    }
}
