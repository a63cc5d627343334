//! What two servers' answers have in common, and where they differ.

use super::chance::{
    UID_LEN, clean, generated, hide_name, is_made, normalize, without_addresses, without_chance,
    without_port, without_times, without_uids,
};
use crate::http::Answer;
use serde_json::Value;
use std::collections::BTreeSet;

/// An answer without what differs by chance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    code: u16,
    reason: String,
    message: String,
    causes: Vec<Cause>,
    warnings: Vec<String>,
    /// The object, if the request was accepted.
    object: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cause {
    field: String,
    reason: String,
    message: String,
}

/// How answers differ: the name of a class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) what: &'static str,
    pub(super) ours: String,
    pub(super) original: String,
}

impl Class {
    /// How two bodies differ first, in places without their numbers. `None`: they do not.
    pub(super) fn of_bodies(ours: &Value, original: &Value) -> Option<Self> {
        let (path, a, b) = first(ours, original, String::new())?;
        let path: String = path.chars().filter(|c| !c.is_ascii_digit()).collect();
        let (ours, original) = (format!("{path} = {a}"), format!("{path} = {b}"));
        Some(Self { what: "body", ours, original })
    }
}

impl Outcome {
    /// Reads the answer to a request with a body. `stored`: the object that it updates.
    pub(super) fn of(answer: &Answer, request: &Value, stored: Option<&Value>) -> Self {
        Self::read(answer, request, stored, false)
    }

    /// The same with the owners of the object's fields.
    pub(super) fn whole(answer: &Answer, request: &Value, stored: Option<&Value>) -> Self {
        Self::read(answer, request, stored, true)
    }

