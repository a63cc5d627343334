//! Laws of field sets and of their text.

use super::*;
use proptest::prelude::*;
use std::borrow::Cow;

fn element() -> impl Strategy<Value = PathElement<'static>> {
    let scalar = prop_oneof![
        (0..3i64).prop_map(Value::from),
        Just(json!(true)),
        "[a-b>\\\\]{1,2}".prop_map(Value::from),
    ];
    prop_oneof![
        4 => "[a-c<é\"]".prop_map(PathElement::field),
        1 => scalar.clone().prop_map(|v| PathElement::Key(vec![(Cow::Borrowed("k"), Cow::Owned(v))])),
        1 => scalar.prop_map(|v| PathElement::Value(Cow::Owned(v))),
        1 => (0..3i64).prop_map(PathElement::Index),
    ]
}

fn set() -> impl Strategy<Value = FieldSet<'static>> {
    let path = proptest::collection::vec(element(), 1..4).prop_map(Path);
    proptest::collection::vec(path, 0..12).prop_map(|paths| paths.into_iter().collect())
}

fn minus(a: &FieldSet<'static>, b: &FieldSet<'static>) -> FieldSet<'static> {
    let mut a = a.clone();
    a.subtract(b);
    a
}

/// The paths as a plain set: the model.
fn model(set: &FieldSet<'static>) -> BTreeSet<Path<'static>> {
    set.paths().into_iter().collect()
}

proptest! {
    #[test]
    fn reading_undoes_writing(a in set()) {
        let wire = a.to_wire();
        prop_assert_eq!(FieldSet::from_wire(&wire).expect("it was written"), a);
    }

    /// Text is written and read as the tree is.
    #[test]
    fn text_is_that_of_the_tree(a in set()) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let written = |is_sorted| {
            let mut out = Vec::new();
            a.push_wire(&mut out, is_sorted);
            text(&out)
        };
        let wire = a.to_wire();
        prop_assert_eq!(written(true), text(&setpoint_object::encode::to_bytes(&wire)));
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": [{"fieldsV1": wire}]}});
        let declared = format!(r#"{{"fieldsV1":{}}}"#, written(false));
        let encoded = text(&to_bytes(&object));
        prop_assert!(encoded.contains(&declared), "{} in {}", declared, encoded);
        for is_sorted in [true, false] {
            let text = written(is_sorted);
            prop_assert_eq!(FieldSet::from_wire_text(&text).expect("it was written"), a.clone());
        }
    }

    /// What a text has is found without reading it.
    #[test]
    fn text_has_what_is_within_its_set(a in set(), b in set(), is_sorted in any::<bool>()) {
        let mut out = Vec::new();
        a.push_wire(&mut out, is_sorted);
        let text = String::from_utf8_lossy(&out);
        prop_assert_eq!(super::wire::has_all(&text, &b), b.is_within(&a));
        prop_assert!(super::wire::has_all(&text, &a.intersection(&b)));
        prop_assert!(super::wire::has_all(&text, &a));
    }

    #[test]
    fn operations_are_those_of_sets_of_paths(a in set(), b in set()) {
        let (ma, mb) = (model(&a), model(&b));
        prop_assert_eq!(model(&a.clone().union(b.clone())), &ma | &mb);
        prop_assert_eq!(model(&a.intersection(&b)), &ma & &mb);
        prop_assert_eq!(model(&minus(&a, &b)), &ma - &mb);
        prop_assert_eq!(a.len(), ma.len());
        for path in &ma {
            prop_assert!(a.has(&path.0));
            prop_assert_eq!(b.has(&path.0), mb.contains(path));
        }
    }

    #[test]
    fn subtracting_trees_takes_what_lies_below(a in set(), b in set()) {
        let mut rest = a.clone();
        rest.subtract_trees(&b);
        let mb = model(&b);
        let below = |path: &Path<'static>| (1..=path.0.len()).any(|n| mb.contains(&Path(path.0[..n].to_vec())));
        let expected: BTreeSet<Path<'static>> = model(&a).into_iter().filter(|p| !below(p)).collect();
        prop_assert_eq!(model(&rest), expected);
    }

    #[test]
    fn sets_of_the_same_paths_are_equal(a in set()) {
        let mut paths = a.paths();
        paths.reverse();
        prop_assert_eq!(paths.into_iter().collect::<FieldSet<'static>>(), a);
    }
}

#[test]
fn unknown_steps_are_left_out_and_malformed_ones_refused() {
    let unknown = json!({"x:future": {}, "f:a": {}});
    let set = FieldSet::from_wire(&unknown).expect("unknown kinds are for the future");
    assert_eq!(set.to_wire(), json!({"f:a": {}}));
    for malformed in [json!({"f": {}}), json!({"k:x": {}}), json!({"f:a": 1}), json!([])] {
        assert!(FieldSet::from_wire(&malformed).is_err(), "{malformed}");
    }
}

#[test]
fn keys_are_equal_whatever_their_order_and_number_form() {
    let a = json!({"k:{\"a\":1,\"b\":\"x\"}": {"f:y": {}}});
    let b = json!({"k:{\"b\":\"x\",\"a\":1.0}": {"f:z": {}}});
    let a = FieldSet::from_wire(&a).expect("valid");
    let b = FieldSet::from_wire(&b).expect("valid");
    let united = a.union(b);
    assert_eq!(united.to_wire(), json!({"k:{\"a\":1,\"b\":\"x\"}": {"f:y": {}, "f:z": {}}}));
}

#[test]
fn spellings_of_one_key_are_united_at_once() {
    // A key with spaces is the same key: half a million nodes under one, which must not be united
    // one by one.
    let n = 3_000;
    let wire: Value = (0..n)
        .map(|i| (format!("k:{{\"a\":{}1}}", " ".repeat(i)), json!({format!("f:{i}"): {}})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let set = FieldSet::from_wire(&wire).expect("valid");
    assert_eq!((set.nodes().len(), set.len()), (1, n));
}

proptest! {
    #[test]
    fn a_union_of_many_is_the_unions_of_each(sets in proptest::collection::vec(set(), 0..6)) {
        let one_by_one = sets.iter().cloned().fold(FieldSet::new(), FieldSet::union);
        prop_assert_eq!(FieldSet::union_of(sets), one_by_one);
    }
}
