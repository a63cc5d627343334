//! One object, written and read by both servers in turn.

use super::{Clients, NAMES, PATIENCE_ROUNDS, Subject, eventually, text};
use crate::http::Connection;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

/// The type of answers in protobuf.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// What `DELETED` begins with.
const DELETED: &[u8] = b"{\"type\":\"DELETED\"";
/// The most differences of an object that are kept.
const PROBLEMS_MAX: usize = 8;

/// How a value is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) api_version: String,
    pub(super) encoding: &'static str,
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {}", self.encoding, self.api_version, self.key)
    }
}

/// What was seen of an object.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) title: String,
    /// As each server stores it, in the order of [`NAMES`].
    pub(super) stored: [Stored; 2],
    pub(super) problems: Vec<String>,
}

impl Row {
    fn say(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_MAX && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }
}

/// A watch that has begun, and its events.
#[derive(Debug, Default)]
struct Seen {
    has_begun: bool,
    events: Vec<Vec<u8>>,
}
type Watch = Arc<Mutex<Seen>>;

/// Compares an object in both directions.
pub(super) fn compare(clients: &mut Clients, subject: &Subject) -> Result<Row> {
    let mut row =
        Row { title: subject.title.clone(), stored: Default::default(), problems: Vec::new() };
    for writer in [0, 1] {
        one_way(clients, subject, writer, &mut row)?;
    }
    if row.stored[0] != row.stored[1] {
        let [original, ours] = &row.stored;
        row.say(format!("stored as {original}, by setpoint as {ours}"));
    }
    Ok(row)
}

fn one_way(clients: &mut Clients, subject: &Subject, writer: usize, row: &mut Row) -> Result<()> {
    let reader = 1 - writer;
    let way = format!("created by {}", NAMES[writer]);
    let watches = [watch(clients, 0, subject)?, watch(clients, 1, subject)?];
    let (code, created) = clients.json(writer, "POST", &subject.collection, &subject.object)?;
    if code != 201 {
        row.say(format!("{way}: {code} {}", created["message"].as_str().unwrap_or_default()));
        return Ok(());
    }
    row.stored[writer] = stored(clients, &created)?;
    let path = subject.path();
    same(clients, &path, JSON, &format!("{way}, GET"), row)?;
    same(clients, &path, PROTOBUF, &format!("{way}, GET in protobuf"), row)?;
    same(clients, &subject.collection, JSON, &format!("{way}, LIST"), row)?;
    if subject.has_scale {
        same(clients, &format!("{path}/scale"), JSON, &format!("{way}, scale"), row)?;
    }
    for other in &subject.others {
        let path = format!("{other}/{}", subject.name());
        same(clients, &path, JSON, &format!("{way}, GET {other}"), row)?;
    }
    change(clients, subject, writer, &way, row)?;
    // One gives it a finalizer, the other deletes it.
    let finalizer = json!({"metadata": {"finalizers": ["example.com/shared"]}});
    let answer = patch(clients, reader, &path, MERGE, &finalizer)?;
    if answer.code != 200 {
        row.say(format!("{way}, a finalizer by {}: {}", NAMES[reader], text(&answer)));
    }
    let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let (code, _) = clients.json(writer, "DELETE", &path, &options)?;
    if code != 200 && code != 202 {
        row.say(format!("{way}, DELETE by {}: {code}", NAMES[writer]));
    }
    same(clients, &path, JSON, &format!("{way}, terminating"), row)?;
    if subject.object["kind"] == "Namespace" {
        let (_, mut namespace) = clients.json(reader, "GET", &path, &Value::Null)?;
        namespace["spec"] = json!({"finalizers": []});
        clients.json(reader, "PUT", &format!("{path}/finalize"), &namespace)?;
    }
    let none = json!({"metadata": {"finalizers": null}});
    let answer = patch(clients, reader, &path, MERGE, &none)?;
    if answer.code != 200 {
        row.say(format!("{way}, without a finalizer by {}: {}", NAMES[reader], text(&answer)));
    }
    let gone = eventually(|| {
        let codes = [
            clients.json(0, "GET", &path, &Value::Null)?.0,
            clients.json(1, "GET", &path, &Value::Null)?.0,
        ];
        Ok((codes == [404, 404]).then_some(()))
    })?;
    if gone.is_none() {
        row.say(format!("{way}: it is not deleted at both"));
        clients.etcd_delete(&row.stored[writer].key)?;
    }
    seen(&watches, &way, row)
}

