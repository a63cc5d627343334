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
