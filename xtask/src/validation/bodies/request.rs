//! Writes, drawn from a seed.

use super::text::{Node, damaged};
use crate::validation::objects::Served;
use crate::validation::random::Random;
use crate::validation::write::Write;
use serde_json::{Value, json};

/// Stand for the object's resourceVersion and uid, as each server has them.
pub(super) const VERSION: &str = "$VERSION";
pub(super) const UID: &str = "$UID";
/// Stands for the name of an object that is made for the request.
pub(super) const OWN: &str = "$OWN";

/// A request that changes nothing but an object that is made for it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What it does, for the page.
    pub(super) what: String,
    pub(super) verb: &'static str,
    pub(super) method: &'static str,
    /// Where the object is that it names.
    pub(super) object: String,
    /// Where it is sent, with options.
    pub(super) path: String,
    pub(super) content_type: &'static str,
    pub(super) accept: &'static str,
    pub(super) body: String,
    /// The collection and the object that is made before.
    pub(super) own: Option<(String, Value)>,
}

/// Types of bodies that do not say what they are.
const TYPES: &[&str] = &[
    "application/json",
    "application/json; charset=utf-8",
    "application/json;x=y",
    "APPLICATION/JSON",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/merge-patch+json",
    "application/merge-patch+json; charset=utf-8",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
    "application/x-www-form-urlencoded",
    "text/plain",
    "text/yaml",
    "*/*",
    "nonsense",
    "",
];
const ACCEPTS: &[&str] = &[
    "application/yaml",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "text/plain",
    "*/*",
];
/// Options of a delete, and values for them.
const DELETE: &[(&str, &[&str])] = &[
    ("gracePeriodSeconds", &["0", "1", "-1", "30", "3000000000", "\"1\"", "1.5", "null", "[]"]),
    (
        "propagationPolicy",
        &["\"Orphan\"", "\"Background\"", "\"Foreground\"", "\"x\"", "\"\"", "1"],
    ),
    ("orphanDependents", &["true", "false", "\"true\"", "null", "1"]),
    ("dryRun", &["[\"All\"]", "[\"All\",\"All\"]", "[\"x\"]", "[]", "\"All\"", "[1]", "[null]"]),
    (
        "preconditions",
        &[
            "{}",
            "null",
            "[]",
            "{\"uid\":\"x\"}",
            "{\"uid\":\"$UID\"}",
            "{\"resourceVersion\":\"1\"}",
            "{\"resourceVersion\":\"$VERSION\",\"uid\":\"$UID\"}",
            "{\"uid\":1}",
            "{\"x\":1}",
        ],
    ),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", &["true", "false", "1", "\"x\""]),
    ("kind", &["\"DeleteOptions\"", "\"DeleteOptions\"", "\"Other\"", "\"\"", "1"]),
    ("apiVersion", &["\"v1\"", "\"meta.k8s.io/v1\"", "\"apps/v1\"", "\"nope/v1\"", "\"v9\"", "1"]),
    ("x", &["1"]),
];

pub(super) fn draw(random: &mut Random, all: &[Served]) -> Option<Request> {
    let of = random.pick(all)?;
    let fixture = random.pick(&of.objects)?.clone();
    let write = match random.below(100) {
        0..22 => Write::Create,
        22..47 => Write::Put,
        47..60 => Write::Merge,
        60..70 => Write::Json,
        70..80 => Write::Strategic,
        80..92 => Write::Apply,
        _ => Write::Delete,
    };
    let name = Served::name(&fixture);
    let mut request = Request {
        what: String::new(),
        verb: write.name(),
        method: write.method(),
        object: format!("{}/{name}", of.collection),
        path: String::new(),
        content_type: write.content_type(),
        accept: "application/json",
        body: String::new(),
        own: None,
    };
    let subresource = match write {
        Write::Create | Write::Delete => "",
        _ if random.percent(80) => "",
        _ if random.percent(95) => random.pick(&of.subresources).copied().unwrap_or_default(),
        _ => "nope",
    };
    request.what = write.name_of(subresource);
    request.path = request.object.clone();
    let missing = [format!("{}/missing", of.collection), format!("{}/A%20b", of.collection)];
    match write {
        Write::Create => request.path.clone_from(&of.collection),
        Write::Delete => {}
        _ if random.percent(6) => {
            request.path.clone_from(&missing[random.below(2)]);
            request.object.clone_from(&request.path);
        }
        _ => {}
    }
    if !subresource.is_empty() {
        request.path = format!("{}/{subresource}", request.path);
    }
    if write == Write::Delete {
        own(random, all, &mut request)?;
    }
    let mut body = body(random, write, &fixture, subresource);
    let mut is_yaml = write == Write::Apply;
    match write {
        Write::Create | Write::Put | Write::Delete if random.percent(15) => {
            is_yaml = true;
            request.content_type = "application/yaml";
        }
        _ => {}
    }
    for _ in 0..random.below(4) {
        body.change(random, is_yaml);
    }
    request.body = match is_yaml && random.percent(50) {
        true => body.yaml(),
        false => body.json(),
    };
    if random.percent(4) {
        request.body = damaged(&request.body, random);
    }
    if random.percent(4) {
        request.content_type = random.pick(TYPES).copied().unwrap_or_default();
    }
    if random.percent(4) {
        request.accept = random.pick(ACCEPTS).copied().unwrap_or_default();
    }
    let options = options(random, write);
    request.path = format!("{}?{options}", request.path);
    Some(request)
}

