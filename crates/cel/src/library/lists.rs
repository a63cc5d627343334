//! Lists: Kubernetes' own functions, and cel-go's library, version 3.

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{
    self, Bool, Bytes, Double, Duration as Length, Dyn, Int, String as Text, Timestamp, Uint,
};
use crate::value::{Duration, List, Value};
use std::cmp::Ordering;

type Result<'v> = std::result::Result<Value<'v>, Error>;

/// What `flatten` goes into at most.
const DEPTH_MAX: i64 = 64;

/// Types with an order: their name in ids of Kubernetes, in ids of cel-go, and the type.
fn comparable() -> [(&'static str, &'static str, Type); 8] {
    [
        ("int", "int", Int),
        ("uint", "uint", Uint),
        ("double", "double", Double),
        ("bool", "bool", Bool),
        ("duration", "google.protobuf.Duration", Length),
        ("timestamp", "google.protobuf.Timestamp", Timestamp),
        ("string", "string", Text),
        ("bytes", "bytes", Bytes),
    ]
}

/// An id made of parts. Rows are made once.
fn id(text: String) -> &'static str {
    text.leak()
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let t = || Type::param("T");
    let list = || Type::list(t());
    let mut rows = Vec::new();
    for (name, _, ty) in comparable() {
        let of = |id: String, function, result| {
            member(function, self::id(id), [Type::list(ty.clone())], result).cost(Cost::Aggregate)
        };
        rows.push(of(format!("list_{name}_is_sorted_bool"), "isSorted", Bool).call(is_sorted));
        rows.push(of(format!("list_{name}_max_{name}"), "max", ty.clone()).call(max));
        rows.push(of(format!("list_{name}_min_{name}"), "min", ty.clone()).call(min));
        match name {
            "int" => rows.push(of("list_int_sum_int".to_owned(), "sum", Int).call(sum_int)),
            "uint" => rows.push(of("list_uint_sum_uint".to_owned(), "sum", Uint).call(sum_uint)),
            "double" => {
                rows.push(of("list_double_sum_double".to_owned(), "sum", Double).call(sum_double));
            }
            "duration" => {
                let row = of("list_duration_sum_duration".to_owned(), "sum", Length);
                rows.push(row.call(sum_duration));
            }
            _ => {}
        }
    }
    rows.extend([
        member("indexOf", "list_a_index_of_int", [list(), t()], Int)
            .cost(Cost::Aggregate)
            .call(index_of),
        member("lastIndexOf", "list_a_last_index_of_int", [list(), t()], Int)
            .cost(Cost::Aggregate)
            .call(last_index_of),
        member("slice", "list_slice", [list(), Int, Int], list()).cost(Cost::Slice).call(slice),
        member("flatten", "list_flatten", [Type::list(list())], list())
            .cost(Cost::Flatten)
            .call(flatten),
        member("flatten", "list_flatten_int", [Type::list(Dyn), Int], Type::list(Dyn))
            .cost(Cost::Flatten)
            .call(flatten),
        global("lists.range", "lists_range", [Int], Type::list(Int)).cost(Cost::Range).call(range),
        member("reverse", "list_reverse", [list()], list()).cost(Cost::Reverse).call(reverse),
        member("distinct", "list_distinct", [list()], list()).cost(Cost::Distinct).call(distinct),
        member("first", "list_first", [list()], Type::optional(t())).call(first),
        member("last", "list_last", [list()], Type::optional(t())).call(last),
    ]);
    // Loops with two variables build maps with it. The evaluator does it in place.
    let map = || Type::map(Type::param("K"), Type::param("V"));
    rows.push(global(
        crate::macros::MAP_INSERT,
        "@mapInsert_map_key_value",
        [map(), Type::param("K"), Type::param("V")],
        map(),
    ));
    rows.push(global(crate::macros::MAP_INSERT, "@mapInsert_map_map", [map(), map()], map()));
    for (_, name, ty) in comparable() {
        let of = || Type::list(ty.clone());
        rows.push(
            member("sort", id(format!("list_{name}_sort")), [of()], of())
                .cost(Cost::Sort)
                .call(sort),
        );
        rows.push(
            member(
                crate::macros::SORT_BY_KEYS,
                id(format!("list_{name}_sortByAssociatedKeys")),
                [list(), of()],
                list(),
            )
            .cost(Cost::SortBy)
            .call(sort_by),
        );
    }
    rows
}

fn list<'a, 'v>(args: &'a [Value<'v>]) -> std::result::Result<&'a List<'v>, Error> {
    match args.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(Error::NoSuchOverload),
    }
}

