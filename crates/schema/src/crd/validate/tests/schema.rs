//! `openAPIV3Schema`.
use super::{changed, check, check_property, show};
use crate::crd::validate_definition;
use expect_test::expect;
use serde_json::{Value, json};

#[test]
fn structure() {
    check_property(
        json!({}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].type: Required value: must not be empty for specified object fields"
        ],
    );
    check_property(
        json!({"type": "array", "items": {}}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].items.type: Required value: must not be empty for specified array items"
        ],
    );
    check_property(
        json!({"type": "foo"}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string""#
        ]],
    );
    check_property(
        json!({"type": "string", "pattern": "("}),
        expect![[
            "spec.validation.openAPIV3Schema.properties[x].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"
        ]],
    );
    check_property(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        ],
    );
    check_property(
        json!({"type": "integer", "anyOf": [{"type": "integer", "description": "d", "default": 1, "nullable": true}]}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].anyOf[0].default: Forbidden: must be undefined to be structural
        spec.validation.openAPIV3Schema.properties[x].anyOf[0].description: Forbidden: must be empty to be structural
        spec.validation.openAPIV3Schema.properties[x].anyOf[0].nullable: Forbidden: must be false to be structural
        spec.validation.openAPIV3Schema.properties[x].anyOf[0].type: Forbidden: must be empty to be structural"#]],
    );
    check_property(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        expect![""],
    );
    check_property(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].anyOf[0].type: Forbidden: must be empty to be structural
        spec.validation.openAPIV3Schema.properties[x].anyOf[1].type: Forbidden: must be empty to be structural"#]],
    );
    check_property(
        json!({"$ref": "#/x", "type": "object", "uniqueItems": true}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].$ref: Forbidden: $ref is not supported
        spec.validation.openAPIV3Schema.properties[x].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"#]],
    );
    check_property(
        json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        ],
    );
    check_property(
        json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true"
        ],
    );
    let root = "/spec/versions/0/schema/openAPIV3Schema";
    let at = |name: &str| format!("{root}/{name}");
    check(
        &[(&at("type"), json!("string"))],
        expect![[
            r#"spec.validation.openAPIV3Schema.type: Invalid value: "string": must be object at the root"#
        ]],
    );
    check(
        &[(&at("nullable"), json!(true))],
        expect![
            "spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root"
        ],
    );
    check(
        &[(&at("additionalProperties"), json!(true))],
        expect![
            "spec.validation.openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root"
        ],
    );
    check(
        &[(&at("anyOf"), json!([{"properties": {"b": {"minimum": 1}}}]))],
        expect![
            "spec.validation.openAPIV3Schema.properties[b]: Required value: because it is defined in spec.validation.openAPIV3Schema.anyOf[0].properties[b]"
        ],
    );
    check(
        &[(&at("properties/metadata"), json!({"type": "object", "description": "d"}))],
        expect![
            "spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
        ],
    );
    check(
        &[(&at("properties/kind"), json!({"type": "integer"}))],
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[kind].type: Invalid value: "integer": must be string"#
        ]],
    );
    check(
        &[(&at("$schema"), json!("http://x"))],
        expect![[
            r#"spec.validation.openAPIV3Schema: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#
        ]],
    );
}

#[test]
fn properties_stand_beside_no_false_and_branches_say_nothing_of_metadata() {
    check_property(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        ],
    );
    check_property(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true}),
        expect![[""]],
    );
    check_property(
        json!({"type": "object", "not": {"additionalProperties": false}, "anyOf": [{"additionalProperties": true}]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].anyOf[0].additionalProperties: Forbidden: must be undefined to be structural"
        ],
    );
    check_property(
        json!({"type": "object", "properties": {"metadata": {"type": "object"}}, "oneOf": [{"properties": {"metadata": {"minProperties": 1}}}]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].oneOf[0].properties[metadata]: Forbidden: must not be specified in a nested context"
        ],
    );
    // The pattern of integers and strings needs no extension.
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    check_property(
        json!({"x-kubernetes-preserve-unknown-fields": true, "anyOf": both}),
        expect![[""]],
    );
    check_property(json!({"type": "string", "allOf": [{"anyOf": both}]}), expect![[""]]);
}

