//! JSON patch (RFC 6902) with the reference's liberties.

use super::notation::json_type;
use super::rejected;
use crate::decode::{
    Format, JSON_DEPTH_MAX, first_of_wrong, note, parse, parse_elements, parse_floats, wrong_type,
};
use serde_json::Value;
use setpoint_object::{ApiError, Reason, field};
use std::num::IntErrorKind;

/// The most operations in one JSON patch: 10,000, as the reference.
pub const OPERATIONS_MAX: usize = 10_000;
/// The most bytes of JSON that the `copy` operations of one patch may add: 3 MiB, as the reference.
pub const COPIED_BYTES_MAX: usize = 3 << 20;

/// The most elements of lists that the operations of one patch may shift by adding or removing
/// before the end, together with the values they copy and move: 64 Mi, a fifth of a second. That is
/// 6,700 elements a list for a patch with [`OPERATIONS_MAX`] operations at its front.
pub const STEPS_MAX: usize = 64 << 20;

/// The most operations, and bytes of a patch, that are carried out without yielding. So many
/// operations shift a list of [`INLINE_BYTES_MAX`](crate::INLINE_BYTES_MAX) in three milliseconds.
const INLINE_OPERATIONS_MAX: usize = 32;
const INLINE_TEXT_MAX: usize = 1 << 10;

/// Whether operations may take far longer than their length and that of the object say: they copy
/// values, which may double an object again and again, or there are many, each of which may shift a
/// whole list.
pub fn may_multiply(operations: &[Value]) -> bool {
    operations.len() > INLINE_OPERATIONS_MAX
        || operations.iter().any(|operation| operation["op"] == "copy")
}

/// [`may_multiply`] for a JSON patch that is not parsed yet: also true for some patches that do
/// not.
pub fn may_multiply_text(patch: &[u8]) -> bool {
    const COPY: &[u8] = b"copy";
    patch.len() > INLINE_TEXT_MAX
        // An escape may hide the name of the operation.
        || patch.contains(&b'\\')
        || patch.windows(COPY.len()).any(|window| window == COPY)
}

/// Members of an operation.
const MEMBERS: &[&str] = &["from", "op", "path", "value"];

/// RFC 6902: operations in order, all or nothing (the caller drops the target after an error).
///
/// Liberties of the reference: `replace` of a missing object member adds it, `test` of a missing
/// object member against `null` passes, `copy` of one copies `null`, negative indices count from
/// the end, and a pointer's text before its first slash is not looked at.
///
/// `problems` collects `json patch unknown field "[0].foo"` and `json patch duplicate field
/// "[0].op"`, in document order.
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
    let decoded = parse_elements(patch, MEMBERS).map_err(|error| undecodable(&error.0))?;
    let operations = match decoded.value {
        Value::Array(operations) => operations,
        Value::Null => return Ok(()),
        other => {
            let found = json_type(&other);
            return Err(undecodable(&wrong_type(found, "", "[]handlers.jsonPatchOp")));
        }
    };
    for problem in decoded.problems {
        note(problems, || format!("json patch {problem}"));
    }
    let mut shapes = operations.iter().enumerate().map(|(at, op)| check_shape(op, at, patch));
    shapes.try_for_each(|shape| shape.map_err(|why| undecodable(&why)))?;
    carry_out_all(operations, target)
}

/// [`json_patch`] with `fieldValidation=Ignore`: operations are not held to their type before they
/// are carried out, and one that is wrong there cannot be.
///
/// # Errors
/// Those of [`json_patch`]. A document that is no list of operations is named without the words
/// `error decoding patch`.
pub fn json_patch_unchecked(target: &mut Value, patch: &[u8]) -> Result<(), ApiError> {
    let decoded = parse_floats(patch).map_err(|error| ApiError::bad_request(error.0))?;
    carry_out_all(listed(decoded.value).map_err(ApiError::bad_request)?, target)
}

