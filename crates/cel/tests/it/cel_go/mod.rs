//! Expressions by chance, here and in cel-go with Kubernetes' environment.
//!
//! `cargo xtask cel-go --kubernetes DIR` runs it and writes the result to
//! `crates/cel/differences.md`. [`KNOWN`](known::KNOWN) lists the classes of differences that stay
//! and why; the run fails at any other.

mod generate;
mod known;
mod macros;
mod objects;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use generate::Generator;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use setpoint_cel::decl::{DeclType, ListType, Property};
use setpoint_cel::estimate::estimate;
use setpoint_cel::eval::{Context, Program};
use setpoint_cel::library::authorizer::{self, Attributes, Authorizer, Decision};
use setpoint_cel::value::Value;
use setpoint_cel::{Env, Macros, Type, check, parse};

const SCHEMA: &str = include_str!("schema.json");
const OBJECTS: usize = 40;

/// What came of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Answer {
    /// Why it does not compile.
    issues: String,
    #[serde(rename = "type")]
    ty: String,
    minimum: u64,
    maximum: u64,
    value: Option<String>,
    error: String,
    cost: u64,
    panic: String,
}

/// One difference.
struct Difference {
    class: String,
    expression: String,
    object: usize,
    ours: Answer,
    theirs: Answer,
}

/// Allows `get`, answers `break` with an error, and denies everything else.
#[derive(Debug)]
struct Decider;

impl Authorizer for Decider {
    fn authorize(&self, attributes: &Attributes) -> Decision {
        let (allowed, reason, error) = match attributes.verb.as_str() {
            "get" => (true, "everybody may get", None),
            "break" => (false, "", Some("the authorizer is broken".to_owned())),
            _ => (false, "nobody said so", None),
        };
        Decision { allowed, reason: reason.to_owned(), error }
    }
}

#[test]
#[ignore = "a chore, cargo xtask cel-go: needs a program of Kubernetes' source"]
fn expressions_are_as_in_cel_go() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (cases, seed) = (number("CEL_GO_CASES", 100_000), number("CEL_GO_SEED", 1));
    let program = std::env::var_os("CEL_GO_PROGRAM").expect("CEL_GO_PROGRAM is set");
    let schema: Json = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let decl = declared(&schema, "Self");
    let mut generator = Generator::new(seed as u64, &decl);
    let objects: Vec<Json> = (0..OBJECTS).map(|_| generator.object(&schema)).collect();
    let expressions: Vec<(String, usize)> =
        (0..cases).map(|_| (generator.case(), generator.random.below(OBJECTS))).collect();

    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start cel-go's program");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let mut lines = vec![json!({"schema": schema, "objects": objects}).to_string()];
    lines.extend(expressions.iter().map(|(expression, object)| {
        json!({"expression": expression, "object": object}).to_string()
    }));
    let writer = std::thread::spawn(move || {
        for line in lines {
            writeln!(stdin, "{line}").expect("write a case");
        }
    });
    let answers = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
    let mut counts = Counts::default();
    let mut found: BTreeMap<&str, Vec<Difference>> = BTreeMap::new();
    let may: Arc<dyn Authorizer> = Arc::new(Decider);
    for ((expression, object), answer) in expressions.into_iter().zip(answers) {
        let theirs: Answer =
            serde_json::from_str(&answer.expect("read an answer")).expect("an answer");
        let ours = run(&expression, &objects[object], &decl, &may);
        counts.add(&theirs);
        for part in PARTS {
            if let Some(class) = (part.differs)(&ours, &theirs) {
                let difference = Difference {
                    class,
                    expression: expression.clone(),
                    object,
                    ours: ours.clone(),
                    theirs: theirs.clone(),
                };
                found.entry(part.name).or_default().push(difference);
                break;
            }
        }
    }
    writer.join().expect("cases are written");
    assert!(child.wait().expect("wait for cel-go's program").success());
    counts.check(cases);
    known::report(&counts, found, seed);
}

/// How many cases there were of which kind, in cel-go.
#[derive(Default)]
struct Counts {
    cases: usize,
    refused: usize,
    failed: usize,
    evaluated: usize,
}