/// Updates, patches and applies by both, in turn.
fn change(
    clients: &mut Clients,
    subject: &Subject,
    writer: usize,
    way: &str,
    row: &mut Row,
) -> Result<()> {
    let (reader, path) = (1 - writer, subject.path());
    let api_version = &subject.object["apiVersion"];
    for (at, (server, verb)) in [
        (reader, "PUT"),
        (writer, "PUT"),
        (reader, "PATCH"),
        (writer, "PATCH"),
        (writer, "status"),
        (reader, "status"),
        (writer, "apply"),
        (reader, "apply"),
    ]
    .into_iter()
    .enumerate()
    {
        let step = format!("{way}, {verb} by {}", NAMES[server]);
        // Controllers of the servers may write, too.
        let mut answer = None;
        for _ in 0..PATIENCE_ROUNDS {
            let sent = match verb {
                "PUT" | "status" => {
                    let (_, mut object) = clients.json(server, "GET", &path, &Value::Null)?;
                    let place = match verb {
                        "PUT" => {
                            object["metadata"]["labels"][format!("step-{at}")] = "x".into();
                            path.clone()
                        }
                        _ if subject.has_status => {
                            object["status"] = subject.object["status"].clone();
                            format!("{path}/status")
                        }
                        _ => break,
                    };
                    clients.servers[server].send("PUT", &place, object.to_string().as_bytes())?
                }
                "PATCH" => {
                    let body = json!({"metadata": {"annotations": {format!("step-{at}"): "x"}}});
                    patch(clients, server, &path, MERGE, &body)?
                }
                _ => {
                    let body = json!({
                        "apiVersion": api_version, "kind": subject.object["kind"],
                        "metadata": {
                            "name": subject.name(), "labels": {format!("applied-{at}"): "x"},
                        },
                    });
                    let path = format!("{path}?fieldManager=m{at}");
                    patch(clients, server, &path, APPLY, &body)?
                }
            };
            let is_conflict = sent.code == 409;
            answer = Some(sent);
            if !is_conflict {
                break;
            }
        }
        let Some(answer) = answer else { continue };
        if answer.code != 200 {
            row.say(format!("{step}: {}", text(&answer)));
            continue;
        }
        same(clients, &path, JSON, &step, row)?;
        same(clients, &path, PROTOBUF, &format!("{step}, in protobuf"), row)?;
    }
    Ok(())
}