fn carry_out_all(operations: Vec<Value>, target: &mut Value) -> Result<(), ApiError> {
    check_number(operations.len()).map_err(|why| {
        let message = format!("Request entity too large: {why}");
        ApiError::new(413, Reason::RequestEntityTooLarge, message)
    })?;
    let mut cost = Cost::default();
    for operation in operations {
        let done = Operation(operation).carry_out(target, &mut cost);
        if cost.steps > STEPS_MAX {
            return Err(ApiError::new(
                413,
                Reason::RequestEntityTooLarge,
                format!("Request entity too large: {}", too_many_steps()),
            ));
        }
        done.map_err(|_| rejected())?;
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
    listed(parse(patch, Format::Json).map_err(|error| error.0)?.value)
}

/// The operations of a document.
fn listed(patch: Value) -> Result<Vec<Value>, String> {
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => {
            return Err(wrong_type(json_type(&other), "", "jsonpatch.Patch"));
        }
    };
    match operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
        Some(other) => Err(wrong_type(json_type(other), "", "jsonpatch.Operation")),
        None => Ok(operations),
    }
}

/// Checks the number of operations of a patch.
///
/// # Errors
///
/// There are more than [`OPERATIONS_MAX`], in the reference's words.
pub fn check_number(n: usize) -> Result<(), String> {
    match n > OPERATIONS_MAX {
        true => Err(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {n}"
        )),
        false => Ok(()),
    }
}

/// Carries out the operations of a webhook's patch. After an error the target is of no use.
///
/// # Errors
///
/// The operation that failed, in the reference's words: `testing value /a failed: test failed`.
/// Also more than [`OPERATIONS_MAX`] operations or [`STEPS_MAX`] steps.
pub fn apply_operations(target: &mut Value, operations: Vec<Value>) -> Result<(), String> {
    check_number(operations.len())?;
    let mut cost = Cost::default();
    for operation in operations {
        let done = Operation(operation).carry_out(target, &mut cost);
        if cost.steps > STEPS_MAX {
            return Err(too_many_steps());
        }
        done?;
    }
    Ok(())
}

/// The cost of the operations of one patch so far.
#[derive(Default)]
struct Cost {
    copied_bytes: usize,
    /// Elements shifted and values measured.
    steps: usize,
}

impl Cost {
    /// Counts steps.
    fn count(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps <= STEPS_MAX { Ok(()) } else { Err(too_many_steps()) }
    }

    /// Holds a value that is put below `way` containers to the depth of a body.
    fn check_depth(&mut self, way: usize, value: &Value) -> Result<(), String> {
        let depth = depth(value, &mut self.steps);
        self.count(0)?;
        if way + depth < JSON_DEPTH_MAX { Ok(()) } else { Err("exceeded max depth".to_owned()) }
    }

    /// Counts what a `copy` adds.
    fn copy(&mut self, value: &Value) -> Result<(), String> {
        let bytes = serde_json::to_vec(value).map_err(|error| error.to_string())?.len();
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        if self.copied_bytes > COPIED_BYTES_MAX {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding \
                 the limit {COPIED_BYTES_MAX}",
                self.copied_bytes
            ));
        }
        Ok(())
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

/// Holds the operation at this place of the patch to its type.
fn check_shape(operation: &Value, at: usize, patch: &[u8]) -> Result<(), String> {
    let Value::Object(members) = operation else {
        if operation.is_null() {
            return Ok(());
        }
        return Err(wrong_type(json_type(operation), "", "handlers.jsonPatchOp"));
    };
    let is_wrong = |(name, value): &(&String, &Value)| {
        let is_text = MEMBERS.contains(&name.as_str()) && *name != "value";
        is_text && !value.is_string() && !value.is_null()
    };
    let wrong = members.iter().filter(is_wrong).map(|(name, _)| format!("[{at}].{name}"));
    let wrong: Vec<_> = wrong.collect();
    let Some(path) = first_of_wrong(patch, wrong.iter().map(String::as_str)) else {
        return Ok(());
    };
    let name = path.rsplit('.').next().unwrap_or(path);
    Err(wrong_type(json_type(&members[name]), &format!("jsonPatchOp.{name}"), "string"))
}

/// One operation, as the patch has it.
struct Operation(Value);