/// A body without faults, if the object is as it was made.
fn body(random: &mut Random, write: Write, fixture: &Value, subresource: &str) -> Node {
    let mut object = fixture.clone();
    if subresource == "scale" {
        let scale = write.scale(&fixture["metadata"]["name"], json!(2));
        return Node::of(&scale);
    }
    match write {
        Write::Create => {
            if random.percent(60) {
                object["metadata"]["name"] = "new".into();
            }
        }
        Write::Put => {
            if random.percent(40) {
                object["metadata"]["resourceVersion"] = VERSION.into();
            }
            if random.percent(15) {
                object["metadata"]["uid"] = UID.into();
            }
        }
        Write::Merge | Write::Strategic | Write::Apply => {
            let keep = random.below(4);
            if let Some(members) = object.as_object_mut() {
                let names: Vec<String> = members.keys().cloned().collect();
                for name in names {
                    let is_needed = write == Write::Apply
                        && ["kind", "apiVersion", "metadata"].contains(&&*name);
                    if !is_needed && keep < 3 && !random.percent(40) {
                        members.remove(&name);
                    }
                }
            }
        }
        Write::Json => return operations(random, fixture),
        Write::Delete => {
            let mut options = Node::Members(Vec::new());
            for _ in 0..random.below(4) {
                let (name, values) = DELETE[random.below(DELETE.len())];
                options.set(name, Node::word(random.pick(values).copied().unwrap_or_default()));
            }
            return options;
        }
    }
    Node::of(&object)
}

/// Operations of a JSON patch.
fn operations(random: &mut Random, fixture: &Value) -> Node {
    let mut all = Vec::new();
    for _ in 0..=random.below(3) {
        let mut pointers = vec![String::new()];
        pointers_of(fixture, "", &mut pointers);
        let mut path = || {
            let mut path = random.pick(&pointers).cloned().unwrap_or_default();
            if random.percent(25) {
                let end = ["/x", "/-", "/0", "/99", "/-1", "/a~1b", "/01", "x", "/", "/~2"];
                path += end[random.below(end.len())];
            }
            Value::from(path).to_string()
        };
        let (path, from) = (path(), path());
        let names = ["add", "replace", "remove", "test", "copy", "move", "nope", "Add", ""];
        let op = names[if random.percent(90) { random.below(6) } else { random.below(9) }];
        let value = match random.below(3) {
            0 => fixture.pointer(path.trim_matches('"')).map_or("null".into(), Value::to_string),
            1 => "\"x\"".to_owned(),
            _ => ["1", "null", "{}", "[]", "{\"a\":\"b\"}", "true"][random.below(6)].to_owned(),
        };
        let mut members = vec![
            ("op".to_owned(), Node::word(&Value::from(op).to_string())),
            ("path".to_owned(), Node::word(&path)),
        ];
        if ["copy", "move"].contains(&op) {
            members.push(("from".to_owned(), Node::word(&from)));
        } else if op != "remove" {
            members.push(("value".to_owned(), Node::word(&value)));
        }
        all.push(Node::Members(members));
    }
    Node::List(all)
}

fn pointers_of(value: &Value, at: &str, all: &mut Vec<String>) {
    let mut add = |name: &str, value: &Value| {
        let name = name.replace('~', "~0").replace('/', "~1");
        all.push(format!("{at}/{name}"));
        pointers_of(value, &format!("{at}/{name}"), all);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| add(name, value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| add(&at.to_string(), value));
        }
        _ => {}
    }
}

/// Makes it a delete of an object of its own: of a ConfigMap, or of a custom resource.
fn own(random: &mut Random, all: &[Served], request: &mut Request) -> Option<()> {
    let wanted = ["/configmaps", "/configmaps", "/secrets", "/shapes", "/deployments", "/pods"];
    let end = wanted[random.below(wanted.len())];
    let of = all.iter().find(|one| one.collection.ends_with(end))?;
    let mut object = of.objects.first()?.clone();
    object["metadata"]["name"] = OWN.into();
    object["metadata"]["labels"]["own"] = OWN.into();
    if random.percent(20) {
        object["metadata"]["finalizers"] = json!(["example.com/own"]);
    }
    request.object = format!("{}/{OWN}", of.collection);
    request.path = match random.percent(85) {
        true => request.object.clone(),
        false => of.collection.clone(),
    };
    request.own = Some((of.collection.clone(), object));
    Some(())
}

/// The options in the URL.
fn options(random: &mut Random, write: Write) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut add = |name: &str, value: &str| all.push(format!("{name}={value}"));
    if write == Write::Delete {
        // For a delete of a collection.
        add("labelSelector", &format!("own%3D{OWN}"));
    } else {
        add("dryRun", "All");
    }
    if random.percent(65) {
        let some = ["Strict", "Strict", "Warn", "Warn", "Ignore", "Ignore", "", "strict", "x"];
        add("fieldValidation", some[random.below(some.len())]);
    }
    if random.percent(if write == Write::Apply { 92 } else { 20 }) {
        let long = "m".repeat(129);
        let some = ["m", "m", "m", "m", "other", "", "a%01b", "%C3%BC", &long];
        add("fieldManager", some[random.below(some.len())]);
    }
    if random.percent(if write == Write::Apply { 40 } else { 3 }) {
        let some = ["true", "true", "true", "false", "1", "x", ""];
        add("force", some[random.below(some.len())]);
    }
    if random.percent(3) {
        add("dryRun", ["All", "x", "", "all"][random.below(4)]);
    }
    if random.percent(2) {
        add("pretty", ["true", "x"][random.below(2)]);
    }
    if random.percent(3) {
        let some = ["gracePeriodSeconds=0", "propagationPolicy=x", "orphanDependents=true", "x=1"];
        all.push(some[random.below(some.len())].to_owned());
    }
    all.join("&")
}
