//! `cargo xtask bodies`: sends writes with odd bodies, types and options to Kubernetes' own
//! kube-apiserver and to `setpoint up`, and writes how the answers differ in `docs/bodies.md`.
//!
//! `validation` changes objects within what JSON can say of them; here the texts themselves are
//! odd: members that are there twice, or of another type, or in another case, numbers in forms that
//! Go reads in its own way, YAML that is no JSON, damage, operations of patches that are none. All
//! but deletes are dry runs; a delete has an object of its own. No request depends on another one,
//! and the seed and its number say all of it.

mod request;
mod text;

use super::answer::Class;
use super::both::{Shown, Sides, both};
use super::findings::{Findings, on_numbers};
use super::objects::{self, Served};
use super::page::{self, Page};
use super::random::Random;
use super::scrub::without_chance_in_items;
use crate::http::{Answer, Connection};
use crate::servers::{Layout, Programs};
use anyhow::{Context, Result};
use request::{OWN, Request, UID, VERSION};
use serde_json::{Value, json};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many requests.
    #[arg(long, default_value_t = 50_000)]
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
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("bodies", Layout::Apart)?;
    let mut all = objects::prepare(&mut servers.connect())?;
    // This version shows as annotations what it lacks, there.
    all.retain(|one| !one.collection.contains("/autoscaling/v1/"));
    for number in &args.request {
        let request = drawn(args.seed, *number, &all)?;
        println!("\nrequest {number}: {}", shown(&request));
        let (answers, class) = one(&request, *number, &mut servers.connect())?;
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
        let request = drawn(args.seed, number, &all)?;
        let (answers, class) = one(&request, number, sides)?;
        let difference = class.map(|class| (format!("body: {}", request.what), class));
        let is_accepted = answers[1].code < 400;
        findings.add(request.verb, is_accepted, (number, shown(&request)), difference)?;
        Ok(())
    })?;
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if !args.no_page && args.programs.is_default() {
        let command = format!(
            "bodies --kube-apiserver PATH --etcd PATH --requests {} --seed {}",
            args.requests, args.seed
        );
        let page = Page {
            path: "docs/bodies.md",
            title: "Answers to odd bodies",
            about: "The same requests to kube-apiserver and to `setpoint up`, which have one \
                    object of every kind and some custom resources: creates, updates, patches of \
                    each form and deletes, of objects and subresources. A body is a right one with \
                    up to three changes of its text: values of another type, members that are \
                    there twice, in another order or in another case, unknown ones, odd numbers, \
                    other versions and kinds, YAML that is no JSON, damage; with drawn types of the \
                    body and of the answer, and drawn options. Compared are code, reason, details, \
                    causes, message, warnings, and the object with `managedFields`, without times, \
                    uids and resource versions.",
            unit: "requests",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

fn drawn(seed: u64, number: usize, all: &[Served]) -> Result<Request> {
    request::draw(&mut Random::new(seed, number), all).context("no kind has objects")
}

/// Sends a request to both.
fn one(
    request: &Request,
    number: usize,
    sides: &mut Sides,
) -> Result<([Answer; 2], Option<Class>)> {
    let own = format!("own-{number}");
    let answers = both(sides, |side, _| {
        if let Some((collection, object)) = &request.own {
            side.send("POST", collection, object.to_string().replace(OWN, &own).as_bytes())?;
        }
        let answer = send(request, &own, side)?;
        if request.own.is_some() {
            let path = request.object.replace(OWN, &own);
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            side.send("PATCH", &path, free.as_bytes())?;
            side.send("DELETE", &path, br#"{"gracePeriodSeconds":0}"#)?;
        }
        Ok(answer)
    })?;
    let asked = serde_json::from_str(&request.body).unwrap_or_else(|_| lines(&request.body));
    let class = differs(&asked, &answers);
    Ok((answers, class))
}

fn send(request: &Request, own: &str, side: &mut Connection) -> Result<Answer> {
    let mut body = request.body.replace(OWN, own);
    let mut own_texts = Vec::new();
    if body.contains(VERSION) || body.contains(UID) {
        let answer = side.send("GET", &request.object.replace(OWN, own), b"")?;
        let object: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        for (mark, name) in [(VERSION, "resourceVersion"), (UID, "uid")] {
            let own = object["metadata"][name].as_str().unwrap_or_default().to_owned();
            body = body.replace(mark, &own);
            own_texts.extend((!own.is_empty()).then_some((mark, own)));
        }
    }
    let path = request.path.replace(OWN, own);
    let (sent, accepted) = (request.content_type, request.accept);
    let mut answer = side.send_as(request.method, &path, body.as_bytes(), sent, accepted)?;
    if answer.code >= 400 && !own_texts.is_empty() {
        // Errors show the body.
        let mut text = String::from_utf8_lossy(&answer.body).into_owned();
        for (mark, own) in &own_texts {
            for quote in ["\"", "\\\"", "\\\\\\\""] {
                text =
                    text.replace(&format!("{quote}{own}{quote}"), &format!("{quote}{mark}{quote}"));
            }
        }
        answer.body = text.into_bytes();
    }
    Ok(answer)
}

fn differs(asked: &Value, answers: &[Answer; 2]) -> Option<Class> {
    let class = |what, ours: String, original: String| Some(Class { what, ours, original });
    let shown = Shown::of(answers.clone().map(without_chance_in_items), asked, None);
    if let Some(class) = shown.differs() {
        return Some(class);
    }
    let [a, b] = answers;
    if a.content_type != b.content_type {
        return class("content type", a.content_type.clone(), b.content_type.clone());
    }
    let details = |answer: &Answer| {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let details = body["details"].as_object().cloned().unwrap_or_default();
        let of = |name: &str| details.get(name).map(Value::to_string).unwrap_or_default();
        format!("{} {} {}", of("group"), of("kind"), of("retryAfterSeconds"))
    };
    if a.code >= 400 && details(a) != details(b) {
        return class("details", details(a), details(b));
    }
    None
}

/// The members of a YAML body whose lines are in JSON.
fn lines(body: &str) -> Value {
    let member = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
    };
    body.lines().filter_map(member).collect::<serde_json::Map<_, _>>().into()
}

fn shown(request: &Request) -> String {
    let Request { method, path, content_type, accept, body, .. } = request;
    format!("{method} {path} ({content_type}, {accept}) {body}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_a_function_of_the_seed() {
        let served = |name: &str| Served {
            collection: format!("/api/v1/namespaces/a/{name}"),
            everywhere: format!("/api/v1/{name}"),
            objects: vec![json!({"metadata": {"name": "p"}, "spec": {"a": [1, "b"]}})],
            subresources: vec!["status"],
        };
        let all = ["configmaps", "secrets", "shapes", "deployments", "pods"].map(served);
        let drawn = |seed| {
            let requests = (0..200).map(|number| drawn(seed, number, &all));
            requests.map(|request| shown(&request.unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