impl Operation {
    /// A member that is text.
    ///
    /// # Errors
    /// Why it is none, in the words of the reference.
    fn text(&self, name: &str) -> Result<&str, String> {
        match self.0.get(name) {
            Some(Value::String(text)) => Ok(text),
            None | Some(Value::Null) => {
                let comma = if name == "from" { "," } else { "" };
                Err(format!("operation{comma} missing {name} field: missing value"))
            }
            Some(other) => Err(wrong_type(json_type(other), "", "string")),
        }
    }

    fn value(&mut self) -> Value {
        self.0.get_mut("value").map_or(Value::Null, Value::take)
    }

    /// Changes the target.
    ///
    /// # Errors
    /// Why it cannot, in the words that a webhook's patch is refused with.
    fn carry_out(mut self, target: &mut Value, cost: &mut Cost) -> Result<(), String> {
        let op = self.text("op").unwrap_or("unknown").to_owned();
        match op.as_str() {
            "add" | "remove" => {
                let path = self.text("path");
                let path = path.map_err(|_| undecoded(&op, "path", "missing value"))?.to_owned();
                let place = Place::find(target, &path).ok_or_else(|| {
                    format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value")
                })?;
                let done = match op.as_str() {
                    "add" => place.add(self.value(), cost),
                    _ => place.remove(cost).map(drop),
                };
                done.map_err(|why| format!("error in {op} for path: '{path}': {why}"))
            }
            "replace" => {
                let path =
                    self.text("path").map_err(|why| undecoded(&op, "path", &why))?.to_owned();
                self.replace(target, &path, cost)
            }
            "test" => {
                let path =
                    self.text("path").map_err(|why| undecoded(&op, "path", &why))?.to_owned();
                self.test(target, &path)
            }
            "move" => self.move_value(target, cost),
            "copy" => self.copy(target, cost),
            _ => Err(format!("Unexpected kind: {op}")),
        }
    }

    fn replace(&mut self, target: &mut Value, path: &str, cost: &mut Cost) -> Result<(), String> {
        let value = self.value();
        if path.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(
                    "replace operation value must be object or array: %!w(<nil>)".to_owned()
                );
            }
            *target = value;
            return Ok(());
        }
        let missing = |what: &str| {
            format!(
                "replace operation does not apply: doc is missing {what}: {path}: missing value"
            )
        };
        let place = Place::find(target, path).ok_or_else(|| missing("path"))?;
        place.get().map_err(|_| missing("key"))?;
        place.set(value, cost).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn test(&mut self, target: &mut Value, path: &str) -> Result<(), String> {
        let failed = || Err(format!("testing value {path} failed: test failed"));
        let expected = self.value();
        if path.is_empty() {
            return if *target == expected { Ok(()) } else { failed() };
        }
        let place = Place::find(target, path).ok_or_else(|| {
            format!("test operation does not apply: is missing path: {path}: missing value")
        })?;
        let got = place.get().map_err(|why| format!("error in test for path: '{path}': {why}"))?;
        if *got == expected { Ok(()) } else { failed() }
    }

    fn move_value(&self, target: &mut Value, cost: &mut Cost) -> Result<(), String> {
        let from = self.text("from").map_err(|why| undecoded("move", "from", &why))?;
        let place = Place::find(target, from).ok_or_else(|| unplaced("move", "from", from))?;
        let token = place.token.clone();
        let moved = place.remove(cost);
        let moved = moved.map_err(|why| format!("error in move for path: '{token}': {why}"))?;
        let path = self.text("path").map_err(|why| undecoded("move", "path", &why))?;
        Place::find(target, path)
            .ok_or_else(|| unplaced("move", "destination", path))?
            .add(moved, cost)
            .map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn copy(&self, target: &mut Value, cost: &mut Cost) -> Result<(), String> {
        let from = self.text("from").map_err(|why| undecoded("copy", "from", &why))?;
        let place = Place::find(target, from).ok_or_else(|| unplaced("copy", "from", from))?;
        let original = place.get();
        let original =
            original.map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        let path = self.text("path").map_err(|_| undecoded("copy", "path", "missing value"))?;
        cost.copy(original)?;
        let copy = original.clone();
        Place::find(target, path)
            .ok_or_else(|| unplaced("copy", "destination", path))?
            .add(copy, cost)
            .map_err(|why| format!("error while adding value during copy: {why}"))
    }
}