#[test]
fn defaults_of_embedded_resources_make_valid_metadata() {
    let embedded = |properties: Value| json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": properties});
    let metadata = |properties: Value| {
        embedded(json!({"metadata": {"type": "object", "properties": properties}}))
    };
    check_property(
        embedded(json!({
            "kind": {"type": "string", "default": "Pod"},
            "apiVersion": {"type": "string", "default": "v1"},
            "metadata": {"type": "object", "default": {"name": "a"}},
        })),
        expect![[""]],
    );
    check_property(
        embedded(json!({"kind": {"type": "string", "default": "a b"}})),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].properties[kind].default: Invalid value: "a b": must result in valid metadata: kind: Invalid value: "a b": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]],
    );
    let labels = |default: Value| json!({"labels": {"type": "object", "default": default, "additionalProperties": {"type": "string"}}});
    check_property(metadata(labels(json!({"a": "b"}))), expect![[""]]);
    check_property(
        metadata(labels(json!({"a": 1}))),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].properties[metadata].properties[labels].default: Invalid value: {"a":1}: must result in valid metadata: metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#]],
    );
    check_property(
        metadata(labels(json!({"a": "?"}))),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].properties[metadata].properties[labels].default: Invalid value: {"a":"?"}: must result in valid metadata: metadata.labels: Invalid value: "?": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]],
    );
    check_property(
        metadata(
            json!({"labels": {"type": "object", "additionalProperties": {"type": "string", "default": "a"}}}),
        ),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].properties[metadata].properties[labels].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata"
        ],
    );
    // Those of other maps are not checked.
    check_property(
        json!({"type": "object", "additionalProperties": {"type": "string", "default": 1}}),
        expect![[""]],
    );
}

#[test]
fn lists_and_maps() {
    check_property(
        json!({"type": "string", "x-kubernetes-list-type": "set"}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#
        ]],
    );
    check_property(
        json!({"type": "array", "x-kubernetes-list-type": "foo", "items": {"type": "string"}}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].x-kubernetes-list-type: Unsupported value: "foo": supported values: "atomic", "set", "map""#
        ]],
    );
    check_property(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object", "nullable": true}}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set
        spec.validation.openAPIV3Schema.properties[x].items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"#]],
    );
    let map = |keys: Value, a: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": {"type": "object", "properties": {"a": a}}});
    check_property(
        map(json!(["a"]), json!({"type": "string"})),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].items.properties[a].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        ],
    );
    check_property(
        map(json!(["b"]), json!({"type": "string"})),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].x-kubernetes-list-map-keys: Invalid value: ["b"]: entries must all be names of item properties"#
        ]],
    );
    check_property(
        map(json!(["a", "a"]), json!({"type": "string", "default": "d"})),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].x-kubernetes-list-map-keys: Invalid value: ["a","a"]: must not contain duplicate entries"#
        ]],
    );
    check_property(
        json!({"type": "string", "x-kubernetes-map-type": "foo"}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].type: Invalid value: "string": must be object if x-kubernetes-map-type is specified
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-map-type: Unsupported value: "foo": supported values: "atomic", "granular""#]],
    );
}

#[test]
fn items_are_one_schema() {
    check_property(
        json!({"type": "array", "items": [], "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].items: Required value: must be specified
            spec.validation.openAPIV3Schema.properties[x].items: Invalid value: []: must only have a single schema if x-kubernetes-list-type is map"#]],
    );
    check_property(
        json!({"type": "array", "items": [{"type": "string"}]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].items: Forbidden: items must be a schema object and not an array"
        ],
    );
}

#[test]
fn what_is_not_defined_outside_is_reported_once() {
    let branch = json!({"properties": {"a": {"anyOf": [{}], "properties": {"b": {}}}}});
    check(
        &[("/spec/versions/0/schema/openAPIV3Schema/allOf", json!([branch]))],
        expect![
            "spec.validation.openAPIV3Schema.properties[a]: Required value: because it is defined in spec.validation.openAPIV3Schema.allOf[0].properties[a]"
        ],
    );
}

#[test]
fn answers_to_generated_schemas() {
    check_property(
        json!({"type": "integer", "default": 1, "minimum": 0.5}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "": Minimum boundary value must be of type integer (default format) in "#
        ]],
    );
    check_property(
        json!({"type": "array", "items": {"type": "string", "maxLength": 1}, "default": ["a", "ab"]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].default.[1]: Too long: may not be more than 1 byte"
        ],
    );
    check_property(
        json!({"type": "integer", "default": 1, "multipleOf": -1}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].default: Invalid value: -1: factor MultipleOf declared for  must be positive: -1"
        ],
    );
    check_property(
        json!({"type": "object", "additionalItems": {}}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].additionalItems: Forbidden: additionalItems is not supported"
        ],
    );
}

