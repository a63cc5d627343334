//! Patches of generated objects, here and with Kubernetes' own libraries.
//!
//! `cargo xtask patches --kubernetes SOURCE` runs it and writes the result to `docs/patches.md`.
//! [`KNOWN`](known::KNOWN) lists the differences that stay and why; the run fails at any other.

mod documents;
mod kinds;
mod known;
mod page;
mod random;
mod story;
mod typed;

use kinds::{DEFINITION, Kind};
use random::Random;
use serde::Deserialize;
use serde_json::{Value, json};
use setpoint_object::ApiError;
use setpoint_schema::{decode, patch};
use std::io::{BufRead, BufReader, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, Stdio};
use typed::{Taste, Typed};

/// The four ways of patching.
const WAYS: [&str; 4] = ["json", "merge", "strategic", "ownership"];

/// What came of a case, or of a step of a story.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Answer {
    object: Option<Value>,
    /// Of the error; 0 without one.
    code: u16,
    message: String,
    causes: Vec<String>,
    warnings: Vec<String>,
    /// The error that a webhook's JSON patch has.
    text: String,
    panic: String,
    steps: Vec<Answer>,
    /// Other answers of the original to the same question.
    others: Vec<Answer>,
}

impl Answer {
    fn failed(error: &ApiError) -> Self {
        let causes = error.0.details.iter().flat_map(|details| &details.causes);
        Self {
            code: error.code(),
            message: error.0.message.clone(),
            causes: causes.map(|cause| format!("{} @ {}", cause.message, cause.field)).collect(),
            ..Self::default()
        }
    }
}

/// One difference.
#[derive(Debug)]
struct Difference {
    way: &'static str,
    /// What differs first.
    part: &'static str,
    /// The number of the case.
    case: usize,
    /// The original answers the question in several ways.
    is_unsteady: bool,
    question: Value,
    ours: Answer,
    theirs: Answer,
}

#[test]
#[ignore = "a chore, cargo xtask patches: needs a program of Kubernetes' source"]
fn patches_are_as_in_the_original() {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (cases, seed) = (number("PATCHES_CASES", 100_000_usize), number("PATCHES_SEED", 1));
    let only = std::env::var("PATCHES_WAY").ok();
    let kinds = Kind::all();
    let mut report = page::Report::default();
    for way in WAYS.into_iter().filter(|way| only.as_ref().is_none_or(|only| only == way)) {
        run(way, cases, seed as u64, &kinds, &mut report);
    }
    report.finish(seed, cases);
}

fn run(way: &'static str, cases: usize, seed: u64, kinds: &[Kind], report: &mut page::Report) {
    let program = std::env::var_os("PATCHES_PROGRAM").expect("PATCHES_PROGRAM is set");
    let documents = std::env::var_os("PATCHES_OPEN_API").expect("PATCHES_OPEN_API is set");
    let documents: Vec<_> = std::env::split_paths(&documents).collect();
    let definition: Value = serde_json::from_str(DEFINITION).expect("the definition is JSON");
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the program");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let answers = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
    let mut n_answers = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let header = json!({"openapi": documents, "definition": definition});
            writeln!(stdin, "{header}").expect("write the header");
            for case in 0..cases {
                writeln!(stdin, "{}", question(way, seed, case, kinds)).expect("write a case");
            }
        });
        for (case, answer) in answers.enumerate() {
            let mut theirs: Answer =
                serde_json::from_str(&answer.expect("read an answer")).expect("an answer");
            let mut others = std::mem::take(&mut theirs.others);
            for answer in std::iter::once(&mut theirs).chain(&mut others) {
                answer.object = answer.object.as_ref().map(read);
            }
            let question = question(way, seed, case, kinds);
            let ours = panic::catch_unwind(AssertUnwindSafe(|| ours(&question, kinds)))
                .unwrap_or_else(|_| Answer { panic: "here".to_owned(), ..Answer::default() });
            let is_unsteady = !others.is_empty();
            report.count(way, &theirs, is_unsteady);
            // Of several answers, one is as good as the other.
            if others.iter().any(|other| differs(&ours, other).is_none()) {
                theirs = ours.clone();
            }
            if let Some(part) = differs(&ours, &theirs) {
                report.add(Difference { way, part, case, is_unsteady, question, ours, theirs });
            }
            n_answers += 1;
        }
    });
    assert!(child.wait().expect("wait for the program").success());
    assert_eq!(n_answers, cases, "the program answers each case");
}

/// A document as a request's body is read: whole numbers are integers.
fn read(document: &Value) -> Value {
    let text = document.to_string();
    decode::parse(text.as_bytes(), decode::Format::Json).expect("the document is JSON").value
}

