//! The protobuf encoding of a Swagger 2.0 document, as gnostic's `openapi.v2` messages: the only
//! form of v2 that kubectl before 1.27 requests. Field numbers are those of `OpenAPIv2.proto`.
//!
//! Encodes the JSON pieces of the document, one path or definition at a time.

use serde_json::{Map, Value};

/// A message being written.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

pub(super) const VARINT: u64 = 0;
pub(super) const FIXED64: u64 = 1;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
    pub(super) fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }
    /// The start of a member of `len` bytes.
    pub(super) fn open(&mut self, field: u64, len: usize) {
        self.tag(field, BYTES);
        self.varint(len as u64);
    }
    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.open(field, bytes.len());
        self.0.extend_from_slice(bytes);
    }
    pub(super) fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
    /// A string member; empty ones are omitted.
    pub(super) fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }
    pub(super) fn texts(&mut self, field: u64, value: Option<&Value>) {
        for text in list(value) {
            if let Some(text) = text.as_str() {
                self.bytes(field, text.as_bytes());
            }
        }
    }
    /// The operations of a path, by field and method.
    pub(super) fn operations(
        &mut self,
        methods: &[(u64, &str)],
        item: &Value,
        operation: fn(&Map<String, Value>) -> Message,
    ) {
        for (field, method) in methods {
            if let Some(Value::Object(members)) = item.get(method) {
                self.message(*field, &operation(members));
            }
        }
    }
    pub(super) fn flag(&mut self, field: u64, value: Option<&Value>) {
        if value.and_then(Value::as_bool) == Some(true) {
            self.tag(field, VARINT);
            self.varint(1);
        }
    }
    pub(super) fn int(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_i64).filter(|number| *number != 0) {
            self.tag(field, VARINT);
            self.varint(number.cast_unsigned());
        }
    }
    pub(super) fn double(&mut self, field: u64, value: Option<&Value>) {
        if let Some(number) = value.and_then(Value::as_f64).filter(|number| *number != 0.0) {
            self.tag(field, FIXED64);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }
    /// `Any`: the value as YAML text, of which JSON is a subset.
    pub(super) fn any(&mut self, field: u64, value: Option<&Value>) {
        if let Some(value) = value {
            let mut any = Message::default();
            any.bytes(2, value.to_string().as_bytes());
            self.message(field, &any);
        }
    }
    pub(super) fn extensions(&mut self, field: u64, members: &Map<String, Value>) {
        for (name, value) in members.iter().filter(|(name, _)| name.starts_with("x-")) {
            let mut named = Message::default();
            named.bytes(1, name.as_bytes());
            named.any(2, Some(value));
            self.message(field, &named);
        }
    }
    /// `{name = 1, value = 2}`.
    pub(super) fn named(&mut self, field: u64, name: &str, value: &Message) {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, value);
        self.message(field, &named);
    }
}

/// The members of an object; none of anything else.
pub(super) fn object(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

/// The items of a list; none of anything else.
pub(super) fn list(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}

/// Appends a path to the bytes of a `Paths` message.
pub(super) fn push_path(out: &mut Vec<u8>, name: &str, item: &Value) {
    let mut message = Message::default();
    message.named(2, name, &path_item(item));
    out.append(&mut message.0);
}
/// Appends a schema to the bytes of a `Definitions` message.
pub(super) fn push_definition(out: &mut Vec<u8>, name: &str, value: &Value) {
    let mut message = Message::default();
    message.named(1, name, &schema(value));
    out.append(&mut message.0);
}
/// The start of a document, up to its `Paths` message of `paths_len` bytes.
pub(super) fn head(swagger: &str, info: &Value, paths_len: usize) -> Vec<u8> {
    let mut head = Message::default();
    head.bytes(1, swagger.as_bytes());
    let mut message = Message::default();
    message.text(1, info.get("title"));
    message.text(2, info.get("version"));
    head.message(2, &message);
    head.open(8, paths_len);
    head.0
}
/// The header of its `Definitions` message of `definitions_len` bytes.
pub(super) fn definitions_head(definitions_len: usize) -> Vec<u8> {
    let mut head = Message::default();
    head.open(9, definitions_len);
    head.0
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    let methods = [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")];
    out.operations(&methods, item, operation);
    parameters(&mut out, 9, item.get("parameters"));
    out
}

fn operation(members: &Map<String, Value>) -> Message {
    let mut out = Message::default();
    out.texts(1, members.get("tags"));
    out.text(3, members.get("description"));
    out.text(5, members.get("operationId"));
    out.texts(6, members.get("produces"));
    out.texts(7, members.get("consumes"));
    parameters(&mut out, 8, members.get("parameters"));
    let mut responses = Message::default();
    for (code, response) in object(members.get("responses")) {
        let mut message = Message::default();
        message.text(1, response.get("description"));
        if let Some(value) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &schema(value));
            message.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &message);
        responses.named(1, code, &value);
    }
    out.message(9, &responses);
    out.texts(10, members.get("schemes"));
    out.extensions(13, members);
    out
}

