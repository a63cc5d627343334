//! Users of the plain port, and how long they wait.

use crate::raw;
use crate::server::{PATIENCE, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Number of writers at a time.
pub(super) const WRITERS: usize = 16;

/// An answer: its code (0: none), its body, how long it took.
pub(super) struct Answered {
    pub(super) code: u16,
    pub(super) body: Value,
    pub(super) took: Duration,
}

impl Answered {
    /// `code message`.
    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.code, self.body["message"].as_str().unwrap_or("ok"))
    }
}

pub(super) fn ask(server: &Server, method: &str, path: &str, body: &Value) -> Answered {
    let kind = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{bytes}",
        bytes.len()
    );
    let started = Instant::now();
    let answer = raw::try_exchange(&server.plain, request.as_bytes());
    let took = started.elapsed();
    let Ok(answer) = answer else { return Answered { code: 0, body: Value::Null, took } };
    let body = serde_json::from_str(&answer.body).unwrap_or_default();
    Answered { code: answer.code, body, took }
}

#[track_caller]
pub(super) fn create(server: &Server, path: &str, object: &Value) -> Value {
    let answer = ask(server, "POST", path, object);
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

/// Repeats a request until its answer is as wanted.
#[track_caller]
pub(super) fn until(
    server: &Server,
    method: &str,
    path: &str,
    body: &Value,
    is_wanted: impl Fn(&Answered) -> bool,
) -> Answered {
    let started = Instant::now();
    loop {
        let answer = ask(server, method, path, body);
        if is_wanted(&answer) {
            return answer;
        }
        assert!(started.elapsed() < PATIENCE, "{method} {path}: {}", answer.shown());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// An object with a name and some data.
pub(super) fn object(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": {"x": "eA=="}})
}

/// The objects of a collection that writers have made.
pub(super) fn stored(server: &Server, path: &str) -> Vec<Value> {
    let list = ask(server, "GET", path, &Value::Null);
    assert_eq!(list.code, 200, "{}", list.body);
    let is_of_writer = |object: &&Value| name(object).starts_with("w-");
    list.body["items"].as_array().unwrap().iter().filter(is_of_writer).cloned().collect()
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// Runs [`WRITERS`] threads that create objects until `meanwhile` ends or the server does. Returns
/// each name with its answer.
pub(super) fn write_while(
    server: &Server,
    path: &str,
    (kind, series): (&str, &str),
    meanwhile: impl FnOnce(),
) -> Vec<(String, Answered)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = |writer: usize| {
            let stop = &stop;
            move || {
                let mut answers = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("w-{series}-{writer}-{}", answers.len());
                    let answer = ask(server, "POST", path, &object(kind, &name));
                    let is_gone = answer.code == 0;
                    answers.push((name, answer));
                    if is_gone {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                answers
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(writer(n))).collect();
        meanwhile();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}
