//! Kubernetes' quantities: `100Mi`, `1.5`, `50k`.

use std::any::Any;
use std::cmp::Ordering;

use setpoint_object::quantity::Quantity;

use super::{Cost, Overload, global, member};
use crate::eval::{Context, Error};
use crate::types::Type::{self, Bool, Double, Int, String as Text};
use crate::value::{Opaque, Value};

type Result<'v> = std::result::Result<Value<'v>, Error>;

#[derive(Clone, Debug)]
struct Amount {
    quantity: Quantity,
    /// Whether it was written with digits behind the point or a suffix below one: no integer then,
    /// whatever its value.
    fraction: bool,
}

impl Opaque for Amount {
    fn type_of(&self) -> Type {
        Type::QUANTITY
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<Amount>();
        other.is_some_and(|other| self.quantity.compare(&other.quantity).is_eq())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let q = || Type::QUANTITY;
    vec![
        global("quantity", "string_to_quantity", [Text], q()).cost(Cost::Parse).call(quantity),
        global("isQuantity", "is_quantity_string", [Text], Bool)
            .cost(Cost::Parse)
            .call(is_quantity),
        global("sign", "quantity_sign", [q()], Int).call(sign),
        member("isGreaterThan", "quantity_is_greater_than", [q(), q()], Bool).call(is_greater),
        member("isLessThan", "quantity_is_less_than", [q(), q()], Bool).call(is_less),
        member("compareTo", "quantity_compare_to", [q(), q()], Int).call(compare_to),
        member("asApproximateFloat", "quantity_get_float", [q()], Double).call(as_float),
        member("asInteger", "quantity_get_int", [q()], Int).call(as_integer),
        member("isInteger", "quantity_is_integer", [q()], Bool).call(is_integer),
        member("add", "quantity_add", [q(), q()], q()).call(add),
        member("add", "quantity_add_int", [q(), Int], q()).call(add),
        member("sub", "quantity_sub", [q(), q()], q()).call(sub),
        member("sub", "quantity_sub_int", [q(), Int], q()).call(sub),
    ]
}

/// The value of a text.
pub(crate) fn value(text: &str) -> std::result::Result<Value<'static>, Error> {
    parse(text).map(Value::opaque)
}

fn parse(text: &str) -> std::result::Result<Amount, Error> {
    let quantity = Quantity::parse(text).map_err(|error| Error::message(error.to_string()))?;
    let fraction = text.contains('.') || text.ends_with(['n', 'u', 'm']);
    Ok(Amount { quantity, fraction })
}

fn amount<'a>(value: Option<&'a Value<'_>>) -> std::result::Result<&'a Amount, Error> {
    value.and_then(Value::downcast).ok_or(Error::NoSuchOverload)
}

fn text<'a>(args: &'a [Value<'_>]) -> std::result::Result<&'a str, Error> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Error::NoSuchOverload),
    }
}

fn quantity<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::opaque(parse(text(args)?)?))
}

fn is_quantity<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(parse(text(args)?).is_ok()))
}

fn order(args: &[Value<'_>]) -> std::result::Result<Ordering, Error> {
    Ok(amount(args.first())?.quantity.compare(&amount(args.get(1))?.quantity))
}

fn is_greater<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(order(args)?.is_gt()))
}

fn is_less<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(order(args)?.is_lt()))
}

fn compare_to<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Int(order(args)? as i64))
}

fn sign<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let zero = Quantity::from_units(0);
    Ok(Value::Int(amount(args.first())?.quantity.compare(&zero) as i64))
}

fn as_float<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Double(amount(args.first())?.quantity.approximate()))
}

fn integer(amount: &Amount) -> Option<i64> {
    let value = amount.quantity.value();
    let exact = Quantity::from_units(value).compare(&amount.quantity).is_eq();
    // The largest value is also what larger ones are cut to.
    (!amount.fraction && exact && value != i64::MAX).then_some(value)
}

fn is_integer<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    Ok(Value::Bool(integer(amount(args.first())?).is_some()))
}

fn as_integer<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let value = integer(amount(args.first())?);
    value.map(Value::Int).ok_or_else(|| Error::message("cannot convert value to integer"))
}

/// The second operand: a quantity or a number.
fn second(args: &[Value<'_>]) -> std::result::Result<Amount, Error> {
    match args.get(1) {
        Some(Value::Int(units)) => {
            Ok(Amount { quantity: Quantity::from_units(*units), fraction: false })
        }
        value => amount(value).cloned(),
    }
}

fn add<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (a, b) = (amount(args.first())?, second(args)?);
    let quantity = &a.quantity + &b.quantity;
    Ok(Value::opaque(Amount { quantity, fraction: a.fraction || b.fraction }))
}

fn sub<'v>(_: &mut Context<'_>, args: &[Value<'v>]) -> Result<'v> {
    let (a, b) = (amount(args.first())?, second(args)?);
    let quantity = &a.quantity - &b.quantity;
    Ok(Value::opaque(Amount { quantity, fraction: a.fraction || b.fraction }))
}

#[cfg(test)]
mod tests {
    use crate::library::tests::check;

    #[test]
    fn quantities_are_read_and_compared() {
        check("isQuantity('1.3G')", "true");
        check("isQuantity('1,3G')", "false");
        check("quantity('200M').compareTo(quantity('0.2G'))", "0");
        check("quantity('200M') == quantity('0.2G')", "true");
        check("quantity('100Mi').isGreaterThan(quantity('100M'))", "true");
        check("quantity('1').isLessThan(quantity('2'))", "true");
        check("sign(quantity('-1.5'))", "-1");
        check("quantity('1.5').isInteger()", "false");
        check("quantity('50k').asInteger()", "50000");
        check("quantity('9999999999999999999999999999999999999G').isInteger()", "false");
        check("quantity('1.5').asInteger()", "error: cannot convert value to integer");
        check("quantity('50703m').asApproximateFloat()", "50.703");
        check("quantity('50k').add(quantity('20')) == quantity('50020')", "true");
        check("quantity('50k').sub(20) == quantity('49980')", "true");
        check("quantity('50k').add(20).asInteger()", "50020");
    }
}
