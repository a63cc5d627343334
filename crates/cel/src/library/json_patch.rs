//! JSON patches: the fields of `JSONPatch{…}`, and keys in JSON pointers (`jsonpatch.escapeKey`).

use super::{Cost, Overload, global};
use crate::eval::{Context, Error};
use crate::types::Type::String as Text;
use crate::value::Value;

/// The overloads.
pub(super) fn rows() -> Vec<Overload> {
    let row = global("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", [Text], Text);
    vec![row.cost(Cost::Scan).call(escape_key)]
}

/// Checks the values of the fields of an operation, as far as their types were not known before.
///
/// # Errors
///
/// A field that there is not, or one that is no text.
pub(crate) fn check_field(name: &str, value: &Value<'_>) -> Result<(), Error> {
    match (name, value) {
        ("op" | "path" | "from", Value::String(_)) | ("value", _) => Ok(()),
        ("op" | "path" | "from", other) => {
            let ty = go_type(other);
            let text = format!("unexpected type {ty} for JSONPatchType '{name}' field");
            Err(Error::message(text))
        }
        _ => Err(Error::message(format!("unexpected JSONPatchType field: {name}"))),
    }
}

/// The type that Go has for a value.
fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Uint(_) => "uint64",
        Value::Double(_) => "float64",
        Value::Bytes(_) => "[]uint8",
        Value::Null => "structpb.NullValue",
        Value::Timestamp(_) => "time.Time",
        Value::Duration(_) => "time.Duration",
        Value::List(_) => "[]interface {}",
        _ => "map[string]interface {}",
    }
}

/// A key as one step of a JSON pointer.
fn escape_key<'v>(context: &mut Context<'_>, args: &[Value<'v>]) -> Result<Value<'v>, Error> {
    let [Value::String(text)] = args else { return Err(Error::NoSuchOverload) };
    context.allocate(text.len() * 2)?;
    Ok(text.replace('~', "~0").replace('/', "~1").into())
}

#[cfg(test)]
mod tests {
    use crate::eval::Context;
    use crate::macros::Macros;
    use crate::{Env, Program, check, parse};

    fn run(expression: &str) -> Result<(String, String), String> {
        let ast = parse(expression, &Macros::KUBERNETES).map_err(|issues| issues.to_string())?;
        let checked = check(ast, &Env::patches()).map_err(|issues| issues.to_string())?;
        let value = Program::new(&checked).evaluate(&mut Context::default(), &());
        let value = value.map_err(|error| error.to_string())?;
        Ok((checked.result_type().to_string(), value.to_json().unwrap().to_string()))
    }

    #[test]
    fn patches_and_configurations_are_structs() {
        for (expression, ty, json) in [
            (
                "[JSONPatch{op: 'add', path: '/a/' + jsonpatch.escapeKey('k~/y'), value: 1}]",
                "list(JSONPatch)",
                r#"[{"op":"add","path":"/a/k~0~1y","value":1}]"#,
            ),
            ("true ? [JSONPatch{op: 'remove'}] : []", "list(JSONPatch)", r#"[{"op":"remove"}]"#),
            (
                "Object{spec: Object.spec{replicas: 3, ?paused: optional.none()}}",
                "Object",
                r#"{"spec":{"replicas":3}}"#,
            ),
            ("Object{spec: Object.spec{replicas: 3}}.spec.replicas + 1", "int", "4"),
        ] {
            assert_eq!(run(expression), Ok((ty.to_owned(), json.to_owned())), "{expression}");
        }
        for (expression, fault) in [
            (
                "JSONPatch{op: 1}",
                "expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            (
                "JSONPatch{at: ''}",
                "expected type of field 'at' is '' but provided type is 'string'",
            ),
            ("JSONPatch{at: dyn('')}", "unexpected JSONPatchType field: at"),
            ("JSONPatch{op: dyn(1)}", "unexpected type int64 for JSONPatchType 'op' field"),
            ("Objects{}", "undeclared reference to 'Objects' (in container '')"),
        ] {
            let found = run(expression).unwrap_err();
            assert!(found.contains(fault), "{expression}: {found}");
        }
    }
}
