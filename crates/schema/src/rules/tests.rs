use super::check;
use crate::crd::type_schema;
use crate::validate::validate;
use expect_test::{Expect, expect};
use serde_json::{Value, json};

/// The errors and then the warnings of a resource with this `spec` schema.
fn errors(spec: &Value, old: Option<&Value>, new: &Value) -> String {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let schema = type_schema(&schema);
    let whole = |spec: &Value| json!({"kind": "Foo", "metadata": {"name": "a"}, "spec": spec});
    let (old, new) = (old.map(whole), whole(new));
    let mut errors = validate(&schema, &new, old.as_ref());
    let warnings = check(&schema, &new, old.as_ref(), &[], &mut errors);
    let errors =
        errors.iter().map(|e| format!("{} {e}", e.reason().trim_start_matches("FieldValue")));
    errors
        .chain(warnings.into_iter().map(|w| format!("warning {w}")))
        .collect::<Vec<_>>()
        .join("\n")
}

#[track_caller]
fn created(spec: Value, new: Value, expected: Expect) {
    expected.assert_eq(&errors(&spec, None, &new));
}

#[track_caller]
fn updated(spec: Value, old: Value, new: Value, expected: Expect) {
    expected.assert_eq(&errors(&spec, Some(&old), &new));
}

fn object(properties: Value, rules: Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules})
}

fn number(rules: Value) -> Value {
    json!({"type": "integer", "x-kubernetes-validations": rules})
}

