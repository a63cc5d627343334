//! Values that may be absent.

use super::{Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Dyn, Int, String as Text};
use crate::value::Value;

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let v = || Type::param("V");
    let optional = || Type::optional(v());
    let list = || Type::list(v());
    let map = || Type::map(Type::param("K"), v());
    vec![
        global("optional.of", "optional_of", [v()], optional()).call(of),
        global("optional.ofNonZeroValue", "optional_ofNonZeroValue", [v()], optional())
            .call(of_non_zero),
        global("optional.none", "optional_none", [], optional()).call(none),
        member("value", "optional_value", [optional()], v()).call(value),
        member("hasValue", "optional_hasValue", [optional()], Bool).call(has_value),
        member("or", "optional_or_optional", [optional(), optional()], optional()),
        member("orValue", "optional_orValue_value", [optional(), v()], v()),
        global("_?._", "select_optional_field", [Dyn, Text], optional()),
        global("_[?_]", "list_optindex_optional_int", [list(), Int], optional()),
        global(
            "_[?_]",
            "optional_list_optindex_optional_int",
            [Type::optional(list()), Int],
            optional(),
        ),
        global("_[?_]", "map_optindex_optional_value", [map(), Type::param("K")], optional()),
        global(
            "_[?_]",
            "optional_map_optindex_optional_value",
            [Type::optional(map()), Type::param("K")],
            optional(),
        ),
        global("_[_]", "optional_list_index_int", [Type::optional(list()), Int], optional()),
        global(
            "_[_]",
            "optional_map_index_value",
            [Type::optional(map()), Type::param("K")],
            optional(),
        ),
        global("optional.unwrap", "optional_unwrap", [Type::list(optional())], list()).call(unwrap),
        member("unwrapOpt", "optional_unwrapOpt", [Type::list(optional())], list()).call(unwrap),
    ]
}

fn one<'a, 'v>(args: &'a [Value<'v>]) -> std::result::Result<&'a Value<'v>, Error> {
    args.first().ok_or(Error::NoSuchOverload)
}

fn of<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::some(one(args)?.clone()))
}

fn of_non_zero<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let value = one(args)?;
    Ok(if value.is_zero() { Value::NONE } else { Value::some(value.clone()) })
}

fn none<'v>(_: &mut Context<'_>, _: &[Value<'v>]) -> Result<'v> {
    Ok(Value::NONE)
}

fn value<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match one(args)? {
        Value::Optional(Some(value)) => Ok((**value).clone()),
        Value::Optional(None) => Err(Error::message("optional.none() dereference")),
        _ => Err(Error::NoSuchOverload),
    }
}

fn has_value<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    match one(args)? {
        Value::Optional(value) => Ok(Value::Bool(value.is_some())),
        _ => Err(Error::NoSuchOverload),
    }
}

fn unwrap<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let Value::List(list) = one(args)? else { return Err(Error::NoSuchOverload) };
    context.allocate(list.len() * size_of::<Value<'_>>())?;
    let mut values = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                return Err(Error::message(format!(
                    "value {} is not optional",
                    super::display(&other)
                )));
            }
        }
    }
    Ok(values.into())
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn absent_values_are_no_errors() {
        check("{'a': 1}.?a.orValue(5)", "1");
        check("{'a': 1}.?b.orValue(5)", "5");
        check("dyn(1).orValue(5)", "1");
        check("dyn(1).or(optional.of(5))", "1");
        check("b'x' in {}", "false");
        check("{'a': {'b': 1}}.?a.b", "optional(1)");
        check("{'a': {'b': 1}}.?x.b", "optional.none()");
        check("[1][?0].value()", "1");
        check("[1][?1].hasValue()", "false");
        check("[?optional.none(), ?optional.of(2)]", "[2]");
        check("{?'a': optional.none(), 'b': 1}", "{\"b\": 1}");
        check("optional.none().value()", "error: optional.none() dereference");
        check("optional.none().or(optional.of(1))", "optional(1)");
        check("optional.of(1).or(optional.of(1 / 0))", "optional(1)");
        check("optional.ofNonZeroValue('')", "optional.none()");
        check("optional.of(2).optMap(x, x * 2)", "optional(4)");
        check("optional.none().optMap(x, x * 2)", "optional.none()");
        check("optional.of([1]).optFlatMap(x, x[?3])", "optional.none()");
        check("optional.unwrap([optional.of(1), optional.none()])", "[1]");
        check("[optional.of(1), optional.none()].unwrapOpt()", "[1]");
        check("has({'a': 1}.?a.b)", "false");
        check("has(optional.of({'a': 1}).a)", "true");
        check("optional.of(1) == optional.of(1)", "true");
    }
}