    fn read(answer: &Answer, request: &Value, stored: Option<&Value>, is_whole: bool) -> Self {
        let body = String::from_utf8_lossy(&answer.body);
        let body = without_addresses(&body, &request.to_string());
        let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
        let warnings = answer.warnings.iter().map(|header| warning(header)).collect();
        let mut outcome = Self { code: answer.code, warnings, ..Self::default() };
        if answer.code < 400 {
            let of = |member: &str| body["metadata"][member].as_str().map(str::to_owned);
            let (uid, name) = (of("uid"), of("name"));
            // Kinds put a made name elsewhere, too: into labels of Jobs.
            if let Some(name) = name.filter(|name| is_made(request, name)) {
                hide_name(&mut body, &name);
            }
            if let Some(uid) = uid {
                clean(&mut body, &uid, &request.to_string());
            }
            let owners = body.pointer_mut("/metadata/managedFields").map(Value::take);
            normalize(&mut body, request);
            if let Some(owners) = owners.filter(|_| is_whole) {
                body["metadata"]["managedFields"] = without_times(owners);
            }
            outcome.object = body;
            return outcome;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        outcome.reason = text(&body["reason"]);
        outcome.message = text(&body["message"]);
        if outcome.message.contains("ResourceVersion in record") {
            outcome.message = shape(&outcome.message);
        }
        if let Some(prefix) = generated(request) {
            outcome.message = without_chance(&outcome.message, &prefix);
        }
        let name = text(&body["details"]["name"]);
        if generated(request).is_none() && is_made(request, &name) {
            outcome.message = outcome.message.replace(&name, "*****");
        }
        // A shorter one is no uid, and may be part of a word.
        let objects = [Some(request), stored].into_iter().flatten();
        let mut uids = objects.map(|object| text(&object["metadata"]["uid"]));
        let uid = uids.find(|uid| uid.len() == UID_LEN).unwrap_or_default();
        if !uid.is_empty() {
            outcome.message = outcome.message.replace(&uid, "UID");
        }
        outcome.message = without_uids(&outcome.message, &request.to_string());
        for cause in body["details"]["causes"].as_array().into_iter().flatten() {
            let mut message = text(&cause["message"]);
            let field = text(&cause["field"]);
            if !uid.is_empty() {
                message = message.replace(&uid, "UID");
            }
            if let Some(prefix) = generated(request) {
                message = without_chance(&message, &prefix);
            }
            if let Some((first, _)) = message.split_once("\n") {
                // The difference of two structs, in Go's syntax.
                message = first.trim_end().to_owned();
                outcome.message.clear();
            }
            if field.ends_with(".nodePort") {
                let shown = without_port(&message, &request.to_string());
                outcome.message = outcome.message.replace(&message, &shown);
                message = shown;
            }
            if field == "patch" {
                // The whole object as a text, with its uid.
                message = shape(&message);
                outcome.message.clear();
            }
            outcome.causes.push(Cause { field, reason: text(&cause["reason"]), message });
        }
        outcome
    }

    pub(super) fn is_accepted(&self) -> bool {
        self.code < 400
    }

    /// The first difference.
    pub(super) fn differs(&self, original: &Self) -> Option<Class> {
        let class = |what, ours: String, original: String| Some(Class { what, ours, original });
        if self == original {
            return None;
        }
        if self.code >= 500 || original.code >= 500 {
            return class("server error", self.summary(), original.summary());
        }
        match (self.is_accepted(), original.is_accepted()) {
            (true, false) => return class("accepted here", "accepted".into(), original.summary()),
            (false, true) => return class("refused here", self.summary(), "accepted".into()),
            _ => {}
        }
        if (self.code, &self.reason) != (original.code, &original.reason) {
            return class("code", self.summary(), original.summary());
        }
        if self.causes != original.causes {
            return Some(causes(&self.causes, &original.causes));
        }
        if self.message != original.message {
            return class("message", shape(&self.message), shape(&original.message));
        }
        if self.warnings != original.warnings {
            let only = |a: &[String], b: &[String]| {
                let only = a.iter().find(|one| !b.contains(one));
                only.map_or("-".to_owned(), |one| shape(one))
            };
            let (ours, original) = (
                only(&self.warnings, &original.warnings),
                only(&original.warnings, &self.warnings),
            );
            return class("warnings", ours, original);
        }
        let (path, ours, original) = first(&self.object, &original.object, String::new())
            .unwrap_or_else(|| ("order".into(), String::new(), String::new()));
        let path = field_shape(&path);
        class("object", format!("{path} = {ours}"), format!("{path} = {original}"))
    }

    fn summary(&self) -> String {
        match self.causes.first() {
            Some(cause) if self.code == 422 => cause.shape(),
            _ => format!("{} {}", self.code, shape(&self.message)),
        }
    }
}

impl Cause {
    fn shape(&self) -> String {
        format!("{}: {}", field_shape(&self.field), shape(&self.message))
    }
}

fn causes(ours: &[Cause], original: &[Cause]) -> Class {
    let at = ours.iter().zip(original).take_while(|(a, b)| a == b).count();
    let (a, b) = (ours.get(at), original.get(at));
    let of = |cause: Option<&Cause>| cause.map_or("-".to_owned(), Cause::shape);
    match (a, b) {
        (Some(a), Some(b)) if a.field == b.field && unescaped(a) == unescaped(b) => {
            Class { what: "escapes", ours: a.shape(), original: b.shape() }
        }
        // The same causes at the same field, in another order: the field is a map.
        (Some(a), Some(b)) if a.field == b.field && at_field(ours, a) == at_field(original, b) => {
            Class { what: "map order", ours: a.shape(), original: b.shape() }
        }
        (Some(a), Some(b))
            if a.field == b.field
                && without_value(&a.message) == without_value(&b.message)
                && a.message != b.message =>
        {
            let shape = format!("{}: {}", field_shape(&a.field), without_value(&a.message));
            Class { what: "value", ours: shape.clone(), original: shape }
        }
        (Some(a), Some(b)) if a.field == b.field && a.reason == b.reason => {
            Class { what: "text", ours: a.shape(), original: b.shape() }
        }
        (_, Some(b)) if !ours.contains(b) => {
            Class { what: "missing", ours: "-".into(), original: b.shape() }
        }
        (Some(a), _) if !original.contains(a) => {
            Class { what: "extra", ours: a.shape(), original: "-".into() }
        }
        _ => Class { what: "order", ours: of(a), original: of(b) },
    }
}

/// A cause's message with the characters that JSON in Go escapes and a quoted text does not.
fn unescaped(cause: &Cause) -> String {
    let mut message = cause.message.clone();
    for (escape, plain) in
        [("\\u003c", "<"), ("\\u003e", ">"), ("\\u0026", "&"), ("\\u0000", "\\x00")]
    {
        message = message.replace(escape, plain);
    }
    message
}
/// The sorted messages of the causes at a cause's field.
fn at_field<'a>(causes: &'a [Cause], cause: &Cause) -> Vec<&'a str> {
    let here = causes.iter().filter(|other| other.field == cause.field);
    let mut messages: Vec<&str> = here.map(|other| &*other.message).collect();
    messages.sort_unstable();
    messages
}