fn is_sorted<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let mut before: Option<Value<'v>> = None;
    for item in list(args)?.iter() {
        let item = item?;
        if let Some(before) = &before
            && before.compare(&item)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn extreme<'v>(args: &[Value<'v>], name: &str, least: bool) -> Result<'v> {
    let mut found: Option<Value<'v>> = None;
    for item in list(args)?.iter() {
        let item = item?;
        let better = match &found {
            None => true,
            Some(found) => {
                // What has no order, such as NaN, is never better.
                let better = if least { Ordering::is_lt } else { Ordering::is_gt };
                item.compare(found).is_ok_and(better)
            }
        };
        if better {
            found = Some(item);
        }
    }
    found.ok_or_else(|| Error::message(format!("{name} called on empty list")))
}

fn min<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    extreme(args, "min", true)
}

fn max<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    extreme(args, "max", false)
}

/// The sum; the type of the elements determines the sum of an empty list.
fn sum<'v>(args: &[Value<'v>], zero: Value<'v>) -> Result<'v> {
    let mut sum = zero;
    let mut begun = false;
    for item in list(args)?.iter() {
        let item = item?;
        if !begun {
            // The reference adds the first element to zero: of -0.0 remains 0.0.
            let item = match item {
                Value::Double(value) => Value::Double(0.0 + value),
                item => item,
            };
            (sum, begun) = (item, true);
            continue;
        }
        sum = match (&sum, &item) {
            (Value::Int(a), Value::Int(b)) => {
                Value::Int(a.checked_add(*b).ok_or_else(|| Error::message("integer overflow"))?)
            }
            (Value::Uint(a), Value::Uint(b)) => Value::Uint(
                a.checked_add(*b).ok_or_else(|| Error::message("unsigned integer overflow"))?,
            ),
            (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
            (Value::Duration(a), Value::Duration(b)) => Value::Duration(
                a.checked_add(*b).ok_or_else(|| Error::message("integer overflow"))?,
            ),
            _ => return Err(Error::NoSuchOverload),
        };
    }
    Ok(sum)
}

fn sum_int<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    sum(args, Value::Int(0))
}

fn sum_uint<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    sum(args, Value::Uint(0))
}

fn sum_double<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    sum(args, Value::Double(0.0))
}

fn sum_duration<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    sum(args, Value::Duration(Duration::from_nanos(0)))
}

fn place<'v>(context: &mut Context<'_>, args: &[Value<'v>], last: bool) -> Result<'v> {
    let [Value::List(list), wanted] = args else { return Err(Error::NoSuchOverload) };
    let mut found = -1;
    for (index, item) in list.iter().enumerate() {
        if item?.equals(wanted, &mut context.fuel)? {
            found = i64::try_from(index).unwrap_or(i64::MAX);
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(found))
}

fn index_of<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    place(context, args, false)
}

fn last_index_of<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    place(context, args, true)
}

/// Room for so many elements.
fn room(context: &mut Context<'_>, elements: usize) -> std::result::Result<(), Error> {
    context.allocate(elements.saturating_mul(size_of::<Value<'_>>()))
}

fn slice<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(Error::NoSuchOverload);
    };
    let refuse = |why: String| Err(Error::message(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return refuse("negative indexes not supported".to_owned());
    };
    if from > to {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if list.len() < to {
        return refuse(format!("list is length {}", list.len()));
    }
    room(context, to - from)?;
    let items = (from..to).filter_map(|index| list.get(index));
    Ok(items.collect::<std::result::Result<Vec<_>, _>>()?.into())
}

fn flatten<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(Error::NoSuchOverload),
    };
    if depth < 0 {
        return Err(Error::message("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(context, list, depth.min(DEPTH_MAX), &mut flat)?;
    Ok(flat.into())
}

fn flatten_into<'v>(
    context: &mut Context<'_>,
    list: &List<'v>,
    depth: i64,
    flat: &mut Vec<Value<'v>>,
) -> std::result::Result<(), Error> {
    for item in list.iter() {
        context.fuel.take(1)?;
        match item? {
            Value::List(inner) if depth > 0 => flatten_into(context, &inner, depth - 1, flat)?,
            item => {
                room(context, 1)?;
                flat.push(item);
            }
        }
    }
    Ok(())
}

fn range<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::Int(end)] = args else { return Err(Error::NoSuchOverload) };
    let count = usize::try_from((*end).max(0)).unwrap_or(usize::MAX);
    room(context, count)?;
    Ok((0..(*end).max(0)).map(Value::Int).collect::<Vec<_>>().into())
}

fn reverse<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let list = list(args)?;
    room(context, list.len())?;
    let mut items = list.to_vec()?;
    items.reverse();
    Ok(items.into())
}

fn distinct<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let list = list(args)?;
    room(context, list.len())?;
    let mut kept: Vec<Value<'v>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        let mut seen = false;
        for other in &kept {
            if item.equals(other, &mut context.fuel)? {
                seen = true;
                break;
            }
        }
        if !seen {
            kept.push(item);
        }
    }
    Ok(kept.into())
}