fn undecoded(op: &str, member: &str, why: &str) -> String {
    format!("{op} operation failed to decode {member}: {why}")
}

fn unplaced(op: &str, which: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing {which} path: {path}: missing value")
}

/// The tokens of a JSON pointer (RFC 6901), escapes undone. `None` for one of the whole document,
/// or without a slash. What stands before the first slash is not looked at, as in the reference.
fn tokens(pointer: &str) -> Option<Vec<String>> {
    let (_, rest) = pointer.split_once('/')?;
    Some(rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect())
}

/// A list index; negative ones count from `len`, which is the number of places.
///
/// # Errors
/// No number, or none of a place.
fn index(token: &str, len: usize) -> Result<usize, String> {
    let at: i64 = token.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.Atoi: parsing {}: {why}", field::quote(token))
    })?;
    let places = i64::try_from(len).unwrap_or(i64::MAX);
    let from_front = if at < 0 { at.saturating_add(places) } else { at };
    match usize::try_from(from_front) {
        Ok(place) if place < len => Ok(place),
        _ => Err(format!("Unable to access invalid index: {at}: invalid index referenced")),
    }
}

/// A member of an object or a position in a list, whether or not something is there.
struct Place<'a> {
    container: &'a mut Value,
    token: String,
    /// How many containers are around the value.
    containers: usize,
}

impl<'a> Place<'a> {
    /// The place that a pointer names. `None` without a container there.
    fn find(target: &'a mut Value, pointer: &str) -> Option<Self> {
        let mut tokens = tokens(pointer)?;
        let containers = tokens.len();
        let token = tokens.pop()?;
        let mut container = target;
        for token in tokens {
            container = match container {
                Value::Object(members) => members.get_mut(&token)?,
                Value::Array(items) => {
                    let at = index(&token, items.len()).ok()?;
                    items.get_mut(at)?
                }
                _ => return None,
            };
        }
        let is_container = container.is_object() || container.is_array();
        is_container.then_some(Self { container, token, containers })
    }

    /// What is there: `null` for a missing member of an object.
    fn get(&self) -> Result<&Value, String> {
        const NULL: &Value = &Value::Null;
        match &*self.container {
            Value::Object(members) => Ok(members.get(&self.token).unwrap_or(NULL)),
            Value::Array(items) => Ok(&items[index(&self.token, items.len())?]),
            _ => Ok(NULL),
        }
    }

    fn add(self, value: Value, cost: &mut Cost) -> Result<(), String> {
        cost.check_depth(self.containers, &value)?;
        match self.container {
            Value::Object(members) => {
                members.insert(self.token, value);
            }
            Value::Array(items) if self.token == "-" => items.push(value),
            Value::Array(items) => {
                let at = index(&self.token, items.len() + 1).map_err(|why| {
                    match why.starts_with("strconv") {
                        true => {
                            let token = &self.token;
                            format!("value was not a proper array index: '{token}': {why}")
                        }
                        false => why,
                    }
                })?;
                cost.count(items.len() - at)?;
                items.insert(at, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn set(self, value: Value, cost: &mut Cost) -> Result<(), String> {
        cost.check_depth(self.containers, &value)?;
        match self.container {
            Value::Object(members) => {
                members.insert(self.token, value);
            }
            Value::Array(items) => {
                let at = index(&self.token, items.len())?;
                items[at] = value;
            }
            _ => {}
        }
        Ok(())
    }

    fn remove(self, cost: &mut Cost) -> Result<Value, String> {
        match self.container {
            Value::Object(members) => members.remove(&self.token).ok_or_else(|| {
                format!("Unable to remove nonexistent key: {}: missing value", self.token)
            }),
            Value::Array(items) => {
                let at = index(&self.token, items.len())?;
                cost.count(items.len() - at)?;
                Ok(items.remove(at))
            }
            _ => Ok(Value::Null),
        }
    }
}