#[test]
fn defaults() {
    check_property(
        json!({"type": "string", "default": 1}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "integer":  in body must be of type string: "integer""#
        ]],
    );
    check_property(
        json!({"type": "string", "enum": ["a"], "default": "b"}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Unsupported value: "b": supported values: "a""#
        ]],
    );
    check_property(
        json!({"type": "object", "default": {}, "required": ["a"], "properties": {"a": {"type": "integer", "default": 1}}}),
        expect!["spec.validation.openAPIV3Schema.properties[x].default.a: Required value"],
    );
    check_property(
        json!({"type": "object", "default": {"b": 1}, "properties": {"a": {"type": "integer"}}}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: {"b":1}: must not have unknown fields"#
        ]],
    );
    check_property(
        json!({"type": "integer", "nullable": true, "default": {"a": 1}}),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].default: Invalid value: {"a":1}: must not have unknown fields
            spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "object":  in body must be of type integer: "object""#]],
    );
    // All formats count, also those that are not known for a type.
    check_property(
        json!({"type": "integer", "default": 2, "anyOf": [{"format": "int32"}]}),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "": "" must validate at least one schema (anyOf)
            spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "int64":  in body must be of type int32: "int64""#]],
    );
    check_property(
        json!({"type": "array", "items": {"type": "string"}, "format": "pods", "default": {}}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "":  in body must be of type pods: """#
        ]],
    );
    check_property(json!({"type": "boolean", "format": "pods", "default": "a"}), expect![""]);
    check_property(
        json!({"type": "boolean", "format": "date", "default": "a"}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "a":  in body must be of type date: "a""#
        ]],
    );
    check_property(
        json!({"type": "object", "additionalProperties": {"type": "string"}, "default": {"a": 1}}),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default.a: Invalid value: "integer": .a in body must be of type string: "integer""#
        ]],
    );
    // Rules do not see what may be anything.
    let any = json!({"x-kubernetes-preserve-unknown-fields": true});
    check_property(
        json!({
            "type": "object",
            "additionalProperties": any,
            "default": {},
            "x-kubernetes-validations": [{"rule": "self == oldSelf"}],
        }),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].default: Invalid value: "object": rule compiler initialization error: failed to convert to declType for CEL validation rules"#
        ]],
    );
    // What is an integer or a string may be anything here.
    check_property(json!({"x-kubernetes-int-or-string": true, "default": {}}), expect![""]);
    // A default of the root needs a type.
    check(
        &[("/spec/versions/0/schema/openAPIV3Schema/default", json!({"kind": "a b", "a": 1}))],
        expect![[r#"
            spec.validation.openAPIV3Schema.default: Invalid value: {"a":1,"kind":"a b"}: must not have unknown fields
            spec.validation.openAPIV3Schema.default.apiVersion: Required value
            spec.validation.openAPIV3Schema.default.kind: Invalid value: "a b": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]],
    );
    let mut changes = vec![("/spec/preserveUnknownFields", json!(true))];
    const REFUSED: &str = "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    let errors = |changes: &[(&str, Value)]| show(&validate_definition(&changed(changes), None));
    assert_eq!(errors(&changes), REFUSED);
    let any_of = json!({"type": "object", "properties": {"a": {"type": "string", "default": "b"}}});
    changes.push(("/spec/versions/0/schema/openAPIV3Schema/properties/x", any_of));
    let defaults = "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema";
    assert_eq!(errors(&changes), format!("{defaults}\n{REFUSED}"));
    check(
        &[(
            "/spec/versions/0/schema/openAPIV3Schema/properties/metadata",
            json!({"type": "object", "default": {}}),
        )],
        expect![
            "spec.validation.openAPIV3Schema.properties[metadata].default: Forbidden: must not be set in top-level metadata"
        ],
    );
}

#[test]
fn rules() {
    let rule = |rule: Value| json!({"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
    check_property(
        rule(json!({"rule": " "})),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Required value: rule is not specified"
        ],
    );
    check_property(
        rule(json!({"rule": "a\n&& b"})),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks"
        ],
    );
    check_property(
        rule(json!({"rule": "true", "reason": "Foo", "fieldPath": ".zz", "optionalOldSelf": true})),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].reason: Unsupported value: "Foo": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].fieldPath: Invalid value: ".zz": must be a valid path"#]],
    );
    check_property(
        rule(
            json!({"rule": "self.n == oldSelf.orValue(1)", "fieldPath": ".n", "optionalOldSelf": true}),
        ),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.n == oldSelf.orValue(1)","Message":"","MessageExpression":"","Reason":null,"FieldPath":".n","OptionalOldSelf":true}: compilation failed: ERROR: <input>:1:26: found no matching overload for 'orValue' applied to 'optional_type(selfType0).(int)'
             | self.n == oldSelf.orValue(1)
             | .........................^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"#]],
    );
}