fn first<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Optional(list(args)?.get(0).transpose()?.map(Into::into)))
}

fn last<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let list = list(args)?;
    let last = list.len().checked_sub(1).and_then(|index| list.get(index));
    Ok(Value::Optional(last.transpose()?.map(Into::into)))
}

fn sort<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let list = list(args)?;
    sorted(context, list, list)
}

fn sort_by<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let [Value::List(list), Value::List(keys)] = args else { return Err(Error::NoSuchOverload) };
    sorted(context, list, keys)
}

/// The elements in the order of their keys; equal keys keep theirs.
fn sorted<'v>(context: &mut Context<'_>, list: &List<'v>, keys: &List<'v>) -> Result<'v> {
    if list.len() != keys.len() {
        return Err(Error::message(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys \
             list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    room(context, list.len() * 2)?;
    let keys = keys.to_vec()?;
    // Each key is compared as often as its place has binary digits.
    let bytes: usize = keys.iter().map(Value::text_bytes).sum();
    let n_comparisons = usize::BITS - keys.len().leading_zeros();
    context.fuel.read(bytes.saturating_mul(n_comparisons as usize))?;
    if let Some(key) = keys.first() {
        let comparable = key.compare(key).is_ok() || matches!(key, Value::Double(_));
        if !comparable {
            return Err(Error::message("list elements must be comparable"));
        }
        if keys.iter().any(|other| other.type_of() != key.type_of()) {
            return Err(Error::message("list elements must have the same type"));
        }
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    // NaN has no order: it is last, whatever its sign.
    order.sort_by(|a, b| match (keys.get(*a), keys.get(*b)) {
        (Some(Value::Double(a)), Some(Value::Double(b))) => {
            a.is_nan().cmp(&b.is_nan()).then_with(|| a.total_cmp(b))
        }
        (Some(a), Some(b)) => a.compare(b).unwrap_or(std::cmp::Ordering::Equal),
        _ => std::cmp::Ordering::Equal,
    });
    let items = order.into_iter().filter_map(|index| list.get(index));
    Ok(items.collect::<std::result::Result<Vec<_>, _>>()?.into())
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn lists_are_added_up_and_compared() {
        check("[1, 2, 3].isSorted()", "true");
        check("['b', 'a'].isSorted()", "false");
        check("[].isSorted()", "true");
        check("[1, 2, 3].sum()", "6");
        check("[1.5, 2.5].sum()", "4.0");
        check("[duration('1m'), duration('1s')].sum()", "duration(61s)");
        check("[].sum() == 0", "true");
        check("[9223372036854775807, 1].sum()", "error: integer overflow");
        check("['b', 'a'].min()", "\"a\"");
        check("[1, 3, 2].max()", "3");
        check("[].min()", "error: min called on empty list");
        check("[1, 2, 2, 3].indexOf(2)", "1");
        check("[1, 2, 2, 3].lastIndexOf(2)", "2");
        check("[1.0].indexOf(5.0)", "-1");
    }

    #[test]
    fn lists_are_cut_and_ordered() {
        check("[1, 2, 3, 4].slice(1, 3)", "[2, 3]");
        check("[1, 2, 3].slice(0, 9)", "error: cannot slice(0, 9), list is length 3");
        check(
            "[1].slice(1, 0)",
            "error: cannot slice(1, 0), start index must be less than or equal to end index",
        );
        check("[1].slice(-1, 0)", "error: cannot slice(-1, 0), negative indexes not supported");
        check("[[1, 2], [3]].flatten()", "[1, 2, 3]");
        check("[1, [2, [3, [4]]]].flatten(2)", "[1, 2, 3, [4]]");
        check("lists.range(4)", "[0, 1, 2, 3]");
        check("lists.range(-4)", "[]");
        check("[1, 2].reverse()", "[2, 1]");
        check("[1, 2, 1, 3, 3].distinct()", "[1, 2, 3]");
        check("[3, 1, 2].sort()", "[1, 2, 3]");
        check("['b', 'c', 'a'].sort()", "[\"a\", \"b\", \"c\"]");
        check("[{'n': 2}, {'n': 1}].sortBy(x, x.n)", "[{\"n\": 1}, {\"n\": 2}]");
        check("[3, 1, 2].sortBy(x, -x)", "[3, 2, 1]");
        check("[1, 2].first()", "optional(1)");
        check("[].last()", "optional.none()");
    }

    #[test]
    fn a_range_too_long_is_not_made() {
        check(
            "lists.range(1000000000000)",
            "error: operation cancelled: actual cost limit exceeded",
        );
    }
}
