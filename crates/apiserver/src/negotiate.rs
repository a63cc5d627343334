//! Content negotiation: the encodings and forms that a client accepts, and the encoding of a body.
//!
//! JSON and YAML are always available. Protobuf is available for built-in kinds: objects, lists and
//! watches of those, metadata of custom resources too, `Status` and discovery documents. Tables and
//! custom resources have no protobuf form.
//!
//! CBOR is available if the server has it ([`Types::cbor`]): for objects and lists of all kinds,
//! watches of those, metadata, `Status` and the resources of a built-in group version. Tables and
//! the other discovery documents have no CBOR form. Errors of routes, and those found before a
//! resource is looked at, are in none either.

mod media_type;

pub(crate) use media_type::{Clause, clauses};

use http::{HeaderMap, header};
use media_type::{header_text, is_routed};
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
/// An applied configuration.
const APPLY_YAML: &str = "application/apply-patch+yaml";
/// One in CBOR.
const APPLY_CBOR: &str = "application/apply-patch+cbor";
/// A strategic merge patch.
const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";
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

    /// The form of the answer that a clause means in an encoding; `None` if there is none.
    fn accepts(self, clause: &Clause<'_>, encoding: Encoding) -> Option<Accepted> {
        let is_plain =
            matches!(self, Self::Versions | Self::Discovery | Self::Plain | Self::Status);
        let has_version = clause.param("sv").is_none_or(|version| version == "v1" && !is_plain);
        if !has_version || !clause.has_stream(encoding) {
            return None;
        }
        let transform = transform(clause)?;
        if transform != Transform::None && is_plain {
            return None;
        }
        let is_tree = matches!(encoding, Encoding::Json | Encoding::Yaml);
        let has_tables = !matches!(self, Self::Builtin { tables: false, .. } | Self::Log);
        if matches!(transform, Transform::Table(_)) && !(has_tables && is_tree) {
            return None;
        }
        let is_custom = matches!(self, Self::Custom | Self::Watch(SchemaLanguage::OpenApi));
        if encoding == Encoding::Protobuf && transform == Transform::None && is_custom {
            return None;
        }
        let pretty = clause.param("pretty") == Some("1");
        Some(Accepted { encoding, pretty, transform })
    }
}

/// The `Accept` header: its first line, empty if missing.
pub(crate) fn accept_header(headers: &HeaderMap) -> std::borrow::Cow<'_, str> {
    header_text(headers, &header::ACCEPT)
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
    if accept.is_empty() {
        return Ok(Accepted::default());
    }
    let types = types.of(endpoint);
    if endpoint.is_routed() {
        let list = endpoint.route_types(types);
        let of_route: Vec<&str> = list.split(", ").collect();
        if !is_routed(accept, &of_route, true) {
            return Err(no_such_representation(&list));
        }
    }
    let mut encodings = vec![Encoding::Json, Encoding::Yaml, Encoding::Protobuf];
    encodings.extend(types.cbor.then_some(Encoding::Cbor));
    let met = clauses(accept).iter().find_map(|clause| {
        let mut encodings = encodings.iter().filter(|encoding| clause.means(**encoding));
        encodings.find_map(|encoding| endpoint.accepts(clause, *encoding))
    });
    met.ok_or_else(|| not_acceptable(&types.objects()))
}

/// Checks that events of a watch have a form. Called after the watch has been opened.
///
/// # Errors
///
/// 406: there are no events in YAML.
pub(crate) fn stream(accepted: Accepted, types: Types) -> Result<(), ApiError> {
    match accepted.encoding {
        Encoding::Yaml => Err(not_acceptable(&types.streams())),
        Encoding::Json | Encoding::Protobuf | Encoding::Cbor => Ok(()),
    }
}

fn not_acceptable(types: &str) -> ApiError {
    let text = format!("only the following media types are accepted: {types}");
    ApiError::new(406, Reason::NotAcceptable, text)
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
    if accept.is_empty() || is_routed(accept, &[media_type], true) {
        return Ok(());
    }
    Err(no_such_representation(media_type))
}

/// The answer of a route that has none of the accepted media types.
fn no_such_representation(types: &str) -> ApiError {
    let text = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    of_routing(ApiError::new(406, Reason::NotAcceptable, text))
}

/// A refusal as the reference's routes word it, before a handler is called.
fn of_routing(mut error: ApiError) -> ApiError {
    error.0.details = Some(Details::default());
    error
}

/// Whether a refusal of negotiation is one of the reference's routes.
pub(crate) fn is_of_routing(error: &ApiError) -> bool {
    error.0.details.is_some()
}

/// The transform in a clause; `None` if it is unknown.
fn transform(clause: &Clause<'_>) -> Option<Transform> {
    let (kind, group, version) = (clause.param("as"), clause.param("g"), clause.param("v"));
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
    let text = header_text(headers, &header::CONTENT_TYPE);
    if text.is_empty() {
        return Ok(Format::Json);
    }
    match media_type::parse(&text).as_deref() {
        Some("application/json") => Ok(Format::Json),
        Some("application/yaml") => Ok(Format::Yaml),
        Some("application/vnd.kubernetes.protobuf") if language == SchemaLanguage::GoTypes => {
            Ok(Format::Protobuf)
        }
        Some(CBOR) if types.cbor => Ok(Format::Cbor),
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
    let mut served =
        vec!["application/json-patch+json", "application/merge-patch+json", APPLY_YAML];
    if language == SchemaLanguage::GoTypes {
        served.insert(2, STRATEGIC_MERGE);
    }
    served.extend(types.cbor.then_some(APPLY_CBOR));
    let text = header_text(headers, &header::CONTENT_TYPE);
    // Routes read a list, and one type of it is enough for them. The reference then compares the
    // whole text before the semicolon, in the case that it has.
    if language == SchemaLanguage::GoTypes && !is_routed(&text, &served, false) {
        let text = "415: Unsupported Media Type";
        return Err(of_routing(ApiError::new(415, Reason::UnsupportedMediaType, text)));
    }
    let end = text.find(';').filter(|at| *at > 0).unwrap_or(text.len());
    match served.iter().find(|ty| **ty == &text[..end]).copied() {
        Some(APPLY_YAML) => Ok((PatchType::Apply, Format::Yaml)),
        Some(APPLY_CBOR) => Ok((PatchType::Apply, Format::Cbor)),
        Some(STRATEGIC_MERGE) => Ok((PatchType::StrategicMerge, Format::Json)),
        Some("application/json-patch+json") => Ok((PatchType::Json, Format::Json)),
        Some(_) => Ok((PatchType::Merge, Format::Json)),
        None => Err(unknown_format(&served.join(", "))),
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