fn parameters(out: &mut Message, field: u64, parameters: Option<&Value>) {
    for parameter in list(parameters) {
        let mut message = Message::default();
        let place = parameter.get("in").and_then(Value::as_str).unwrap_or_default();
        if place == "body" {
            let mut body = Message::default();
            body.text(2, parameter.get("name"));
            body.text(3, parameter.get("in"));
            body.flag(4, parameter.get("required"));
            if let Some(value) = parameter.get("schema") {
                body.message(5, &schema(value));
            }
            message.message(1, &body);
        } else {
            let mut sub = Message::default();
            sub.flag(1, parameter.get("required"));
            sub.text(2, parameter.get("in"));
            sub.text(3, parameter.get("description"));
            sub.text(4, parameter.get("name"));
            // Query parameters have one more member before the type than path parameters.
            let (kind, ty, unique) = if place == "query" { (3, 6, 20) } else { (4, 5, 19) };
            sub.text(ty, parameter.get("type"));
            sub.flag(unique, parameter.get("uniqueItems"));
            let mut non_body = Message::default();
            non_body.message(kind, &sub);
            message.message(2, &non_body);
        }
        let mut item = Message::default();
        item.message(1, &message);
        out.message(field, &item);
    }
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    let Value::Object(members) = value else { return out };
    let get = |key: &str| members.get(key);
    out.text(1, get("$ref"));
    out.text(2, get("format"));
    out.text(3, get("title"));
    out.text(4, get("description"));
    out.any(5, get("default"));
    out.double(6, get("multipleOf"));
    out.double(7, get("maximum"));
    out.flag(8, get("exclusiveMaximum"));
    out.double(9, get("minimum"));
    out.flag(10, get("exclusiveMinimum"));
    out.int(11, get("maxLength"));
    out.int(12, get("minLength"));
    out.text(13, get("pattern"));
    out.int(14, get("maxItems"));
    out.int(15, get("minItems"));
    out.flag(16, get("uniqueItems"));
    out.int(17, get("maxProperties"));
    out.int(18, get("minProperties"));
    out.texts(19, get("required"));
    for value in list(get("enum")) {
        out.any(20, Some(value));
    }
    match get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.tag(2, VARINT);
            item.varint(u64::from(*allowed));
            out.message(21, &item);
        }
        Some(value) => {
            let mut item = Message::default();
            item.message(1, &schema(value));
            out.message(21, &item);
        }
        None => {}
    }
    if let Some(ty) = get("type").and_then(Value::as_str) {
        let mut item = Message::default();
        item.bytes(1, ty.as_bytes());
        out.message(22, &item);
    }
    if let Some(items) = get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    if let Some(Value::Object(properties)) = get("properties") {
        let mut message = Message::default();
        for (name, value) in properties {
            message.named(1, name, &schema(value));
        }
        out.message(25, &message);
    }
    if let Some(value) = get("externalDocs") {
        let mut docs = Message::default();
        docs.text(1, value.get("description"));
        docs.text(2, value.get("url"));
        out.message(29, &docs);
    }
    out.any(30, get("example"));
    out.extensions(31, members);
    out
}
