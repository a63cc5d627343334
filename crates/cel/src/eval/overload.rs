//! The error of a call that no overload of its function takes, in cel-go's words.

use super::Error;
use crate::value::Value;

/// What cel-go says.
pub(super) fn no_such_overload(function: &str, args: &[Value<'_>]) -> Error {
    // Without looking at types, the function itself fails at its first operand.
    if matches!(function, "contains" | "startsWith" | "endsWith" | "@in") {
        return Error::NoSuchOverload;
    }
    let Some((first, is_able)) =
        args.first().and_then(|first| Some((first, is_able(first, function)?)))
    else {
        let types: Vec<_> = args.iter().map(Value::type_name).collect();
        return Error::message(format!("no such overload: {function}({})", types.join(", ")));
    };
    // Types with methods of their own look for the function among these.
    let has_methods = matches!(first, Value::String(_) | Value::Duration(_) | Value::Timestamp(_));
    match is_able || has_methods {
        true => Error::NoSuchOverload,
        false => Error::message(format!("no such overload: {function}")),
    }
}

/// Whether the type of a first operand has an operation: cel-go calls these traits. `None`: the
/// function is looked up by the types of all operands.
fn is_able(value: &Value<'_>, function: &str) -> Option<bool> {
    use Value::{Bool, Bytes, Double, Duration, Int, List, Map, Object, String, Timestamp, Uint};
    Some(match function {
        "_+_" => {
            matches!(value, Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_) | List(_))
                || matches!(value, Timestamp(_) | Duration(_))
        }
        "_-_" => matches!(value, Int(_) | Uint(_) | Double(_) | Timestamp(_) | Duration(_)),
        "_*_" | "_/_" => matches!(value, Int(_) | Uint(_) | Double(_)),
        "_%_" => matches!(value, Int(_) | Uint(_)),
        "-_" | "!_" => matches!(value, Bool(_) | Int(_) | Double(_) | Duration(_)),
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            matches!(value, Bool(_) | Int(_) | Uint(_) | Double(_) | String(_) | Bytes(_))
                || matches!(value, Timestamp(_) | Duration(_))
        }
        "_[_]" => matches!(value, List(_) | Map(_) | Object(_)),
        "size" => matches!(value, String(_) | Bytes(_) | List(_) | Map(_)),
        "matches" => matches!(value, String(_)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::eval::Context;
    use crate::macros::Macros;
    use crate::{Env, Program, check, parse};

    /// The value as JSON, or the error.
    fn run(expression: &str) -> Result<serde_json::Value, String> {
        let ast = parse(expression, &Macros::KUBERNETES).unwrap();
        let checked = check(ast, &Env::kubernetes()).unwrap();
        let value = Program::new(&checked).evaluate(&mut Context::default(), &());
        value.map(|value| value.to_json().unwrap()).map_err(|error| error.to_string())
    }
    fn error(expression: &str) -> String {
        run(expression).unwrap_err()
    }

    #[test]
    fn operators_are_named_if_the_first_operand_has_none() {
        for expression in ["dyn(true) > 2u", "dyn('a') - 1", "dyn(1) + 1u", "-dyn(true)", "!dyn(1)"]
        {
            assert_eq!(error(expression), "no such overload", "{expression}");
        }
        for (expression, operator) in [
            ("dyn(quantity('1')) > 2", "_>_"),
            ("dyn(type(1)) > 2", "_>_"),
            ("dyn(null) + 1", "_+_"),
            ("dyn(true) - 2u", "_-_"),
            ("dyn(1.5) % 2", "_%_"),
            ("-dyn([1])", "-_"),
            ("!dyn(optional.of(1))", "!_"),
        ] {
            assert_eq!(error(expression), format!("no such overload: {operator}"), "{expression}");
        }
    }

    #[test]
    fn types_of_kubernetes_equal_only_their_own() {
        assert_eq!(error("dyn(quantity('1')) == 1"), "no such overload");
        assert_eq!(error("dyn(url('https://a')) == dyn(quantity('1'))"), "no such overload");
        for expression in [
            "dyn(quantity('1')) != 1",
            "!(1 == dyn(quantity('1')))",
            "!(dyn(quantity('1')) == null)",
        ] {
            assert_eq!(run(expression).unwrap(), true, "{expression}");
        }
    }

    #[test]
    fn functions_say_what_they_were_given() {
        assert_eq!(error("dyn(1).startsWith('a')"), "no such overload");
        assert_eq!(error("dyn(optional.none()).contains('a')"), "no such overload");
        assert_eq!(error("size(dyn(1)) > 0"), "no such overload: size");
        assert_eq!(error("dyn(1).matches('a')"), "no such overload: matches");
        assert_eq!(error("dyn('a').matches(dyn(1))"), "no such overload");
        assert_eq!(error("dyn(1).charAt(0) == ''"), "no such overload: charAt(int, int)");
    }
}
