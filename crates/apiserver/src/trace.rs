//! Spans of requests over HTTP, with kube-apiserver's names and attributes.
//!
//! | span | is | its parent |
//! |---|---|---|
//! | `GET /api/v1/namespaces/{:namespace}/pods` | the request, until the last byte of its answer | that of the header `traceparent`, of users who are trusted |
//! | `authentication`, `constrainedimpersonation`, `priorityandfairness`, `authorization` | the stages | the request |
//! | `Get`, `List`, `Create`, `Update`, `Patch`, `Delete` | the call of the registry and the answer's encoding | the request |
//! | `cacher.Get`, `cacher.GetList`, `cacher.Watch` | the read | the verb, or the request |
//! | `SerializeObject` | the encoding; of a list, until its last piece is sent | the verb |
//! | `WatchServer.HandleHTTP` | the events of a watch | the request |
//!
//! The registry adds those of a write: `Mutating admission`, `Validating admission`, `Commit`, and
//! `Call mutating webhook` and `Call validating webhook`.

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Version};
use setpoint_object::time::Timestamp;
use setpoint_object::users::{MASTERS, MONITORING};
use setpoint_registry::{Attributes, Requested, Verb};
use setpoint_serve::PeerAddress;
use setpoint_spans::{Incoming, Span, SpanContext, SpanKind, Tracer};

/// Maximum bytes of an audit id in a span, as kube-apiserver cuts it.
const AUDIT_ID_BYTES_MAX: usize = 64;

/// The span of a request that arrived at `received` and is authenticated now; `None`: it is not
/// sampled.
pub(crate) fn begin(
    tracer: &Tracer,
    parts: &Parts,
    attributes: &Attributes,
    received: Timestamp,
) -> Option<Span> {
    let is_trusted = [MASTERS, MONITORING].iter().any(|group| attributes.identity.is_in(group));
    let context = text(&parts.headers, SpanContext::HEADER).and_then(SpanContext::parse);
    let incoming = context.map(|context| Incoming { context, is_trusted });
    let span = tracer.begin(SpanKind::Server, received, incoming)?;
    drop(span.trace().child_since("authentication", received));
    span.name(name(parts, attributes));
    set_audit_id(&span, attributes);
    span.set_text("http.request.method", parts.method.as_str());
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    span.set_text("http.target", target);
    span.set_text("url.path", parts.uri.path());
    let host = parts.uri.authority().map(|authority| authority.as_str());
    let host = host.or_else(|| text(&parts.headers, HOST.as_str())).unwrap_or_default();
    span.set_text("server.address", host);
    if let Some(PeerAddress(peer)) = parts.extensions.get() {
        span.set("network.peer.address", peer.ip().to_string());
        span.set("network.peer.port", peer.port());
    }
    span.set_text("user_agent.original", &attributes.user_agent);
    span.set("network.protocol.name", "http");
    span.set_text("network.protocol.version", protocol(parts).trim_start_matches("HTTP/"));
    Some(span)
}

/// The request is over.
pub(crate) fn end(span: &Span, code: Option<u16>, n_bytes: u64) {
    if let Some(code) = code {
        span.set("http.response.status_code", code);
        if code >= 500 {
            span.fail();
        }
    }
    span.set("http.response.body.size", usize::try_from(n_bytes).unwrap_or(usize::MAX));
}

/// The span of the verb; `None`: it has none.
pub(crate) fn verb(attributes: &Attributes, parts: &Parts) -> Option<Span> {
    let name = match attributes.verb {
        Verb::Get => "Get",
        Verb::List => "List",
        Verb::Create => "Create",
        Verb::Update => "Update",
        Verb::Patch => "Patch",
        Verb::Delete | Verb::DeleteCollection => "Delete",
        _ => return None,
    };
    let span = attributes.trace.as_ref()?.stage(name);
    span.set_text("accept", text(&parts.headers, ACCEPT.as_str()).unwrap_or_default());
    set_audit_id(&span, attributes);
    if let Some(PeerAddress(peer)) = parts.extensions.get() {
        span.set("client", peer.ip().to_string());
    }
    span.set_text("api-group", attributes.group());
    span.set_text("api-version", attributes.version());
    span.set_text("name", attributes.name());
    span.set_text("subresource", attributes.subresource().map_or("", |name| name.as_str()));
    span.set_text("namespace", attributes.namespace());
    span.set("protocol", protocol(parts));
    span.set_text("resource", attributes.resource());
    let scope = match (attributes.name(), attributes.namespace()) {
        ("", "") => "cluster",
        ("", _) => "namespace",
        _ => "resource",
    };
    span.set("scope", scope);
    span.set_text("url", parts.uri.path());
    span.set_text("user-agent", text(&parts.headers, USER_AGENT.as_str()).unwrap_or_default());
    span.set_text("verb", parts.method.as_str());
    Some(span)
}

/// What a read is of: `pods`, `deployments.apps`.
pub(crate) fn set_type(span: &Span, attributes: &Attributes) {
    match attributes.group() {
        "" => span.set_text("type", attributes.resource()),
        group => span.set("type", format!("{}.{group}", attributes.resource())),
    }
}

/// The line of a request.
pub(crate) fn set_head(span: &Span, parts: &Parts) {
    span.set_text("method", parts.method.as_str());
    span.set_text("url", parts.uri.path());
    span.set("protocol", protocol(parts));
}

fn set_audit_id(span: &Span, attributes: &Attributes) {
    let id = &attributes.audit_id;
    span.set_text("audit-id", &id[..id.floor_char_boundary(AUDIT_ID_BYTES_MAX)]);
}

/// The method and the shape of the path. It has no name of an object, so that there are few.
fn name(parts: &Parts, attributes: &Attributes) -> String {
    let mut name = parts.method.as_str().to_owned();
    if !attributes.is_resource() {
        return name;
    }
    name.push(' ');
    match attributes.group() {
        "" => name.push_str("/api"),
        group => name.extend(["/apis/", group]),
    }
    name.extend(["/", attributes.version()]);
    if !attributes.namespace().is_empty() {
        name.push_str("/namespaces/{:namespace}");
    }
    name.extend(["/", attributes.resource()]);
    let is_named = match &attributes.requested {
        Requested::Resource(target) => !target.name.is_empty(),
        Requested::Unrouted(path) => !path.name.is_empty(),
        _ => false,
    };
    if is_named {
        name.push_str("/{:name}");
    }
    if let Some(subresource) = attributes.subresource() {
        name.extend(["/", subresource.as_str()]);
    }
    name
}

fn protocol(parts: &Parts) -> &'static str {
    match parts.version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
