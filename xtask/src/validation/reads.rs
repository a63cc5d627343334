//! `cargo xtask reads`: sends reads, watches and dry runs of deletions with drawn options to
//! Kubernetes' own kube-apiserver and to `setpoint up`, and writes how the answers differ in
//! `docs/reads.md`.
//!
//! Both servers have one object of every kind, some more ConfigMaps, and custom resources. No
//! request changes anything, none depends on another one, and the seed and its number say all of
//! it.

mod request;

use super::answer::{Class, shape};
use super::both::{Sides, both};
use super::findings::{Findings, on_numbers};
use super::objects::{self, Served};
use super::page::{self, Page};
use super::random::Random;
use super::scrub::scrub;
use crate::http::{Answer, Connection};
use crate::servers::{Layout, Programs};
use anyhow::Result;
use request::{REVISION, Request, TOKEN};
use serde_json::Value;
use std::fmt::Write as _;

/// The beginnings of names of objects that servers make for themselves.
const OWN_NAMES: &[&str] = &[
    "10.96.",
    "admin",
    "apiserver-",
    "catch-all",
    "cluster-admin",
    "default",
    "edit",
    "endpoint-controller",
    "exempt",
    "extension-apiserver",
    "global-default",
    "kube-",
    "kubernetes",
    "leader-election",
    "legacy-",
    "node-high",
    "probes",
    "service-accounts",
    "system-",
    "system:",
    "v1",
    "v2",
    "view",
    "workload-",
];
/// The beginnings of paths below which servers tell of themselves.
const OF_SERVER: &[&str] =
    &["/.well-known", "/healthz", "/livez", "/openapi", "/openid", "/readyz", "/version"];

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many requests.
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// The seed of the requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the request with this number, with both answers. May be repeated.
    #[arg(long)]
    request: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many connections each server has.
    #[arg(long, default_value_t = 24)]
    connections: usize,
}

/// An answer without what differs by chance.
#[derive(Debug, PartialEq)]
struct Outcome {
    code: u16,
    content_type: String,
    warnings: Vec<String>,
    /// The documents of a JSON body, or the text; nothing of YAML and of binary encodings.
    body: Value,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("reads", Layout::Apart)?;
    let all = objects::prepare(&mut servers.connect())?;
    for number in &args.request {
        let request = drawn(args.seed, *number, &all);
        println!("\nrequest {number}: {}", shown(&request));
        let (answers, class) = one(&request, &mut servers.connect())?;
        for answer in &answers {
            let body = String::from_utf8_lossy(&answer.body);
            println!("  {} {} {:?}\n{body}", answer.code, answer.content_type, answer.warnings);
        }
        println!("{class:?}");
    }
    if !args.request.is_empty() {
        return Ok(());
    }
    let findings = Findings::default();
    on_numbers(&servers, args.connections, args.requests, |number, sides| {
        let request = drawn(args.seed, number, &all);
        let (answers, class) = one(&request, sides)?;
        let difference = class.map(|class| (format!("read: {}", request.what), class));
        let is_accepted = answers[1].code < 400;
        findings.add(request.what, is_accepted, (number, shown(&request)), difference)?;
        Ok(())
    })?;
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "reads --kube-apiserver PATH --etcd PATH --requests {} --seed {}",
            args.requests, args.seed
        );
        let page = Page {
            path: "docs/reads.md",
            title: "Answers to reads",
            about: "The same requests to kube-apiserver and to `setpoint up`, which have one \
                    object of every kind: reads of objects, subresources and lists, watches of a \
                    second, dry runs of deletions, and some other paths and methods. Each has drawn \
                    options, right and odd ones: selectors, limits, tokens of pages, resource \
                    versions and how they match, tables with all columns, types of the answer. \
                    Compared are code, content type, warnings and body, without times, uids, \
                    resource versions and owners of fields.",
            unit: "requests",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

fn drawn(seed: u64, number: usize, all: &[Served]) -> Request {
    request::draw(&mut Random::new(seed, number), all)
}

/// Sends a request to both.
fn one(request: &Request, sides: &mut Sides) -> Result<([Answer; 2], Option<Class>)> {
    let answers = both(sides, |side, _| send(request, side))?;
    // Versions of etcd before 3.4.31 do not tell how far a watch is.
    let original = String::from_utf8_lossy(&answers[1].body);
    let is_behind = ["RequestWatchProgress is disabled", "Too large resource version"];
    if is_behind.iter().any(|text| original.contains(text)) {
        return Ok((answers, None));
    }
    let [a, b] = [outcome(request, &answers[0]), outcome(request, &answers[1])];
    Ok((answers, differs(&a, &b)))
}

fn send(request: &Request, side: &mut Connection) -> Result<Answer> {
    let mut query = String::new();
    let is_of = |what: &str| request.options.iter().any(|(_, value)| value == what);
    let mut own = [String::new(), String::new()];
    if is_of(TOKEN) || is_of(REVISION) {
        let mut of = |query: &str, name: &str| -> Result<String> {
            let answer = side.send("GET", &format!("{}?{query}", request.path), b"")?;
            let list: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            Ok(list["metadata"][name].as_str().unwrap_or_default().to_owned())
        };
        // The revision is one that caches of the server have, too.
        own = [of("limit=1", "continue")?, of("resourceVersion=0", "resourceVersion")?];
    }
    for (name, value) in &request.options {
        let value = match value.as_str() {
            TOKEN => &own[0],
            REVISION => &own[1],
            other => other,
        };
        let mark = if query.is_empty() && !request.path.contains('?') { '?' } else { '&' };
        let _ = write!(query, "{mark}{name}={}", encoded(value));
    }
    let path = format!("{}{query}", request.path);
    let body = request.body.as_bytes();
    side.send_as(request.method, &path, body, "application/json", request.accept)
}

fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                text.push(char::from(byte))
            }
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

