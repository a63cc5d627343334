use super::{Definition, Names};
use bytes::Bytes;
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_schema::crd::StructureFault;
use setpoint_store::Revision;
use std::collections::{BTreeMap, BTreeSet};

fn definition(created: u64, plural: &str, names: Value) -> Definition {
    let kind = plural.to_uppercase();
    let mut all = json!({"plural": plural, "singular": format!("{plural}one"), "kind": kind, "listKind": format!("{kind}List")});
    for (name, value) in names.as_object().unwrap() {
        all[name] = value.clone();
    }
    Definition {
        object: json!({"metadata": {"name": plural}, "spec": {"group": "ex.io", "names": all},
            "status": {"conditions": null, "acceptedNames": {"kind": "", "plural": ""}, "storedVersions": ["v1"]}}),
        bytes: Bytes::new(),
        modified: Revision(created),
        created: Revision(created),
        fault: None,
    }
}

fn all(list: impl IntoIterator<Item = Definition>) -> BTreeMap<String, Definition> {
    list.into_iter()
        .map(|d| (d.object["metadata"]["name"].as_str().unwrap().to_owned(), d))
        .collect()
}

/// Checks every definition, without state from earlier calls.
fn settle(definitions: &mut BTreeMap<String, Definition>, now: Timestamp) -> Vec<String> {
    let mut names = Names::default();
    definitions.values().for_each(|definition| names.take(&definition.object));
    let touched = definitions.keys().cloned().collect();
    names.settle(definitions, &touched, now)
}

/// Settles and prints each definition: its conditions and accepted names.
fn check(definitions: &mut BTreeMap<String, Definition>, expect: Expect) {
    settle(definitions, Timestamp::default());
    assert_eq!(
        settle(definitions, Timestamp::default()),
        Vec::<String>::new(),
        "settled is settled"
    );
    let mut lines = Vec::new();
    for (name, d) in definitions.iter() {
        let status = &d.object["status"];
        let conditions: Vec<String> = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| {
                format!(
                    "{}={} {} {}",
                    c["type"].as_str().unwrap(),
                    c["status"].as_str().unwrap(),
                    c["reason"].as_str().unwrap(),
                    c["message"].as_str().unwrap()
                )
            })
            .collect();
        lines.push(format!("{name} {}: {}", status["acceptedNames"], conditions.join("; ")));
    }
    expect.assert_eq(&lines.join("\n"));
}

