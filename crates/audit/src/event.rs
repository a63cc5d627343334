//! An event as a line of JSON (`audit.k8s.io/v1` `Event`).

use serde_json::{Map, Value, json};
use setpoint_apiserver::{AuditEvent, AuditLevel, Stage};
use setpoint_object::field::quote;
use setpoint_object::{ApiError, Skim};
use setpoint_registry::{Attributes, Format, Identity, Subresource, Verb};
use setpoint_schema::decode::parse;
use std::borrow::Cow;

/// Maximum size of a recorded object in bytes: 4 MiB, which is more than a request body may have.
/// Larger ones, which are lists, are left out.
pub const OBJECT_BYTES_MAX: usize = 4 << 20;

/// Maximum bytes of a recorded user agent: 1024, as kube-apiserver's.
const USER_AGENT_BYTES_MAX: usize = 1024;
/// The annotations with the patches of webhooks, which show parts of bodies.
const PATCHES: &str = "patch.webhook.admission.k8s.io/";
/// How an event on its own begins. In a list, it has neither kind nor version.
const HEAD: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","#;
/// The annotation of an event whose object was left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// How large events may be for a receiver that has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// The size of an event in bytes from which its objects are left out, which the annotation
    /// `audit.k8s.io/truncated` says. An event that is still larger is lost. Default: 100 KiB.
    pub event_bytes_max: usize,
    /// Maximum bytes of events that are sent at once. Default: 10 MiB.
    pub batch_bytes_max: usize,
}

impl Default for Truncation {
    fn default() -> Self {
        Self { event_bytes_max: 100 << 10, batch_bytes_max: 10 << 20 }
    }
}

/// Encodes an event, without a line break. `None`: it is too large even without its objects.
pub(crate) fn encode(
    event: &AuditEvent,
    level: AuditLevel,
    omits_managed_fields: bool,
    truncation: Option<Truncation>,
) -> Option<Vec<u8>> {
    let item = encode_item(event, level, omits_managed_fields, truncation)?;
    Some([HEAD, item.strip_prefix(b"{").unwrap_or(&item)].concat())
}

/// The same as an item of a list.
pub(crate) fn encode_item(
    event: &AuditEvent,
    level: AuditLevel,
    omits_managed_fields: bool,
    truncation: Option<Truncation>,
) -> Option<Vec<u8>> {
    fitting(event, level, omits_managed_fields, truncation).map(|(_, encoded)| encoded)
}

/// The same in the former format of log files: some members, as text.
pub(crate) fn encode_legacy(
    event: &AuditEvent,
    level: AuditLevel,
    truncation: Option<Truncation>,
) -> Option<Vec<u8>> {
    let (event, _) = fitting(event, level, false, truncation)?;
    Some(legacy(&event).into_bytes())
}

/// An event that is not too large, as a document and encoded, both without kind and version.
fn fitting(
    event: &AuditEvent,
    level: AuditLevel,
    omits_managed_fields: bool,
    truncation: Option<Truncation>,
) -> Option<(Value, Vec<u8>)> {
    let mut out = document(event, level, omits_managed_fields);
    let encoded = out.to_string().into_bytes();
    let Some(Truncation { event_bytes_max, .. }) = truncation else { return Some((out, encoded)) };
    // As the reference, with kind, version and the line break. Its brace is in both parts.
    let fits = |encoded: &[u8]| HEAD.len() - 1 + encoded.len() < event_bytes_max;
    if fits(&encoded) {
        return Some((out, encoded));
    }
    if level >= AuditLevel::Request
        && let Some(members) = out.as_object_mut()
    {
        members.remove("requestObject");
        members.remove("responseObject");
        out["annotations"][TRUNCATED] = "true".into();
    }
    let encoded = out.to_string().into_bytes();
    fits(&encoded).then_some((out, encoded))
}

