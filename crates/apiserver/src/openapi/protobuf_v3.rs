//! The protobuf encoding of an OpenAPI 3.0 document, as gnostic's `openapi.v3` messages. Field
//! numbers are those of `OpenAPIv3.proto`.
//!
//! Encodes the JSON pieces of the document, one path or schema at a time.

use super::protobuf::{FIXED64, Message, VARINT, list, object};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A part of a document in JSON that is encoded at once.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    /// Version and `info`.
    Head(&'a str, &'a RawValue),
    Path(&'a str, &'a RawValue),
    Schema(&'a str, &'a RawValue),
    SecurityScheme(&'a str, &'a RawValue),
}

impl Piece<'_> {
    /// Bytes of its JSON.
    pub(super) fn len(self) -> usize {
        let (Self::Head(_, raw)
        | Self::Path(_, raw)
        | Self::Schema(_, raw)
        | Self::SecurityScheme(_, raw)) = self;
        raw.get().len()
    }
}

/// A document, its parts unread.
#[derive(Deserialize)]
struct Parts<'a> {
    openapi: &'a str,
    #[serde(borrow)]
    info: &'a RawValue,
    #[serde(borrow)]
    paths: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow)]
    components: Components<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Components<'a> {
    #[serde(borrow)]
    schemas: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow)]
    security_schemes: BTreeMap<&'a str, &'a RawValue>,
}

/// The pieces of a document in JSON; none if it is not one that this server makes.
pub(super) fn pieces(json: &[u8]) -> Vec<Piece<'_>> {
    let Ok(parts) = serde_json::from_slice::<Parts<'_>>(json) else { return Vec::new() };
    let Components { schemas, security_schemes } = parts.components;
    std::iter::once(Piece::Head(parts.openapi, parts.info))
        .chain(parts.paths.into_iter().map(|(name, raw)| Piece::Path(name, raw)))
        .chain(schemas.into_iter().map(|(name, raw)| Piece::Schema(name, raw)))
        .chain(security_schemes.into_iter().map(|(name, raw)| Piece::SecurityScheme(name, raw)))
        .collect()
}

/// A document being encoded.
#[derive(Debug, Default)]
pub(super) struct Document {
    head: Message,
    paths: Message,
    schemas: Message,
    security: Message,
}

impl Document {
    /// Adds a piece.
    pub(super) fn add(&mut self, piece: Piece<'_>) {
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).unwrap_or_default();
        match piece {
            Piece::Head(version, info) => {
                let (info, mut message) = (value(info), Message::default());
                message.text(1, info.get("title"));
                message.text(6, info.get("version"));
                self.head.bytes(1, version.as_bytes());
                self.head.message(2, &message);
            }
            Piece::Path(name, raw) => self.paths.named(1, name, &path_item(&value(raw))),
            Piece::Schema(name, raw) => {
                self.schemas.named(1, name, &schema_or_reference(&value(raw)));
            }
            Piece::SecurityScheme(name, raw) => {
                let (scheme, mut message) = (value(raw), Message::default());
                message.text(1, scheme.get("type"));
                message.text(2, scheme.get("description"));
                message.text(3, scheme.get("name"));
                message.text(4, scheme.get("in"));
                self.security.named(1, name, &wrapped(1, &message));
            }
        }
    }

    /// Its bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let Self { mut head, paths, schemas, security } = self;
        let mut components = Message::default();
        if !schemas.0.is_empty() {
            components.message(1, &schemas);
        }
        drop(schemas);
        components.message(7, &security);
        head.message(4, &paths);
        head.message(5, &components);
        head.0
    }
}

/// A message with one other as its field.
fn wrapped(field: u64, message: &Message) -> Message {
    let mut out = Message::default();
    out.message(field, message);
    out
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    let methods = [
        (4, "get"),
        (5, "put"),
        (6, "post"),
        (7, "delete"),
        (8, "options"),
        (9, "head"),
        (10, "patch"),
    ];
    out.operations(&methods, item, operation);
    parameters(&mut out, 13, item.get("parameters"));
    out
}

