//! What Kubernetes' environment of cel-go does where the specification, or a first reading of it,
//! says something else. Each was a difference that `cargo xtask cel-go` has found.

use serde_json::{Value as Json, json};
use setpoint_cel::decl::{DeclType, ListType, Property};
use setpoint_cel::eval::{Context, Program};
use setpoint_cel::value::Value;
use setpoint_cel::{Env, Macros, check, parse};

/// How expressions see `self`.
fn decl() -> DeclType {
    let list = DeclType::list(DeclType::int(), ListType::Atomic, None);
    let fields = [
        ("a-b", DeclType::int()),
        ("data", DeclType::text(Some("byte"), None, std::iter::empty())),
        ("empty", list),
        ("if", DeclType::int()),
        ("namespace", DeclType::text(None, None, std::iter::empty())),
        ("real", DeclType::double()),
        ("time", DeclType::text(Some("date-time"), None, std::iter::empty())),
    ];
    let property = |(name, decl): (&str, DeclType)| Property {
        name: name.to_owned(),
        decl: Some(decl),
        required: false,
        defaulted: false,
    };
    DeclType::object("Self".to_owned(), fields.map(property))
}

fn object() -> Json {
    json!({"a-b": 2, "data": "_w==", "empty": [], "namespace": "n", "real": 1.5, "time": "2023-01-02T03:04:05Z"})
}

fn program(expression: &str) -> Result<Program, String> {
    let env = Env::kubernetes().variable("self", decl().ty);
    let checked = parse(expression, &Macros::KUBERNETES).and_then(|ast| check(ast, &env));
    Program::new(&checked.map_err(|issues| issues.to_string())?).instantiated()
}

/// The value of a condition, or the text of its error, and what it has cost.
fn run(expression: &str) -> (String, u64) {
    let (decl, tree) = (decl(), object());
    let variables = [("self", Value::json(&tree, &decl).expect("the object has the schema"))];
    let mut context = Context::default();
    let text = match program(expression).expect("it compiles").evaluate(&mut context, &variables) {
        Ok(Value::Bool(value)) => value.to_string(),
        Ok(other) => format!("{other:?}"),
        Err(error) => error.to_string(),
    };
    (text, context.cost())
}

#[track_caller]
fn holds(expression: &str) {
    assert_eq!(run(expression).0, "true", "{expression}");
}

#[track_caller]
fn fails(expression: &str, error: &str) {
    assert_eq!(run(expression).0, error, "{expression}");
}

#[track_caller]
fn refused(expression: &str, faults: &[&str]) {
    let text = program(expression).expect_err("it is refused");
    let is_fault = |line: &&str| !line.starts_with(" |");
    assert_eq!(text.lines().filter(is_fault).collect::<Vec<_>>(), faults, "{expression}");
}

#[test]
fn constants_without_a_value_are_refused() {
    refused(
        "int('')",
        &["program instantiation failed: type conversion error from 'string' to 'int'"],
    );
    refused("1u < uint(-1)", &["program instantiation failed: unsigned integer overflow"]);
    let text = "program instantiation failed: error parsing regexp: missing closing ): `(a`";
    refused("matches('x', '(a')", &[text]);
    refused("'x'.find('(a') == ''", &[text]);
    refused(
        "duration(3) == self.time - self.time",
        &["ERROR: <input>:1:10: invalid duration argument"],
    );
    refused(
        "timestamp(253402300800) == self.time",
        &["ERROR: <input>:1:11: invalid timestamp argument"],
    );
    // What is not constant fails where it is evaluated.
    fails("int(string(self.real)) == 1", "type conversion error from 'string' to 'int'");
}

#[test]
fn literals_of_several_types_are_faults_of_whole_expressions() {
    let inner = "ERROR: <input>:1:18: expected type 'bool' but found 'int'";
    let outer = "ERROR: <input>:1:7: expected type 'list(int)' but found 'list(dyn)'";
    refused(
        "[[1], [self == 1, 2]]",
        &["ERROR: <input>:1:13: found no matching overload for \
        '_==_' applied to '(Self, int)'"],
    );
    refused("[[1], [1.5 < 2.0, 2]]", &[outer, &inner.replace(":18:", ":19:")]);
    refused(
        "{1: {}, 2: true}",
        &["ERROR: <input>:1:12: expected type 'map(dyn, dyn)' but found 'bool'"],
    );
}

#[test]
fn a_negative_literal_is_at_its_sign() {
    refused("[true, -1]", &["ERROR: <input>:1:8: expected type 'bool' but found 'int'"]);
    refused(
        "[true, 'é' == 'a', - 1.5]",
        &["ERROR: <input>:1:20: expected type 'bool' but found 'double'"],
    );
}

#[test]
fn operands_decide_where_the_checker_has_guessed() {
    // The elements have a type that is free, and so becomes that of the other operand.
    holds("(dyn([1.5]) + []).exists(x, x < 2)");
    holds("(dyn([1.5]) + []).exists(x, x >= 1u)");
    holds("(dyn([1.5]) + []).exists(x, dyn(x + x) == 3.0)");
    holds("(dyn([1.5]) + []).exists(x, dyn(-x) < 0.0)");
    holds("(dyn(['a']) + []).exists(x, x < 'b')");
    fails("(dyn(['a']) + []).exists(x, x < 2)", "no such overload");
}

