//! The conformance cases of the CEL specification, as far as Kubernetes has what they test.
//!
//! The cases are not part of the project. `cargo xtask cel-spec DIR` runs them, where `DIR` is the
//! directory `tests/simple/testdata` of a checkout of google/cel-spec, and writes the result to
//! `crates/cel/conformance.md`. [`KNOWN`] lists the cases that do not pass and why; the run fails
//! when one of them passes.

mod textproto;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use indexmap::IndexMap;
use setpoint_cel::eval::{Context, Program};
use setpoint_cel::library::Library;
use setpoint_cel::macros::Macros;
use setpoint_cel::types::Type;
use setpoint_cel::value::{Duration, Fuel, Key, Timestamp, Value};
use textproto::Message;

/// Files about protocol buffer messages and about libraries that no environment has.
const LEFT_OUT: [&str; 11] = [
    "block_ext",
    "dynamic",
    "enums",
    "network_ext",
    "proto2",
    "proto2_ext",
    "proto3",
    "type_deduction",
    "unknowns",
    "wrappers",
    "README",
];

/// The version of `format` differs.
const FORMAT: &str = "Kubernetes has version 2 of `format`, the cases are of version 4";

/// An option of cel-go that Kubernetes does not set.
const NO_PARTS: &str = "an optional selection from a value without parts is absent in Kubernetes";

/// Cases that do not pass: `file/section/name` or a prefix of it, and why.
const KNOWN: &[(&str, &str)] = &[
    ("fields/quoted_map_fields/", "Kubernetes does not enable names in backticks"),
    (
        "fields/qualified_identifier_resolution/map_value_repeat_key",
        "cel-go takes the last of equal keys",
    ),
    ("optionals/optionals/map_null_entry_no_such_key", NO_PARTS),
    ("optionals/optionals/map_present_key_invalid_field", NO_PARTS),
    (
        "namespace/namespace/self_eval_container_lookup",
        "expressions of Kubernetes have no container",
    ),
    ("namespace/namespace_shadowing/basic", "expressions of Kubernetes have no container"),
    ("string_ext/value_errors/indexof_out_of_range", "cel-go answers -1"),
    ("string_ext/value_errors/lastindexof_out_of_range", "cel-go answers -1"),
    (
        "timestamps/duration_converters/get_milliseconds",
        "cel-go counts all milliseconds of a duration",
    ),
    ("string_ext/format/scientific notation formatting clause", FORMAT),
    ("string_ext/format/default precision for fixed-point clause with int", FORMAT),
    ("string_ext/format/default precision for fixed-point clause with uint", FORMAT),
    ("string_ext/format/default precision for scientific notation", FORMAT),
    ("string_ext/format/positive infinity support for scientific notation", FORMAT),
    ("string_ext/format/negative infinity support for scientific notation", FORMAT),
    ("string_ext/format/NaN support for decimal", FORMAT),
    ("string_ext/format/positive infinity support for decimal", FORMAT),
    ("string_ext/format/negative infinity support for decimal", FORMAT),
    ("string_ext/format/positive infinity support for fixed-point", FORMAT),
    ("string_ext/format/negative infinity support for fixed-point", FORMAT),
    ("string_ext/format/list support for string", FORMAT),
    ("string_ext/format/map support for string", FORMAT),
    ("string_ext/format/map support (all key types)", FORMAT),
    ("string_ext/format/dyntype support for scientific notation", FORMAT),
    ("string_ext/format/dyntype NaN/infinity support", FORMAT),
    ("string_ext/format/dyntype support for lists", FORMAT),
    ("string_ext/format/dyntype support for maps", FORMAT),
];

#[test]
#[ignore = "a chore, cargo xtask cel-spec: needs the cases of the CEL specification"]
fn cases_of_the_specification_hold() {
    let directory = std::env::var_os("CEL_SPEC_TESTDATA").expect("CEL_SPEC_TESTDATA is set");
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&directory))
        .expect("read the directory of the cases")
        .map(|entry| entry.expect("read the directory of the cases").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "textproto"))
        .collect();
    files.sort();
    let mut failed = Vec::new();
    let (mut passed, mut skipped) = (0, 0);
    let mut known_hit: BTreeMap<&str, usize> = BTreeMap::new();
    for path in files {
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if LEFT_OUT.contains(&file.as_str()) {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("read a file of cases");
        let suite = textproto::parse(&text).expect("a file of cases is textproto");
        for section in suite.messages("section") {
            for case in section.messages("test") {
                let name = format!("{file}/{}/{}", section.text("name"), case.text("name"));
                if needs_messages(case) {
                    skipped += 1;
                    continue;
                }
                let known = KNOWN.iter().find(|(known, _)| name.starts_with(known));
                match (run(case), known) {
                    (Ok(()), None) => passed += 1,
                    (Ok(()), Some(_)) => passed += 1,
                    (Err(_), Some((known, _))) => *known_hit.entry(known).or_default() += 1,
                    (Err(error), None) => {
                        failed.push(format!("{name}: {}\n    {error}", case.text("expr")));
                    }
                }
            }
        }
    }
    for (known, why) in KNOWN {
        if !known_hit.contains_key(known) {
            failed.push(format!("{known} is listed as failing ({why}) and passes"));
        }
    }
    let known: usize = known_hit.values().sum();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    let record = std::env::var_os("CEL_SPEC_RECORD").expect("CEL_SPEC_RECORD is set");
    let mut page = format!(
        "# Cases of the CEL specification\n\nMade by `cargo xtask cel-spec`: do not edit.\n\n\
         {passed} cases pass, {known} differ, {skipped} are left out because they are about \
         messages of protocol buffers. So are these files, about messages and about libraries \
         that Kubernetes does not have: {}.\n\n| cases that differ | number | why |\n|---|---|---|\n",
        LEFT_OUT.join(", "),
    );
    for (known, why) in KNOWN {
        page += &format!("| {known} | {} | {why} |\n", known_hit[known]);
    }
    std::fs::write(record, page).expect("write the record");
}

