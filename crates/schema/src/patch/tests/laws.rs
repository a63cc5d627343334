//! What holds for every patch without directives.

use super::*;
use proptest::prelude::*;

/// A pod of a few containers, volumes and finalizers.
fn pods() -> impl Strategy<Value = Value> {
    let list = |names: &'static [&'static str]| {
        proptest::sample::subsequence(names.to_vec(), 0..=names.len()).prop_shuffle()
    };
    let image = prop_oneof![Just("1"), Just("2")];
    (list(&["a", "b", "c", "d"]), image, list(&["x", "y", "z"]), list(&["f", "g", "h"])).prop_map(
        |(containers, image, env, finalizers)| {
            let env: Vec<Value> = env.iter().map(|e| json!({"name": e, "value": image})).collect();
            let containers: Vec<Value> = containers
                .iter()
                .map(|name| json!({"name": name, "image": image, "env": env}))
                .collect();
            json!({"metadata": {"finalizers": finalizers}, "spec": {"containers": containers}})
        },
    )
}

fn strategic(target: &Value, patch: &Value) -> Value {
    let mut target = target.clone();
    strategic_merge_patch(&pod(), &mut target, patch.to_string().as_bytes(), &mut Vec::new())
        .expect("a pod without directives is a patch");
    target
}

fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            let mut sorted_items: Vec<Value> = items.drain(..).map(sorted).collect();
            sorted_items.sort_by_key(Value::to_string);
            Value::from(sorted_items)
        }
        Value::Object(members) => {
            std::mem::take(members).into_iter().map(|(k, v)| (k, sorted(v))).collect()
        }
        _ => value,
    }
}

proptest! {
    #[test]
    fn a_strategic_patch_without_directives_is_idempotent_but_for_order(a in pods(), b in pods()) {
        let once = strategic(&a, &b);
        prop_assert_eq!(sorted(strategic(&once, &b)), sorted(once));
    }

    #[test]
    fn an_object_patched_with_itself_stays(a in pods()) {
        prop_assert_eq!(strategic(&a, &a), a);
    }

    #[test]
    fn a_merge_patch_is_idempotent(a in pods(), b in pods()) {
        let merged = |target: &Value| {
            let mut target = target.clone();
            merge_patch(&mut target, b.to_string().as_bytes(), &mut Vec::new()).map(|()| target)
        };
        let once = merged(&a).expect("an object is a patch");
        prop_assert_eq!(merged(&once).expect("an object is a patch"), once);
    }
}

/// What `deduplicate` means: each element is compared with each, and the last takes the place of a
/// repeated one.
fn deduplicated(mut list: Vec<Value>) -> Vec<Value> {
    let mut at = 0;
    while at < list.len() {
        let mut other = at + 1;
        while other < list.len() {
            if list[at] == list[other] {
                list.swap_remove(other);
            } else {
                other += 1;
            }
        }
        at += 1;
    }
    list
}

proptest! {
    #[test]
    fn repeated_scalars_go_as_when_each_is_compared_with_each(list in proptest::collection::vec(0..6_u8, 0..24)) {
        let list: Vec<Value> = list.into_iter().map(Value::from).collect();
        let mut fast = list.clone();
        strategic::deduplicate(&mut fast);
        prop_assert_eq!(fast, deduplicated(list));
    }

    /// Elements that are merged, deleted, added and ordered by a directive, compared with a search
    /// through the whole list.
    #[test]
    fn hashed_merge_keys_find_what_a_search_finds(
        live in proptest::collection::vec((0..8_u8, 0..3_u8), 0..10),
        patch in proptest::collection::vec((0..8_u8, 0..3_u8, any::<bool>()), 0..10),
    ) {
        let element = |name: u8, value: u8| json!({"name": format!("n{name}"), "value": format!("v{value}")});
        let live: Vec<Value> = live.iter().map(|(name, value)| element(*name, *value)).collect();
        let gone: Vec<String> =
            patch.iter().filter(|(.., delete)| *delete).map(|(name, ..)| format!("n{name}")).collect();
        let given: Vec<Value> =
            patch.iter().filter(|(.., delete)| !delete).map(|(name, value, _)| element(*name, *value)).collect();
        // By definition: deletions, then each element into the first of its name or to the end.
        let mut merged: Vec<Value> =
            live.iter().filter(|e| !gone.iter().any(|name| e["name"] == name.as_str())).cloned().collect();
        for element in &given {
            match merged.iter_mut().find(|e| e["name"] == element["name"]) {
                Some(old) => *old = element.clone(),
                None => merged.push(element.clone()),
            }
        }
        let mut sent = given.clone();
        sent.extend(gone.iter().map(|name| json!({"$patch": "delete", "name": name})));
        let mut target = json!({"spec": {"containers": [{"name": "c", "env": live}]}});
        let body = json!({"spec": {"containers": [{"name": "c", "env": sent}]}}).to_string();
        strategic_merge_patch(&pod(), &mut target, body.as_bytes(), &mut Vec::new()).unwrap();
        let sorted = |list: &[Value]| {
            let mut texts: Vec<String> = list.iter().map(Value::to_string).collect();
            texts.sort();
            texts
        };
        let found = target["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        prop_assert_eq!(sorted(&found), sorted(&merged));
    }
}