fn patch(
    clients: &mut Clients,
    server: usize,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<crate::http::Answer> {
    clients.servers[server].send_as("PATCH", path, body.to_string().as_bytes(), kind, JSON)
}

/// Compares the answers to a GET, or to a LIST without its revision. Answers that were made while
/// something changed are asked for again.
fn same(
    clients: &mut Clients,
    path: &str,
    accepted: &str,
    what: &str,
    row: &mut Row,
) -> Result<()> {
    let mut difference = None;
    for _ in 0..5 {
        let mut answers = Vec::new();
        for server in &mut clients.servers {
            answers.push(server.send_as("GET", path, b"", JSON, accepted)?);
        }
        difference = differ([&answers[0], &answers[1]], accepted);
        if difference.is_none() {
            return Ok(());
        }
        super::pause(super::ROUND);
    }
    if let Some(difference) = difference {
        row.say(format!("{what}: {difference}"));
    }
    Ok(())
}

fn differ([original, ours]: [&crate::http::Answer; 2], accepted: &str) -> Option<String> {
    if original.code != ours.code {
        return Some(format!("{} and {}", text(original), text(ours)));
    }
    if original.code != 200 || original.body == ours.body {
        return None;
    }
    if accepted == PROTOBUF {
        return Some(format!("{} and {} bytes differ", original.body.len(), ours.body.len()));
    }
    let parsed = |body: &[u8]| -> Value {
        let mut value: Value = serde_json::from_slice(body).unwrap_or_default();
        if value.get("items").is_some() {
            value["metadata"] = Value::Null;
        }
        value
    };
    let (original_value, ours_value) = (parsed(&original.body), parsed(&ours.body));
    let is_list = original_value.get("items").is_some();
    match members(&original_value, &ours_value, "") {
        None if is_list => None,
        None => Some("the order of members differs".to_owned()),
        different => different,
    }
}

/// The first members that differ.
fn members(original: &Value, ours: &Value, path: &str) -> Option<String> {
    let show = |value: Option<&Value>| {
        value.map_or("-".to_owned(), |value| value.to_string().chars().take(80).collect())
    };
    match (original, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            names.into_iter().find_map(|name| match (a.get(name), b.get(name)) {
                (Some(a), Some(b)) => members(a, b, &format!("{path}.{name}")),
                (a, b) => Some(format!("{path}.{name}: {} and {}", show(a), show(b))),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.into_iter().find_map(|(i, (a, b))| members(a, b, &format!("{path}[{i}]")))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: {} and {}", show(Some(a)), show(Some(b)))),
    }
}

/// Opens a watch that collects its events for some seconds, and waits until it has begun.
fn watch(clients: &Clients, server: usize, subject: &Subject) -> Result<Watch> {
    let watch = Watch::default();
    let connection = Connection::new(&clients.addresses[server]);
    let name = subject.name().replace(':', "%3A");
    let path = format!(
        "{}?watch=1&resourceVersion=0&timeoutSeconds=20&fieldSelector=metadata.name%3D{name}",
        subject.collection
    );
    let collected = watch.clone();
    // Ends with the watch. What it has not seen then is missing.
    std::thread::spawn(move || {
        let collect = |line: Option<&[u8]>| {
            if let Ok(mut seen) = collected.lock() {
                seen.has_begun = true;
                seen.events.extend(line.map(<[u8]>::to_vec));
            }
        };
        let _ = connection.lines(&path, collect);
    });
    eventually(|| Ok(watch.lock().is_ok_and(|seen| seen.has_begun).then_some(())))?;
    Ok(watch)
}

/// Waits until both watches have seen the end, and compares them.
fn seen(watches: &[Watch; 2], way: &str, row: &mut Row) -> Result<()> {
    let events =
        |at: usize| watches[at].lock().map_or_else(|_| Vec::new(), |seen| seen.events.clone());
    let ended = eventually(|| {
        let has_ended = |at: usize| events(at).last().is_some_and(|last| last.starts_with(DELETED));
        Ok((has_ended(0) && has_ended(1)).then_some(()))
    })?;
    let both = [events(0), events(1)];
    if ended.is_none() {
        row.say(format!("{way}, WATCH: {} and {} events", both[0].len(), both[1].len()));
        return Ok(());
    }
    if both[0].len() != both[1].len() {
        row.say(format!("{way}, WATCH: {} and {} events", both[0].len(), both[1].len()));
    }
    for (original, ours) in both[0].iter().zip(&both[1]) {
        if original == ours {
            continue;
        }
        let parsed = |event: &[u8]| serde_json::from_slice::<Value>(event).unwrap_or_default();
        let difference = members(&parsed(original), &parsed(ours), "");
        let difference = difference.unwrap_or_else(|| "the order of members differs".to_owned());
        row.say(format!("{way}, WATCH: {difference}"));
        break;
    }
    Ok(())
}

/// Reads from etcd what was created.
fn stored(clients: &mut Clients, created: &Value) -> Result<Stored> {
    let revision = &created["metadata"]["resourceVersion"];
    let more = json!({"min_create_revision": revision, "max_create_revision": revision});
    let found = clients.range("/registry/", "/registry0", &more)?;
    let name = created["metadata"]["name"].as_str().unwrap_or_default();
    // A Service is created with its addresses.
    let is_its = |key: &str| key.ends_with(&format!("/{name}"));
    let Some((key, value)) = found.into_iter().find(|(key, _)| is_its(key)) else {
        return Ok(Stored::default());
    };
    let Some(envelope) = value.strip_prefix(b"k8s\0") else {
        let object: Value = serde_json::from_slice(&value).unwrap_or_default();
        let api_version = object["apiVersion"].as_str().unwrap_or("?").to_owned();
        return Ok(Stored { key, api_version, encoding: "JSON" });
    };
    // Unknown { typeMeta = 1 { apiVersion = 1 } }: short texts.
    let length = usize::from(*envelope.get(3).unwrap_or(&0));
    let api_version = envelope.get(4..4 + length).unwrap_or_default();
    let api_version = String::from_utf8_lossy(api_version).into_owned();
    Ok(Stored { key, api_version, encoding: "protobuf" })
}
