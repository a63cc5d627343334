//! JSON patch (RFC 6902) with the reference's liberties.

use super::rejected;
use crate::decode::{Format, JSON_DEPTH_MAX, note, parse};
use serde_json::Value;
use setpoint_object::{ApiError, Reason};

/// The most operations in one JSON patch: 10,000, as the reference.
pub const OPERATIONS_MAX: usize = 10_000;
/// The most bytes of JSON that the `copy` operations of one patch may add: 3 MiB, as the reference.
pub const COPIED_BYTES_MAX: usize = 3 << 20;

/// The most elements of lists that the operations of one patch may shift by adding or removing
/// before the end, together with the values they copy and move: 64 Mi, a fifth of a second. That is
/// 6,700 elements a list for a patch with [`OPERATIONS_MAX`] operations at its front.
pub const STEPS_MAX: usize = 64 << 20;

/// Members of an operation.
const MEMBERS: [&str; 4] = ["from", "op", "path", "value"];

/// RFC 6902: operations in order, all or nothing (the caller drops the target after an error).
///
/// Liberties of the reference: `replace` of a missing object member adds it, `test` of a missing
/// object member against `null` passes, negative indices count from the end, `replace` of the whole
/// document with a scalar does nothing.
///
/// `problems` collects `json patch unknown field "[0].foo"` and `json patch duplicate field
/// "[0].op"`.
///
/// # Errors
/// 400 for a document that is no list of operations, 413 above [`OPERATIONS_MAX`] and
/// [`STEPS_MAX`], 422 without an explanation for every operation that cannot be carried out. That
/// is also one that nests deeper than a body may.
pub fn json_patch(
    target: &mut Value,
    patch: &[u8],
    problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    let undecodable = |why: &str| ApiError::bad_request(format!("error decoding patch: {why}"));
    let decoded = parse(patch, Format::Json).map_err(|error| undecodable(&error.0))?;
    let operations = match decoded.value {
        Value::Array(operations) => operations,
        Value::Null => return Ok(()),
        other => {
            let found = json_type(&other);
            return Err(undecodable(&format!(
                "json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
            )));
        }
    };
    for problem in decoded.problems {
        note(problems, || format!("json patch {problem}"));
    }
    for (at, operation) in operations.iter().enumerate() {
        check_shape(at, operation, problems).map_err(|why| undecodable(&why))?;
    }
    if operations.len() > OPERATIONS_MAX {
        return Err(ApiError::new(
            413,
            Reason::RequestEntityTooLarge,
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is \
                 {OPERATIONS_MAX}, got {}",
                operations.len()
            ),
        ));
    }
    let mut cost = Cost::default();
    for operation in operations {
        let done = carry_out(target, operation, &mut cost);
        if cost.steps > STEPS_MAX {
            return Err(ApiError::new(
                413,
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: {}", too_many_steps()),
            ));
        }
        done.ok_or_else(rejected)?;
    }
    Ok(())
}

fn too_many_steps() -> String {
    format!("The operations of a JSON patch may shift {STEPS_MAX} elements of lists at most")
}

/// The operations of a patch that a webhook has made.
///
/// # Errors
///
/// Not a JSON list of objects.
pub fn operations(patch: &[u8]) -> Result<Vec<Value>, String> {
    let decoded = parse(patch, Format::Json).map_err(|error| error.0)?;
    let operations = match decoded.value {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => {
            let found = json_type(&other);
            return Err(format!(
                "json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"
            ));
        }
    };
    match operations.iter().find(|operation| !operation.is_object()) {
        Some(other) => {
            let found = json_type(other);
            Err(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Operation"))
        }
        None => Ok(operations),
    }
}

/// Carries out the operations of a webhook's patch. After an error the target is of no use.
///
/// # Errors
///
/// The operation that failed, in the reference's words: `testing value /a failed: test failed`.
/// Also more than [`OPERATIONS_MAX`] operations or [`STEPS_MAX`] steps.
pub fn apply_operations(target: &mut Value, operations: Vec<Value>) -> Result<(), String> {
    if operations.len() > OPERATIONS_MAX {
        let n = operations.len();
        return Err(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {n}"
        ));
    }
    let mut cost = Cost::default();
    for operation in operations {
        let text = |name: &str| operation[name].as_str().unwrap_or_default().to_owned();
        let (op, path, from) = (text("op"), text("path"), text("from"));
        let done = carry_out(target, operation, &mut cost);
        if cost.steps > STEPS_MAX {
            return Err(too_many_steps());
        }
        if done.is_none() {
            return Err(failure(target, &op, &path, &from));
        }
    }
    Ok(())
}