impl Counts {
    fn add(&mut self, answer: &Answer) {
        self.cases += 1;
        match answer {
            Answer { value: Some(_), .. } => self.evaluated += 1,
            Answer { issues, .. } if !issues.is_empty() => self.refused += 1,
            _ => self.failed += 1,
        }
    }

    fn check(&self, cases: usize) {
        assert_eq!(self.cases, cases, "cel-go's program answers each case");
    }
}

/// A part of an answer that may differ. Of a case, the first is reported.
struct Part {
    name: &'static str,
    /// The class of the difference.
    differs: fn(&Answer, &Answer) -> Option<String>,
}

const PARTS: &[Part] = &[
    Part {
        name: "panic",
        differs: |_, theirs| (!theirs.panic.is_empty()).then(|| bare(&theirs.panic)),
    },
    Part {
        name: "compiles",
        differs: |ours, theirs| {
            let side = |answer: &Answer| first(&answer.issues);
            (ours.issues.is_empty() != theirs.issues.is_empty())
                .then(|| format!("here: {} / there: {}", side(ours), side(theirs)))
        },
    },
    Part {
        name: "issues",
        differs: |ours, theirs| {
            (ours.issues != theirs.issues).then(|| {
                format!("here: {} / there: {}", first(&ours.issues), first(&theirs.issues))
            })
        },
    },
    Part {
        name: "type",
        differs: |ours, theirs| {
            (ours.ty != theirs.ty).then(|| format!("here: {} / there: {}", ours.ty, theirs.ty))
        },
    },
    Part {
        name: "result",
        differs: |ours, theirs| {
            let side = |answer: &Answer| match &answer.value {
                Some(value) => {
                    value.split(['(', ':', '{', '[', '"']).next().unwrap_or("").to_owned()
                }
                None => bare(&answer.error),
            };
            (ours.value.is_some() != theirs.value.is_some())
                .then(|| format!("here: {} / there: {}", side(ours), side(theirs)))
        },
    },
    Part {
        name: "value",
        differs: |ours, theirs| (ours.value != theirs.value).then(|| ours.ty.clone()),
    },
    Part {
        name: "error",
        differs: |ours, theirs| {
            (ours.error != theirs.error)
                .then(|| format!("here: {} / there: {}", bare(&ours.error), bare(&theirs.error)))
        },
    },
    Part {
        name: "estimate",
        differs: |ours, theirs| {
            ((ours.minimum, ours.maximum) != (theirs.minimum, theirs.maximum)).then(String::new)
        },
    },
    Part {
        name: "cost",
        differs: |ours, theirs| {
            (ours.cost != theirs.cost && ours.value.is_some()).then(String::new)
        },
    },
];

/// The first issue, without its place and what it quotes.
fn first(issues: &str) -> String {
    let line = issues.lines().next().unwrap_or("none");
    bare(line.splitn(5, ':').nth(4).unwrap_or(line))
}

/// A text without numbers and quoted parts.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, '\'' | '"' | '`') => {
                quote = Some(c);
                out.push(c);
            }
            (Some(open), c) if c == open => {
                quote = None;
                out.push(c);
            }
            (Some(_), _) => {}
            (None, c) if c.is_ascii_digit() => {
                if !out.ends_with('0') {
                    out.push('0');
                }
            }
            (None, c) => out.push(c),
        }
    }
    out.truncate(out.char_indices().nth(150).map_or(out.len(), |(at, _)| at));
    out
}

fn run(expression: &str, object: &Json, decl: &DeclType, may: &Arc<dyn Authorizer>) -> Answer {
    let env = Env::kubernetes()
        .variable("self", decl.ty.clone())
        .variable("authorizer", Type::AUTHORIZER);
    let checked = parse(expression, &Macros::KUBERNETES).and_then(|ast| check(ast, &env));
    let checked = match checked {
        Ok(checked) => checked,
        Err(issues) => return Answer { issues: issues.to_string(), ..Answer::default() },
    };
    let program = Program::new(&checked);
    if let Some(fault) = program.fault() {
        return Answer { issues: format!("program: {fault}"), ..Answer::default() };
    }
    let costs = estimate(&checked, decl);
    let mut answer = Answer {
        ty: type_text(checked.result_type()),
        minimum: costs.min,
        maximum: costs.max,
        ..Answer::default()
    };
    let variables = [
        ("self", Value::json(object, decl).expect("objects have the schema")),
        ("authorizer", authorizer::authorizer(may.clone())),
    ];
    let mut context = Context::default();
    match program.evaluate(&mut context, &variables).and_then(|value| show(&value)) {
        Ok(value) => answer.value = Some(value),
        Err(error) => answer.error = error.to_string(),
    }
    answer.cost = context.cost();
    answer
}