/// The case with a number.
fn question(way: &str, seed: u64, case: usize, kinds: &[Kind]) -> Value {
    let mut random = Random::of_case(seed, case);
    let random = &mut random;
    match way {
        "json" => {
            let object = read(&documents::document(random));
            let patch = documents::json_patch(random, &object);
            json!({"way": way, "object": object, "patch": patch})
        }
        "merge" => {
            let object = read(&documents::document(random));
            let patch = documents::merge_patch(random, &object);
            json!({"way": way, "object": object, "patch": patch})
        }
        "strategic" => {
            let kind = &kinds[random.below(kinds.len() - 1)];
            let mut object = Typed { random, taste: Taste::Fitting }.value(kind.schema.view(), 600);
            object["apiVersion"] = json!(kind.api_version);
            object["kind"] = json!(kind.name);
            assert!(kind.conform(&mut object, &mut Vec::new()), "{object}");
            let patch = if random.chance(5) {
                random.of(&["null", "[]", "1", "", "{", "{\"a\":1,\"a\":2}"]).to_owned()
            } else {
                let view = kind.schema.view();
                Typed { random, taste: Taste::Odd }.patch(view, Some(&object), 550).to_string()
            };
            json!({"way": way, "kind": kind.name, "object": object, "patch": patch})
        }
        _ => {
            let kind = &kinds[random.below(kinds.len())];
            json!({"way": way, "kind": kind.name, "steps": story::story(random, kind)})
        }
    }
}

fn ours(question: &Value, kinds: &[Kind]) -> Answer {
    let text = |name: &str| question[name].as_str().unwrap_or_default();
    let kind = || kinds.iter().find(|kind| kind.name == text("kind")).expect("a kind of the cases");
    let way = text("way");
    match way {
        "json" | "merge" => document(way, &question["object"], text("patch")),
        "strategic" => kind().strategic(&question["object"], text("patch")),
        _ => kind().story(question["steps"].as_array().map_or(&[], Vec::as_slice)),
    }
}

fn document(way: &str, object: &Value, text: &str) -> Answer {
    let (mut object, before, mut problems) = (object.clone(), object, Vec::new());
    let done = match way {
        "json" => patch::json_patch(&mut object, text.as_bytes(), &mut problems),
        _ => patch::merge_patch(&mut object, text.as_bytes(), &mut problems),
    };
    let Err(error) = done else {
        return Answer { object: Some(object), warnings: problems, ..Answer::default() };
    };
    let mut answer = Answer::failed(&error);
    if way == "json" {
        let mut object = before.clone();
        let done = patch::operations(text.as_bytes())
            .and_then(|operations| patch::apply_operations(&mut object, operations));
        answer.text = done.err().unwrap_or_default();
    }
    answer
}

/// What differs first.
fn differs(ours: &Answer, theirs: &Answer) -> Option<&'static str> {
    if !ours.panic.is_empty() {
        return Some("panic here");
    }
    if !theirs.panic.is_empty() {
        return Some("panic");
    }
    if ours.steps.len() != theirs.steps.len() {
        return Some("steps");
    }
    for (ours, theirs) in ours.steps.iter().zip(&theirs.steps) {
        if let Some(part) = differs(ours, theirs) {
            return Some(part);
        }
    }
    let object = |answer: &Answer| answer.object.as_ref().map(without_entries);
    let sorted = |texts: &[String]| {
        let mut texts: Vec<String> = texts.iter().map(|text| unquoted(text)).collect();
        texts.sort();
        texts
    };
    let parts: [(&'static str, bool); 7] = [
        ("code", ours.code != theirs.code),
        ("message", unquoted(&ours.message) != unquoted(&theirs.message)),
        ("causes", sorted(&ours.causes) != sorted(&theirs.causes)),
        ("object", object(ours) != object(theirs)),
        ("managed fields", entries(ours) != entries(theirs)),
        ("warnings", ours.warnings != theirs.warnings),
        ("text", ours.text != theirs.text),
    ];
    parts.into_iter().find(|(_, differs)| *differs).map(|(part, _)| part)
}

/// A text without what is by chance in it. Of a strategic merge patch, the original shows what its
/// merge has left.
fn unquoted(text: &str) -> String {
    match (text.find("\"map["), text.rfind("]\": ")) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &text[..from], &text[to + 1..]),
        // Of several errors each is in a line; Go walks maps in an order by chance.
        _ if text.contains(": errors:\n") => {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        }
        _ => text.to_owned(),
    }
}

fn without_entries(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    object
}

/// The entries without their times, in one order.
fn entries(answer: &Answer) -> Vec<String> {
    let entries = answer.object.as_ref().and_then(|o| o.pointer("/metadata/managedFields"));
    let mut all: Vec<String> = entries
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|entry| {
            let mut entry = entry.clone();
            entry["time"] = json!(entry.get("time").is_some());
            entry.to_string()
        })
        .collect();
    all.sort();
    all
}
