//! Patches that expressions make: `Object{...}` and `[JSONPatch{...}]`.
use super::input::Place;
use serde_json::{Map, Value};
use setpoint_cel::value::{Map as CelMap, Value as Cel};
use setpoint_schema::INLINE_BYTES_MAX;
use setpoint_schema::apply;
use setpoint_schema::node::TypeSchema;
use setpoint_schema::patch::{apply_operations, check_number};

/// Maximum bytes of a patch as JSON: 3 MiB, the maximum of a request. Values of expressions may
/// share their parts, and would grow without a limit when they are written out.
const PATCH_BYTES_MAX: usize = 3 << 20;

/// Bytes of an operation without its texts.
const OPERATION_BYTES: usize = 16;

/// The largest integer that is a number in the value of an operation: cel-go's `maxIntJSON`, the
/// largest up to which doubles have all integers.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// How deep a patch nests. Objects are not deeper.
const DEPTH_MAX: usize = 100;

/// Why a patch is not written out.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is longer than one that is written out on the caller's thread.
    Costly,
    /// The text for the client.
    Text(String),
}
impl From<String> for Fault {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The configuration that an expression has made.
///
/// # Errors
///
/// A struct is not at the place of its name; it is too large, or too large for the thread.
pub(super) fn configuration(value: &Cel<'_>, thread: Place) -> Result<Value, Fault> {
    Written { bytes: 0, thread, has_numbers: true }.json(value, Some("Object"), DEPTH_MAX)
}

/// The operations that an expression has made.
///
/// # Errors
///
/// As [`configuration`].
pub(super) fn operations(value: &Cel<'_>, thread: Place) -> Result<Value, Fault> {
    let Cel::List(list) = value else {
        let text = "type mismatch: JSONPatchType.expression should evaluate to array";
        return Err(text.to_owned().into());
    };
    // As a patch with too many is refused, but before they are written out.
    check_number(list.len()).map_err(|why| refused(&why))?;
    let mut written = Written { bytes: 0, thread, has_numbers: false };
    let mut operations = Vec::new();
    for operation in list.iter() {
        let Cel::Map(operation) = operation.map_err(|error| error.to_string())? else {
            let text =
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
            return Err(text.to_owned().into());
        };
        written.add(OPERATION_BYTES)?;
        let mut members = Map::new();
        for member in ["op", "path", "from", "value"] {
            match (member, operation.get_str(member)) {
                ("op" | "path", None) => {
                    members.insert(member.to_owned(), "".into());
                }
                (_, None) => {}
                (_, Some(value)) => {
                    let value = value.map_err(|error| error.to_string())?;
                    let root = match &value {
                        Cel::Map(map) => map.struct_name().map(str::to_owned),
                        _ => None,
                    };
                    members.insert(
                        member.to_owned(),
                        written.json(&value, root.as_deref(), DEPTH_MAX)?,
                    );
                }
            }
        }
        operations.push(Value::Object(members));
    }
    Ok(operations.into())
}

/// A patch that is written out.
struct Written {
    bytes: usize,
    thread: Place,
    /// Whether all integers are numbers. Otherwise long ones are texts.
    has_numbers: bool,
}
impl Written {
    fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes += bytes;
        match self.bytes {
            bytes if bytes > INLINE_BYTES_MAX && self.thread == Place::Here => Err(Fault::Costly),
            bytes if bytes > PATCH_BYTES_MAX => {
                Err(format!("the patch is larger than {PATCH_BYTES_MAX} bytes").into())
            }
            _ => Ok(()),
        }
    }
    /// A value as JSON. `place`: the name that a struct has here.
    fn json(&mut self, value: &Cel<'_>, place: Option<&str>, depth: usize) -> Result<Value, Fault> {
        self.add(2)?;
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| format!("the patch nests deeper than {DEPTH_MAX}"))?;
        match value {
            Cel::List(list) => {
                let mut items = Vec::new();
                for item in list.iter() {
                    let item = item.map_err(|error| error.to_string())?;
                    items.push(self.json(&item, place, depth)?);
                }
                Ok(items.into())
            }
            Cel::Map(map) => self.members(map, place, depth),
            Cel::Optional(Some(inner)) => self.json(inner, place, depth),
            Cel::String(text) => {
                self.add(text.len())?;
                Ok(Value::String(text.to_string()))
            }
            Cel::Int(number) if self.is_text(number.unsigned_abs()) => {
                Ok(number.to_string().into())
            }
            Cel::Uint(number) if self.is_text(*number) => Ok(number.to_string().into()),
            other => {
                let value = other.to_json().ok_or_else(|| unmarshalled(&unconverted(other)))?;
                self.add(value.to_string().len())?;
                Ok(value)
            }
        }
    }
    /// Whether an integer of this size is written as a text.
    fn is_text(&self, size: u64) -> bool {
        !self.has_numbers && size > NUMBER_MAX
    }
    fn members(
        &mut self,
        map: &CelMap<'_>,
        place: Option<&str>,
        depth: usize,
    ) -> Result<Value, Fault> {
        let own = map.struct_name();
        if let (Some(own), Some(place)) = (own, place)
            && own != place
        {
            let text = format!(
                "type mismatch: unexpected type name {own:?}, expected {place:?}, which matches field name path from root Object type"
            );
            return Err(text.into());
        }
        // Members of structs have numbers everywhere.
        let had_numbers = self.has_numbers;
        self.has_numbers |= own.is_some();
        let mut members = Map::new();
        for key in map.keys() {
            let Cel::String(name) = &key else { return Err(unmarshalled(&no_name(&key)).into()) };
            self.add(name.len())?;
            let member = map.get(&key).ok_or_else(|| unmarshalled(&no_name(&key)))?;
            let member = member.map_err(|error| error.to_string())?;
            let below = match (own, place) {
                (Some(_), Some(place)) => Some(format!("{place}.{}", &**name)),
                (_, place) => place.map(str::to_owned),
            };
            members.insert(name.to_string(), self.json(&member, below.as_deref(), depth)?);
        }
        self.has_numbers = had_numbers;
        Ok(members.into())
    }
}
fn unmarshalled(why: &str) -> String {
    format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
}
/// Why a key of a map is no name of a member.
fn no_name(key: &Cel<'_>) -> String {
    match key {
        Cel::Bool(_) => "type conversion error from bool to 'string'".to_owned(),
        other => format!("unsupported type conversion from '{}' to string", other.type_name()),
    }
}
/// Why a value is not JSON. Go's name of the type is the last part of the field's.
fn unconverted(value: &Cel<'_>) -> String {
    let name = value.type_name();
    let short = match name.rsplit('.').next().unwrap_or_default() {
        "type" => return "type conversion not supported for 'type'".to_owned(),
        "NamedFormat" => "Format",
        _ if name.starts_with("kubernetes.authorization.") => &*name,
        short => short,
    };
    format!("type conversion error from '{short}' to '*structpb.Value'")
}