/// A line of kube-apiserver's `--audit-log-format=legacy`.
fn legacy(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    let groups = |user: &Value, other: &str| match user["groups"].as_array() {
        Some(groups) if !groups.is_empty() => {
            groups.iter().map(|group| quote(&text(group))).collect::<Vec<_>>().join(",")
        }
        _ => other.to_owned(),
    };
    let (user, acts_as) = (&event["user"], &event["impersonatedUser"]);
    let received = text(&event["requestReceivedTimestamp"]);
    let (seconds, fraction) = received.trim_end_matches('Z').split_once('.').unwrap_or_default();
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let response = match event["responseStatus"]["code"].as_u64() {
        Some(code) => code.to_string(),
        None => "<deferred>".to_owned(),
    };
    let mut line = format!("{seconds}{dot}{fraction}Z AUDIT:");
    for (name, text) in [
        ("id", text(&event["auditID"])),
        ("stage", text(&event["stage"])),
        ("ip", or(text(&event["sourceIPs"][0]), "<unknown>")),
        ("method", text(&event["verb"])),
        ("user", or(text(&user["username"]), "<none>")),
        ("groups", groups(user, "<none>")),
        ("as", or(text(&acts_as["username"]), "<self>")),
        ("asgroups", groups(acts_as, "<lookup>")),
        ("user-agent", text(&event["userAgent"])),
        ("namespace", or(text(&event["objectRef"]["namespace"]), "<none>")),
        ("uri", text(&event["requestURI"])),
        ("response", response),
    ] {
        line.push_str(&format!(" {name}={}", quote(&text)));
    }
    line
}

fn document(event: &AuditEvent, level: AuditLevel, omits_managed_fields: bool) -> Value {
    let request = &event.request;
    let is_shown = |key: &str| level >= AuditLevel::Request || !key.starts_with(PATCHES);
    let annotations = request.first_audit_annotations(event.n_annotations);
    let annotations = annotations.into_iter().filter(|(key, _)| is_shown(key));
    let mut annotations: Map<String, Value> =
        annotations.map(|(key, text)| (key, text.into())).collect();
    let mut out = json!({
        "level": name(level),
        "auditID": request.audit_id,
        "stage": event.stage.as_str(),
        "requestURI": event.source.uri,
        "verb": request.verb.as_str(),
        "user": user(&event.user),
        "requestReceivedTimestamp": event.received.rfc3339_micro(),
        "stageTimestamp": event.reached.rfc3339_micro(),
    });
    if !event.source.addresses.is_empty() {
        out["sourceIPs"] = event.source.addresses.iter().map(ToString::to_string).collect();
    }
    if !request.user_agent.is_empty() {
        out["userAgent"] = user_agent(&request.user_agent).into();
    }
    let is_received = event.stage == Stage::RequestReceived;
    if let Some(impersonator) = &request.impersonator {
        out["impersonatedUser"] = request.identity.user_info();
        if impersonator.verb.as_str() != "impersonate" {
            let constraint = json!({"impersonationConstraint": impersonator.verb.as_str()});
            out["authenticationMetadata"] = constraint;
        }
    }
    let sent = event.sent.as_ref().filter(|_| !is_received && request.is_resource());
    // The names in the body are in the reference to the object, at every level. Below `Request` no
    // tree is made of JSON.
    let skim = sent.filter(|sent| sent.format == Format::Json).map(|sent| Skim::of(&sent.bytes));
    let tree = match (&skim, level >= AuditLevel::Request) {
        (Some(_), false) => None,
        _ => sent.and_then(|sent| parse(&sent.bytes, sent.format).ok()).map(|sent| sent.value),
    };
    if request.is_resource() {
        // A patch is no object, and options of a deletion have no metadata.
        let has_object =
            !matches!(request.verb, Verb::Patch | Verb::Delete | Verb::DeleteCollection);
        let names = match &skim {
            _ if !has_object => Names::default(),
            Some(Ok(skim)) => Names::of_skim(skim),
            Some(Err(_)) => Names::default(),
            None => tree.as_ref().map(Names::of_tree).unwrap_or_default(),
        };
        out["objectRef"] = object_ref(request, &names);
    }
    if event.stage == Stage::Panic {
        out["responseStatus"] = json!({
            "metadata": {}, "status": "Failure", "message": "APIServer panic'd",
            "reason": "InternalError", "code": 500,
        });
    } else if let Some(code) = event.code.filter(|_| !is_received) {
        out["responseStatus"] = json!({"metadata": {}, "code": code});
        if let Some(answer) = event.failure.as_ref().or(event.success.as_ref()) {
            let status = &mut out["responseStatus"];
            for (member, text) in [
                ("status", &answer.status),
                ("message", &answer.message),
                ("reason", &answer.reason),
            ] {
                if !text.is_empty() {
                    status[member] = text.as_str().into();
                }
            }
            if let Some(details) = &answer.details {
                status["details"] = json!(details);
            }
        }
    } else if event.stage == Stage::ResponseComplete {
        // Nothing was answered: the client had left.
        out["responseStatus"] = json!({
            "metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200,
        });
    }
    if level >= AuditLevel::Request
        && let Some(mut object) = tree
    {
        if matches!(request.verb, Verb::Delete | Verb::DeleteCollection)
            && let Some(options) = object.as_object_mut()
        {
            // As the reference decodes them, whatever version was sent.
            options.insert("kind".to_owned(), "DeleteOptions".into());
            options.insert("apiVersion".to_owned(), "meta.k8s.io/__internal".into());
        }
        add(&mut out, &mut annotations, "requestObject", object, omits_managed_fields);
    }
    if level >= AuditLevel::RequestResponse && !is_received && request.is_resource() {
        let failure = event.failure.as_ref().map(|status| ApiError(Box::new((**status).clone())));
        let failure = failure.and_then(|error| serde_json::from_slice(&error.to_json()).ok());
        let answer = event.answer.as_ref().filter(|answer| answer.len() <= OBJECT_BYTES_MAX);
        if event.answer_left_out || event.answer.is_some() && answer.is_none() {
            annotations.insert(TRUNCATED.to_owned(), "true".into());
        }
        let answer = answer.and_then(|answer| serde_json::from_slice(answer).ok());
        if let Some(object) = answer.or(failure) {
            add(&mut out, &mut annotations, "responseObject", object, omits_managed_fields);
        }
    }
    if !annotations.is_empty() {
        out["annotations"] = annotations.into();
    }
    out
}

