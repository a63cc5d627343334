//! A recording of requests, for assertions.

use super::control::{Answer, json, no_method};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json as value};
use setpoint::apiserver::{AuditEvent, AuditSink, Stage};
use setpoint::object::ApiError;
use std::collections::VecDeque;

/// Maximum number of requests that are kept; later ones are counted only.
const REQUESTS_MAX: usize = 20_000;

/// What is recorded of a request, and what a list can be limited by.
const MEMBERS: [&str; 12] = [
    "user",
    "userAgent",
    "verb",
    "uri",
    "group",
    "version",
    "resource",
    "subresource",
    "namespace",
    "name",
    "code",
    "received",
];

/// What was recorded. Nothing is recorded before the first POST.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<Option<Recording>>);

#[derive(Debug, Default)]
struct Recording {
    requests: VecDeque<Value>,
    n_dropped: u64,
}

impl Requests {
    /// POST starts a new recording, GET lists it, DELETE ends it.
    pub(super) fn answer(&self, method: &Method, query: &str) -> Answer {
        let wanted = wanted(query).map_err(ApiError::bad_request)?;
        let mut recording = self.0.lock();
        match *method {
            Method::POST => *recording = Some(Recording::default()),
            Method::DELETE => *recording = None,
            Method::GET => {}
            _ => return Err(no_method(method)),
        }
        let none = Recording::default();
        let Recording { requests, n_dropped } = recording.as_ref().unwrap_or(&none);
        let is_wanted = |request: &&Value| {
            wanted.iter().all(|(name, text)| match &request[name.as_str()] {
                Value::String(found) => found == text,
                found => serde_json::to_string(found).is_ok_and(|found| found == *text),
            })
        };
        let items: Vec<&Value> = requests.iter().filter(is_wanted).collect();
        let is_recording = recording.is_some();
        let list = value!({"recording": is_recording, "dropped": n_dropped, "items": items});
        Ok(json(StatusCode::OK, &list))
    }
}

/// The members and their texts that a query asks for. A misspelled one would find nothing, which a
/// test could take for good news.
fn wanted(query: &str) -> Result<Vec<(String, String)>, String> {
    let decoded = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let mut wanted = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name);
        if !MEMBERS.contains(&name.as_str()) {
            return Err(format!("{name} is not one of {MEMBERS:?}"));
        }
        wanted.push((name, decoded(text)));
    }
    Ok(wanted)
}

impl AuditSink for Requests {
    fn record(&self, event: AuditEvent) {
        // A watch is recorded when it is answered, everything else at its end.
        let is_watch = event.request.is_long_running();
        let stage = if is_watch { Stage::ResponseStarted } else { Stage::ResponseComplete };
        let is_failed_watch = is_watch && event.failure.is_some();
        if event.stage != stage && !(is_failed_watch && event.stage == Stage::ResponseComplete) {
            return;
        }
        let mut recording = self.0.lock();
        let Some(recording) = &mut *recording else { return };
        if recording.requests.len() >= REQUESTS_MAX {
            recording.n_dropped += 1;
            return;
        }
        let request = &event.request;
        recording.requests.push_back(value!({
            "user": request.identity.user.as_ref() as &str,
            "userAgent": request.user_agent,
            "verb": request.verb.as_ref() as &str,
            "uri": event.source.uri,
            "group": request.group(),
            "version": request.version(),
            "resource": request.resource(),
            "subresource": request.subresource().map(|s| s.to_string()).unwrap_or_default(),
            "namespace": request.namespace(),
            "name": request.name(),
            "code": event.code,
            "received": event.received.rfc3339(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_unknown_members_refused() {
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let user = "user=system%3Aserviceaccount%3Aa%3Ab&userAgent=my+tool%2B1&code=409";
        assert_eq!(
            wanted(user).unwrap(),
            [
                pair("user", "system:serviceaccount:a:b"),
                pair("userAgent", "my tool+1"),
                pair("code", "409"),
            ]
        );
        assert_eq!(wanted("").unwrap(), []);
        assert!(wanted("usr=jane").unwrap_err().starts_with("usr is not one of"));
    }
}
