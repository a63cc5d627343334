use super::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::json;

const HEAD: &str = "apiVersion: nodes.setpoint.dev/v1alpha1\nkind: Stage\nmetadata: {name: s}\nspec:\n  resourceRef: {kind: Pod}\n";

fn parse(rest: &str) -> Result<Stages, StageError> {
    Stages::parse(&format!("{HEAD}{rest}"))
}

#[test]
fn the_default_stages_are_valid() {
    let names: Vec<String> = Stages::standard().0.into_iter().map(|stage| stage.name).collect();
    assert_eq!(names, ["node-ready", "pod-start", "pod-run", "pod-stop", "node-heartbeat"]);
}

#[test]
fn selectors_look_at_labels_annotations_and_paths() {
    let stages = parse(
        "  selector:\n    matchLabels: {a: b}\n    matchAnnotations: {c: d}\n    matchExpressions:\n\
         \x20   - {key: .status.phase, operator: NotIn, values: [Failed]}\n\
         \x20   - {key: .metadata.finalizers, operator: DoesNotExist}\n\
         \x20   - {key: '.status.conditions[?(@.type==\"Ready\")].status', operator: In, values: ['True']}\n\
         \x20 next: {delete: true}\n",
    )
    .unwrap();
    let pod = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert!(stages.0[0].matches(&pod));
    for (pointer, value) in [
        ("/metadata/labels/a", json!("x")),
        ("/metadata/annotations/c", json!("x")),
        ("/metadata/finalizers", json!(["f"])),
        ("/status/phase", json!("Failed")),
        ("/status/conditions/0/status", json!("False")),
    ] {
        let mut other = pod.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        assert!(!stages.0[0].matches(&other), "{pointer}");
    }
}

#[test]
fn mistakes_are_named() {
    for (rest, wanted) in [
        ("  next: {}\n  more: 1\n", "more"),
        ("  next: {status: '${nonsense}'}\n", "nonsense"),
        ("  selector: {matchExpressions: [{key: a, operator: Exists}]}\n  next: {}\n", "dot"),
        ("  selector: {matchExpressions: [{key: .a, operator: In}]}\n  next: {}\n", "have values"),
        ("  next: {action: Fly}\n", "Fly"),
    ] {
        let error = parse(rest).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let other = HEAD.replace("v1alpha1", "v9") + "  next: {}\n";
    assert!(Stages::parse(&other).is_err());
    let service = HEAD.replace("Pod", "Service") + "  next: {action: RunPod}\n";
    assert!(Stages::parse(&service).unwrap_err().to_string().contains("actions are for pods"));
}

#[test]
fn delays_are_fixed_random_or_read_from_the_object() {
    let mut rng = SmallRng::seed_from_u64(3);
    let mut delay = |rest: &str, object: &Value| {
        let stages = parse(&format!("  delay: {rest}\n  next: {{}}\n")).unwrap();
        stages.0[0].delay(object, Timestamp::from_secs(100), &mut rng)
    };
    let object = json!({"a": 7, "at": Timestamp::from_secs(130).rfc3339()});
    assert_eq!(delay("{durationMilliseconds: 250}", &object), Duration::from_millis(250));
    for _ in 0..50 {
        let random = delay("{durationMilliseconds: 100, jitterDurationMilliseconds: 200}", &object);
        assert!((100..200).contains(&random.as_millis()));
    }
    assert_eq!(delay("{durationFrom: {expressionFrom: .a}}", &object), Duration::from_secs(7));
    assert_eq!(delay("{durationFrom: {expressionFrom: .at}}", &object), Duration::from_secs(30));
}

#[test]
fn stages_with_a_weight_go_before_those_without() {
    let stage = |name: &str, weight: u32| {
        let text = format!("{HEAD}  weight: {weight}\n  next: {{}}\n")
            .replace("name: s", &format!("name: {name}"));
        Stages::parse(&text).unwrap()
    };
    let stages = stage("a", 0).and(stage("b", 1)).and(stage("c", 3));
    let mut rng = SmallRng::seed_from_u64(5);
    let mut counts = [0; 3];
    for _ in 0..4000 {
        counts[choose(&stages.0, &json!({}), &mut rng).unwrap()] += 1;
    }
    assert_eq!(counts[0], 0);
    assert!((800..1200).contains(&counts[1]), "{counts:?}");
    // A stage of the same name replaces the earlier one.
    assert_eq!(stages.and(stage("a", 9)).0.len(), 3);
}

#[test]
fn finalizers_are_added_removed_and_emptied() {
    let next = |finalizers: &str| {
        parse(&format!("  next: {{finalizers: {finalizers}}}\n")).unwrap().0.remove(0).next
    };
    let object = json!({"metadata": {"finalizers": ["a", "b"]}});
    let after =
        |finalizers: &str| next(finalizers).finalizers(&object).map(|names| names.join(","));
    assert_eq!(after("{add: [c]}").as_deref(), Some("a,b,c"));
    assert_eq!(after("{remove: [a]}").as_deref(), Some("b"));
    assert_eq!(after("{empty: true}").as_deref(), Some(""));
    assert_eq!(after("{add: [a]}"), None);
}