/// A user; one whom nobody knows has no name.
fn user(identity: &Identity) -> Value {
    match identity.user.is_empty() {
        true => json!({}),
        false => identity.user_info(),
    }
}

/// A client's description of itself. Longer ones are cut.
fn user_agent(text: &str) -> Cow<'_, str> {
    if text.len() <= USER_AGENT_BYTES_MAX {
        return text.into();
    }
    let mut end = USER_AGENT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...TRUNCATED", &text[..end]).into()
}

/// The name of a level.
pub(crate) fn name(level: AuditLevel) -> &'static str {
    match level {
        AuditLevel::None => "None",
        AuditLevel::Metadata => "Metadata",
        AuditLevel::Request => "Request",
        AuditLevel::RequestResponse => "RequestResponse",
    }
}

/// Adds an object, or notes that it is too large.
fn add(
    out: &mut Value,
    annotations: &mut Map<String, Value>,
    member: &str,
    mut object: Value,
    omits_managed_fields: bool,
) {
    if omits_managed_fields {
        let remove = |object: &mut Value| {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("managedFields");
            }
        };
        remove(&mut object);
        // Of a list.
        let items = object.get_mut("items").and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(remove);
        // Of a Table.
        let rows = object.get_mut("rows").and_then(Value::as_array_mut);
        let objects = rows.into_iter().flatten().filter_map(|row| row.get_mut("object"));
        objects.for_each(remove);
    }
    match object.to_string().len() <= OBJECT_BYTES_MAX {
        true => out[member] = object,
        false => {
            annotations.insert(TRUNCATED.to_owned(), "true".into());
        }
    }
}