/// A message about a struct or list, without it: from its first bracket to the last.
fn without_value(message: &str) -> String {
    let starts = |from: &str| ["{", "[", "null"].iter().any(|start| from.starts_with(start));
    let Some((head, tail)) = message.split_once("value: ").filter(|(_, tail)| starts(tail)) else {
        return message.to_owned();
    };
    let rest = match tail.rfind(['}', ']']) {
        Some(end) if !tail.starts_with("null") => tail.get(end + 1..).unwrap_or_default(),
        _ => tail.strip_prefix("null").unwrap_or_default(),
    };
    format!("{head}value: *{rest}")
}

/// The text of a header `Warning`.
fn warning(header: &str) -> String {
    let text = header.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"'));
    text.unwrap_or(header).replace("\\\"", "\"")
}

/// A path without indices and keys. Paths in templates of pods begin at the pod.
fn field_shape(path: &str) -> String {
    let mut shape = String::with_capacity(path.len());
    let mut depth = 0_usize;
    for c in path.chars() {
        match c {
            '[' => {
                depth += 1;
                if depth == 1 {
                    shape.push_str("[]");
                }
            }
            ']' => depth = depth.saturating_sub(1),
            c if depth == 0 => shape.push(c),
            _ => {}
        }
    }
    for prefix in ["spec.jobTemplate.spec.template.spec.", "spec.template.spec.", "template.spec."]
    {
        if let Some(rest) = shape.strip_prefix(prefix) {
            return format!("(pod) {rest}");
        }
    }
    shape
}

/// A message without quoted texts and numbers.
pub(super) fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                shape.push('…');
                let mut is_escaped = false;
                for c in chars.by_ref() {
                    match c {
                        '"' if !is_escaped => break,
                        c => is_escaped = c == '\\' && !is_escaped,
                    }
                }
            }
            c if c.is_ascii_digit() => {
                while chars.next_if(char::is_ascii_digit).is_some() {}
                shape.push('N');
            }
            '\n' => shape.push(' '),
            c => shape.push(c),
        }
        if shape.len() > 240 {
            shape.push('…');
            break;
        }
    }
    shape
}

