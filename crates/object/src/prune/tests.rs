use super::*;
use crate::{encode, json_strategy};
use proptest::prelude::*;
use serde_json::Value;

fn prune(paths: &[&str]) -> Prune {
    Prune::parse(paths.iter().copied()).unwrap()
}
/// The pruned text, after checking its head and that pruning it again changes nothing.
fn cut(prune: &Prune, text: &[u8]) -> Vec<u8> {
    let mut out = b"what was there before".to_vec();
    let head = prune.cut(text, &Head::of(text).unwrap(), &mut out).unwrap();
    assert_eq!(head, Head::of(&out).unwrap(), "{}", String::from_utf8_lossy(&out));
    let mut again = Vec::new();
    assert_eq!(prune.cut(&out, &head, &mut again), Ok(head));
    assert_eq!(again, out);
    assert_eq!(again.capacity(), again.len());
    out
}
fn check(paths: &[&str], text: &str, left: &str) {
    let out = cut(&prune(paths), text.as_bytes());
    assert_eq!(String::from_utf8(out).unwrap(), left, "{paths:?}");
}

#[test]
fn one_comma_is_removed_with_each_member() {
    for (text, left) in [
        (r#"{"x":1}"#, "{}"),
        (r#"{ "x" : 1 }"#, "{}"),
        (r#"{"x":1,"y":2}"#, "{}"),
        (r#"{"x":1,"a":0}"#, r#"{"a":0}"#),
        (r#"{"a":0,"x":1}"#, r#"{"a":0}"#),
        (r#"{"x":1,"y":2,"a":0}"#, r#"{"a":0}"#),
        (r#"{"x":1 , "a":0 , "y":[{}] , "b":0 }"#, r#"{ "a":0 , "b":0 }"#),
        (r#"{"a":0,"x":1,"y":2}"#, r#"{"a":0}"#),
        (r#"{"a":0,"x":1,"y":2,"b":0}"#, r#"{"a":0,"b":0}"#),
        (r#"{"x":"}\",","b":"x","c":{"x":1}}"#, r#"{"b":"x","c":{"x":1}}"#),
        (r#"{"x":1,"a":0,"\u0078":2}"#, r#"{"a":0}"#),
    ] {
        check(&["x", "y"], text, left);
    }
}

#[test]
fn position_of_managed_fields_is_updated_when_a_neighbor_is_removed() {
    let paths = &["metadata.x"];
    for (text, left) in [
        (r#"{"metadata":{"managedFields":[1],"x":[]}}"#, r#"{"metadata":{"managedFields":[1]}}"#),
        (r#"{"metadata":{"x":[],"managedFields":[1]}}"#, r#"{"metadata":{"managedFields":[1]}}"#),
        (
            r#"{"metadata":{ "managedFields" : [1] , "x":[], "name":"n"}}"#,
            r#"{"metadata":{ "managedFields" : [1] , "name":"n"}}"#,
        ),
    ] {
        check(paths, text, left);
    }
}

#[test]
fn paths_lead_through_members_arrays_and_quoted_names() {
    let text = r#"{"metadata":{"annotations":{"a.b/c":"1","k":"2","q\"\u00e9":""},"name":"n"},"spec":{"l":[{"e":1,"n":2},{"e":3},[{"e":4}],5],"t":{"spec":6}}}"#;
    for (path, gone) in [
        (r#"metadata.annotations["a.b/c"]"#, r#""a.b/c":"1","#),
        (r#"["metadata"]["annotations"]["q\"é"]"#, r#","q\"\u00e9":"""#),
        ("metadata.annotations.k", r#","k":"2""#),
        ("spec.l[*][*].e", r#""e":4"#),
        ("spec.t.spec", r#""spec":6"#),
        ("spec.l.e", ""),
        ("metadata.name.x", ""),
        ("spec[*].l", ""),
        ("nothing.at[*].all", ""),
    ] {
        check(&[path], text, &text.replacen(gone, "", 1));
    }
    check(&["spec.l[*].e"], text, &text.replace(r#""e":1,"#, "").replace(r#"{"e":3}"#, "{}"));
}

#[test]
fn all_repeated_members_are_removed() {
    let twice = r#"{"metadata":{"managedFields":[1],"name":"n","managedFields":[2]},"status":1,"status":2}"#;
    check(&["metadata.managedFields"], twice, r#"{"metadata":{"name":"n"},"status":1,"status":2}"#);
    check(&["status"], twice, &twice.replace(r#","status":1,"status":2"#, ""));
    let metadata =
        r#"{"metadata":{"managedFields":[1]},"metadata":{"name":"n","managedFields":[2]}}"#;
    check(
        &["status", "metadata.managedFields"],
        metadata,
        r#"{"metadata":{},"metadata":{"name":"n"}}"#,
    );
}

#[test]
fn head_of_the_pruned_object_has_the_comma_of_its_managed_fields() {
    check(
        &["metadata.annotations"],
        r#"{"metadata":{"annotations":{},"managedFields":[],"name":"n"}}"#,
        r#"{"metadata":{"managedFields":[],"name":"n"}}"#,
    );
}

#[test]
fn pruning_only_managed_fields_is_recognized_in_any_spelling() {
    assert_eq!(prune(&["metadata.managedFields"]), Prune::managed_fields());
    assert_eq!(prune(&[r#"metadata["managedFields"]"#; 2]), Prune::managed_fields());
    assert_ne!(prune(&["metadata.managedFields", "status"]), Prune::managed_fields());
    assert_eq!(prune(&[]).and_managed_fields(), Prune::managed_fields());
    assert_eq!(Prune::managed_fields().and_managed_fields(), Prune::managed_fields());
    let both = prune(&["status", "metadata.managedFields"]);
    assert_eq!(prune(&["status"]).and_managed_fields(), both);
    assert_eq!(both.clone().and_managed_fields(), both);
}

#[test]
fn identity_cannot_be_removed() {
    for path in [
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.resourceVersion",
        r#"["metadata"]["n\u0061me"]"#,
    ] {
        let refused = PruneError::Identity { path: path.to_owned() };
        assert_eq!(Prune::parse(["status", path]), Err(refused));
    }
}

#[test]
fn malformed_paths_are_errors_with_a_position() {
    for (path, place) in [
        ("", 0),
        (".", 0),
        ("a.", 2),
        ("a..b", 2),
        ("a.[\"b\"]", 2),
        ("a b", 1),
        ("a[", 2),
        ("a[b]", 2),
        ("a[\"b\"", 5),
        ("a[\"b]", 2),
        ("a[\"b\"]c", 6),
        ("a[*", 2),
        ("a[*]", 4),
        ("[*].a", 0),
        ("a[0]", 2),
    ] {
        let Err(PruneError::Malformed { at, .. }) = Prune::parse([path]) else { panic!("{path}") };
        assert_eq!(at, place, "{path}");
    }
    assert!(Prune::parse([&*format!("a{}", ".a".repeat(127))]).is_ok());
    assert!(Prune::parse([&*format!("a{}", ".a".repeat(128))]).is_err());
}

#[test]
fn foreign_head_causes_no_panic() {
    let text = br#"{"metadata":{"managedFields":[],"name":"0123456789"}}"#;
    let head = Head::of(text).unwrap();
    for foreign in [&b""[..], b"{}", &[b'{'; 80], &[0xff; 80]] {
        for prune in [Prune::managed_fields(), prune(&["status", "metadata.managedFields"])] {
            _ = prune.cut(foreign, &head, &mut Vec::new());
        }
    }
}

/// Removes a path from a tree.
fn remove(value: &mut Value, path: &[Step]) {
    match (path, value) {
        ([Step::Member(name)], Value::Object(members)) => drop(members.remove(name)),
        ([Step::Member(name), rest @ ..], Value::Object(members)) => {
            if let Some(member) = members.get_mut(name) {
                remove(member, rest);
            }
        }
        ([Step::Each, rest @ ..], Value::Array(elements)) => {
            elements.iter_mut().for_each(|element| remove(element, rest));
        }
        _ => {}
    }
}
/// A path in the tree as text, chosen by these random indexes.
fn path_in(tree: &Value, turns: &[prop::sample::Index]) -> String {
    let (mut value, mut path, mut good) = (tree, String::new(), String::new());
    for turn in turns {
        value = match value {
            Value::Object(members) if !members.is_empty() => {
                let (name, member) = members.iter().nth(turn.index(members.len())).unwrap();
                path.push_str(&format!("[{}]", serde_json::to_string(name).unwrap()));
                good.clone_from(&path);
                member
            }
            Value::Array(elements) if !elements.is_empty() => {
                path.push_str("[*]");
                &elements[turn.index(elements.len())]
            }
            _ => break,
        };
    }
    good
}

proptest! {
    #[test]
    fn pruned_object_equals_the_tree_without_the_paths(
        tree in json_strategy::object(),
        turns in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 1..5), 0..4),
        is_managed_cut: bool,
    ) {
        let mut paths: Vec<String> = turns.iter().map(|turns| path_in(&tree, turns)).collect();
        paths.extend(is_managed_cut.then(|| "metadata.managedFields".to_owned()));
        paths.retain(|path| path::parse(path).is_ok());
        let prune = Prune::parse(paths.iter().map(String::as_str)).unwrap();
        let mut left = tree.clone();
        for path in &paths {
            remove(&mut left, &path::parse(path).unwrap());
        }
        for text in [encode::to_bytes(&tree).to_vec(), serde_json::to_vec_pretty(&tree).unwrap()] {
            let out = cut(&prune, &text);
            prop_assert_eq!(&serde_json::from_slice::<Value>(&out).unwrap(), &left, "{:?}", paths);
        }
        // A canonical encoding stays canonical.
        prop_assert_eq!(cut(&prune, &encode::to_bytes(&tree)), encode::to_bytes(&left).to_vec());
    }
}