fn operation(members: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.texts(1, members.get("tags"));
    out.text(3, members.get("description"));
    out.text(5, members.get("operationId"));
    parameters(&mut out, 6, members.get("parameters"));
    if let Some(body) = members.get("requestBody") {
        let mut message = Message::default();
        message.text(1, body.get("description"));
        media_types(&mut message, 2, body.get("content"));
        message.flag(3, body.get("required"));
        out.message(7, &wrapped(1, &message));
    }
    let mut responses = Message::default();
    for (code, response) in object(members.get("responses")) {
        let mut message = Message::default();
        message.text(1, response.get("description"));
        media_types(&mut message, 3, response.get("content"));
        let response = wrapped(1, &message);
        match code.as_str() {
            "default" => responses.message(1, &response),
            code => responses.named(2, code, &response),
        }
    }
    out.message(8, &responses);
    out.extensions(13, members);
    out
}

fn parameters(out: &mut Message, field: u64, parameters: Option<&Value>) {
    for parameter in list(parameters) {
        let mut message = Message::default();
        message.text(1, parameter.get("name"));
        message.text(2, parameter.get("in"));
        message.text(3, parameter.get("description"));
        message.flag(4, parameter.get("required"));
        if let Some(value) = parameter.get("schema") {
            message.message(10, &schema_or_reference(value));
        }
        out.message(field, &wrapped(1, &message));
    }
}

fn media_types(out: &mut Message, field: u64, types: Option<&Value>) {
    if types.is_none() {
        return;
    }
    let mut all = Message::default();
    for (name, value) in object(types) {
        let mut message = Message::default();
        if let Some(value) = value.get("schema") {
            message.message(1, &schema_or_reference(value));
        }
        all.named(1, name, &message);
    }
    out.message(field, &all);
}

fn schema_or_reference(value: &Value) -> Message {
    match value.get("$ref") {
        Some(target) => {
            let mut reference = Message::default();
            reference.text(1, Some(target));
            wrapped(2, &reference)
        }
        None => wrapped(1, &schema(value)),
    }
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    let Value::Object(members) = value else { return out };
    let get = |key: &str| members.get(key);
    out.flag(1, get("nullable"));
    out.flag(3, get("readOnly"));
    out.flag(4, get("writeOnly"));
    if let Some(value) = get("externalDocs") {
        let mut docs = Message::default();
        docs.text(1, value.get("description"));
        docs.text(2, value.get("url"));
        out.message(6, &docs);
    }
    out.any(7, get("example"));
    out.flag(8, get("deprecated"));
    out.text(9, get("title"));
    out.double(10, get("multipleOf"));
    out.double(11, get("maximum"));
    out.flag(12, get("exclusiveMaximum"));
    out.double(13, get("minimum"));
    out.flag(14, get("exclusiveMinimum"));
    out.int(15, get("maxLength"));
    out.int(16, get("minLength"));
    out.text(17, get("pattern"));
    out.int(18, get("maxItems"));
    out.int(19, get("minItems"));
    out.flag(20, get("uniqueItems"));
    out.int(21, get("maxProperties"));
    out.int(22, get("minProperties"));
    out.texts(23, get("required"));
    list(get("enum")).for_each(|value| out.any(24, Some(value)));
    out.text(25, get("type"));
    for (field, name) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        list(get(name)).for_each(|value| out.message(field, &schema_or_reference(value)));
    }
    if let Some(value) = get("not") {
        out.message(29, &schema(value));
    }
    if let Some(items) = get("items") {
        out.message(30, &wrapped(1, &schema_or_reference(items)));
    }
    if let Some(properties) = get("properties") {
        let mut message = Message::default();
        for (name, value) in object(Some(properties)) {
            message.named(1, name, &schema_or_reference(value));
        }
        out.message(31, &message);
    }
    match get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.tag(2, VARINT);
            item.varint(u64::from(*allowed));
            out.message(32, &item);
        }
        Some(value) => out.message(32, &wrapped(1, &schema_or_reference(value))),
        None => {}
    }
    if let Some(value) = get("default") {
        out.message(33, &default_value(value));
    }
    out.text(34, get("description"));
    out.text(35, get("format"));
    out.extensions(36, members);
    out
}

/// A default. Of objects and lists the message is empty.
fn default_value(value: &Value) -> Message {
    let mut out = Message::default();
    match value {
        Value::Number(number) => {
            out.tag(1, FIXED64);
            out.0.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::Bool(value) => {
            out.tag(2, VARINT);
            out.varint(u64::from(*value));
        }
        Value::String(text) => out.bytes(3, text.as_bytes()),
        _ => {}
    }
    out
}