/// Merges a configuration into an object of a type.
///
/// # Errors
///
/// The text for the client.
pub(super) fn merge(
    schema: &TypeSchema,
    is_custom: bool,
    object: &mut Value,
    mut configuration: Value,
) -> Result<(), String> {
    for member in ["apiVersion", "kind"] {
        configuration[member] = object[member].clone();
    }
    apply::merge_configuration(schema, is_custom, object, &configuration)
        .map_err(|error| format!("error applying patch: {error}"))
}

/// Carries out the operations of a patch. An object whose `test` fails stays as it is.
///
/// # Errors
///
/// The text for the client.
pub(super) fn carry_out(object: &Value, operations: Value) -> Result<Option<Value>, String> {
    let Value::Array(operations) = operations else { return Ok(None) };
    let mut patched = object.clone();
    match apply_operations(&mut patched, operations) {
        Ok(()) => Ok(Some(patched)),
        Err(error) if error.ends_with(": test failed") => Ok(None),
        Err(error) => Err(refused(&error)),
    }
}
/// Why a JSON patch is not carried out.
fn refused(why: &str) -> String {
    format!("JSON Patch: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use setpoint_cel::decl::{DeclType, ListType};
    use setpoint_schema::patch::OPERATIONS_MAX;

    #[test]
    fn long_integers_of_operations_are_texts() {
        let written = |value: &Cel<'_>, has_numbers| {
            let mut written = Written { bytes: 0, thread: Place::There, has_numbers };
            written.json(value, None, DEPTH_MAX).unwrap()
        };
        let max = 9_007_199_254_740_991;
        assert_eq!(written(&Cel::Int(max), false), json!(max));
        assert_eq!(written(&Cel::Int(-max - 1), false), json!("-9007199254740992"));
        assert_eq!(written(&Cel::Uint(u64::MAX), false), json!("18446744073709551615"));
        assert_eq!(written(&Cel::Int(i64::MAX), true), json!(i64::MAX));
    }

    #[test]
    fn long_patches_are_written_elsewhere_and_too_many_operations_nowhere() {
        let text = DeclType::text(None, None, std::iter::empty());
        let list = DeclType::list(text, ListType::Atomic, None);
        let written = |tree: Value, thread| {
            let value = Cel::json(&tree, &list).unwrap();
            configuration(&value, thread)
        };
        let items = |n: usize| json!(vec!["abcdefgh"; n]);
        assert_eq!(written(items(1000), Place::Here).unwrap(), items(1000));
        // Each may be cheap to make: values share their parts.
        let n = INLINE_BYTES_MAX / 8;
        assert!(matches!(written(items(n), Place::Here), Err(Fault::Costly)));
        assert_eq!(written(items(n), Place::There).unwrap(), items(n));
        let long = written(items(PATCH_BYTES_MAX / 8), Place::There);
        assert!(matches!(long, Err(Fault::Text(text)) if text.contains("larger than")));

        let many = items(OPERATIONS_MAX + 1);
        let value = Cel::json(&many, &list).unwrap();
        let Err(Fault::Text(text)) = operations(&value, Place::There) else {
            panic!("they are written out");
        };
        let expected = "JSON Patch: The allowed maximum operations in a JSON patch is 10000";
        assert_eq!(text, format!("{expected}, got 10001"));
    }
}