#[test]
fn a_dynamic_constant_is_free() {
    assert_eq!(run("dyn(true)"), ("true".to_owned(), 0));
}

#[test]
fn nothing_is_in_a_value_without_parts() {
    holds("!dyn(1).?b.hasValue()");
    holds("!has(dyn(self.real).b)");
    fails("dyn(self.real).b", "no such key: b");
}

#[test]
fn the_last_of_equal_keys_counts() {
    holds("{1: 'a', int(self.real): 'b'}[1] == 'b'");
    holds("{1: 'a', 1: 'b'}.size() == 1");
}

#[test]
fn lists_of_an_object_and_optional_values_are_never_zero() {
    holds("optional.ofNonZeroValue(self.empty).hasValue()");
    holds("!optional.ofNonZeroValue(self.empty.filter(x, true)).hasValue()");
    holds("optional.ofNonZeroValue(optional.none()).hasValue()");
}

#[test]
fn lengths_of_time_overflow_as_whole_numbers() {
    let (long, first) = ("duration('2562047h')", "timestamp('0001-01-01T00:00:00Z')");
    for text in [format!("{long} + {long} > {long}"), format!("self.time - {first} > {long}")] {
        fails(&text, "integer overflow");
    }
    fails(&format!("[{long}, {long}].sum() > {long}"), "integer overflow");
}

#[test]
fn a_reserved_word_behind_a_dot_is_a_field() {
    holds("self.namespace == 'n' && self.__namespace__ == self.namespace");
    holds("has(self.namespace) && !has(self.if) && self.?if.orValue(3) == 3");
    fails("self.if == 1", "no such key: if");
    let refused = |expression: &str| program(expression).map(drop).unwrap_err();
    assert!(refused("namespace == 'n'").contains("reserved identifier: namespace"));
    assert!(!refused("self.in == 1").is_empty());
    assert!(refused("self.else == 1").contains("undefined field 'else'"));
}

#[test]
fn the_fields_of_a_dynamic_object_have_their_names_in_json_too() {
    holds("dyn(self)['a-b'] == 2 && dyn(self)['a__dash__b'] == 2 && dyn(self)['namespace'] == 'n'");
    holds("'a-b' in dyn(self) && !('a__b' in dyn(self)) && !('if' in dyn(self))");
}

#[test]
fn bytes_have_the_alphabet_of_urls() {
    holds("self.data == b'\\xff'");
    let (decl, tree) = (decl(), json!({"data": "/w=="}));
    let variables = [("self", Value::json(&tree, &decl).expect("the object has the schema"))];
    let program = program("self.data == b''").expect("it compiles");
    let error = program.evaluate(&mut Context::default(), &variables).expect_err("it fails");
    let why = "illegal base64 data at input byte 0";
    assert_eq!(error.to_string(), format!("Invalid byte formatted string /w==: {why}"));
}

#[test]
fn what_has_no_order_is_never_the_least_or_the_greatest() {
    holds("[1.0, double('NaN'), 2.0].max() == 2.0");
    holds("[1.0, double('NaN'), 0.5].min() == 0.5");
    holds("[0.0 / 0.0, 1.0].sort()[0] == 1.0");
    holds("string([-0.0].sum()) == '0'");
}

#[test]
fn a_text_that_is_no_address_has_no_overload() {
    fails("cidr('10.0.0.0/8').containsIP('x')", "no such overload");
    let twice = "network address parse error during conversion from string: ".repeat(2);
    fails(
        "cidr('10.0.0.0/8').containsCIDR('x')",
        &format!("{twice}netip.ParsePrefix(\"x\"): no '/'"),
    );
}

#[test]
fn faults_of_addresses_are_in_the_words_of_the_reference() {
    for (text, fault) in [
        ("", "unable to parse IP"),
        ("x", "unable to parse IP"),
        ("%eth0", "missing IPv6 address"),
        ("010.1.1.1", "IPv4 field has octet with leading zero"),
        ("1.2.3", "IPv4 address too short"),
        ("1.2.3.4.5", "IPv4 address too long"),
        ("1.2.3.256", "IPv4 field has value >255"),
        ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
        ("1.2.3.", "IPv4 field must have at least one digit (at \".\")"),
        ("1.2.3.x", "unexpected character (at \"x\")"),
        ("fe80::1%", "zone must be a non-empty string"),
        ("12345::", "each group must have 4 or less digits (at \"12345::\")"),
        ("1:2", "address string too short"),
        ("1:", "colon must be followed by more characters (at \":\")"),
        ("1::2::3", "multiple :: in address (at \":3\")"),
        ("1:2:3:4:5:6:7:8:9", "trailing garbage after address (at \"9\")"),
        ("1:x", "each colon-separated field must have at least one digit (at \"x\")"),
        ("1x:", "unexpected character, want colon (at \"x:\")"),
        ("1:2:3:4:5:6:7::8", "the :: must expand to at least one field of zeros"),
    ] {
        let quoted = format!("\"{text}\"");
        let expected = format!(
            "IP Address {quoted} parse error during conversion from string: \
             ParseAddr({quoted}): {fault}"
        );
        fails(&format!("ip('{text}').family() == 4"), &expected);
    }
}
