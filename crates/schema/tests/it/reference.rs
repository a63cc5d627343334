//! What the reference makes of generated patches and writes: `data/patches.json` and
//! `data/ownership.json` hold inputs and the results of Kubernetes 1.36's own libraries; managers'
//! times are reduced to whether there is one.

use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_object::time::Timestamp;
use setpoint_schema::apply::{self, Manager, Typing};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, crd, decode, patch};
use std::collections::BTreeSet;
use std::time::Duration;

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("the fixture is JSON")
}

/// Schema and version of a kind; whether it is a custom one.
fn kind(kind: &str) -> (TypeSchema, &'static str, bool) {
    let (group, version, api_version) = match kind {
        "Foo" => {
            let schema = crd::type_schema(&json_of(include_str!("../data/foo.json")));
            return (schema, "ex.io/v1", true);
        }
        "Deployment" => ("apps", "v1", "apps/v1"),
        _ => ("", "v1", "v1"),
    };
    let schema = builtin::type_schema(group, version, kind).expect("a built-in kind");
    (schema, api_version, false)
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("the fixture is JSON")
}

fn patched(case: &Value) -> Result<Value, ApiError> {
    let mut object = case["object"].clone();
    let body = case["patch"].to_string();
    let problems = &mut Vec::new();
    match case["type"].as_str() {
        Some("json") => patch::json_patch(&mut object, body.as_bytes(), problems)?,
        Some("merge") => patch::merge_patch(&mut object, body.as_bytes(), problems)?,
        _ => {
            let (schema, ..) = kind(case["kind"].as_str().unwrap_or_default());
            patch::strategic_merge_patch(&schema, &mut object, body.as_bytes(), problems)?;
        }
    }
    Ok(object)
}

#[test]
fn patches_come_out_as_the_reference_makes_them() {
    for case in cases(include_str!("../data/patches.json")) {
        let expect = &case["expect"];
        match (patched(&case), expect.get("object"), &expect["error"]) {
            (Ok(object), Some(wanted), _) => assert_eq!(object, *wanted, "{case}"),
            (Err(error), None, Value::String(text)) => {
                assert_eq!(error.0.message, *text, "{case}");
            }
            (Err(error), None, Value::Bool(_)) => {
                assert!([400, 422].contains(&error.code()), "{case}");
            }
            (Err(error), None, _) => assert_eq!(error.code(), 422, "{case}"),
            (result, ..) => panic!("{result:?} instead of {expect}: {case}"),
        }
    }
}

/// What is left without empty values, which the reference's types write or leave out at their own
/// discretion.
fn lean(value: &Value) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::Bool(b) => !b,
        Value::String(s) => s.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    };
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| *name != "status")
            .map(|(name, value)| (name.clone(), lean(value)))
            .filter(|(_, value)| !empty(value))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(lean).collect(),
        scalar => scalar.clone(),
    }
}

/// The entries as the fixture has them, sorted by their text.
fn managed(object: &Value) -> Value {
    let Some(entries) = object["metadata"]["managedFields"].as_array() else { return Value::Null };
    let mut entries: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let mut entry = entry.clone();
            let timed = entry.get("time").is_some();
            entry["time"] = json!(timed);
            if let Value::Object(members) = &mut entry {
                members.remove("fieldsType");
            }
            entry
        })
        .collect();
    entries.sort_by_key(Value::to_string);
    entries.into()
}

/// One write of a story; the object afterwards.
fn write(
    (schema, api_version, custom): &(TypeSchema, &str, bool),
    kind: &str,
    step: &Value,
    live: Option<&Value>,
    seconds: u64,
) -> Result<Value, ApiError> {
    let text = |name: &str| step[name].as_str().unwrap_or_default();
    let subresource = text("subresource");
    let reset: BTreeSet<&str> = match (subresource, custom) {
        ("status", true) => ["spec", "metadata"].into(),
        ("status", false) => ["spec"].into(),
        _ => ["status"].into(),
    };
    let typing =
        Typing { schema, kind, reset: &reset, custom: *custom, versions: &[], others: None };
    let now = Timestamp(Duration::from_secs(seconds));
    let manager = Manager { name: text("manager"), api_version, subresource, now };
    let stored = |object: &mut Value| {
        if !custom {
            decode::conform(schema, kind, object, &mut Vec::new())
                .expect("the object fits its type");
        }
    };
    let mut object = if text("op") == "apply" {
        apply::apply(&typing, live, &step["object"], &manager, step["force"] == true)?.object
    } else {
        let mut new = step["object"].clone();
        if live.is_some() {
            new["metadata"]["uid"] = json!("uid");
        }
        stored(&mut new);
        apply::update(&typing, live, &mut new, &manager);
        new
    };
    stored(&mut object);
    object["metadata"]["uid"] = json!("uid");
    Ok(object)
}

fn check_step(expect: &Value, result: &Result<Value, ApiError>, case: &Value) {
    match result {
        Ok(object) => {
            assert_eq!(managed(object), sorted(&expect["managed"]), "{case}");
            let mut object = object.clone();
            for (of, name) in [("", "apiVersion"), ("", "kind"), ("/metadata", "managedFields")] {
                if let Some(Value::Object(members)) = object.pointer_mut(of) {
                    members.remove(name);
                }
            }
            assert_eq!(lean(&object), lean(&expect["object"]), "{case}");
        }
        Err(error) => {
            assert_eq!(Some(error.0.message.as_str()), expect["error"].as_str(), "{case}");
            let Some(wanted) = expect["causes"].as_array() else { return };
            let causes = error.0.details.iter().flat_map(|details| &details.causes);
            let mut causes: Vec<Value> =
                causes.map(|c| json!(format!("{} @ {}", c.message, c.field))).collect();
            causes.sort_by_key(Value::to_string);
            assert_eq!(causes, *wanted, "{case}");
        }
    }
}

fn sorted(entries: &Value) -> Value {
    let Some(entries) = entries.as_array() else { return Value::Null };
    let mut entries = entries.clone();
    entries.sort_by_key(Value::to_string);
    entries.into()
}

#[test]
fn ownership_goes_as_the_reference_has_it() {
    for case in cases(include_str!("../data/ownership.json")) {
        let kind_name = case["kind"].as_str().unwrap_or_default();
        let typing = kind(kind_name);
        let mut live: Option<Value> = None;
        for (at, step) in case["steps"].as_array().into_iter().flatten().enumerate() {
            let result = write(&typing, kind_name, step, live.as_ref(), at as u64);
            check_step(&step["expect"], &result, &case);
            live = result.ok().or(live);
        }
    }
}
