//! Calls that cost one however long their operands are, and copies that cost nothing. Kubernetes'
//! costs stay as they are; steps and bytes bound the work.

use serde_json::json;
use setpoint_cel::eval::{Context, Error, Program};
use setpoint_cel::library::authorizer::{Attributes, Authorizer, Decision, authorizer};
use setpoint_cel::{Env, Macros, Type, Value, check, parse};
use std::sync::Arc;

#[derive(Debug)]
struct Nobody;

impl Authorizer for Nobody {
    fn authorize(&self, _: &Attributes) -> Decision {
        Decision::default()
    }
}

/// Bits in no order.
fn bit(n: u64) -> char {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    if (mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 63) == 1 { '1' } else { '0' }
}

/// The result of an expression about a long text, a long list and a large map.
fn run(expression: &str) -> Result<Value<'static>, Error> {
    let names = ["text", "other", "list", "map", "patterns", "objects", "bits"];
    let env = names.into_iter().fold(Env::kubernetes(), |env, name| env.variable(name, Type::Dyn));
    let env = env.variable("authorizer", Type::AUTHORIZER);
    let ast = parse(expression, &Macros::KUBERNETES).unwrap_or_else(|error| panic!("{error}"));
    let program = Program::new(&check(ast, &env).unwrap_or_else(|error| panic!("{error}")));
    let text = "0".repeat(1 << 20);
    let variables = json!({
        "text": text, "other": format!("{}1", &text[1..]),
        "list": vec![1; 50_000],
        "map": (0..50_000).map(|n| (n.to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
        "patterns": (0..2000).map(|n| format!(r"\pL{{20}}b{n}")).collect::<Vec<_>>(),
        "objects": [{"a": text}, {"a": text}],
        // After so many of them, an automaton cannot have a state for each way.
        "bits": (0..1u64 << 20).map(bit).collect::<String>(),
    });
    let variables: &'static serde_json::Value = Box::leak(Box::new(variables));
    let mut known: std::collections::HashMap<String, Value<'static>> =
        names.map(|name| (name.to_owned(), Value::dynamic(&variables[name]))).into();
    known.insert("authorizer".to_owned(), authorizer(Arc::new(Nobody)));
    program.evaluate(&mut Context::default(), &known)
}

/// Each of these took from seconds to minutes, or gigabytes, for a cost within the limit.
#[test]
fn work_on_long_values_ends_where_costs_do_not() {
    for expression in [
        // They cost one.
        "list.all(x, size(text) > 0)",
        "list.all(x, text.charAt(1000000) == '0')",
        "list.all(x, int(text) == 0)",
        "list.all(x, !text.contains('12'))",
        "list.all(x, text < other)",
        "list.all(x, !('x' in {dyn('y'): 1, text: 2}))",
        "list.all(x, !(text in map))",
        "list.all(x, map[?text] == optional.none())",
        "list.all(x, 'x'.indexOf(text) < 0)",
        "list.all(x, 'x'.split(text).size() == 1)",
        "list.all(x, [text, other].sort().size() == 2)",
        "list.all(x, timestamp('2024-01-01T00:00:00Z').getHours(text) == 0 || true)",
        // They cost as many as there are elements.
        "list.all(x, !(text in [other]))",
        "list.all(x, objects[0] == objects[1])",
        // Copies.
        "list.map(x, {text: x}).size() > 0",
        "[url('/' + text)].all(u, list.map(x, u.getEscapedPath()).size() > 0)",
        "list.map(x, authorizer.group(text)).size() > 0",
        // Programs of patterns, and states of them.
        "bits.matches('^(?:0|1)*1(?:0|1){500}$')",
        "patterns.all(p, !'b'.matches(p))",
    ] {
        assert_eq!(run(expression).err(), Some(Error::CostLimit), "{expression}");
    }
}

#[test]
fn what_is_not_looked_at_takes_no_steps() {
    for expression in [
        // Texts of different lengths are not compared, and not counted.
        "list.all(x, text != 'x')",
        // The keys of a map are made one by one.
        "list.all(x, map.exists(k, true))",
        "[text, other].all(t, t.size() == 1048576 && t < '1')",
        "map.all(k, map[k] >= 0)",
    ] {
        let result = run(expression);
        assert!(matches!(result, Ok(Value::Bool(true))), "{expression}: {result:?}");
    }
}

/// A value of 28 lists, each of which has the one before twice, was gigabytes of JSON.
#[test]
fn a_value_that_shares_its_parts_has_no_endless_form() {
    let two = |value: Value<'static>| Value::from(vec![value.clone(), value]);
    let shared = (0..28).fold(Value::from(""), |value, _| two(value));
    assert_eq!(shared.to_json(), None);
    let ast = parse("lists.indexOf('x')", &Macros::KUBERNETES).unwrap();
    let program =
        Program::new(&check(ast, &Env::kubernetes().variable("lists", Type::Dyn)).unwrap());
    let result = program.evaluate(&mut Context::default(), &[("lists", shared)]);
    assert_eq!(result.err(), Some(Error::CostLimit));
}

#[test]
fn errors_show_the_beginning_of_a_long_text() {
    let error = run("map[text]").unwrap_err().to_string();
    assert_eq!(error, format!("no such key: {}", "0".repeat(1024)));
}