#[test]
fn a_rule_that_does_not_hold_is_an_error_of_its_node() {
    let spec = object(
        json!({"n": number(json!([{"rule": " self > 1 "}, {"rule": "self < 0", "message": " too large "}])), "o": object(json!({"a": {"type": "string"}}), json!([{"rule": "self.a == 'x'"}]))}),
        json!([{"rule": "self.n > 5", "message": "five", "fieldPath": ".n"}]),
    );
    created(
        spec.clone(),
        json!({"n": 1, "o": {"a": "y"}}),
        expect![[r#"
        Invalid spec.n: Invalid value: five
        Invalid spec.n: Invalid value: 1: failed rule: self > 1
        Invalid spec.n: Invalid value: 1: too large
        Invalid spec.o: Invalid value: failed rule: self.a == 'x'"#]],
    );
    created(
        spec,
        json!({"n": -1, "o": {"a": "x"}}),
        expect![[r#"
        Invalid spec.n: Invalid value: five
        Invalid spec.n: Invalid value: -1: failed rule: self > 1"#]],
    );
}

#[test]
fn reasons_and_computed_messages_are_reported() {
    let rules = json!([
        {"rule": "self > 5", "reason": "FieldValueForbidden", "message": "m"},
        {"rule": "self > 5", "reason": "FieldValueRequired", "message": "m"},
        {"rule": "self > 5", "reason": "FieldValueDuplicate", "message": "m"},
        {"rule": "self > 5", "messageExpression": "'got ' + string(self)", "message": "m"},
        {"rule": "self > 5", "messageExpression": "string(1 / 0)", "message": "m"},
        {"rule": "self > 5", "messageExpression": "' '", "message": "m"},
        {"rule": "self > 5", "messageExpression": "'a\\nb'"},
    ]);
    created(
        object(json!({"n": number(rules)}), json!([])),
        json!({"n": 1}),
        expect![[r#"
        Forbidden spec.n: Forbidden: m
        Required spec.n: Required value: m
        Duplicate spec.n: Duplicate value: 1
        Invalid spec.n: Invalid value: 1: got 1
        Invalid spec.n: Invalid value: 1: m
        Invalid spec.n: Invalid value: 1: m
        Invalid spec.n: Invalid value: 1: failed rule: self > 5"#]],
    );
    let rules = json!([{"rule": "size(self.l) > 5", "reason": "FieldValueDuplicate"}]);
    let list = json!({"type": "array", "items": {"type": "string"}});
    created(
        object(json!({"l": list}), rules),
        json!({"l": []}),
        expect!["Duplicate spec: Duplicate value"],
    );
}

#[test]
fn rules_are_evaluated_in_lists_maps_and_embedded_resources() {
    let spec = object(
        json!({
            "l": {"type": "array", "items": number(json!([{"rule": "self > 1"}]))},
            "m": {"type": "object", "additionalProperties": number(json!([{"rule": "self > 1"}]))},
            "x-y": {"type": "object", "additionalProperties": {"type": "string"}},
            "e": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-validations": [{"rule": "self.metadata.name == 'x' && self.kind == 'K'"}]},
        }),
        json!([{"rule": "!has(self.x__dash__y) || self.x__dash__y['a'] == 'b'", "fieldPath": "['x-y']['a']"}]),
    );
    created(
        spec,
        json!({"l": [2, 1], "m": {"a.b": 0, "c": 2}, "x-y": {"a": "c"}, "e": {"apiVersion": "v1", "kind": "K", "metadata": {"name": "y"}}}),
        expect![[r#"
            Invalid spec.x-y[a]: Invalid value: failed rule: !has(self.x__dash__y) || self.x__dash__y['a'] == 'b'
            Invalid spec.e: Invalid value: failed rule: self.metadata.name == 'x' && self.kind == 'K'
            Invalid spec.l[1]: Invalid value: 1: failed rule: self > 1
            Invalid spec.m[a.b]: Invalid value: 0: failed rule: self > 1"#]],
    );
}

#[test]
fn errors_of_evaluation_are_told_and_absent_and_null_values_are_not_looked_at() {
    let spec = object(
        json!({
            "a": {"type": "string"}, "n": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "integer"}},
            "z": {"type": "integer", "nullable": true, "x-kubernetes-validations": [{"rule": "false"}]},
            "any": {"x-kubernetes-int-or-string": true},
        }),
        json!([
            {"rule": "self.a == 'x'"}, {"rule": "1 / self.n == 1", "message": "m"}, {"rule": "self.l[5] == 1"},
            {"rule": "self.any + 1 == 2"}, {"rule": "has(self.z) || self.n == 0"},
        ]),
    );
    created(
        spec,
        json!({"n": 0, "l": [1], "z": null, "any": "x"}),
        expect![[r#"
        Invalid spec: Invalid value: "object": no such key: a evaluating rule: self.a == 'x'
        Invalid spec: Invalid value: "object": division by zero evaluating rule: m
        Invalid spec: Invalid value: "object": index out of bounds: 5 evaluating rule: self.l[5] == 1
        Invalid spec: Invalid value: "object": 'no such overload': call arguments did not match a supported operator, function or macro signature for rule: self.any + 1 == 2"#]],
    );
}

#[test]
fn errors_of_other_validations_stand_in_the_way() {
    let n = json!({"type": "integer", "minimum": 0, "x-kubernetes-validations": [{"rule": "self > 5"}]});
    let spec = object(json!({"n": n, "s": {"type": "string", "maxLength": 1}}), json!([]));
    created(
        spec.clone(),
        json!({"n": -1}),
        expect![[r#"
        Invalid spec.n: Invalid value: -1: spec.n in body should be greater than or equal to 0
        Invalid spec.n: Invalid value: -1: failed rule: self > 5"#]],
    );
    created(
        spec,
        json!({"n": 1, "s": "ab"}),
        expect![[r#"
        TooLong spec.s: Too long: may not be more than 1 byte
        Invalid <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"#]],
    );
}

#[test]
fn transition_rules_run_where_there_is_an_old_value() {
    let spec = object(
        json!({
            "n": number(json!([{"rule": "self >= oldSelf", "message": "shrinks"}])),
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": object(
                json!({"k": {"type": "string"}, "v": number(json!([{"rule": "self == oldSelf"}]))}), json!([]))},
            "m": {"type": "object", "additionalProperties": number(json!([{"rule": "self == oldSelf"}]))},
            "o": number(json!([{"rule": "!oldSelf.hasValue() || oldSelf.value() < self", "optionalOldSelf": true, "message": "grows"}])),
            "c": number(json!([{"rule": "oldSelf.hasValue()", "optionalOldSelf": true, "message": "not new"}])),
        }),
        json!([]),
    );
    let old = json!({"n": 2, "l": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "m": {"a": 1}, "o": 1});
    created(
        spec.clone(),
        json!({"n": 1, "o": 1, "c": 1}),
        expect!["Invalid spec.c: Invalid value: 1: not new"],
    );
    updated(
        spec.clone(),
        old.clone(),
        json!({"n": 1, "l": [{"k": "b", "v": 1}, {"k": "c", "v": 9}, {"k": "a", "v": 1}], "m": {"a": 2, "b": 3}, "o": 1}),
        expect![[r#"
            Invalid spec.l[0].v: Invalid value: 1: failed rule: self == oldSelf
            Invalid spec.m[a]: Invalid value: 2: failed rule: self == oldSelf
            Invalid spec.n: Invalid value: 1: shrinks
            Invalid spec.o: Invalid value: 1: grows"#]],
    );
    updated(spec, old, json!({}), expect![[""]]);
}

#[test]
fn messages_see_the_old_value_itself() {
    let computed = |optional: bool, rule: &str, message: &str| {
        number(json!([{"rule": rule, "optionalOldSelf": optional, "messageExpression": message}]))
    };
    let spec = object(
        json!({
            // Compiles, for the rule has an optional value; does not evaluate.
            "a": computed(true, "oldSelf.hasValue() && false", "oldSelf.hasValue() ? 'old' : 'new'"),
            "b": computed(false, "self > oldSelf", "'%d is not beyond %d'.format([self, oldSelf])"),
        }),
        json!([]),
    );
    created(
        spec.clone(),
        json!({"a": 1}),
        expect!["Invalid spec.a: Invalid value: 1: failed rule: oldSelf.hasValue() && false"],
    );
    updated(
        spec,
        json!({"a": 2, "b": 2}),
        json!({"a": 1, "b": 1}),
        expect![[r#"
            Invalid spec.a: Invalid value: 1: failed rule: oldSelf.hasValue() && false
            Invalid spec.b: Invalid value: 1: 1 is not beyond 2"#]],
    );
}

#[test]
fn failures_of_values_that_are_as_they_were_are_warnings() {
    let spec = object(
        json!({
            "n": number(json!([{"rule": "self > 5", "message": "n cel"}])),
            "t": number(json!([{"rule": "self > oldSelf", "message": "t cel"}])),
            "l": {"type": "array", "items": number(json!([{"rule": "self > 5"}]))},
            "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": object(
                json!({"k": {"type": "string"}, "v": number(json!([{"rule": "self > 5"}]))}), json!([]))},
            "other": {"type": "string"},
        }),
        json!([{"rule": "size(self.other) > 5", "message": "other"}]),
    );
    let old = json!({"n": 1, "t": 1, "l": [1, 2], "m": [{"k": "a", "v": 1}], "other": "x"});
    updated(
        spec.clone(),
        old.clone(),
        old.clone(),
        expect![[r#"
        Invalid spec.t: Invalid value: 1: t cel
        warning spec: Invalid value: other
        warning spec.l[0]: Invalid value: 1: failed rule: self > 5
        warning spec.l[1]: Invalid value: 2: failed rule: self > 5
        warning spec.m[0].v: Invalid value: 1: failed rule: self > 5
        warning spec.n: Invalid value: 1: n cel"#]],
    );
    let mut new = old.clone();
    new["other"] = json!("y");
    new["l"] = json!([2, 1, 3]);
    new["m"] = json!([{"k": "b", "v": 1}, {"k": "a", "v": 1}]);
    updated(
        spec,
        old,
        new,
        expect![[r#"
        Invalid spec: Invalid value: other
        Invalid spec.l[0]: Invalid value: 2: failed rule: self > 5
        Invalid spec.l[1]: Invalid value: 1: failed rule: self > 5
        Invalid spec.l[2]: Invalid value: 3: failed rule: self > 5
        Invalid spec.m[0].v: Invalid value: 1: failed rule: self > 5
        Invalid spec.t: Invalid value: 1: t cel
        warning spec.m[1].v: Invalid value: 1: failed rule: self > 5
        warning spec.n: Invalid value: 1: n cel"#]],
    );
}

#[test]
fn a_list_by_keys_in_another_order_and_undeclared_members() {
    let rules = json!([{"rule": "self.size() > 5"}]);
    let item = object(json!({"k": {"type": "string"}, "v": {"type": "integer"}}), json!([]));
    let mut map = json!({"type": "array", "items": item, "x-kubernetes-validations": rules});
    let atomic = map.clone();
    map["x-kubernetes-list-type"] = json!("map");
    map["x-kubernetes-list-map-keys"] = json!(["k"]);
    let mut open = object(json!({"n": {"type": "integer"}}), json!([{"rule": "self.n > 5"}]));
    open["x-kubernetes-preserve-unknown-fields"] = json!(true);
    let items = |first: &str, second: &str| json!([{"k": first, "v": 1}, {"k": second, "v": 1}]);
    updated(
        object(json!({"a": atomic, "m": map, "o": open, "p": open}), json!([])),
        json!({"a": items("x", "y"), "m": items("x", "y"), "o": {"n": 1}, "p": {"n": 1, "q": 1}}),
        json!({"a": items("y", "x"), "m": items("y", "x"), "o": {"n": 1}, "p": {"n": 1, "q": 1}}),
        expect![[r#"
            Invalid spec.a: Invalid value: failed rule: self.size() > 5
            Invalid spec.p: Invalid value: failed rule: self.n > 5
            warning spec.m: Invalid value: failed rule: self.size() > 5
            warning spec.o: Invalid value: failed rule: self.n > 5"#]],
    );
}

/// What an update leaves as it was may be of another type than the schema has now.
#[test]
fn a_value_of_another_type_is_named_with_its_type() {
    let rule = |of: Value, rule: &str| {
        let mut schema = of;
        schema["x-kubernetes-validations"] = json!([{"rule": rule}]);
        schema
    };
    let strings = json!({"type": "array", "items": {"type": "string"}, "maxItems": 2});
    let spec = object(
        json!({
            "b": rule(json!({"type": "boolean"}), "self"), "f": rule(json!({"type": "number"}), "self > 0.0"),
            "l": rule(strings, "self.size() > 0"), "m": rule(object(json!({"a": {"type": "string"}}), json!([])), "has(self.a)"),
            "n": rule(json!({"type": "integer"}), "self > 0"), "s": rule(json!({"type": "string"}), "self != ''"),
        }),
        json!([]),
    );
    let odd = json!({"b": 1, "f": "a", "l": {}, "m": [], "n": 1.5, "s": {"a": 1}});
    let schema = type_schema(&json!({"type": "object", "properties": {"spec": spec}}));
    let mut errors = Vec::new();
    check(&schema, &json!({"spec": odd}), None, &[], &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    expect![[r#"
        spec.b: Invalid value: "boolean": invalid data, expected bool, got int64 evaluating rule: self
        spec.f: Invalid value: "number": invalid data, expected float, got string evaluating rule: self > 0.0
        spec.l: Invalid value: "array": invalid data, expected an array for the provided schema with type=array evaluating rule: self.size() > 0
        spec.m: Invalid value: "object": invalid data, expected a map for the provided schema with type=object evaluating rule: has(self.a)
        spec.n: Invalid value: "integer": invalid data, expected int, got float64 evaluating rule: self > 0
        spec.s: Invalid value: "string": invalid data, expected string, got map[string]interface {} evaluating rule: self != ''"#]].assert_eq(&texts.join("\n"));
}

/// `metadata` has members that no definition declares.
#[test]
fn an_unchanged_root_is_held_to_its_rules() {
    let schema =
        type_schema(&json!({"type": "object", "properties": {"metadata": {"type": "object"}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name.size() > 5"}]}));
    let object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}});
    let mut errors = Vec::new();
    let warnings = check(&schema, &object, Some(&object), &[], &mut errors);
    assert_eq!((errors.len(), warnings.len()), (1, 0));
}

#[test]
fn a_message_has_the_old_value_only_beside_a_rule_that_uses_it() {
    let rule = json!({"rule": "self > 5", "message": "m", "messageExpression": "string(oldSelf)"});
    let uses = json!({"rule": "self >= oldSelf"});
    let spec =
        object(json!({"a": number(json!([rule])), "b": number(json!([rule, uses]))}), json!([]));
    updated(
        spec,
        json!({"a": 1, "b": 1}),
        json!({"a": 2, "b": 2}),
        expect![[r#"
            Invalid spec.a: Invalid value: 2: m
            Invalid spec.b: Invalid value: 2: 1"#]],
    );
}

#[test]
fn costs_are_bounded_for_each_expression_and_for_all() {
    let items = |rules: Value| json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules});
    let numbers: Vec<i64> = (0..3000).collect();
    let squared = json!({"rule": "self.all(a, self.all(b, a + b >= 0))", "message": "m"});
    let spec = object(json!({"big": items(json!([squared, {"rule": "false"}]))}), json!([]));
    created(
        spec,
        json!({"big": numbers}),
        expect![[
            r#"Invalid spec.big: Invalid value: "array": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: m"#
        ]],
    );
    let numbers: Vec<i64> = (0..300).collect();
    let squared = json!({"rule": "self.all(a, self.all(b, a + b >= 0))"});
    let fields: serde_json::Map<String, Value> =
        (10..40).map(|i| (format!("q{i}"), items(json!([squared.clone()])))).collect();
    let values: serde_json::Map<String, Value> =
        fields.keys().map(|name| (name.clone(), json!(numbers.clone()))).collect();
    created(
        object(Value::Object(fields), json!([])),
        Value::Object(values),
        expect![[
            r#"Invalid spec.q25: Invalid value: "array": validation failed due to running out of cost budget, no further validation rules will be run"#
        ]],
    );
}
