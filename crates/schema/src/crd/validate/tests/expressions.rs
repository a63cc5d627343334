//! Rules in CEL.
use super::{changed, check, check_property, show};
use crate::crd::validate_definition;
use expect_test::expect;
use serde_json::{Value, json};

fn rules(rules: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": rules,
    })
}

#[test]
fn types_of_objects_are_named_after_the_node_of_the_rule() {
    let object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let schema = json!({
        "type": "object",
        "properties": {
            "o": object, "l": {"type": "array", "items": object},
            "m": {"type": "object", "additionalProperties": object},
        },
        "x-kubernetes-validations": [
            {"rule": "self.o > 0"}, {"rule": "self.l > 0"}, {"rule": "self.m > 0"},
        ],
    });
    check_property(
        schema,
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.o \u003e 0","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(selfType0.o, int)'
         | self.o > 0
         | .......^
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[1].rule: Invalid value: {"Rule":"self.l \u003e 0","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(list(selfType0.l.@idx), int)'
         | self.l > 0
         | .......^
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[2].rule: Invalid value: {"Rule":"self.m \u003e 0","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_>_' applied to '(map(string, selfType0.m.@elem), int)'
         | self.m > 0
         | .......^"#]],
    );
}

#[test]
fn rules_that_do_not_compile_are_refused_with_their_faults() {
    check_property(
        rules(json!([{"rule": "self.zz == 1"}])),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.zz == 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: undefined field 'zz'
         | self.zz == 1
         | ....^"#]],
    );
    check_property(
        rules(
            json!([{"rule": "self.n == 'a' && self.n < 1", "reason": "FieldValueForbidden"}, {"rule": "self.n", "message": "m"}]),
        ),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.n == 'a' \u0026\u0026 self.n \u003c 1","Message":"","MessageExpression":"","Reason":"FieldValueForbidden","FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:8: found no matching overload for '_==_' applied to '(int, string)'
             | self.n == 'a' && self.n < 1
             | .......^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[1].rule: Invalid value: {"Rule":"self.n","Message":"m","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool"#]],
    );
    check_property(
        rules(json!([
            {"rule": "self.n > 1", "messageExpression": "self.n"},
            {"rule": "self.n > 1", "messageExpression": "self.zz"},
            {"rule": "self.n > 1", "messageExpression": "'n is ' + self.s"},
        ])),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].messageExpression: Invalid value: {"Rule":"self.n \u003e 1","Message":"","MessageExpression":"self.n","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression must evaluate to a string
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[1].messageExpression: Invalid value: {"Rule":"self.n \u003e 1","Message":"","MessageExpression":"self.zz","Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression compilation failed: ERROR: <input>:1:5: undefined field 'zz'
             | self.zz
             | ....^"#]],
    );
    check_property(
        rules(json!([
            {"rule": "timestamp('x') == timestamp(self.s)"},
            {"rule": "duration('x') == duration(self.s)"},
            {"rule": "self.s.matches('(')"},
            {"rule": "self.l == [1, 'a']"},
            {"rule": "'%d'.format(['a']) == self.s"},
        ])),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"timestamp('x') == timestamp(self.s)","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:11: invalid timestamp argument
             | timestamp('x') == timestamp(self.s)
             | ..........^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[1].rule: Invalid value: {"Rule":"duration('x') == duration(self.s)","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:10: invalid duration argument
             | duration('x') == duration(self.s)
             | .........^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[2].rule: Invalid value: {"Rule":"self.s.matches('(')","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:16: invalid matches argument
             | self.s.matches('(')
             | ...............^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[3].rule: Invalid value: {"Rule":"self.l == [1, 'a']","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:15: expected type 'int' but found 'string'
             | self.l == [1, 'a']
             | ..............^
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[4].rule: Invalid value: {"Rule":"'%d'.format(['a']) == self.s","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:14: error during formatting: decimal clause can only be used on integers, was given string
             | '%d'.format(['a']) == self.s
             | .............^"#]],
    );
    check_property(
        rules(json!([{"rule": "self.n >"}])),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"self.n \u003e","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:9: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
         | self.n >
         | ........^"#]],
    );
}

#[test]
fn old_values_are_refused_where_there_are_none() {
    let rule = |rule: &str| json!([{"rule": rule}]);
    let list = |list_type: Value| {
        let mut list = json!({"type": "array", "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}}, "x-kubernetes-validations": rule("self == oldSelf")}});
        if list_type == "map" {
            list["x-kubernetes-list-map-keys"] = json!(["k"]);
        }
        if !list_type.is_null() {
            list["x-kubernetes-list-type"] = list_type;
        }
        list
    };
    check_property(list(json!("map")), expect![[""]]);
    check_property(
        list(Value::Null),
        expect![[
            r#"spec.validation.openAPIV3Schema.properties[x].items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within spec.validation.openAPIV3Schema.properties[x]"#
        ]],
    );
    check_property(
        rules(
            json!([{"rule": "self.n == 1", "optionalOldSelf": true}, {"rule": "oldSelf.?n.orValue(1) == 1", "optionalOldSelf": true}]),
        ),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"
        ],
    );
}

#[test]
fn rules_of_nodes_without_a_type_are_refused() {
    check_property(
        json!({"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": [{"rule": "true"}]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations: Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
        ],
    );
}

#[test]
fn rules_that_may_cost_too_much_are_refused() {
    let text =
        json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.contains(self)"}]});
    check_property(
        json!({"type": "array", "items": text}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        spec.validation.openAPIV3Schema.properties[x].items.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    let bounded = json!({"type": "string", "maxLength": 100, "x-kubernetes-validations": [{"rule": "self.contains(self)"}]});
    check_property(json!({"type": "array", "maxItems": 100, "items": bounded}), expect![[""]]);
    let numbers = |max: u64| {
        json!({"type": "array", "maxItems": max, "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a <= b))", "messageExpression": "self.all(a, self.all(b, a <= b)) ? 'a' : 'b'"}]})
    };
    check_property(
        numbers(1500),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.350750x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].messageExpression: Forbidden: estimated messageExpression cost exceeds budget by factor of 1.350750x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
    check_property(numbers(1000), expect![[""]]);
    let many: serde_json::Map<String, Value> =
        (0..15).map(|i| (format!("p{i}"), numbers(1000))).collect();
    check_property(
        json!({"type": "object", "properties": many}),
        expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].properties[p0].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[x].properties[p0].x-kubernetes-validations[0].messageExpression: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[x].properties[p1].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema.properties[x].properties[p1].x-kubernetes-validations[0].messageExpression: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
        spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.8x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
}

#[test]
fn defaults_are_held_to_rules() {
    check_property(
        json!({"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self > 1", "message": "too small"}]}),
        expect![
            "spec.validation.openAPIV3Schema.properties[x].default: Invalid value: 1: too small"
        ],
    );
    check_property(
        json!({"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self == 1 && self >= oldSelf"}]}),
        expect![[""]],
    );
}

#[test]
fn faults_that_were_there_before_stay() {
    let pointer = "/spec/versions/0/schema/openAPIV3Schema/properties/x";
    let old = changed(&[(pointer, rules(json!([{"rule": "self.zz == 1"}])))]);
    assert_eq!(show(&validate_definition(&old, Some(&old))), "");
    let new =
        changed(&[(pointer, rules(json!([{"rule": "self.zz == 1"}, {"rule": "self.yy == 1"}])))]);
    expect![[r#"
        spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[1].rule: Invalid value: {"Rule":"self.yy == 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:5: undefined field 'yy'
         | self.yy == 1
         | ....^"#]].assert_eq(&show(&validate_definition(&new, Some(&old))));
}

#[test]
fn rules_of_the_root_see_names_and_type() {
    check(
        &[(
            "/spec/versions/0/schema/openAPIV3Schema/x-kubernetes-validations",
            json!([
                {"rule": "self.metadata.name.startsWith(self.kind) && self.apiVersion == 'v1' && self.metadata.generateName == ''"},
                {"rule": "has(self.metadata.labels)"},
            ]),
        )],
        expect![[r#"
            spec.validation.openAPIV3Schema.x-kubernetes-validations[1].rule: Invalid value: {"Rule":"has(self.metadata.labels)","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:4: undefined field 'labels'
             | has(self.metadata.labels)
             | ...^"#]],
    );
}

/// A definition that declares type and names sees all that it declares.
#[test]
fn rules_of_a_root_see_declared_names_with_their_bounds() {
    let root = |names: Value, rule: &str| {
        let text = json!({"type": "string"});
        let metadata = json!({"type": "object", "properties": names});
        let properties = json!({"apiVersion": text, "kind": text, "metadata": metadata});
        let path = "/spec/versions/0/schema/openAPIV3Schema";
        let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]});
        show(&validate_definition(&changed(&[(path, schema)]), None))
    };
    let name = json!({"type": "string", "maxLength": 5});
    let both = json!({"name": name, "generateName": {"type": "string"}});
    let costly =
        "self.metadata.name.matches('^[a-z]+$') && self.metadata.name.contains(self.metadata.name)";
    assert_eq!(root(both, costly), "");
    // One is not enough.
    let refused = root(json!({"name": name}), costly);
    assert!(refused.contains("estimated rule cost exceeds budget"), "{refused}");
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let text = json!({"type": "string"});
    let embedded = |mut names: Value| {
        names["labels"] = labels.clone();
        let metadata = json!({"type": "object", "properties": names});
        let properties = json!({"apiVersion": text, "kind": text, "metadata": metadata});
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": properties,
            "x-kubernetes-validations": [{"rule": "'a' in self.metadata.labels"}]})
    };
    check_property(embedded(json!({"name": text, "generateName": text})), expect![[""]]);
    check_property(
        embedded(json!({"name": text})),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Invalid value: {"Rule":"'a' in self.metadata.labels","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: ERROR: <input>:1:21: undefined field 'labels'
             | 'a' in self.metadata.labels
             | ....................^"#]],
    );
}

/// By a reserved word nothing is known of a field's size.
#[test]
fn reserved_words_name_properties() {
    let schema = |rule: &str| {
        json!({"type": "object", "properties": {"namespace": {"type": "string", "maxLength": 5}},
            "x-kubernetes-validations": [{"rule": rule}]})
    };
    check_property(schema("self.namespace == 'a' || self.__namespace__ == 'b'"), expect![[""]]);
    check_property(schema("self.__namespace__.contains(self.__namespace__)"), expect![[""]]);
    check_property(
        schema("self.namespace.contains(self.namespace)"),
        expect![[r#"
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)
            spec.validation.openAPIV3Schema.properties[x].x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema
            spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"#]],
    );
}
