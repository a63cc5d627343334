//! cel-go's library of sets: lists whose order and repetitions do not count.

use super::{Cost, Overload, global};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool};
use crate::value::{List, Value};

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let list = || Type::list(Type::param("T"));
    vec![
        global("sets.contains", "list_sets_contains_list", [list(), list()], Bool)
            .cost(Cost::Sets)
            .call(contains),
        global("sets.equivalent", "list_sets_equivalent_list", [list(), list()], Bool)
            .cost(Cost::SetsEquivalent)
            .call(equivalent),
        global("sets.intersects", "list_sets_intersects_list", [list(), list()], Bool)
            .cost(Cost::Sets)
            .call(intersects),
    ]
}

fn lists<'a, 'v>(args: &'a [Value<'v>]) -> Result<(&'a List<'v>, &'a List<'v>), Error> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(Error::NoSuchOverload),
    }
}

/// Whether all elements of `b` are in `a`.
fn covers<'v>(context: &mut Context<'_>, a: &List<'v>, b: &List<'v>) -> Result<bool, Error> {
    for item in b.iter() {
        if !a.contains(&item?, &mut context.fuel)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let (a, b) = lists(args)?;
    Ok(Value::Bool(covers(context, a, b)?))
}

fn equivalent<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let (a, b) = lists(args)?;
    Ok(Value::Bool(covers(context, a, b)? && covers(context, b, a)?))
}

fn intersects<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let (a, b) = lists(args)?;
    for item in b.iter() {
        if a.contains(&item?, &mut context.fuel)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn order_and_repetitions_do_not_count() {
        check("sets.contains([1, 2, 3], [2])", "true");
        check("sets.contains([1], [1, 2])", "false");
        check("sets.contains([1], [])", "true");
        check("sets.equivalent([1, 2, 2], [2, 1])", "true");
        check("sets.equivalent([1], [1, 2])", "false");
        check("sets.intersects([1, 2], [2, 3])", "true");
        check("sets.intersects([1], [])", "false");
    }
}
