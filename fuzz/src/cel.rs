//! Expressions: parser, checker, both readings of costs, evaluation.
use setpoint_cel::eval::{Context, Program};
use setpoint_cel::{Env, Error, Macros, Type, Value, check as type_check, parse};

/// Any text is an expression or refused; one that passes the type check runs to a value or an error
/// within its limit. The first line is the expression, the rest the JSON of `self`.
pub fn check(input: &[u8]) {
    let input = String::from_utf8_lossy(input);
    let (source, tree) = input.split_once('\n').unwrap_or((&input, r#"{"a":[1,"b",null]}"#));
    let ast = match parse(source, &Macros::KUBERNETES) {
        Ok(ast) => ast,
        Err(issues) => {
            assert!(issues.to_string().starts_with("ERROR: <input>:"), "{issues}");
            return;
        }
    };
    let env = Env::kubernetes().variable("self", Type::Dyn);
    let checked = match type_check(ast, &env) {
        Ok(checked) => checked,
        Err(issues) => {
            assert!(issues.to_string().starts_with("ERROR: <input>:"), "{issues}");
            return;
        }
    };
    let Ok(tree) = serde_json::from_str::<serde_json::Value>(tree) else { return };
    let mut context = Context::new(10_000);
    let variables = [("self", Value::dynamic(&tree))];
    match Program::new(&checked).evaluate(&mut context, &variables) {
        Err(Error::CostLimit) => {}
        _ => assert!(context.cost() <= 10_000, "{source:?} costs {}", context.cost()),
    }
}
