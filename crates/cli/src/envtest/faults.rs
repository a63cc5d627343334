//! Failures on request: errors, delays and dropped watches for the requests that a fault matches.

use super::control::{Answer, json, no_method, not_found};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json as value};
use setpoint::apiserver::{Attributes, Body, Intercepted, Interceptor};
use setpoint::object::{ApiError, Reason};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of faults.
const FAULTS_MAX: usize = 1_000;
/// The longest delay: less than the minute that a request may take.
const DELAY_MAX: Duration = Duration::from_secs(50);
/// The header that fails one request: `status=409`, `delay=250ms` or `drop=3`, separated by commas.
const HEADER: &str = "setpoint-fault";

/// The faults, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    faults: BTreeMap<u64, Fault>,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    matches: BTreeMap<Field, String>,
    effect: Effect,
    /// How many requests it still hits; `None`: all.
    left: Option<u64>,
    n_hits: u64,
}

/// What a request is recognized by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    User,
    UserAgent,
    Verb,
    Group,
    Resource,
    Subresource,
    Namespace,
    Name,
}

impl Field {
    const ALL: [(Self, &'static str); 8] = [
        (Self::User, "user"),
        (Self::UserAgent, "userAgent"),
        (Self::Verb, "verb"),
        (Self::Group, "group"),
        (Self::Resource, "resource"),
        (Self::Subresource, "subresource"),
        (Self::Namespace, "namespace"),
        (Self::Name, "name"),
    ];

    fn is(self, request: &Attributes, wanted: &str) -> bool {
        match self {
            Self::User => *request.identity.user == *wanted,
            // Clients put versions behind their names.
            Self::UserAgent => request.user_agent.starts_with(wanted),
            Self::Verb => request.verb.as_ref() == wanted,
            Self::Group => request.group() == wanted,
            Self::Resource => request.resource() == wanted,
            Self::Subresource => {
                request.subresource().map(ToString::to_string).unwrap_or_default() == wanted
            }
            Self::Namespace => request.namespace() == wanted,
            Self::Name => request.name() == wanted,
        }
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Effect {
    delay: Duration,
    /// The HTTP code of an error.
    status: Option<u16>,
    /// A watch ends after so many events.
    drop_after: Option<u64>,
}

impl Effect {
    fn parse(status: Option<u64>, delay_ms: u64, drop_after: Option<u64>) -> Result<Self, String> {
        let status = match status {
            None => None,
            Some(code @ 400..=599) => u16::try_from(code).ok(),
            Some(code) => return Err(format!("{code} is not the code of an error")),
        };
        let delay = Duration::from_millis(delay_ms);
        if delay > DELAY_MAX {
            return Err(format!("a delay is at most {} s", DELAY_MAX.as_secs()));
        }
        if status.is_none() && delay.is_zero() && drop_after.is_none() {
            return Err("give a status, a delay or a number of events".to_owned());
        }
        Ok(Self { delay, status, drop_after })
    }

    /// The effect that a header requests.
    fn of_header(text: &str) -> Result<Self, String> {
        let (mut status, mut delay, mut drop_after) = (None, 0, None);
        for part in text.split(',').map(str::trim) {
            let (name, number) = part.split_once('=').ok_or("give name=value")?;
            let number = number.trim_end_matches("ms").parse::<u64>().map_err(|e| e.to_string())?;
            match name {
                "status" => status = Some(number),
                "delay" => delay = number,
                "drop" => drop_after = Some(number),
                _ => return Err(format!("{name} is not status, delay or drop")),
            }
        }
        Self::parse(status, delay, drop_after)
    }

    async fn happen(self) -> Intercepted {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        match (self.status, self.drop_after) {
            (Some(code), _) => Intercepted::Fail(error(code)),
            (None, Some(n)) => Intercepted::Change(Box::new(move |answer| end_after(answer, n))),
            (None, None) => Intercepted::Continue,
        }
    }
}

/// An error as the API server has it for this code.
fn error(code: u16) -> ApiError {
    let message = "a fault was requested";
    match code {
        410 => ApiError::expired(message),
        429 => ApiError::too_many_requests(message, 1),
        _ => {
            let reason = match code {
                400 => Reason::BadRequest,
                401 => Reason::Unauthorized,
                403 => Reason::Forbidden,
                404 => Reason::NotFound,
                409 => Reason::Conflict,
                422 => Reason::Invalid,
                503 => Reason::ServiceUnavailable,
                504 => Reason::Timeout,
                _ => Reason::InternalError,
            };
            ApiError::new(code, reason, message)
        }
    }
}

/// Ends the body of a watch behind so many events: lines, in JSON.
fn end_after(answer: Response<Body>, n: u64) -> Response<Body> {
    let is_watch = answer.status() == StatusCode::OK && answer.body().as_bytes().is_none();
    if !is_watch {
        return answer;
    }
    answer.map(|body| {
        let chunks = body.into_data_stream().take_while(|chunk| {
            // An error resets the stream, as a dropped connection does.
            futures::future::ready(chunk.is_ok())
        });
        let chunks = chunks.filter_map(|chunk| futures::future::ready(chunk.ok()));
        let rest = chunks.scan(n, |left, chunk: Bytes| {
            let kept = first_lines(&chunk, left);
            futures::future::ready(kept)
        });
        // No event at all: the stream ends at once.
        if n == 0 { Body::empty() } else { Body::stream(rest) }
    })
}

/// The lines of a chunk that may be sent; `None`: none may.
fn first_lines(chunk: &Bytes, left: &mut u64) -> Option<Bytes> {
    if *left == 0 {
        return None;
    }
    for (at, _) in chunk.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        *left -= 1;
        if *left == 0 {
            return Some(chunk.slice(..=at));
        }
    }
    Some(chunk.clone())
}

impl Faults {
    /// POST adds one, GET lists them, DELETE removes one or all.
    pub(super) fn answer(&self, method: &Method, path: &[&str], body: &Value) -> Answer {
        let mut state = self.0.lock();
        let id = match path {
            [] => None,
            [id] => Some(id.parse::<u64>().map_err(|_| not_found(id))?),
            _ => return Err(not_found(&path.join("/"))),
        };
        match (method, id) {
            (&Method::POST, None) => {
                if state.faults.len() >= FAULTS_MAX {
                    return Err(ApiError::too_many_requests("there are too many faults", 1));
                }
                let fault = parse(body).map_err(ApiError::bad_request)?;
                state.last_id += 1;
                let id = state.last_id;
                state.faults.insert(id, fault);
                Ok(json(StatusCode::CREATED, &value!({"id": id})))
            }
            (&Method::GET, None) => {
                let show = |(id, fault): (&u64, &Fault)| value!({"id": id, "hits": fault.n_hits, "left": fault.left});
                let items: Vec<Value> = state.faults.iter().map(show).collect();
                Ok(json(StatusCode::OK, &value!({"items": items})))
            }
            (&Method::DELETE, None) => {
                state.faults.clear();
                Ok(json(StatusCode::OK, &value!({})))
            }
            (&Method::DELETE, Some(id)) => match state.faults.remove(&id) {
                Some(fault) => Ok(json(StatusCode::OK, &value!({"id": id, "hits": fault.n_hits}))),
                None => Err(not_found(&id.to_string())),
            },
            _ => Err(no_method(method)),
        }
    }

    /// The effect of the first fault that matches a request.
    fn hit(&self, request: &Attributes) -> Option<Effect> {
        let mut state = self.0.lock();
        let fault = state.faults.values_mut().find(|fault| {
            fault.left != Some(0)
                && fault.matches.iter().all(|(field, wanted)| field.is(request, wanted))
                && (fault.effect.drop_after.is_none() || request.verb.as_ref() == "watch")
        })?;
        fault.n_hits += 1;
        if let Some(left) = &mut fault.left {
            *left -= 1;
        }
        Some(fault.effect)
    }
}

fn parse(body: &Value) -> Result<Fault, String> {
    let body = body.as_object().ok_or("give an object")?;
    let mut matches = BTreeMap::new();
    let number = |name: &str| match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().map(Some).ok_or(format!("{name} is not a number")),
    };
    for (name, wanted) in body.get("match").and_then(Value::as_object).into_iter().flatten() {
        let field = Field::ALL.iter().find(|(_, known)| known == name);
        let (field, _) = field.ok_or(format!("a request has no {name}"))?;
        let wanted = wanted.as_str().ok_or(format!("{name} is not a text"))?;
        matches.insert(*field, wanted.to_owned());
    }
    let known = ["match", "status", "delayMs", "dropAfter", "times"];
    if let Some(unknown) = body.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("{unknown} is not one of {known:?}"));
    }
    if matches.is_empty() {
        return Err("give at least one member of match".to_owned());
    }
    let effect =
        Effect::parse(number("status")?, number("delayMs")?.unwrap_or(0), number("dropAfter")?)?;
    Ok(Fault { matches, effect, left: number("times")?, n_hits: 0 })
}

