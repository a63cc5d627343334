use super::{validate, validate_status};
use crate::crd::type_schema;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn schema(spec: Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}})
}

fn show(errors: Vec<setpoint_object::field::Error>) -> String {
    errors
        .iter()
        .map(|e| format!("{} {e}", e.reason().trim_start_matches("FieldValue")))
        .collect::<Vec<_>>()
        .join("\n")
}

fn check(properties: Value, spec: Value, expect: Expect) {
    expect.assert_eq(&show(validate(
        &type_schema(&schema(properties)),
        &json!({"spec": spec}),
        None,
    )));
}

fn check_update(properties: Value, old: Value, new: Value, expect: Expect) {
    let schema = type_schema(&schema(properties));
    let (old, new) = (json!({"spec": old}), json!({"spec": new}));
    expect.assert_eq(&show(validate(&schema, &new, Some(&old))));
}

#[test]
fn types() {
    check(
        json!({"i": {"type": "integer"}}),
        json!({"i": "x"}),
        expect![[
            r#"TypeInvalid spec.i: Invalid value: "string": spec.i in body must be of type integer: "string""#
        ]],
    );
    check(
        json!({"i": {"type": "integer"}}),
        json!({"i": 1.5}),
        expect![[r#"
        TypeInvalid spec.i: Invalid value: "number": spec.i in body must be of type integer: "number"
        Invalid <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.i"#]],
    );
    check(
        json!({"i": {"type": "integer", "format": "int32"}}),
        json!({"i": 5_000_000_000_i64}),
        expect![[
            r#"Invalid <nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i"#
        ]],
    );
    // Without a format the type is named; a float within int64 fits.
    check(
        json!({"i": {"type": "integer"}}),
        json!({"i": 1e18}),
        expect![[
            r#"TypeInvalid spec.i: Invalid value: "number": spec.i in body must be of type integer: "number""#
        ]],
    );
    check(
        json!({"i": {"type": "integer", "format": "int64", "nullable": true}}),
        json!({"i": true}),
        expect![[
            r#"TypeInvalid spec.i: Invalid value: "": spec.i in body must be of type int64: """#
        ]],
    );
    check(
        json!({"i": {"type": "integer", "nullable": true}, "s": {"type": "string", "format": "date-time"}}),
        json!({"i": true, "s": 5}),
        expect![[r#"
            TypeInvalid spec.i: Invalid value: "boolean": spec.i in body must be of type integer: "boolean"
            TypeInvalid spec.s: Invalid value: "int64": spec.s in body must be of type date-time: "int64""#]],
    );
    check(
        json!({"s": {"type": "string", "format": "date-time"}, "n": {"type": "number", "format": "double"}, "o": {"type": "object", "format": "double"}}),
        json!({"s": [], "n": "x", "o": 1}),
        expect![[r#"
            TypeInvalid spec.n: Invalid value: "string": spec.n in body must be of type number: "string"
            TypeInvalid spec.o: Invalid value: "integer": spec.o in body must be of type object: "integer""#]],
    );
    check(
        json!({"i": {"type": "integer", "format": "int64"}}),
        json!({"i": 1e19}),
        expect![[r#"
        TypeInvalid spec.i: Invalid value: "float64": spec.i in body must be of type int64: "float64"
        Invalid <nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec.i"#]],
    );
    check(
        json!({"x": {"x-kubernetes-int-or-string": true}}),
        json!({"x": true}),
        expect![[
            r#"TypeInvalid spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#
        ]],
    );
    check(
        json!({"l": {"type": "array", "items": {"type": "string"}}}),
        json!({"l": [null]}),
        expect![[
            r#"TypeInvalid spec.l[0]: Invalid value: "null": spec.l[0] in body must be of type string: "null""#
        ]],
    );
    check(
        json!({"n": {"type": "number"}, "s": {"type": "string", "nullable": true}}),
        json!({"n": 1, "s": null}),
        expect![""],
    );
    check(
        json!({"f": {"type": "string", "format": "date"}, "u": {"type": "string", "format": "foo"}}),
        json!({"f": "x", "u": "y"}),
        expect![[
            r#"TypeInvalid spec.f: Invalid value: "x": spec.f in body must be of type date: "x""#
        ]],
    );
}

#[test]
fn required_enum_and_bounds() {
    check(
        json!({"o": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}}),
        json!({"o": {}}),
        expect!["Required spec.o.a: Required value"],
    );
    check(
        json!({"e": {"type": "string", "enum": ["a", "b"]}, "n": {"type": "integer", "enum": [1, 2]}}),
        json!({"e": "c", "n": 3}),
        expect![[r#"
        NotSupported spec.e: Unsupported value: "c": supported values: "a", "b"
        NotSupported spec.n: Unsupported value: 3: supported values: "1", "2""#]],
    );
    check(
        json!({"e": {"type": "string", "nullable": true, "enum": ["a"]}}),
        json!({"e": null}),
        expect![[r#"NotSupported spec.e: Unsupported value: null: supported values: "a""#]],
    );
    // The reference converts the number before it looks.
    check(
        json!({
            "n": {"type": "number", "enum": [1, 2]},
            "o": {"type": "number", "enum": [1.5]},
            "t": {"x-kubernetes-int-or-string": true, "enum": ["a", "é"]},
            "u": {"x-kubernetes-int-or-string": true, "enum": ["ab"]},
        }),
        json!({"n": 1.5, "o": 1, "t": 233, "u": 97}),
        expect![[r#"
        NotSupported spec.o: Unsupported value: 1: supported values: "1.5"
        NotSupported spec.u: Unsupported value: 97: supported values: "ab""#]],
    );
    check(
        json!({"i": {"type": "integer", "minimum": 1, "maximum": 10}, "j": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "multipleOf": 3},
        "k": {"type": "number", "maximum": 10, "exclusiveMaximum": true}}),
        json!({"i": 0, "j": 1, "k": 10}),
        expect![[r#"
        Invalid spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1
        Invalid spec.j: Invalid value: 1: spec.j in body should be a multiple of 3
        Invalid spec.j: Invalid value: 1: spec.j in body should be greater than 1
        Invalid spec.k: Invalid value: 10: spec.k in body should be less than 10"#]],
    );
    check(
        json!({"s": {"type": "string", "minLength": 2, "pattern": "^a+$"}, "t": {"type": "string", "maxLength": 1}}),
        json!({"s": "b", "t": "éé"}),
        expect![[r#"
        Invalid spec.s: Invalid value: "b": spec.s in body should be at least 2 chars long
        TooLong spec.t: Too long: may not be more than 1 byte"#]],
    );
    check(
        json!({"l": {"type": "array", "minItems": 1, "items": {"type": "string"}}, "m": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "o": {"type": "object", "minProperties": 1}, "p": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}}),
        json!({"l": [], "m": ["a", "b"], "o": {}, "p": {"a": "1", "b": "2"}}),
        expect![[r#"
        Invalid spec.l: Invalid value: 0: spec.l in body should have at least 1 items
        TooMany spec.m: Too many: 2: must have at most 1 item
        Invalid spec.o: Invalid value: 0: spec.o in body should have at least 1 properties
        TooMany spec.p: Too many: 2: must have at most 1 item"#]],
    );
    check(
        json!({"af": {"type": "object", "additionalProperties": false}, "pm": {"type": "object", "additionalProperties": {"type": "integer"}}}),
        json!({"af": {"x": 1}, "pm": {"a.b": "s"}}),
        expect![[r#"
        Invalid spec.af: Invalid value: "x": spec.af.x in body is a forbidden property
        TypeInvalid spec.pm.a.b: Invalid value: "string": spec.pm.a.b in body must be of type integer: "string""#]],
    );
}

#[test]
fn combinators() {
    let one = json!({"one": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}});
    check(
        one.clone(),
        json!({"one": {}}),
        expect![[r#"
        Invalid <nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid
        Required spec.one.a: Required value"#]],
    );
    check(
        one,
        json!({"one": {"a": 1, "b": 1}}),
        expect![[
            r#"Invalid <nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]],
    );
    check(
        json!({"x": {"type": "integer", "anyOf": [{"minimum": 5}, {"enum": [1]}]}}),
        json!({"x": 2}),
        expect![[r#"
        Invalid <nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)
        Invalid spec.x: Invalid value: 2: spec.x in body should be greater than or equal to 5"#]],
    );
    check(
        json!({"x": {"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 1}]}}),
        json!({"x": 2}),
        expect![[r#"
            Invalid spec.x: Invalid value: 2: spec.x in body should be greater than or equal to 5
            Invalid spec.x: Invalid value: 2: spec.x in body should be less than or equal to 1
            Invalid <nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf). None validated"#]],
    );
    check(
        json!({"x": {"type": "integer", "not": {"enum": [2]}}}),
        json!({"x": 2}),
        expect![[
            r#"Invalid <nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#
        ]],
    );
}

#[test]
fn lists_of_unique_elements() {
    check(
        json!({"set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "q"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "q": {"type": "string"}, "v": {"type": "integer"}}}}}),
        json!({"set": ["a", "b", "a", "a"], "map": [{"k": "a", "q": "z", "v": 1}, {"k": "a", "q": "z", "v": 2}]}),
        expect![[r#"
        Duplicate spec.map[1]: Duplicate value: {"k":"a","q":"z"}
        Duplicate spec.set[2]: Duplicate value: "a""#]],
    );
}

#[test]
fn embedded_resources_need_a_type() {
    check(
        json!({"emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}),
        json!({"emb": {"kind": "Pod"}}),
        expect!["Required spec.emb.apiVersion: Required value"],
    );
}

#[test]
fn metadata_of_embedded_resources_has_the_rules_of_any() {
    let owner =
        json!({"apiVersion": "v1", "kind": "Event", "name": "", "uid": "u", "controller": true});
    check(
        json!({"emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}),
        json!({"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "a/b", "generateName": "..", "namespace": "A", "generation": -1,
            "labels": {"a": "-"}, "annotations": {"Ex.io/A": "any text", "-": ""},
            "ownerReferences": [owner, {"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u", "controller": true}],
            "finalizers": ["orphan", "foregroundDeletion", "-"],
        }}}),
        expect![[r#"
            Invalid spec.emb.metadata.name: Invalid value: "a/b": may not contain '/'
            Invalid spec.emb.metadata.namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            Invalid spec.emb.metadata.generation: Invalid value: -1: must be greater than or equal to 0
            Invalid spec.emb.metadata.labels: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            Invalid spec.emb.metadata.annotations: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            Invalid spec.emb.metadata.ownerReferences.name: Invalid value: "": must not be empty
            Invalid spec.emb.metadata.ownerReferences: Invalid value: {"apiVersion":"v1","controller":true,"kind":"Event","name":"","uid":"u"}: /v1, Kind=Event is disallowed from being an owner
            Invalid spec.emb.metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty
            Invalid spec.emb.metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","controller":true,"kind":"Event","name":"","uid":"u"},{"apiVersion":"a/b/c","controller":true,"kind":"K","name":"n","uid":"u"}]: Only one reference can have Controller set to true. Found "true" in references for Event/ and K/n
            Invalid spec.emb.metadata.finalizers: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            Invalid spec.emb.metadata.finalizers: Invalid value: ["orphan","foregroundDeletion","-"]: finalizer orphan and foregroundDeletion cannot be both set"#]],
    );
}

#[test]
fn bounds_of_integers_have_no_fraction() {
    let bounds = |bounds: Value| {
        let mut schema = json!({"type": "number"});
        schema.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        type_schema(&schema_of("n", schema))
    };
    for (schema, value, expected) in [
        (json!({"minimum": 0.5}), json!(0), ""),
        (json!({"minimum": 0.5}), json!(0.25), "should be greater than or equal to 0.5"),
        (json!({"minimum": 1.5}), json!(0), "should be greater than or equal to 1"),
        (json!({"maximum": -1.5}), json!(-1), ""),
        (json!({"maximum": 1.5}), json!(2), "should be less than or equal to 1"),
        (json!({"maximum": 1.5, "exclusiveMaximum": true}), json!(1), "should be less than 1"),
        (json!({"maximum": 1.5}), json!(1.75), "should be less than or equal to 1.5"),
        (json!({"multipleOf": 2.5}), json!(4), ""),
        (json!({"multipleOf": 0.5}), json!(4), "must be positive: 0"),
        (json!({"multipleOf": 0.5}), json!(4.5), ""),
    ] {
        let found = show(validate(&bounds(schema.clone()), &json!({"spec": {"n": value}}), None));
        assert_eq!(found.is_empty(), expected.is_empty(), "{schema} {value}: {found}");
        assert!(found.ends_with(expected), "{schema} {value}: {found}");
    }
}
fn schema_of(name: &str, property: Value) -> Value {
    schema(json!({name: property}))
}

#[test]
fn metadata_is_held_to_what_the_schema_restricts() {
    let schema = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}}}});
    let errors = validate(
        &type_schema(&schema),
        &json!({"metadata": {"name": "abcd", "labels": {"a": 1}}}),
        None,
    );
    expect!["TooLong metadata.name: Too long: may not be more than 3 bytes"]
        .assert_eq(&show(errors));
}

#[test]
fn unchanged_values_are_not_validated_again() {
    let properties = json!({"a": {"type": "integer", "minimum": 5}, "b": {"type": "integer"},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 5}}}},
        "l": {"type": "array", "items": {"type": "integer", "minimum": 5}},
        "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}});
    let old = json!({"a": 1, "b": 1, "m": [{"k": "x", "v": 1}], "l": [1], "s": [1, 1]});
    check_update(
        properties.clone(),
        old.clone(),
        json!({"a": 1, "b": 2, "m": [{"k": "y", "v": 6}, {"k": "x", "v": 1}], "l": [1], "s": [1, 1, 2]}),
        expect![""],
    );
    check_update(
        properties,
        old,
        json!({"a": 2, "m": [{"k": "x", "v": 2}], "l": [1, 6]}),
        expect![[r#"
        Invalid spec.a: Invalid value: 2: spec.a in body should be greater than or equal to 5
        Invalid spec.l[0]: Invalid value: 1: spec.l[0] in body should be greater than or equal to 5
        Invalid spec.m[0].v: Invalid value: 2: spec.m[0].v in body should be greater than or equal to 5"#]],
    );
}

#[test]
fn int32_has_its_bounds() {
    let fits = |value: Value| {
        let schema = type_schema(&schema(json!({"i": {"type": "integer", "format": "int32"}})));
        validate(&schema, &json!({"spec": {"i": value}}), None).is_empty()
    };
    assert!(fits(json!(i32::MAX)) && fits(json!(i32::MIN)));
    assert!(!fits(json!(i64::from(i32::MAX) + 1)) && !fits(json!(i64::from(i32::MIN) - 1)));
}

#[test]
fn status_alone() {
    let schema = type_schema(&schema(json!({"a": {"type": "integer"}})));
    let value = json!({"spec": {"a": "x"}, "status": {"n": "x"}});
    expect![[r#"TypeInvalid status.n: Invalid value: "string": n in body must be of type integer: "string""#]]
        .assert_eq(&show(validate_status(&schema, &value, None, Vec::new())));
    let types = json!({"spec": {}, "status": 5});
    expect![[r#"TypeInvalid status: Invalid value: "integer":  in body must be of type object: "integer""#]]
        .assert_eq(&show(validate_status(&schema, &types, None, Vec::new())));
}

#[test]
fn steps_are_bounded_and_running_out_of_them_is_an_error() {
    let branches: Vec<Value> =
        (0..200).map(|i| json!({"pattern": format!("^[a-z]{{{i},1000}}x$")})).collect();
    let schema = type_schema(&schema(
        json!({"l": {"type": "array", "items": {"type": "string", "anyOf": branches}}}),
    ));
    let items = |n: usize| json!({"spec": {"l": vec!["a".repeat(64) + "y"; n]}});
    let errors = validate(&schema, &items(1), None);
    assert_eq!(errors.len(), 2);
    let errors = validate(&schema, &items(20_000), None);
    let last = errors.last().unwrap().to_string();
    assert!(last.contains("validation stopped after 16777216 steps"), "{last}");
}

#[test]
fn errors_are_bounded_in_bytes() {
    let schema = type_schema(&schema(
        json!({"m": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}}),
    ));
    let mut object = json!({"spec": {"m": {}}});
    object["spec"]["m"]["k".repeat(100_000)] = json!(vec![1; 10_000]);
    let errors = validate(&schema, &object, None);
    let bytes: usize = errors.iter().map(|error| error.path.n_bytes() + error.detail.len()).sum();
    assert!(!errors.is_empty() && bytes < 2 * super::ERRORS_BYTES_MAX, "{bytes}");
}

#[test]
fn elements_of_long_lists_find_their_old_ones() {
    const N: usize = 20_000;
    let list = json!({"l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"],
        "items": {"type": "object", "properties": {"k": {"type": "integer"}, "p": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}}}});
    let schema = type_schema(&schema(list));
    let items = |value: &str| -> Vec<Value> {
        (0..N).map(|i| json!({"k": i, "p": "", "v": value})).collect()
    };
    let old = json!({"spec": {"l": items("too long")}});
    let mut new = old.clone();
    new["spec"]["l"].as_array_mut().unwrap().reverse();
    new["spec"]["l"]
        .as_array_mut()
        .unwrap()
        .push(json!({"k": N, "p": "", "v": "new and too long"}));
    let errors = validate(&schema, &new, Some(&old));
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].path.text(), "spec.l[20000].v");
}

#[test]
fn types_say_whether_their_validation_may_be_costly() {
    let plain = type_schema(&schema(json!({"a": {"type": "string", "maxLength": 3}})));
    let pattern = type_schema(&schema(json!({"a": {"type": "string", "pattern": "a"}})));
    assert!(!plain.has_costly_validation() && pattern.has_costly_validation());
    let members = |n: usize, of: Value| -> Value {
        (0..n).map(|n| (format!("m{n}"), of.clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let costly = |field: Value| type_schema(&schema(json!({"a": field}))).has_costly_validation();
    let text = json!({"type": "string", "default": "x"});
    let defaults = |n: usize| json!({"type": "object", "properties": members(n, text.clone())});
    let list = |items: Value| json!({"type": "array", "items": items});
    let map = |items: Value| json!({"type": "object", "additionalProperties": items});
    // Defaults, once and in each of many.
    assert!(!costly(defaults(1000)) && !costly(list(defaults(20))) && !costly(map(defaults(20))));
    assert!(costly(list(defaults(100))) && costly(map(defaults(100))));
    let within = json!({"type": "object", "properties": {"b": defaults(100)}});
    assert!(!costly(within.clone()) && costly(list(within)));
    let long = json!({"type": "string", "default": "x".repeat(10_000)});
    assert!(costly(list(json!({"type": "object", "properties": {"b": long}}))));
    // Defaults within defaults.
    let mut nested = defaults(8);
    for _ in 0..4 {
        nested["default"] = json!({});
        nested = json!({"type": "object", "properties": members(8, nested)});
    }
    assert!(costly(nested));
    let names: Vec<_> = (0..100).map(|n| format!("m{n}")).collect();
    let required = json!({"type": "object", "required": names});
    assert!(!costly(required.clone()) && costly(list(required)));
}

#[test]
fn fractions_that_are_not_exact_are_multiples() {
    let factor = |factor: f64| json!({"n": {"type": "number", "multipleOf": factor}});
    for (number, multiple) in [(4.35, 0.01), (0.3, 0.1), (1.1, 1.1), (2.5, 0.5), (7.5, 2.5)] {
        check(factor(multiple), json!({"n": number}), expect![[""]]);
    }
    check(
        factor(0.01),
        json!({"n": 4.355}),
        expect![[
            "Invalid spec.n: Invalid value: 4.355: spec.n in body should be a multiple of 0.01"
        ]],
    );
}

#[test]
fn declared_metadata_of_an_embedded_resource_is_validated() {
    let metadata = json!({"type": "object", "required": ["name"], "properties": {
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true, "properties": {"metadata": metadata}});
    let emb =
        |metadata: Value| json!({"e": {"apiVersion": "v1", "kind": "A", "metadata": metadata}});
    let properties = json!({"e": embedded});
    check(
        properties.clone(),
        emb(json!({"labels": {"a": "1", "b": "2"}})),
        expect![[r#"
            Required spec.e.metadata.name: Required value
            TooMany spec.e.metadata.labels: Too many: 2: must have at most 1 item"#]],
    );
    check(properties, emb(json!({"name": "a", "annotations": {}, "uid": "x"})), expect![[""]]);
}

#[test]
fn lists_and_resources_in_maps_have_the_keys_in_brackets() {
    let set =
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}}});
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    let of = |values: &Value| json!({"type": "object", "additionalProperties": values});
    check(
        json!({"s": of(&set), "e": of(&embedded), "m": map}),
        json!({"s": {"a.b": ["x", "x"]}, "e": {"k": {"kind": "A"}}, "m": [{"k": "a"}, "b", {"k": "a"}]}),
        expect![[r#"
            TypeInvalid spec.m[1]: Invalid value: "string": spec.m[1] in body must be of type object: "string"
            Required spec.e[k].apiVersion: Required value
            Invalid spec.m[1]: Invalid value: "b": must be an object for an array of list-type map
            Duplicate spec.s[a.b][1]: Duplicate value: "x""#]],
    );
}

#[test]
fn null_is_in_no_enum() {
    check(
        json!({"e": {"type": "string", "nullable": true, "enum": ["a", null]}}),
        json!({"e": null}),
        expect![[r#"NotSupported spec.e: Unsupported value: null: supported values: "a", "null""#]],
    );
}