/// Why an operation failed.
fn failure(target: &mut Value, op: &str, path: &str, from: &str) -> String {
    let has_container = |target: &mut Value, path: &str| {
        Pointer::parse(path).and_then(|pointer| pointer.locate(target).map(|_| ())).is_some()
    };
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match op {
        "test" => format!("testing value {path} failed: test failed"),
        "remove" if has_container(target, path) => format!(
            "error in remove for path: '{path}': Unable to remove nonexistent key: {}: missing value",
            last(path)
        ),
        "add" if has_container(target, path) => {
            format!(
                "error in add for path: '{path}': Unable to access invalid index: {}",
                last(path)
            )
        }
        "replace" if has_container(target, path) => {
            format!("replace operation does not apply: doc is missing key: {path}: missing value")
        }
        "move" | "copy" if !has_container(target, from) => {
            format!(
                "{op} operation does not apply: doc is missing from path: {from}: missing value"
            )
        }
        "add" | "remove" | "replace" | "move" | "copy" => {
            format!("{op} operation does not apply: doc is missing path: {path:?}: missing value")
        }
        other => format!("Unexpected kind: {other}"),
    }
}

/// The cost of the operations of one patch so far.
#[derive(Default)]
struct Cost {
    copied_bytes: usize,
    /// Elements shifted and values measured.
    steps: usize,
}

impl Cost {
    /// Counts steps; `None` when there are too many.
    fn count(&mut self, steps: usize) -> Option<()> {
        self.steps = self.steps.saturating_add(steps);
        (self.steps <= STEPS_MAX).then_some(())
    }

    /// Holds a value that is put below `way` containers to the depth of a body.
    fn check_depth(&mut self, way: usize, value: &Value) -> Option<()> {
        let depth = depth(value, &mut self.steps);
        (way + depth < JSON_DEPTH_MAX && self.steps <= STEPS_MAX).then_some(())
    }
}

