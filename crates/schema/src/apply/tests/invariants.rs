//! What holds after every write, whatever was written before.

use super::leaves::{leaves, leaves_without};
use super::scope::strip;
use super::types::Type;
use super::*;
use proptest::prelude::*;

/// A `spec` of a custom resource.
fn spec() -> impl Strategy<Value = Value> {
    let names = |all: &'static [&'static str]| {
        proptest::sample::subsequence(all.to_vec(), 0..=all.len()).prop_shuffle()
    };
    let member = |name: &'static str, value: BoxedStrategy<Value>| {
        proptest::option::weighted(0.5, value).prop_map(move |v| v.map(|v| (name, v)))
    };
    let number = prop_oneof![Just(1), Just(2)];
    let map = names(&["a", "b", "c"]).prop_map(|keys| {
        keys.iter().map(|k| ((*k).to_owned(), json!("1"))).collect::<serde_json::Map<_, _>>().into()
    });
    let list = (names(&["a", "b", "c", "d"]), proptest::collection::vec(0..3, 4)).prop_map(
        |(keys, values)| {
            let items = keys.iter().zip(values);
            items
                .map(|(k, v)| if v == 0 { json!({"k": k}) } else { json!({"k": k, "v": v}) })
                .collect()
        },
    );
    let free = prop_oneof![
        Just(json!({"a": 1})),
        Just(json!({"a": {"b": 1}})),
        Just(json!({"a": [1], "c": "x"})),
        Just(json!({})),
    ];
    (
        member("n", number.prop_map(Value::from).boxed()),
        member("set", names(&["a", "b", "c"]).prop_map(|s| json!(s)).boxed()),
        member("list", list.boxed()),
        member("plain", names(&["a", "b"]).prop_map(|s| json!(s)).boxed()),
        member("whole", Just(json!({"a": "1"})).boxed()),
        member("map", map.boxed()),
        member("free", free.boxed()),
    )
        .prop_map(|(a, b, c, d, e, f, g)| {
            let members = [a, b, c, d, e, f, g].into_iter().flatten();
            members
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
}

/// Some writes: who, whether by apply, what.
fn writes() -> impl Strategy<Value = Vec<(usize, bool, Value)>> {
    proptest::collection::vec((0..3usize, any::<bool>(), spec()), 1..5)
}

const MANAGERS: [&str; 3] = ["alice", "bob", "carol"];

fn story(writes: Vec<(usize, bool, Value)>) -> Story {
    writes.into_iter().fold(Story::custom(), |story, (who, by_apply, spec)| {
        let parts = json!({ "spec": spec });
        if by_apply {
            story.force(MANAGERS[who], parts)
        } else {
            story.update(MANAGERS[who], parts)
        }
    })
}

/// Parts of a Deployment.
fn deployment() -> impl Strategy<Value = Value> {
    let names = || proptest::sample::subsequence(vec!["a", "b", "\"<"], 0..=3);
    let value = || prop_oneof![Just("1"), Just("2")];
    (names(), value(), 0..3, names().prop_shuffle(), value()).prop_map(
        |(labels, label, replicas, containers, image)| {
            let labels: serde_json::Map<_, _> =
                labels.iter().map(|name| ((*name).to_owned(), label.into())).collect();
            let container = |name: &&str| json!({"name": name, "image": image, "args": [image]});
            let containers: Vec<Value> = containers.iter().map(container).collect();
            json!({
                "metadata": {"labels": labels},
                "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
            })
        },
    )
}

fn set_of(story: &Story, manager: &str, operation: &str) -> FieldSet<'static> {
    let entries = managed::of(story.live()).and_then(Value::as_array).cloned().unwrap_or_default();
    let entry = entries.iter().find(|e| e["manager"] == manager && e["operation"] == operation);
    entry.map_or_else(FieldSet::new, |entry| {
        FieldSet::from_wire(&entry["fieldsV1"]).expect("it was written by this crate").into_owned()
    })
}

/// Two specs without a common field: their members, keys and elements differ.
fn disjoint() -> impl Strategy<Value = (Value, Value)> {
    (spec(), any::<u64>()).prop_map(|(spec, chosen)| {
        let (mut mine, mut yours) = (json!({}), json!({}));
        let mut at = 0;
        let mut is_mine = || {
            at += 1;
            chosen >> (at % 64) & 1 == 0
        };
        for (name, value) in spec.as_object().into_iter().flatten() {
            match value {
                Value::Array(items) if name != "plain" => {
                    for item in items {
                        let spec = if is_mine() { &mut mine } else { &mut yours };
                        let list = &mut spec[name];
                        if list.is_null() {
                            *list = json!([]);
                        }
                        list.as_array_mut().expect("a list").push(item.clone());
                    }
                }
                Value::Object(members) if name == "map" => {
                    for (key, member) in members {
                        let spec = if is_mine() { &mut mine } else { &mut yours };
                        spec[name][key] = member.clone();
                    }
                }
                // An empty value is a claim on all of it.
                Value::Array(items) if items.is_empty() => {}
                Value::Object(members) if members.is_empty() => {}
                _ => {
                    let spec = if is_mine() { &mut mine } else { &mut yours };
                    spec[name] = value.clone();
                }
            }
        }
        (mine, yours)
    })
}