/// The value as the comparison spells it.
fn show(value: &Value<'_>) -> Result<String, setpoint_cel::Error> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => format!("int:{value}"),
        Value::Uint(value) => format!("uint:{value}"),
        Value::Double(value) if value.is_nan() => "double:NaN".to_owned(),
        Value::Double(value) => format!("double:{:016x}", value.to_bits()),
        Value::String(text) => format!("\"{}\"", &**text),
        Value::Bytes(bytes) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("bytes:{hex}")
        }
        Value::Duration(value) => format!("duration:{}", value.nanos()),
        Value::Timestamp(value) => format!("timestamp:{}.{:09}", value.seconds(), value.nanos()),
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("some({})", show(value)?),
        Value::Type(ty) => format!("type:{}", type_name(ty)),
        Value::List(list) => {
            let items = list.iter().map(|item| show(&item?)).collect::<Result<Vec<_>, _>>()?;
            format!("[{}]", items.join(", "))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for key in map.keys() {
                let item = map.get(&key).expect("a key of the map")?;
                entries.push(format!("{}: {}", show(&key)?, show(&item)?));
            }
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Object(object) => {
            let mut entries = Vec::new();
            for key in object.keys() {
                let item = object.get(&key).expect("a field of the object")?;
                entries.push(format!("\"{key}\": {}", show(&item)?));
            }
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Opaque(_) => format!("value of {}", value.type_name()),
    })
}

/// The declared type of a schema.
fn declared(schema: &Json, name: &str) -> DeclType {
    let number = |name: &str| schema.get(name).and_then(Json::as_u64);
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return DeclType::int_or_string(number("maxLength"));
    }
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => DeclType::bool(),
        "integer" => DeclType::int(),
        "number" => DeclType::double(),
        "string" => {
            let values = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
            let values = values.filter_map(Json::as_str);
            DeclType::text(schema["format"].as_str(), number("maxLength"), values)
        }
        "array" => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            let list = match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListType::Set,
                Some("map") => {
                    ListType::Map(keys.filter_map(Json::as_str).map(str::to_owned).collect())
                }
                _ => ListType::Atomic,
            };
            let items = declared(&schema["items"], &format!("{name}.@idx"));
            DeclType::list(items, list, number("maxItems"))
        }
        _ => match schema.get("additionalProperties") {
            Some(values) => {
                DeclType::map(declared(values, &format!("{name}.@elem")), number("maxProperties"))
            }
            None => {
                let required = |name: &str| {
                    schema["required"].as_array().is_some_and(|all| all.iter().any(|of| of == name))
                };
                let properties = schema["properties"].as_object().into_iter().flatten();
                let properties = properties.map(|(property, schema)| Property {
                    name: property.clone(),
                    decl: Some(declared(schema, &format!("{name}.{property}"))),
                    required: required(property),
                    defaulted: false,
                });
                DeclType::object(name.to_owned(), properties)
            }
        },
    }
}

/// A type, as cel-go's types show themselves.
fn type_text(ty: &Type) -> String {
    let text = ty.to_string();
    let text = text.replace("timestamp", "google.protobuf.Timestamp");
    let text = text.replace("duration", "google.protobuf.Duration");
    text.replace("null", "null_type")
}

/// The name of a type, as cel-go's types have it.
fn type_name(ty: &Type) -> String {
    match ty {
        Type::Null => "null_type".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        Type::Type(_) => "type".to_owned(),
        ty => ty.to_string(),
    }
}