/// What the body of a write says about its object. Empty: nothing.
#[derive(Debug, Default)]
struct Names<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    resource_version: &'a str,
}

impl<'a> Names<'a> {
    fn of_skim(skim: &'a Skim<'_>) -> Self {
        Self {
            namespace: &skim.namespace,
            name: &skim.name,
            uid: &skim.uid,
            resource_version: &skim.resource_version,
        }
    }

    fn of_tree(object: &'a Value) -> Self {
        let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
        Self {
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        }
    }
}

/// What the request is about: the names of its path, and those of its body where the path has none.
fn object_ref(request: &Attributes, names: &Names<'_>) -> Value {
    let mut reference = Map::new();
    let mut set = |member: &str, text: &str| {
        if !text.is_empty() {
            reference.insert(member.to_owned(), text.into());
        }
    };
    let or_in_body = |text: &'_ str, in_body: &'_ str| match text {
        "" => in_body.to_owned(),
        text => text.to_owned(),
    };
    set("resource", request.resource());
    // A Namespace object is in its own namespace.
    set("namespace", &or_in_body(request.scope(), names.namespace));
    set("name", &or_in_body(request.name(), names.name));
    set("uid", names.uid);
    set("apiGroup", request.group());
    set("apiVersion", request.version());
    set("resourceVersion", names.resource_version);
    set("subresource", request.subresource().map_or("", Subresource::as_str));
    reference.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_of_objects_lists_and_tables_are_left_out() {
        let object = json!({"metadata": {"name": "a", "managedFields": [{}]}});
        let plain = json!({"metadata": {"name": "a"}});
        for (given, expected) in [
            (object.clone(), plain.clone()),
            (json!({"items": [object]}), json!({"items": [plain]})),
            (
                json!({"rows": [{"cells": [1], "object": object}, {"cells": []}]}),
                json!({"rows": [{"cells": [1], "object": plain}, {"cells": []}]}),
            ),
        ] {
            let mut out = json!({});
            add(&mut out, &mut Map::new(), "responseObject", given, true);
            assert_eq!(out["responseObject"], expected);
        }
    }

    #[test]
    fn the_former_format_is_a_line_of_text() {
        let event = json!({
            "auditID": "i", "stage": "RequestReceived", "verb": "get", "requestURI": "/version",
            "user": {}, "requestReceivedTimestamp": "2027-01-15T08:00:00.000000Z",
        });
        assert_eq!(
            legacy(&event),
            r#"2027-01-15T08:00:00Z AUDIT: id="i" stage="RequestReceived" ip="<unknown>" method="get" user="<none>" groups="<none>" as="<self>" asgroups="<lookup>" user-agent="" namespace="<none>" uri="/version" response="<deferred>""#
        );
        let event = json!({
            "auditID": "i", "stage": "ResponseComplete", "verb": "list", "requestURI": "/u",
            "user": {"username": "jane", "groups": ["a", "b"]},
            "impersonatedUser": {"username": "eve", "groups": ["c"]},
            "sourceIPs": ["192.0.2.7", "192.0.2.8"], "userAgent": "k \"v\"",
            "objectRef": {"namespace": "shop"}, "responseStatus": {"code": 403},
            "requestReceivedTimestamp": "2027-01-15T08:00:00.120000Z",
        });
        assert_eq!(
            legacy(&event),
            r#"2027-01-15T08:00:00.12Z AUDIT: id="i" stage="ResponseComplete" ip="192.0.2.7" method="list" user="jane" groups="\"a\",\"b\"" as="eve" asgroups="\"c\"" user-agent="k \"v\"" namespace="shop" uri="/u" response="403""#
        );
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        let short = "x".repeat(USER_AGENT_BYTES_MAX);
        assert_eq!(user_agent(&short), short);
        let long = format!("{}äx", "x".repeat(USER_AGENT_BYTES_MAX - 1));
        assert_eq!(user_agent(&long), format!("{}...TRUNCATED", &short[1..]));
    }
}
