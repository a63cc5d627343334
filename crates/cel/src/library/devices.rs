//! Attributes of devices that may be lists: `includes`, as Kubernetes has it for ResourceClaims.

use super::{Cost, Overload, member};
use crate::eval::{Context, Error};
use crate::types::Type::{Bool, Dyn};
use crate::value::Value;

/// Maximum number of values of a list that is looked through: a device has no more.
pub(crate) const VALUES_MAX: usize = 48;

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    vec![
        member("includes", "dra_includes_dyn_dyn", [Dyn, Dyn], Bool)
            .cost(Cost::Includes)
            .call(includes),
    ]
}

/// Whether a value is another one, or a list that has it.
fn includes<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let [target, wanted] = args else { return Err(Error::NoSuchOverload) };
    let Value::List(list) = target else {
        return Ok(Value::Bool(target.equals(wanted, &mut context.fuel)?));
    };
    for (i, item) in list.iter().enumerate() {
        if i == VALUES_MAX {
            return Err(Error::message(format!(
                "'includes' function cannot be applied to lists longer than {VALUES_MAX} values"
            )));
        }
        if item?.equals(wanted, &mut context.fuel)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