/// How deep a value nests. Each value is a step.
fn depth(value: &Value, steps: &mut usize) -> usize {
    *steps = steps.saturating_add(1);
    match value {
        Value::Array(items) => {
            1 + items.iter().map(|item| depth(item, steps)).max().unwrap_or_default()
        }
        Value::Object(members) => {
            1 + members.values().map(|member| depth(member, steps)).max().unwrap_or_default()
        }
        _ => 0,
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Holds one operation to its type and notes members it does not have.
fn check_shape(at: usize, operation: &Value, problems: &mut Vec<String>) -> Result<(), String> {
    let Value::Object(members) = operation else {
        if operation.is_null() {
            return Ok(());
        }
        let found = json_type(operation);
        return Err(format!(
            "json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"
        ));
    };
    for (name, value) in members {
        if !MEMBERS.contains(&name.as_str()) {
            note(problems, || format!("json patch unknown field \"[{at}].{name}\""));
        } else if name != "value" && !value.is_string() && !value.is_null() {
            let found = json_type(value);
            return Err(format!(
                "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{name} of type string"
            ));
        }
    }
    Ok(())
}

/// Carries out one operation; `None` when it cannot be.
fn carry_out(target: &mut Value, operation: Value, cost: &mut Cost) -> Option<()> {
    let Value::Object(mut members) = operation else { return None };
    let value = members.remove("value").unwrap_or(Value::Null);
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let path = || text("path").and_then(Pointer::parse);
    match text("op")? {
        "add" => path()?.locate(target)?.add(value, cost),
        "remove" => path()?.locate(target)?.remove(cost).map(drop),
        "replace" => match path()? {
            Pointer::Whole => {
                if value.is_object() || value.is_array() {
                    *target = value;
                }
                Some(())
            }
            path => path.locate(target)?.set(value, cost),
        },
        "test" => match path()? {
            Pointer::Whole => (*target == value).then_some(()),
            path => (path.locate(target)?.test(&value)).then_some(()),
        },
        "move" => {
            let from = text("from").and_then(Pointer::parse)?;
            let moved = from.locate(target)?.remove(cost)?;
            path()?.locate(target)?.add(moved, cost)
        }
        "copy" => {
            let from = text("from").and_then(Pointer::parse)?;
            let from = from.locate(target)?;
            let original = from.get()?;
            cost.copied_bytes += serde_json::to_vec(original).ok()?.len();
            if cost.copied_bytes > COPIED_BYTES_MAX {
                return None;
            }
            let copy = original.clone();
            path()?.locate(target)?.add(copy, cost)
        }
        _ => None,
    }
}

/// A JSON pointer (RFC 6901), escapes undone.
enum Pointer {
    Whole,
    /// The way to the container, and the last token.
    Member(Vec<String>, String),
}

impl Pointer {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::Whole);
        }
        let unescape = |token: &str| token.replace("~1", "/").replace("~0", "~");
        let mut tokens: Vec<String> = text.strip_prefix('/')?.split('/').map(unescape).collect();
        let last = tokens.pop()?;
        Some(Self::Member(tokens, last))
    }

    /// The place this points to, whether or not something is there; `None` without its container.
    fn locate(self, target: &mut Value) -> Option<Place<'_>> {
        let Self::Member(way, last) = self else { return None };
        let containers = way.len() + 1;
        let mut container = target;
        for token in way {
            container = match container {
                Value::Object(members) => members.get_mut(&token)?,
                Value::Array(items) => {
                    let at = index(&token, items.len())?;
                    items.get_mut(at)?
                }
                _ => return None,
            };
        }
        (container.is_object() || container.is_array()).then_some(Place {
            container,
            token: last,
            containers,
        })
    }
}

/// A list index; negative ones count from `len`.
fn index(token: &str, len: usize) -> Option<usize> {
    let at: i64 = token.parse().ok()?;
    let at = if at < 0 { at + i64::try_from(len).ok()? } else { at };
    usize::try_from(at).ok()
}

/// A member of an object or a position in a list.
struct Place<'a> {
    container: &'a mut Value,
    token: String,
    /// How many containers are around the value.
    containers: usize,
}

impl Place<'_> {
    fn get(&self) -> Option<&Value> {
        match &*self.container {
            Value::Object(members) => members.get(&self.token),
            Value::Array(items) => items.get(index(&self.token, items.len())?),
            _ => None,
        }
    }

    fn add(self, value: Value, cost: &mut Cost) -> Option<()> {
        cost.check_depth(self.containers, &value)?;
        match self.container {
            Value::Object(members) => {
                members.insert(self.token, value);
            }
            Value::Array(items) if self.token == "-" => items.push(value),
            Value::Array(items) => {
                let at = index(&self.token, items.len() + 1).filter(|at| *at <= items.len())?;
                cost.count(items.len() - at)?;
                items.insert(at, value);
            }
            _ => return None,
        }
        Some(())
    }

    fn set(self, value: Value, cost: &mut Cost) -> Option<()> {
        cost.check_depth(self.containers, &value)?;
        match self.container {
            Value::Object(members) => {
                members.insert(self.token, value);
            }
            Value::Array(items) => {
                let at = index(&self.token, items.len())?;
                *items.get_mut(at)? = value;
            }
            _ => return None,
        }
        Some(())
    }

    fn remove(self, cost: &mut Cost) -> Option<Value> {
        match self.container {
            Value::Object(members) => members.remove(&self.token),
            Value::Array(items) => {
                let at = index(&self.token, items.len()).filter(|at| *at < items.len())?;
                cost.count(items.len() - at)?;
                Some(items.remove(at))
            }
            _ => None,
        }
    }

    fn test(&self, expected: &Value) -> bool {
        match self.get() {
            Some(value) => value == expected,
            None => self.container.is_object() && expected.is_null(),
        }
    }
}