impl Interceptor for Faults {
    fn intercept<'a>(
        &'a self,
        parts: &'a Parts,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Intercepted> {
        if let Some(text) = parts.headers.get(HEADER) {
            let effect = text.to_str().map_err(|error| error.to_string());
            return match effect.and_then(Effect::of_header) {
                Ok(effect) => effect.happen().boxed(),
                Err(why) => {
                    let why = format!("{HEADER}: {why}");
                    futures::future::ready(Intercepted::Fail(ApiError::bad_request(why))).boxed()
                }
            };
        }
        // The pages that set faults have none.
        if request.path().starts_with("/setpoint") {
            return futures::future::ready(Intercepted::Continue).boxed();
        }
        match self.hit(request) {
            Some(effect) => effect.happen().boxed(),
            None => futures::future::ready(Intercepted::Continue).boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed_and_bad_ones_refused() {
        let fault = parse(&value!({"match": {"verb": "update"}, "status": 409, "times": 2}));
        assert_eq!(fault.unwrap().left, Some(2));
        for bad in [
            value!({"status": 409}),
            value!({"match": {"verb": "get"}}),
            value!({"match": {"verb": "get"}, "status": 200}),
            value!({"match": {"color": "red"}, "status": 500}),
            value!({"match": {"verb": "get"}, "delayMs": 60_000}),
            value!({"match": {"verb": "get"}, "status": 500, "always": true}),
        ] {
            assert!(parse(&bad).is_err(), "{bad}");
        }
        assert_eq!(Effect::of_header("status=503,delay=5ms").unwrap().status, Some(503));
        assert!(Effect::of_header("status").is_err() && Effect::of_header("x=1").is_err());
    }

    #[test]
    fn streams_are_cut_behind_whole_events() {
        let chunk = Bytes::from_static(b"a\nb\nc\n");
        let mut left = 2;
        assert_eq!(first_lines(&chunk, &mut left).unwrap(), "a\nb\n");
        assert_eq!(first_lines(&chunk, &mut left), None);
        let mut left = 5;
        assert_eq!(first_lines(&chunk, &mut left).unwrap(), chunk);
        assert_eq!(left, 2);
    }
}