/// Whether a case is about messages of protocol buffers, which no rule of Kubernetes sees.
fn needs_messages(case: &Message) -> bool {
    let expression = case.text("expr");
    let mentions = |text: &str| expression.contains(text) || case.debug().contains(text);
    mentions("TestAllTypes")
        || mentions("NestedTestAllTypes")
        || expression.contains("google.protobuf.") && expression.contains('{')
        || mentions("google.protobuf.Any")
        || case.flag("check_only")
        || case.has("unknown")
        || case.has("any_unknowns")
}

fn run(case: &Message) -> Result<(), String> {
    let expression = case.text("expr");
    let macros = if case.flag("disable_macros") {
        Macros { optionals: false, two_variables: false, sort_by: false, ..Macros::ALL }
    } else {
        Macros::ALL
    };
    let expects_error = case.has("eval_error") || case.has("any_eval_errors");
    let outcome = (|| {
        let ast = setpoint_cel::parse(&expression, &macros).map_err(|issues| issues.to_string())?;
        let program = Program::unchecked(&ast, Library::extended());
        let mut variables = HashMap::new();
        for binding in case.messages("bindings") {
            let expr = binding.message("value").ok_or("a binding without a value")?;
            let inner = expr.message("value").ok_or("a binding without a value")?;
            variables.insert(binding.text("key"), value(inner)?);
        }
        // Constants of the tests are leaked: a few hundred bytes.
        let variables: &'static HashMap<String, Value<'static>> = Box::leak(Box::new(variables));
        program.evaluate(&mut Context::default(), variables).map_err(|error| error.to_string())
    })();
    if expects_error {
        return match outcome {
            Ok(value) => Err(format!("is {value:?} and should fail")),
            Err(_) => Ok(()),
        };
    }
    let expected = match case.message("value") {
        Some(expected) => value(expected)?,
        None => match case.message("typed_result").and_then(|typed| typed.message("result")) {
            Some(expected) => value(expected)?,
            None => Value::Bool(true),
        },
    };
    let found = outcome?;
    let is_nan = |value: &Value<'_>| matches!(value, Value::Double(value) if value.is_nan());
    let same = found.equals(&expected, &mut Fuel::new(100_000)).unwrap_or(false)
        && found.type_of() == expected.type_of();
    if same || is_nan(&found) && is_nan(&expected) {
        Ok(())
    } else {
        Err(format!("is {found:?} and should be {expected:?}"))
    }
}

fn value(message: &Message) -> Result<Value<'static>, String> {
    let (field, scalar) = message.first().ok_or("an empty value")?;
    let text = || scalar.to_text();
    let number = |what: &str| format!("{what}: {}", scalar.to_text());
    Ok(match field {
        "null_value" => Value::Null,
        "bool_value" => Value::Bool(text() == "true"),
        "int64_value" | "enum_value" => {
            Value::Int(integer(&text()).ok_or_else(|| number("not an int"))?)
        }
        "uint64_value" => Value::Uint(text().parse().map_err(|_| number("not a uint"))?),
        "double_value" => Value::Double(match text().as_str() {
            "inf" | "infinity" => f64::INFINITY,
            "-inf" | "-infinity" => f64::NEG_INFINITY,
            "nan" => f64::NAN,
            text => text.parse().map_err(|_| number("not a double"))?,
        }),
        "string_value" => text().into(),
        "bytes_value" => Value::Bytes(scalar.to_bytes().into()),
        "type_value" => Value::Type(named_type(&text())),
        "list_value" => message
            .message(field)
            .into_iter()
            .flat_map(|list| list.messages("values"))
            .map(value)
            .collect::<Result<Vec<_>, _>>()?
            .into(),
        "map_value" => {
            let mut entries = IndexMap::new();
            for entry in message.message(field).into_iter().flat_map(|map| map.messages("entries"))
            {
                let key = value(entry.message("key").ok_or("an entry without a key")?)?;
                let item = value(entry.message("value").ok_or("an entry without a value")?)?;
                entries.insert(Key::of(&key).ok_or("not a key")?, item);
            }
            entries.into()
        }
        "object_value" => {
            let object = message.message(field).ok_or("an empty object")?;
            let (name, _) = object.first().ok_or("an empty object")?;
            let inner = object.message(name).ok_or("an empty object")?;
            let part = |field: &str| integer(&inner.text(field)).unwrap_or(0);
            match name.rsplit('.').next() {
                Some("Duration") => Value::Duration(Duration::from_nanos(
                    part("seconds")
                        .checked_mul(1_000_000_000)
                        .and_then(|nanos| nanos.checked_add(part("nanos")))
                        .ok_or("a duration too long")?,
                )),
                Some("Timestamp") => {
                    let nanos = u32::try_from(part("nanos")).map_err(|error| error.to_string())?;
                    let time = Timestamp::new(part("seconds"), nanos);
                    Value::Timestamp(time.ok_or("a time out of range")?)
                }
                _ => return Err(format!("a message {name}")),
            }
        }
        other => return Err(format!("a value of kind {other}")),
    })
}

fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn named_type(name: &str) -> Type {
    match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "string" => Type::String,
        "type" => Type::Type(None),
        "uint" => Type::Uint,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        _ => Type::Dyn,
    }
}
