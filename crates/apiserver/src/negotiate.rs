//! Content negotiation: the encodings and forms that a client accepts, and the encoding of a body.
//!
//! JSON and YAML are always available. Protobuf is available for built-in kinds: objects, lists and
//! watches of those, metadata of custom resources too, and `Status`. Tables, discovery documents
//! and custom resources have no protobuf form.
//!
//! CBOR is available if the server has it ([`Types::cbor`]): for objects and lists of all kinds,
//! watches of those, metadata, `Status` and the resources of a built-in group version. Tables and
//! the other discovery documents have no CBOR form. Errors of routes, and those found before a
//! resource is looked at, are in none either.

use http::{HeaderMap, header};
use setpoint_object::status::Details;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::{Format, PatchType, SchemaLanguage};

/// The encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/cbor`.
    Cbor,
}

impl Encoding {
    /// The response's `Content-Type`.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => CBOR,
        }
    }
}

/// The version of `meta.k8s.io` of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    /// `v1`.
    V1,
    /// `v1beta1`.
    V1Beta1,
}

impl MetaVersion {
    /// As an `apiVersion`.
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The transform of the answer (`as=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Transform {
    /// The object or list unchanged.
    #[default]
    None,
    /// `Table`.
    Table(MetaVersion),
    /// `PartialObjectMetadata`.
    Partial(MetaVersion),
    /// `PartialObjectMetadataList`.
    PartialList(MetaVersion),
}

impl Transform {
    /// Whether an object is decoded to a tree for this form and encoding.
    pub(crate) fn makes_trees(self, encoding: Encoding) -> bool {
        encoding != Encoding::Json || matches!(self, Self::Table(_))
    }
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Accepted {
    /// Its encoding.
    pub(crate) encoding: Encoding,
    /// Whether the clause has `pretty=1`.
    pub(crate) pretty: bool,
    /// The transform.
    pub(crate) transform: Transform,
}

/// The kind of endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// A resource of a built-in kind.
    Builtin {
        /// Whether a collection is read: its refusal lists the stream types too.
        collection: bool,
        /// Whether its answers have rows: reviews, tokens and bindings have none.
        tables: bool,
    },
    /// The log of a pod: its route has plain text, too, which is chosen by no clause.
    Log,
    /// A custom resource: accepts partial wildcards.
    Custom,
    /// A watch of either.
    Watch(SchemaLanguage),
    /// The versions of the core group: no transforms, no protobuf, no CBOR.
    Versions,
    /// The resources of a built-in group version: no transforms, no protobuf.
    Discovery,
    /// The other discovery documents.
    Plain,
    /// A `Status`: no transforms.
    Status,
}

/// CBOR.
const CBOR: &str = "application/cbor";
/// A sequence of items in CBOR: the events of a watch.
pub(crate) const CBOR_SEQUENCE: &str = "application/cbor-seq";
/// The media types of objects.
const TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The media type of logs.
const TEXT: &str = "text/plain";
/// The media types of watches.
const STREAM_TYPES: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The media types of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types {
    /// Whether CBOR is one of them.
    pub(crate) cbor: bool,
}

impl Types {
    /// Those of answers and bodies.
    fn objects(self) -> String {
        if self.cbor { format!("{TYPES}, {CBOR}") } else { TYPES.to_owned() }
    }

    /// Those of watches.
    fn streams(self) -> String {
        if self.cbor { format!("{STREAM_TYPES}, {CBOR_SEQUENCE}") } else { STREAM_TYPES.to_owned() }
    }

    /// Those of one kind of endpoint.
    fn of(self, endpoint: Endpoint) -> Self {
        Self { cbor: self.cbor && !matches!(endpoint, Endpoint::Versions | Endpoint::Plain) }
    }
}

impl Endpoint {
    /// Whether the reference server has a route of its own, whose media types it compares before it
    /// knows the requested resource. Types only: parameters are not looked at, and a wildcard is
    /// `*/*`.
    fn is_routed(self) -> bool {
        matches!(
            self,
            Self::Builtin { .. }
                | Self::Versions
                | Self::Discovery
                | Self::Log
                | Self::Watch(SchemaLanguage::GoTypes)
        )
    }

    /// The media types of the route.
    fn route_types(self, types: Types) -> String {
        match self {
            Self::Builtin { collection: true, .. } | Self::Watch(_) => {
                format!("{}, {}", types.objects(), types.streams())
            }
            Self::Log => format!("{TEXT}, {}", types.objects()),
            _ => types.objects(),
        }
    }

    /// Whether the answer has a protobuf form.
    fn has_protobuf(self, transform: Transform) -> bool {
        let custom = matches!(self, Self::Custom | Self::Watch(SchemaLanguage::OpenApi));
        match transform {
            Transform::None => {
                !custom && !matches!(self, Self::Versions | Self::Discovery | Self::Plain)
            }
            Transform::Partial(_) | Transform::PartialList(_) => true,
            Transform::Table(_) => false,
        }
    }
}

/// One clause of an `Accept` header.
#[derive(Debug)]
pub(crate) struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl Clause<'_> {
    /// The value of a parameter.
    pub(crate) fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Type and subtype as written.
    pub(crate) fn media_type(&self) -> (&str, &str) {
        (self.main, self.sub)
    }

    /// Whether it names protobuf.
    fn is_protobuf(&self) -> bool {
        (self.main, self.sub) == ("application", "vnd.kubernetes.protobuf")
    }

    /// Whether it names sequences of CBOR: routes of collections have them, answers do not.
    fn is_cbor_sequence(&self) -> bool {
        (self.main, self.sub) == ("application", "cbor-seq")
    }

    /// Whether it names CBOR.
    fn is_cbor(&self) -> bool {
        (self.main, self.sub) == ("application", "cbor")
    }

    /// The encoding that a clause names, JSON or YAML; wildcards mean JSON.
    pub(crate) fn encoding(&self, partial_wildcards: bool) -> Option<Encoding> {
        match (self.main, self.sub) {
            ("*", "*") => Some(Encoding::Json),
            ("application", "*") if partial_wildcards => Some(Encoding::Json),
            ("application", "json") => Some(Encoding::Json),
            ("application", "yaml") => Some(Encoding::Yaml),
            _ => None,
        }
    }
}

/// Parses an `Accept` header into clauses, best first.
pub(crate) fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = accept.split(',').filter_map(clause).collect();
    clauses.sort_by(|a, b| {
        let wildcards = |c: &Clause<'_>| (c.main == "*", c.sub == "*");
        b.quality.total_cmp(&a.quality).then_with(|| wildcards(a).cmp(&wildcards(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (main, sub) = parts.next()?.split_once('/')?;
    let (mut params, mut quality) = (Vec::new(), 1.0);
    for part in parts {
        let Some((name, value)) = part.split_once('=') else { continue };
        let (name, value) = (name.trim(), value.trim());
        if name == "q" {
            quality = value.parse().unwrap_or(1.0);
        } else {
            params.push((name, value));
        }
    }
    Some(Clause { main: main.trim(), sub: sub.trim(), params, quality })
}

/// The `Accept` header, several lines joined; empty if missing.
pub(crate) fn accept_header(headers: &HeaderMap) -> std::borrow::Cow<'_, str> {
    let mut lines = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok());
    let first = lines.next().unwrap_or_default();
    lines.fold(first.into(), |joined, line| format!("{joined},{line}").into())
}

/// Chooses the form of an answer.
///
/// # Errors
///
/// 406 with one of its messages if no clause can be met.
pub(crate) fn negotiate(
    accept: &str,
    endpoint: Endpoint,
    types: Types,
) -> Result<Accepted, ApiError> {
    if accept.trim().is_empty() {
        return Ok(Accepted::default());
    }
    let types = types.of(endpoint);
    let clauses = clauses(accept);
    let partial_wildcards = !endpoint.is_routed();
    let is_text = |clause: &Clause<'_>| {
        endpoint == Endpoint::Log && TEXT.split_once('/') == Some((clause.main, clause.sub))
    };
    let has_streams =
        matches!(endpoint, Endpoint::Builtin { collection: true, .. } | Endpoint::Watch { .. });
    let named = |clause: &Clause<'_>| {
        clause.encoding(partial_wildcards).is_some()
            || clause.is_protobuf()
            || types.cbor && (clause.is_cbor() || has_streams && clause.is_cbor_sequence())
            || is_text(clause)
    };
    if endpoint.is_routed() && !clauses.iter().any(named) {
        return Err(no_such_representation(&endpoint.route_types(types)));
    }
    let is_watch = matches!(endpoint, Endpoint::Watch { .. });
    let mut is_yaml_watched = false;
    let met = clauses.iter().find_map(|clause| {
        let encoding = if clause.is_protobuf() {
            Encoding::Protobuf
        } else if types.cbor && clause.is_cbor() {
            Encoding::Cbor
        } else {
            clause.encoding(partial_wildcards)?
        };
        let transform = transform(clause)?;
        if is_watch && encoding == Encoding::Yaml {
            is_yaml_watched = true;
            return None;
        }
        let plain = matches!(
            endpoint,
            Endpoint::Versions | Endpoint::Discovery | Endpoint::Plain | Endpoint::Status
        );
        if transform != Transform::None && plain {
            return None;
        }
        let has_tables =
            !matches!(endpoint, Endpoint::Builtin { tables: false, .. } | Endpoint::Log);
        if matches!(transform, Transform::Table(_)) && (!has_tables || encoding == Encoding::Cbor) {
            return None;
        }
        if encoding == Encoding::Protobuf && !endpoint.has_protobuf(transform) {
            return None;
        }
        let pretty = clause.param("pretty") == Some("1");
        Some(Accepted { encoding, pretty, transform })
    });
    met.ok_or_else(|| {
        let types = if is_yaml_watched { types.streams() } else { types.objects() };
        ApiError::new(
            406,
            Reason::NotAcceptable,
            format!("only the following media types are accepted: {types}"),
        )
    })
}

/// Checks the `Accept` header of a request for a document that there is only in JSON.
///
/// # Errors
///
/// 406 if JSON is not acceptable.
pub(crate) fn json_alone(accept: &str) -> Result<(), ApiError> {
    only(accept, Encoding::Json.media_type())
}

/// Checks the `Accept` header of a request for a document that has one media type.
///
/// # Errors
///
/// 406 if that type is not acceptable.
pub(crate) fn only(accept: &str, media_type: &str) -> Result<(), ApiError> {
    let is_named = |clause: &Clause<'_>| {
        let (main, sub) = clause.media_type();
        (main, sub) == ("*", "*") || media_type.split_once('/') == Some((main, sub))
    };
    if accept.trim().is_empty() || clauses(accept).iter().any(is_named) {
        return Ok(());
    }
    Err(no_such_representation(media_type))
}

/// The answer of a route that has none of the accepted media types.
fn no_such_representation(types: &str) -> ApiError {
    let text = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    let mut error = ApiError::new(406, Reason::NotAcceptable, text);
    error.0.details = Some(Details::default());
    error
}

/// The transform in a clause; `None` if it is unknown.
fn transform(clause: &Clause<'_>) -> Option<Transform> {
    let (kind, group, version) = (clause.param("as"), clause.param("g"), clause.param("v"));
    if matches!(clause.param("stream"), Some(stream) if stream != "watch") {
        return None;
    }
    if kind.is_none() && group.is_none() && version.is_none() {
        return Some(Transform::None);
    }
    let version = match (group, version) {
        (Some("meta.k8s.io"), Some("v1")) => MetaVersion::V1,
        (Some("meta.k8s.io"), Some("v1beta1")) => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        Some("Table") => Some(Transform::Table(version)),
        Some("PartialObjectMetadata") => Some(Transform::Partial(version)),
        Some("PartialObjectMetadataList") => Some(Transform::PartialList(version)),
        _ => None,
    }
}

/// The media type of a body without parameters; empty if missing.
fn content_type(headers: &HeaderMap) -> &str {
    let text = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// The encoding of a request body; a missing `Content-Type` means JSON.
///
/// # Errors
///
/// 415 for anything but JSON, YAML, CBOR if the server has it and, for built-in kinds, protobuf.
pub(crate) fn body_format(
    headers: &HeaderMap,
    language: SchemaLanguage,
    types: Types,
) -> Result<Format, ApiError> {
    match content_type(headers).to_ascii_lowercase().as_str() {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" if language == SchemaLanguage::GoTypes => {
            Ok(Format::Protobuf)
        }
        CBOR if types.cbor => Ok(Format::Cbor),
        // Those of custom resources are named as well: their metadata is in protobuf.
        _ => Err(unknown_format(&types.objects())),
    }
}

/// The patch type of a request and the encoding of its document.
///
/// # Errors
///
/// 415 for an unknown or missing `Content-Type`, and for strategic merges of custom resources.
pub(crate) fn patch_format(
    headers: &HeaderMap,
    language: SchemaLanguage,
    types: Types,
) -> Result<(PatchType, Format), ApiError> {
    // The reference compares these in the case that they have.
    match content_type(headers) {
        "application/json-patch+json" => Ok((PatchType::Json, Format::Json)),
        "application/merge-patch+json" => Ok((PatchType::Merge, Format::Json)),
        "application/apply-patch+yaml" => Ok((PatchType::Apply, Format::Yaml)),
        "application/apply-patch+cbor" if types.cbor => Ok((PatchType::Apply, Format::Cbor)),
        "application/strategic-merge-patch+json" if language == SchemaLanguage::GoTypes => {
            Ok((PatchType::StrategicMerge, Format::Json))
        }
        _ if language == SchemaLanguage::OpenApi => {
            let cbor = if types.cbor { ", application/apply-patch+cbor" } else { "" };
            Err(unknown_format(&format!(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml{cbor}"
            )))
        }
        _ => {
            let mut error =
                ApiError::new(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type");
            error.0.details = Some(Details::default());
            Err(error)
        }
    }
}

fn unknown_format(types: &str) -> ApiError {
    ApiError::new(
        415,
        Reason::UnsupportedMediaType,
        format!(
            "the body of the request was in an unknown format - accepted media types include: {types}"
        ),
    )
}

#[cfg(test)]
mod tests;