fn outcome(request: &Request, answer: &Answer) -> Outcome {
    let content_type = answer.content_type.clone();
    let is_text = ["json", "text"].iter().any(|kind| content_type.contains(kind));
    let body = match is_text {
        true => String::from_utf8_lossy(&answer.body).into_owned(),
        false => String::new(),
    };
    let body = body.replace("k8s.io/apimachinery/pkg/apis", "pkg/apis");
    let is_own = request.what == "other" && is_of_server(&request.path);
    let mut documents: Vec<Value> = Vec::new();
    if content_type.contains("json") {
        documents.extend(
            serde_json::Deserializer::from_str(&body).into_iter::<Value>().map_while(Result::ok),
        );
    }
    let body = match documents.is_empty() {
        _ if is_own && answer.code < 400 => Value::Null,
        true => body.into(),
        false => {
            documents.iter_mut().for_each(|document| {
                keep_ours(document);
                scrub(document);
            });
            documents.retain(|event| !event["object"].is_object() || is_ours(&event["object"]));
            if request.what.contains("watch") {
                // Events of the beginning come in an order by chance.
                documents.sort_by_key(|event| {
                    let name = event.pointer("/object/rows/0/object/metadata/name");
                    let name = name.or_else(|| event.pointer("/object/metadata/name"));
                    let namespace = event.pointer("/object/metadata/namespace");
                    format!("{:?} {name:?} {namespace:?}", event["type"])
                });
            }
            documents.into()
        }
    };
    let warnings = answer.warnings.clone();
    Outcome { code: answer.code, content_type, warnings, body }
}

/// Whether what is read at a path depends on what a server is made of: reports of health, paths,
/// groups, versions.
fn is_of_server(path: &str) -> bool {
    ["/", "/apis", "/apis/"].contains(&path) || OF_SERVER.iter().any(|of| path.starts_with(of))
}

