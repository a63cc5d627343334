//! Reading and pruning objects without a tree.
use serde_json::Value;
use setpoint_object::{Head, Prune, Skim, ValueEnd};
use std::borrow::Cow;

/// The pruned fields, as paths and as their steps.
const PATHS: &[(&str, &[&str])] = &[
    ("metadata.managedFields", &["metadata", "managedFields"]),
    (r#"metadata.annotations["a.b/c"]"#, &["metadata", "annotations", "a.b/c"]),
    ("metadata.labels", &["metadata", "labels"]),
    ("status", &["status"]),
    ("spec.a[*].b", &["spec", "a", "*", "b"]),
];

/// Skim, head and `serde_json` agree. A pruned object equals the tree without the fields.
pub fn check(input: &[u8]) {
    let tree = serde_json::from_slice::<Value>(input).ok().filter(Value::is_object);
    let (skim, head) = (Skim::of(input), Head::of(input));
    if let (Ok(skim), Ok(head)) = (&skim, &head) {
        assert_eq!(read_by_skim(skim), read_by_head(head, input));
        assert_eq!(skim.managed_fields.is_some(), head.managed_fields().is_some());
    }
    if skim.is_ok() && std::str::from_utf8(input).is_ok() {
        assert!(head.is_ok(), "{head:?}");
    }
    check_scan(input, &head);
    if let Some(tree) = &tree {
        let (skim, head) = (skim.unwrap(), head.as_ref().unwrap());
        assert_eq!(read_by_skim(&skim), read_from_tree(tree));
        assert_eq!(read_by_head(head, input), read_from_tree(tree));
    }
    if let Ok(head) = head {
        check_prune(&PATHS[..1], input, &head, tree.clone());
        check_prune(PATHS, input, &head, tree.clone());
        check_prune(&PATHS[1..], input, &head, tree);
    }
}

/// An object is complete with its last byte and not before, and scanning it in two pieces gives the
/// same result.
fn check_scan(input: &[u8], head: &Result<Head, setpoint_object::skim::SkimError>) {
    let Ok(head) = head else { return };
    let object = &input[..head.end()];
    assert_eq!(Head::scan(object).as_ref(), Ok(&Some(*head)));
    for end in [object.len() - 1, object.len() / 2, 0] {
        assert_eq!(Head::scan(&object[..end]), Ok(None));
    }
    let object = object.trim_ascii_start();
    let (a, b) = object.split_at(object.len() / 2);
    let mut end = ValueEnd::default();
    let passed = end.feed(a).and_then(|ended| {
        assert_eq!(ended, None);
        end.feed(b)
    });
    match passed {
        // The bound applies to each member where the head reads the object, and to the whole object
        // where it is skipped.
        Err(fault) if fault.what == "nested too deep" => {}
        passed => assert_eq!(passed, Ok(Some(b.len()))),
    }
}

fn check_prune(paths: &[(&str, &[&str])], input: &[u8], head: &Head, tree: Option<Value>) {
    let prune = Prune::parse(paths.iter().map(|(path, _)| *path)).unwrap();
    let (mut out, mut again) = (Vec::new(), Vec::new());
    let cut = prune.cut(input, head, &mut out);
    if tree.is_none() && cut.is_err() {
        return;
    }
    let left = cut.unwrap();
    assert_eq!(Head::of(&out), Ok(left));
    assert_eq!(prune.cut(&out, &left, &mut again), Ok(left));
    assert_eq!(out, again);
    if let Some(mut tree) = tree {
        paths.iter().for_each(|(_, path)| remove(&mut tree, path));
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), tree);
    }
}

fn remove(value: &mut Value, path: &[&str]) {
    match (path, value) {
        ([name], Value::Object(members)) => drop(members.remove(*name)),
        (["*", rest @ ..], Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| remove(element, rest));
        }
        ([name, rest @ ..], Value::Object(members)) if *name != "*" => {
            members.get_mut(*name).into_iter().for_each(|member| remove(member, rest));
        }
        _ => {}
    }
}

type Read<'a> = [Cow<'a, str>; 6];

fn read_by_skim<'a>(skim: &Skim<'a>) -> Read<'a> {
    let Skim { api_version, kind, name, namespace, uid, resource_version, .. } = skim;
    [api_version, kind, name, namespace, uid, resource_version].map(Cow::clone)
}
fn read_by_head<'a>(head: &Head, bytes: &'a [u8]) -> Read<'a> {
    [
        head.api_version(bytes),
        head.kind(bytes),
        head.name(bytes),
        head.namespace(bytes),
        head.uid(bytes),
        head.resource_version(bytes),
    ]
}
fn read_from_tree(tree: &Value) -> Read<'_> {
    let metadata = &tree["metadata"];
    [
        &tree["apiVersion"],
        &tree["kind"],
        &metadata["name"],
        &metadata["namespace"],
        &metadata["uid"],
        &metadata["resourceVersion"],
    ]
    .map(|value| Cow::Borrowed(value.as_str().unwrap_or_default()))
}