/// A value with the elements of its lists sorted.
fn unordered(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(unordered).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        Value::Object(members) => members
            .iter()
            .map(|(name, member)| (name.clone(), unordered(member)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        scalar => scalar.clone(),
    }
}

/// Updates of a Deployment: who, on which endpoint, and a number for each of labels, spec and
/// status.
fn updates() -> impl Strategy<Value = Vec<(usize, bool, [u8; 3])>> {
    proptest::collection::vec((0..3usize, any::<bool>(), [0..3u8, 0..3, 0..3]), 2..8)
}

proptest! {
    /// [`Story::update`] compares the owners in an object, which are read whole, with those beside
    /// it, of which only what a write touches is read.
    #[test]
    fn owners_beside_an_object_are_those_within_it(
        writes in proptest::collection::vec((0..3usize, deployment()), 1..7),
    ) {
        writes.into_iter().fold(Story::deployment(), |story, (who, parts)| {
            story.update(MANAGERS[who], parts)
        });
    }

    /// Entries whose fields are in no member that changes are not read. The answer is the one of a
    /// client that sends them, which are all read.
    #[test]
    fn what_is_not_read_changes_nothing(updates in updates()) {
        let mut story = Story::deployment();
        for (who, on_status, [label, replicas, observed]) in updates {
            let parts = json!({
                "metadata": {"labels": {"l": label.to_string()}},
                "spec": {"replicas": replicas, "selector": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
                "status": {"observedGeneration": observed + 1},
            });
            let who = format!("{}{}", MANAGERS[who], if on_status { "/status" } else { "" });
            let mut entries = story.live.as_ref().and_then(managed::of).cloned();
            let sent = entries.as_mut().and_then(Value::as_array_mut).filter(|sent| sent.len() > 1);
            if let Some(sent) = sent {
                let updated_with = |sent: &[Value]| {
                    let (live, schema) = (story.live.clone(), story.schema.clone());
                    let mut with_entries = parts.clone();
                    with_entries["metadata"]["managedFields"] = json!(sent);
                    Story { live, schema, ..story }.update(&who, with_entries).owners()
                };
                // As a patch leaves them: values are taken from there.
                let as_stored = updated_with(sent);
                // Another order, or they would be taken for the stored ones.
                sent.reverse();
                let reversed = updated_with(sent);
                story = story.update(&who, parts);
                prop_assert_eq!(story.owners(), as_stored);
                prop_assert_eq!(story.owners(), reversed);
            } else {
                story = story.update(&who, parts);
            }
        }
    }

    #[test]
    fn an_applier_owns_exactly_what_it_applied(before in writes(), spec in spec()) {
        let story = story(before).force("dora", json!({"spec": spec}));
        let config = story.body(json!({ "spec": spec }));
        let mut expected = leaves(Type::root(story.schema.view(), true), &config);
        strip(&mut expected);
        prop_assert_eq!(set_of(&story, "dora", "Apply"), expected);
    }

    #[test]
    fn leaves_can_be_told_without_removing(spec in spec(), keep in any::<u64>()) {
        let story = Story::custom();
        let ty = Type::root(story.schema.view(), true);
        let object = story.body(json!({ "spec": spec }));
        let paths = leaves(ty, &object).paths();
        // An element without its key would be another element.
        let is_key = |path: &Path<'_>| path.0.last() == Some(&PathElement::field("k"));
        let chosen = paths.into_iter().enumerate().filter(|(at, path)| keep >> (at % 64) & 1 == 0 && !is_key(path));
        let gone: FieldSet<'_> = chosen.map(|(_, path)| path).collect();
        let mut removed = object.clone();
        remove::remove(ty, &mut removed, &gone);
        prop_assert_eq!(leaves_without(ty, &object, &gone), leaves(ty, &removed));
    }

    #[test]
    fn a_forced_apply_wins(before in writes(), spec in spec()) {
        let story = story(before).force("dora", json!({"spec": spec}));
        for (name, wanted) in spec.as_object().into_iter().flatten() {
            let got = &story.live()["spec"][name];
            match name.as_str() {
                "n" | "plain" | "whole" => prop_assert_eq!(got, wanted),
                "set" => for item in wanted.as_array().into_iter().flatten() {
                    prop_assert!(got.as_array().is_some_and(|l| l.contains(item)), "{} in {}", item, got);
                },
                "list" => for item in wanted.as_array().into_iter().flatten() {
                    let same = got.as_array().into_iter().flatten().find(|g| g["k"] == item["k"]);
                    prop_assert!(same.is_some_and(|g| item.get("v").is_none_or(|v| g["v"] == *v)), "{} in {}", item, got);
                },
                _ => for (key, value) in wanted.as_object().into_iter().flatten() {
                    prop_assert!(value.is_object() || got[key] == *value, "{} in {}", key, got);
                },
            }
        }
    }

    /// Managers with no field in common: the order of their applies shows in nothing but the order
    /// of lists' elements and the times.
    #[test]
    fn disjoint_managers_commute(before in writes(), (mine, yours) in disjoint()) {
        let story = |first: (&str, &Value), second: (&str, &Value)| {
            story(before.clone())
                .force(first.0, json!({"spec": first.1}))
                .force(second.0, json!({"spec": second.1}))
        };
        let (one, other) = (story(("dora", &mine), ("emil", &yours)), story(("emil", &yours), ("dora", &mine)));
        for manager in ["dora", "emil"] {
            prop_assert_eq!(set_of(&one, manager, "Apply"), set_of(&other, manager, "Apply"));
        }
        for manager in MANAGERS {
            for operation in ["Apply", "Update"] {
                prop_assert_eq!(set_of(&one, manager, operation), set_of(&other, manager, operation));
            }
        }
        prop_assert_eq!(unordered(&one.live()["spec"]), unordered(&other.live()["spec"]));
    }

    /// A field that its only owner applies no more is gone; one that another owns stays.
    #[test]
    fn removing_an_applied_field_removes_it(spec in spec(), kept in spec(), others in spec()) {
        let story = Story::custom()
            .apply("alice", json!({"spec": others}))
            .force("dora", json!({"spec": spec}))
            .force("dora", json!({"spec": kept}));
        let ty = Type::root(story.schema.view(), true);
        let of = |spec: &Value| leaves(ty, &story.body(json!({ "spec": spec }))).into_owned();
        let mut gone = of(&spec);
        gone.subtract(&of(&kept));
        let still = set_of(&story, "alice", "Apply");
        gone.subtract(&still);
        let present = leaves(ty, story.live());
        // A struct or an element is there as long as something in it is.
        let left: Vec<_> = gone.intersection(&present).paths();
        let above = |path: &Path<'_>| present.paths().iter().any(|other| other.0.len() > path.0.len() && other.0.starts_with(&path.0));
        prop_assert!(left.iter().all(above), "{:?} of {} are left", left, story.live());
    }

    #[test]
    fn applying_twice_is_applying_once(before in writes(), spec in spec()) {
        let once = story(before).force("dora", json!({"spec": spec}));
        // An object with nothing to track is untracked; the next apply finds who was there before.
        prop_assume!(managed::of(once.live()).is_some());
        let before = once.live().clone();
        let twice = once.apply("dora", json!({"spec": spec}));
        prop_assert_eq!(twice.live(), &before);
    }

    #[test]
    fn applying_nothing_gives_everything_back(spec in spec()) {
        let story = Story::custom()
            .update("alice", json!({"spec": {"n": 7}}))
            .force("dora", json!({"spec": spec}))
            .apply("dora", json!({}));
        prop_assert!(set_of(&story, "dora", "Apply").is_empty());
        let left = story.live()["spec"].as_object().cloned().unwrap_or_default();
        // What nobody owns any more is gone; the other manager's number stays unless it was taken
        // over. An empty list has no leaf: it is owned by nobody and stays.
        prop_assert!(left.iter().all(|(name, value)| name == "n" || *value == json!([])), "{:?}", left);
    }

    #[test]
    fn no_entry_is_empty_and_no_leaf_of_an_update_is_owned_by_two(writes in writes()) {
        let story = story(writes);
        let Some(entries) = managed::of(story.live()).and_then(Value::as_array) else { return Ok(()) };
        for entry in entries {
            let set = FieldSet::from_wire(&entry["fieldsV1"]).expect("it was written by this crate");
            prop_assert!(!set.is_empty());
        }
        for a in MANAGERS {
            for b in MANAGERS.into_iter().filter(|b| *b != a) {
                let shared = set_of(&story, a, "Update").intersection(&set_of(&story, b, "Update"));
                prop_assert!(shared.is_empty(), "{} and {} share {:?}", a, b, shared.paths());
            }
        }
    }
}