/// The first place where two trees differ, with its values.
fn first(ours: &Value, original: &Value, path: String) -> Option<(String, String, String)> {
    match (ours, original) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            let dot = if path.is_empty() { "" } else { "." };
            keys.into_iter().find_map(|key| match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) => first(a, b, format!("{path}{dot}{key}")),
                (a, b) => {
                    let show = |value: Option<&Value>| value.map_or("-".into(), short);
                    Some((format!("{path}{dot}{key}"), show(a), show(b)))
                }
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(at, (a, b))| first(a, b, format!("{path}[{at}]"))),
        _ if ours == original => None,
        _ => Some((path, short(ours), short(original))),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => "empty".to_owned(),
        Value::String(text) if text.chars().all(|c| c.is_ascii_alphabetic()) => text.clone(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::String(_) => "a text".to_owned(),
        Value::Number(_) => "a number".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(causes: &[(&str, &str)]) -> Outcome {
        let causes: Vec<_> = causes
            .iter()
            .map(|(field, message)| json!({"field": field, "reason": "FieldValueInvalid", "message": message}))
            .collect();
        let body = json!({"reason": "Invalid", "details": {"causes": causes}}).to_string();
        Outcome::of(
            &Answer { code: 422, body: body.into_bytes(), ..Answer::default() },
            &json!({}),
            None,
        )
    }

    #[test]
    fn classes_have_no_indices_and_values() {
        let ours =
            refused(&[("spec.template.spec.a[3].b", "Invalid value: \"x\\\"y\": at most 63")]);
        let class = ours.differs(&refused(&[])).unwrap();
        assert_eq!(class.what, "extra");
        assert_eq!(class.ours, "(pod) a[].b: Invalid value: …: at most N");
        let other = refused(&[("spec.template.spec.a[3].b", "Invalid value: \"x\": at least 1")]);
        assert_eq!(ours.differs(&other).unwrap().what, "text");
        assert_eq!(ours.differs(&ours), None);
    }

    #[test]
    fn escapes_and_the_order_of_a_map_are_classes_of_their_own() {
        let bad = |value: &str| format!("Unsupported value: \"{value}\": supported values: \"a\"");
        let ours = refused(&[("a", &bad("x > 0"))]);
        let class = ours.differs(&refused(&[("a", &bad("x \\u003e 0"))])).unwrap();
        assert_eq!(class.what, "escapes");
        let ours = refused(&[("metadata.labels", "k"), ("metadata.labels", "v")]);
        let swapped = refused(&[("metadata.labels", "v"), ("metadata.labels", "k")]);
        assert_eq!(ours.differs(&swapped).unwrap().what, "map order");
        // Another cause is not another order.
        let other = refused(&[("metadata.labels", "v"), ("metadata.labels", "w")]);
        assert_eq!(ours.differs(&other).unwrap().what, "text");
    }

    #[test]
    fn names_by_chance_are_no_difference() {
        let request = json!({"metadata": {"generateName": "a-"}});
        let of = |name: &str| {
            let message = format!("Pod \"{name}\" is invalid");
            let causes = [json!({"field": "metadata.name", "message": format!("\"{name}\"")})];
            let body =
                json!({"reason": "Invalid", "message": message, "details": {"causes": causes}});
            let body = body.to_string();
            Outcome::of(
                &Answer { code: 422, body: body.into_bytes(), ..Answer::default() },
                &request,
                None,
            )
        };
        assert_eq!(of("a-x7k2p"), of("a-zzzzz"));
        let accepted = |name: &str| {
            let object = json!({"metadata": {"name": name, "labels": {"job-name": name}}});
            let body = object.to_string().into_bytes();
            Outcome::of(&Answer { code: 201, body, ..Answer::default() }, &request, None)
        };
        assert_eq!(accepted("a-x7k2p"), accepted("a-zzzzz"));
    }

    #[test]
    fn uids_as_names_are_no_difference() {
        let request = json!({"metadata": {"namespace": "default"}});
        let accepted = |name: &str, uid: &str| {
            let body = json!({"metadata": {"name": name, "uid": uid}}).to_string().into_bytes();
            Outcome::of(&Answer { code: 201, body, ..Answer::default() }, &request, None)
        };
        let (one, other) =
            ("0d7f34df-2bc3-41b7-a572-61f3a1d943ea", "827f5ea7-e0d8-4d4b-8b13-ba7090cc804e");
        assert_eq!(accepted(one, one), accepted(other, one));
        let refused = |name: &str| {
            let message = format!("LimitRange \"{name}\" is invalid");
            let body = json!({"reason": "Invalid", "message": message, "details": {"name": name}});
            let body = body.to_string().into_bytes();
            Outcome::of(&Answer { code: 422, body, ..Answer::default() }, &request, None)
        };
        assert_eq!(refused(one), refused(other));
    }

    #[test]
    fn ports_and_uids_by_chance_are_no_difference() {
        let of = |port: u16, uid: &str| {
            let message = format!("Duplicate value: {port}");
            let causes = [
                json!({"field": "spec.ports[1].nodePort", "message": message}),
                json!({"field": "a", "message": format!("must be '{uid}'")}),
            ];
            let body = json!({"reason": "Invalid", "details": {"causes": causes}}).to_string();
            let answer = Answer { code: 422, body: body.into_bytes(), ..Answer::default() };
            let stored = json!({"metadata": {"uid": uid}});
            Outcome::of(&answer, &json!({"a": 30_080}), Some(&stored))
        };
        let uids = ["11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"];
        assert_eq!(of(31_000, uids[0]), of(32_000, uids[1]));
        assert_ne!(of(30_080, uids[0]), of(32_000, uids[0]));
    }

    #[test]
    fn the_first_different_member_is_named() {
        let of = |object: Value| {
            let body = object.to_string().into_bytes();
            Outcome::of(&Answer { code: 201, body, ..Answer::default() }, &json!({}), None)
        };
        let class =
            of(json!({"spec": {"a": [{"b": 1}]}})).differs(&of(json!({"spec": {"a": [{}]}})));
        let class = class.unwrap();
        assert_eq!((&*class.ours, &*class.original), ("spec.a[].b = a number", "spec.a[].b = -"));
    }
}
