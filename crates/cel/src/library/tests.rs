//! How the tests of libraries run expressions.

use crate::eval::{Context, Error, Program, Variables};
use crate::macros::Macros;
use crate::parse::parse;
use crate::value::Value;
use crate::{Env, check as type_check};
use setpoint_object::field::quote;

/// A value as a literal, or as near to one as there is.
pub(crate) fn show(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Bytes(bytes) => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Double(value) if value.fract() == 0.0 => format!("{value:.1}"),
        Value::Uint(value) => format!("{value}u"),
        Value::Duration(duration) => format!("duration({duration})"),
        Value::Timestamp(time) => format!("timestamp({time})"),
        Value::List(list) => {
            let items: Vec<_> = list.iter().map(|item| show(&item.unwrap())).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let entry = |key: Value<'_>| {
                format!("{}: {}", show(&key), show(&map.get(&key).unwrap().unwrap()))
            };
            let entries: Vec<_> = map.keys().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(Some(value)) => format!("optional({})", show(value)),
        Value::Optional(None) => "optional.none()".to_owned(),
        value => super::go::display(value),
    }
}

fn run<'v>(
    expression: &str,
    checked: bool,
    variables: &dyn Variables<'v>,
) -> Result<Value<'v>, Error> {
    let ast = parse(expression, &Macros::KUBERNETES).unwrap_or_else(|e| panic!("{e}"));
    let program = match type_check(ast.clone(), &Env::kubernetes()) {
        Ok(checked_ast) if checked => Program::new(&checked_ast),
        _ => Program::unchecked(&ast, super::Library::kubernetes()),
    };
    program.evaluate(&mut Context::default(), variables)
}

/// Runs an expression with variables, without a type check.
pub(crate) fn check_with(expression: &str, variables: &dyn Variables<'static>, expected: &str) {
    let shown = match run(expression, false, variables) {
        Ok(value) => show(&value),
        Err(error) => format!("error: {error}"),
    };
    assert_eq!(shown, expected, "{expression}");
}

/// Runs an expression, with and without a type check if it passes one.
pub(crate) fn check(expression: &str, expected: &str) {
    for checked in [true, false] {
        let shown = match run(expression, checked, &()) {
            Ok(value) => show(&value),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, expected, "{expression} (checked: {checked})");
    }
}
