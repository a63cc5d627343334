//! The operations of `cargo xtask bench scaling`, with the allocator of the shipped program: the
//! C library's gives large heaps back to the system after each operation, which would count as
//! growth. Prints the time of each operation with inputs of n, 2n, 4n and 8n members.
#![allow(clippy::disallowed_methods, reason = "a stopwatch reads the real clock")]

use clap::Parser;
use mimalloc::MiMalloc;
use serde_json::{Map, Value, json};
use setpoint_schema::apply::{self, Manager, Owners, Typing};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{builtin, crd, decode, default, encode, patch, pattern, prune, validate};
use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Members of the smallest input.
const N: usize = 2_500;
/// The sizes, in multiples of [`N`].
const SIZES: [usize; 4] = [1, 2, 4, 8];

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "setpoint-benches-growth",
    about = "Times of operations on larger and larger objects"
)]
struct Args {
    /// Number of measurements of each size; the fastest counts.
    #[arg(long)]
    rounds: usize,
}

/// An operation on an input of some size. Each run returns its time, without that of a copy of its
/// input.
type Prepared = Box<dyn FnMut() -> Duration>;
/// An operation and its preparation.
type Row = (&'static str, fn(usize) -> Prepared);

/// All operations whose input a request body can make large.
const ROWS: &[Row] = &[
    ("decode JSON", |n| {
        let body = config_map(n, "1").to_string();
        operation(move || decode::parse(body.as_bytes(), decode::Format::Json))
    }),
    ("decode JSON, all members repeated", |n| {
        let members: String = (0..n).map(|i| format!(r#""k{i}":1,"k{i}":1,"#)).collect();
        let body = format!("{{{members}\"a\":1}}");
        operation(move || decode::parse(body.as_bytes(), decode::Format::Json))
    }),
    ("decode YAML", |n| {
        let body: String = (0..n).map(|i| format!("k{i}:\n- {{a: {i}, b: x}}\n")).collect();
        operation(move || decode::parse(body.as_bytes(), decode::Format::Yaml))
    }),
    ("decode YAML, all members repeated", |n| {
        let body: String = (0..n).map(|i| format!("k{i}: 1\nk{i}: 2\n")).collect();
        operation(move || decode::parse(body.as_bytes(), decode::Format::Yaml))
    }),
    ("conform a Pod's environment", |n| {
        let (schema, object) = (pod(), pod_with(env(n, "1")));
        change(object, move |object| decode::conform(&schema, "Pod", object, &mut Vec::new()))
    }),
    ("report unknown fields in document order", |n| {
        let mut object = pod_with(env(n, "1"));
        for item in object["spec"]["containers"][0]["env"].as_array_mut().into_iter().flatten() {
            item["unknown"] = json!(1);
        }
        let (schema, body) = (pod(), object.to_string());
        operation(move || decode::field_problems(&schema, body.as_bytes()))
    }),
    ("strategic merge of an environment", |n| strategic(n, pod_with(env(n, "2")))),
    ("strategic merge with $setElementOrder, reversed", |n| {
        let mut sent = pod_with(env(n, "2"));
        let mut order = env(n, "");
        order.reverse();
        let container = &mut sent["spec"]["containers"][0];
        container["env"].as_array_mut().into_iter().for_each(|env| env.reverse());
        container["$setElementOrder/env"] = order.into();
        strategic(n, sent)
    }),
    ("strategic merge that deletes all elements", |n| {
        let gone: Vec<Value> =
            (0..n).map(|i| json!({"$patch": "delete", "name": format!("E{i}")})).collect();
        strategic(n, pod_with(gone))
    }),
    ("strategic merge of finalizers", |n| {
        let names: Vec<String> = (0..n).map(|i| format!("example.com/f{i}")).collect();
        strategic(n, json!({"metadata": {"finalizers": names}}))
    }),
    ("merge patch", |n| {
        let (object, body) = (config_map(n, "1"), config_map(n, "2").to_string());
        change(object, move |object| patch::merge_patch(object, body.as_bytes(), &mut Vec::new()))
    }),
    ("JSON patch that appends n/2 elements", |n| {
        let operation = json!({"op": "add", "path": "/l/-", "value": 1});
        let body = Value::from(vec![operation; n / 2]).to_string();
        let object = json!({"l": []});
        change(object, move |object| patch::json_patch(object, body.as_bytes(), &mut Vec::new()))
    }),
    ("apply: create", |n| applied(None, config_map(n, "1"))),
    ("apply: change all", |n| {
        let live = created(config_map(n, "1"));
        applied(Some(live), config_map(n, "2"))
    }),
    ("apply: remove all", |n| {
        let live = created(config_map(n, "1"));
        applied(Some(live), config_map(0, "2"))
    }),
    ("apply among n managers", |n| applied_apart(n, "1")),
    ("apply among n managers, in the object", |n| applied(Some(crowded(n)), config_map(n, "1"))),
    ("apply that n managers conflict with", |n| applied_apart(n, "2")),
    ("apply that n managers conflict with, in the object", |n| {
        applied(Some(crowded(n)), config_map(n, "2"))
    }),
    ("update among n managers", |n| {
        let ((old, owners), new) = (apart(&crowded(n)), config_map(n, "2"));
        operation(move || {
            let old = Some((&old, owners.as_ref()));
            with_typing(|typing| apply::update_apart(typing, old, &new, &manager()))
        })
    }),
    ("update among n managers, in the object", |n| {
        let (old, mut new) = (crowded(n), crowded(n));
        new["data"] = config_map(n, "2")["data"].take();
        change(new, move |new| {
            with_typing(|typing| apply::update(typing, Some(&old), new, &manager()));
        })
    }),
    ("settle times of n managers", |n| {
        let ((old, before), (new, now)) = (apart(&crowded(n)), apart(&later(crowded(n))));
        operation(move || apply::settle_times_apart((&old, before.clone()), (&new, now.clone())))
    }),
    ("settle times of n managers, in the object", |n| {
        let (old, new) = (crowded(n), later(crowded(n)));
        change(new, move |new| apply::settle_times(Some(&old), new))
    }),
    ("read a field set", |n| {
        let fields: Map<String, Value> =
            (0..n).map(|i| (format!(r#"k:{{"name":"e{i}"}}"#), json!({"f:v": {}}))).collect();
        let fields = Value::Object(fields);
        operation(move || drop(black_box(apply::FieldSet::from_wire(&fields))))
    }),
    ("prune", |n| {
        let schema = custom();
        let object = items(n, |i| json!({"k": format!("k{i}"), "unknown": 1}));
        change(object, move |object| prune::prune(&schema, object))
    }),
    ("default", |n| {
        let schema = custom();
        let object = items(n, |i| json!({"k": format!("k{i}")}));
        change(object, move |object| default::apply(&schema, object))
    }),
    ("validate a keyed list", |n| {
        let (schema, object) = (custom(), items(n, |i| json!({"k": format!("k{i}")})));
        operation(move || validate::validate(&schema, &object, None))
    }),
    ("validate a keyed list against the old one", |n| {
        let (schema, old) = (custom(), items(n, |i| json!({"k": format!("k{i}"), "v": "a"})));
        let object = items(n, |i| json!({"k": format!("k{}", n - i), "v": "b"}));
        operation(move || validate::validate(&schema, &object, Some(&old)))
    }),
    ("validate a keyed list of repeats", |n| {
        let (schema, object) = (custom(), items(n, |_| json!({"k": "k"})));
        operation(move || validate::validate(&schema, &object, None))
    }),
    ("validate a definition of versions", |n| {
        let versions: Value = (0..n).map(|i| json!({"name": format!("v{i}")})).collect();
        let definition = json!({"metadata": {"name": "as.b.c"}, "spec": {"versions": versions}});
        // As one that is stored: a new one may not have so many.
        let old = definition.clone();
        operation(move || crd::validate_definition(&definition, Some(&old)))
    }),
    ("check a pattern", |n| {
        let text = r"(?:[a-z]\pL+|\d{2,3})".repeat(n);
        operation(move || pattern::translate(&text))
    }),
];

fn main() -> anyhow::Result<()> {
    let Args { rounds } = Args::parse();
    let measured: Vec<(&str, Vec<(usize, Duration)>)> = ROWS
        .iter()
        .map(|(what, prepare)| {
            let sizes = SIZES.iter().map(|size| size * N);
            (*what, sizes.map(|n| (n, fastest(&mut prepare(n), rounds))).collect())
        })
        .collect();
    serde_json::to_writer(std::io::stdout().lock(), &measured)?;
    Ok(())
}

fn fastest(run: &mut Prepared, rounds: usize) -> Duration {
    (0..rounds.max(1)).map(|_| run()).min().unwrap_or_default()
}

/// An operation whose result counts.
fn operation<T>(mut run: impl FnMut() -> T + 'static) -> Prepared {
    Box::new(move || {
        let started = Instant::now();
        black_box(run());
        started.elapsed()
    })
}

/// An operation that changes an object.
fn change<T>(object: Value, mut run: impl FnMut(&mut Value) -> T + 'static) -> Prepared {
    Box::new(move || {
        let mut object = object.clone();
        let started = Instant::now();
        black_box(run(&mut object));
        let time = started.elapsed();
        black_box(object);
        time
    })
}

fn builtin(kind: &str) -> TypeSchema {
    builtin::type_schema("", "v1", kind).unwrap_or_else(builtin::object_meta)
}

fn pod() -> TypeSchema {
    builtin("Pod")
}

fn env(n: usize, value: &str) -> Vec<Value> {
    (0..n).map(|i| json!({"name": format!("E{i}"), "value": value})).collect()
}

fn pod_with(env: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": env}]}})
}

fn config_map(n: usize, value: &str) -> Value {
    let data: Map<String, Value> =
        (0..n).map(|i| (format!("k{i:06}"), Value::from(value))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})
}

/// A ConfigMap in which each entry has a different manager.
fn crowded(n: usize) -> Value {
    let mut object = config_map(n, "1");
    let entry = |i| {
        let mut fields = Map::new();
        fields.insert(format!("f:k{i:06}"), json!({}));
        json!({"manager": format!("m{i}"), "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2020-01-01T00:00:00Z", "fieldsV1": {"f:data": fields}})
    };
    object["metadata"]["managedFields"] = (0..n).map(entry).collect();
    object
}

/// The same with other times.
fn later(mut object: Value) -> Value {
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        entry["time"] = json!("2030-01-01T00:00:00Z");
    }
    object
}

/// An object and its managedFields beside it, which is where a server has them that no webhook or
/// policy asks for them.
fn apart(object: &Value) -> (Value, Option<Owners<'static>>) {
    let text = String::from_utf8_lossy(&encode::to_bytes(object)).into_owned();
    Owners::split(text.leak()).unwrap_or_default()
}

fn applied_apart(n: usize, value: &str) -> Prepared {
    let ((live, owners), config) = (apart(&crowded(n)), config_map(n, value));
    operation(move || {
        let live = Some((&live, owners.as_ref()));
        with_typing(|typing| apply::apply_apart(typing, live, &config, &manager(), false))
    })
}

fn strategic(n: usize, sent: Value) -> Prepared {
    let mut object = pod_with(env(n, "1"));
    object["metadata"]["finalizers"] = (n / 2..n).map(|i| format!("example.com/f{i}")).collect();
    let (schema, body) = (pod(), sent.to_string());
    change(object, move |object| {
        patch::strategic_merge_patch(&schema, object, body.as_bytes(), &mut Vec::new())
    })
}

fn manager() -> Manager<'static> {
    Manager {
        name: "bench",
        api_version: "v1",
        subresource: "",
        now: setpoint_object::time::Timestamp(Duration::from_secs(1)),
    }
}

fn with_typing<T>(run: impl FnOnce(&Typing<'_>) -> T) -> T {
    let schema = builtin("ConfigMap");
    run(&Typing {
        schema: &schema,
        kind: "ConfigMap",
        reset: &BTreeSet::new(),
        custom: false,
        versions: &[],
        others: None,
    })
}

fn created(config: Value) -> Value {
    with_typing(|typing| apply::apply(typing, None, &config, &manager(), false))
        .map_or(config, |merged| merged.object)
}

fn applied(live: Option<Value>, config: Value) -> Prepared {
    operation(move || {
        with_typing(|typing| apply::apply(typing, live.as_ref(), &config, &manager(), false))
    })
}

/// A type with a keyed list.
fn custom() -> TypeSchema {
    crd::type_schema(
        &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"l": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {
            "k": {"type": "string", "pattern": "^k[0-9]*$"},
            "v": {"type": "string", "default": "a", "enum": ["a", "b"]}}}}}}}}),
    )
}

fn items(n: usize, item: impl Fn(usize) -> Value) -> Value {
    json!({"spec": {"l": (0..n).map(item).collect::<Vec<_>>()}})
}
