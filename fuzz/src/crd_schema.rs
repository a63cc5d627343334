//! Schemas of definitions.
use serde_json::{Value, json};
use setpoint_schema::decode::{Format, parse};
use setpoint_schema::{crd, default, prune, validate};

/// A tree as the schema of a definition is judged in bounded time; if it is accepted, objects are
/// pruned, filled in and validated by it.
pub fn check(input: &[u8]) {
    let Ok(schema) = parse(input, Format::Json) else { return };
    let mut definition = json!({
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema.value}}],
        },
        "status": {"storedVersions": ["v1"]},
    });
    if let Value::Object(members) = &mut definition {
        crd::default_definition(members);
    }
    let faults = crd::validate_definition(&definition, None);
    let _ = crd::definition_warnings(&definition);
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    if !faults.is_empty() || !schema.is_object() {
        return;
    }
    let compiled = crd::type_schema(schema);
    let mut object = json!({"spec": schema.clone(), "a": 1, "status": {"b": [null, "x"]}});
    prune::prune(&compiled, &mut object);
    if default::apply(&compiled, &mut object).is_ok() {
        assert_eq!(prune::prune(&compiled, &mut object), Vec::<String>::new());
    }
    let _ = validate::validate(&compiled, &object, None);
}