#[test]
fn free_names_are_accepted_and_establish() {
    check(
        &mut all([definition(1, "a", json!({"shortNames": ["x"], "categories": ["all"]}))]),
        expect![[r#"
        a {"categories":["all"],"kind":"A","listKind":"AList","plural":"a","shortNames":["x"],"singular":"aone"}: NamesAccepted=True NoConflicts no conflicts found; Established=True InitialNamesAccepted the initial names have been accepted"#]],
    );
}

#[test]
fn who_came_first_keeps_a_name_and_the_loser_gets_it_once_it_is_free() {
    let mut definitions = all([
        definition(2, "a", json!({"shortNames": ["x"]})),
        definition(1, "b", json!({"shortNames": ["x", "y"], "kind": "A"})),
    ]);
    check(
        &mut definitions,
        expect![[r#"
        a {"kind":"","listKind":"AList","plural":"a","singular":"aone"}: NamesAccepted=False KindConflict "A" is already in use; Established=False NotAccepted not all names are accepted
        b {"kind":"A","listKind":"BList","plural":"b","shortNames":["x","y"],"singular":"bone"}: NamesAccepted=True NoConflicts no conflicts found; Established=True InitialNamesAccepted the initial names have been accepted"#]],
    );
    definitions.remove("b");
    check(
        &mut definitions,
        expect![[r#"
        a {"kind":"A","listKind":"AList","plural":"a","shortNames":["x"],"singular":"aone"}: NamesAccepted=True NoConflicts no conflicts found; Established=True InitialNamesAccepted the initial names have been accepted"#]],
    );
}

#[test]
fn an_established_definition_stays_so_when_later_names_clash() {
    let mut definitions = all([definition(1, "a", json!({})), definition(2, "b", json!({}))]);
    settle(&mut definitions, Timestamp::default());
    definitions.get_mut("b").unwrap().object["spec"]["names"]["singular"] = json!("a");
    check(
        &mut definitions,
        expect![[r#"
        a {"kind":"A","listKind":"AList","plural":"a","singular":"aone"}: NamesAccepted=True NoConflicts no conflicts found; Established=True InitialNamesAccepted the initial names have been accepted
        b {"kind":"B","listKind":"BList","plural":"b","singular":"bone"}: NamesAccepted=False SingularConflict "a" is already in use; Established=True InitialNamesAccepted the initial names have been accepted"#]],
    );
}

#[test]
fn names_of_other_groups_do_not_clash() {
    let mut other = definition(2, "b", json!({"kind": "A"}));
    other.object["spec"]["group"] = json!("other.io");
    let mut definitions = all([definition(1, "a", json!({})), other]);
    settle(&mut definitions, Timestamp::default());
    assert_eq!(definitions["b"].object["status"]["conditions"][0]["status"], "True");
}

#[test]
fn an_invalid_ca_bundle_hinders_establishing() {
    let mut d = definition(1, "a", json!({}));
    d.object["spec"]["conversion"] =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "eA=="}}});
    check(
        &mut all([d]),
        expect![[r#"
        a {"kind":"A","listKind":"AList","plural":"a","singular":"aone"}: NamesAccepted=True NoConflicts no conflicts found; Established=False InvalidCABundle The conversion webhook CABundle is invalid"#]],
    );
}

#[test]
fn a_name_that_is_released_goes_to_who_waits_and_nobody_else_is_looked_at() {
    let mut definitions = all([
        definition(1, "a", json!({})),
        definition(2, "b", json!({"kind": "A", "listKind": "BList"})),
        definition(3, "c", json!({"shortNames": ["x"]})),
    ]);
    let mut names = Names::default();
    definitions.values().for_each(|definition| names.take(&definition.object));
    let touched: BTreeSet<String> = definitions.keys().cloned().collect();
    let now = Timestamp::default();
    assert_eq!(names.settle(&mut definitions, &touched, now), ["a", "b", "c"]);
    assert_eq!(names.settle(&mut definitions, &touched, now), Vec::<String>::new());
    let accepted = |definitions: &BTreeMap<String, Definition>, name: &str| {
        definitions[name].object["status"]["acceptedNames"]["kind"].clone()
    };
    assert_eq!(accepted(&definitions, "b"), "");
    // A definition that is not touched keeps its status, right or wrong.
    definitions.get_mut("c").unwrap().object["status"]["conditions"] = json!([]);
    names.release(&definitions.remove("a").unwrap());
    assert_eq!(names.settle(&mut definitions, &BTreeSet::new(), now), ["b"]);
    assert_eq!(accepted(&definitions, "b"), "A");
    for definition in definitions.values() {
        names.release(definition);
    }
    assert_eq!(names.settle(&mut BTreeMap::new(), &BTreeSet::new(), now), Vec::<String>::new());
    assert!(names.groups.is_empty());
}

#[test]
fn schemas_without_structure_are_reported_until_they_are_repaired() {
    let conditions = |definitions: &BTreeMap<String, Definition>| -> Vec<Value> {
        let list = definitions["as"].object["status"]["conditions"].as_array().unwrap();
        list.iter().filter(|c| c["type"] == "NonStructuralSchema").cloned().collect()
    };
    let mut definitions = all([definition(1, "as", json!({}))]);
    let mut settled = |fault: Option<StructureFault>| {
        definitions.get_mut("as").unwrap().fault = fault;
        settle(&mut definitions, Timestamp::default());
        conditions(&definitions)
    };
    let found = settled(Some(StructureFault::Violations("v".to_owned())));
    let time = "1970-01-01T00:00:00Z";
    assert_eq!(
        found,
        [json!({"type": "NonStructuralSchema", "status": "True", "reason": "Violations",
            "message": "v", "lastTransitionTime": time})]
    );
    let found = settled(Some(StructureFault::Unsupported("u".to_owned())));
    assert_eq!(
        (&found[0]["status"], &found[0]["reason"]),
        (&json!("Unknown"), &json!("StructuralError"))
    );
    assert_eq!(settled(None), [] as [Value; 0]);
}