/// Whether an object is not one that a server makes for itself.
fn is_ours(object: &Value) -> bool {
    let of = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let row = &object["rows"][0]["object"];
    let name = if row.is_object() { of(row) } else { of(object) };
    !OWN_NAMES.iter().any(|own| name.starts_with(own)) && !name.contains(".k8s.io")
}

/// Drops what a server makes for itself from a list or a table.
fn keep_ours(list: &mut Value) {
    for name in ["items", "rows"] {
        if let Some(items) = list.get_mut(name).and_then(Value::as_array_mut) {
            items.retain(|item| match item.get("object").filter(|_| name == "rows") {
                Some(object) if object.is_object() => is_ours(object),
                _ => is_ours(item),
            });
        }
    }
    if let Some(columns) = list.get_mut("columnDefinitions").and_then(Value::as_array_mut) {
        for column in columns.iter_mut().filter_map(Value::as_object_mut) {
            column.remove("description");
        }
    }
    let is_event = list["type"].is_string();
    if let Some(object) = list.get_mut("object").filter(|_| is_event) {
        keep_ours(object);
    }
}

fn differs(ours: &Outcome, original: &Outcome) -> Option<Class> {
    let class = |what, ours: String, original: String| Some(Class { what, ours, original });
    if ours == original {
        return None;
    }
    let message = |outcome: &Outcome| {
        let text = outcome.body[0]["message"].as_str().or(outcome.body.as_str());
        let text = text.unwrap_or_default();
        let text = if text.is_empty() { outcome.body.to_string() } else { text.to_owned() };
        format!("{} {}", outcome.code, shape(&text))
    };
    if ours.code != original.code {
        return class("code", message(ours), message(original));
    }
    if ours.content_type != original.content_type {
        return class("content type", ours.content_type.clone(), original.content_type.clone());
    }
    if ours.warnings != original.warnings {
        return class("warnings", ours.warnings.join("; "), original.warnings.join("; "));
    }
    if ours.code >= 400 && message(ours) != message(original) {
        return class("message", message(ours), message(original));
    }
    if let (Some(a), Some(b)) = (ours.body.as_str(), original.body.as_str()) {
        let at = a.lines().zip(b.lines()).find(|(a, b)| a != b);
        let (a, b) = at.unwrap_or(("the lines end", "the lines end"));
        return class("text", a.to_owned(), b.to_owned());
    }
    let order = || class("body", "order = ".into(), "order = ".into());
    Class::of_bodies(&ours.body, &original.body).or_else(order)
}

fn shown(request: &Request) -> String {
    let Request { method, path, options, accept, body, .. } = request;
    let options: Vec<String> =
        options.iter().map(|(name, value)| format!("{name}={value}")).collect();
    format!("{method} {path} {} ({accept}) {body}", options.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_a_function_of_the_seed() {
        let served = Served {
            collection: "/api/v1/namespaces/a/pods".to_owned(),
            everywhere: "/api/v1/pods".to_owned(),
            objects: vec![json!({"metadata": {"name": "p"}})],
            subresources: vec!["status"],
        };
        let drawn = |seed| {
            let requests = (0..50).map(|number| drawn(seed, number, std::slice::from_ref(&served)));
            requests.map(|request| shown(&request)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn what_differs_by_chance_is_no_difference() {
        let of = |uid: &str, age: &str, own: &str| {
            let object = json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": age}});
            let list = json!({
                "items": [{"metadata": {"name": own}}, object],
                "rows": [{"cells": ["a", age, format!("x={uid}")], "object": object}],
            });
            let mut list = list;
            keep_ours(&mut list);
            scrub(&mut list);
            list
        };
        let uids = ["11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"];
        let one = of(uids[0], "5s", "kube-a");
        assert_eq!(one, of(uids[1], "2m3s", "system:b"));
        assert_eq!(one["items"].as_array().map(Vec::len), Some(1));
        assert_ne!(one, of(uids[1], "5s", "b"));
    }
}
