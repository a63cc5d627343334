//! `Table` and `PartialObjectMetadata`: the forms that users and garbage collectors read instead of
//! whole objects.

use crate::negotiate::MetaVersion;
use crate::query::Query;
use memchr::memmem;
use serde_json::{Map, Value};
use setpoint_object::field::quote;
use setpoint_object::members;
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, Reason, encode};
use setpoint_registry::kind::Kind;
use setpoint_registry::table::{Cells, ColumnDefinition, Columns};
use setpoint_registry::{Resource, SchemaLanguage, Subresource, Target};

/// The contents of a row's `object` (`?includeObject=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query.
    ///
    /// # Errors
    ///
    /// 400 for another value.
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        match query.text("includeObject") {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quote(other)
            ))),
        }
    }
}

/// Makes the tables of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer<'a> {
    /// The kind of the objects.
    pub(crate) kind: &'static Kind,
    /// The columns; `None` for bodies without a printer: name and creation time.
    pub(crate) columns: Option<&'a Columns>,
    /// The version of the Table.
    pub(crate) version: MetaVersion,
    /// The contents of rows.
    pub(crate) include: IncludeObject,
    /// The present time, for ages.
    pub(crate) now: Timestamp,
}

impl Printer<'_> {
    /// A Table of one object. `metadata` is the JSON of its metadata; `headings`: with column
    /// definitions (a watch sends them in its first event only).
    pub(crate) fn table(&self, object: &[u8], metadata: &str, headings: bool) -> Vec<u8> {
        let (head, tail) = self.envelope(metadata, headings, false);
        let mut out = Vec::with_capacity(head.len() + object.len() + tail.len());
        out.extend_from_slice(head.as_bytes());
        self.row(&mut out, object);
        out.extend_from_slice(tail.as_bytes());
        out
    }

    /// Head and tail around the rows; `is_empty`: there will be none.
    pub(crate) fn envelope(
        &self,
        metadata: &str,
        headings: bool,
        is_empty: bool,
    ) -> (String, &'static str) {
        // Only kinds without a printer have rows that are filled by appending.
        let is_plain = self.columns.is_none_or(|columns| matches!(columns.cells, Cells::Plain));
        let (start, tail) = around_elements(is_empty && is_plain);
        let version = self.version.api_version();
        let headings = if headings { self.headings() } else { "null".into() };
        let head = format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"columnDefinitions\":{headings},\"rows\":{start}"
        );
        (head, tail)
    }

    fn headings(&self) -> String {
        let unnamed = [
            ColumnDefinition::new("Name", "string", "name"),
            ColumnDefinition::new("Created At", "date", ""),
        ];
        let definitions = self.columns.map_or(&unnamed[..], |columns| &columns.definitions);
        let mut text = Vec::new();
        // Strings and numbers fit into JSON.
        let _ = encode::push_serialized(&mut text, definitions);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Appends the row of an object.
    pub(crate) fn row(&self, out: &mut Vec<u8>, object: &[u8]) {
        let tree: Value = serde_json::from_slice(object).unwrap_or_default();
        let cells = match self.columns {
            Some(columns) => columns.row(&tree, self.now),
            None => ["name", "creationTimestamp"]
                .map(|name| tree.pointer(&format!("/metadata/{name}")).cloned().unwrap_or_default())
                .into(),
        };
        out.extend_from_slice(b"{\"cells\":");
        encode::push(out, &Value::from(cells));
        if let Some((reason, message)) = (self.kind.completion)(&tree) {
            let condition = format!(
                ",\"conditions\":[{{\"type\":\"Completed\",\"status\":\"True\",\"reason\":\"{reason}\",\"message\":\"{message}\"}}]"
            );
            out.extend_from_slice(condition.as_bytes());
        }
        out.extend_from_slice(b",\"object\":");
        match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => partial(out, object, self.kind, self.version),
            IncludeObject::Object => out.extend_from_slice(object),
        }
        out.push(b'}');
    }
}

/// The kind's columns, or `None` for kinds without a printer.
pub(crate) fn printable(columns: &Columns) -> Option<&Columns> {
    Some(columns).filter(|columns| !columns.definitions.is_empty())
}

/// Appends the metadata-only form of an object, cut from its bytes.
pub(crate) fn partial(out: &mut Vec<u8>, object: &[u8], kind: &Kind, version: MetaVersion) {
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":");
    let metadata = members::value(object, "metadata").unwrap_or(b"{}");
    match without(metadata, kind.hidden_annotations) {
        Some(metadata) => out.extend_from_slice(&metadata),
        None => out.extend_from_slice(metadata),
    }
    out.push(b'}');
}

/// Metadata without these annotations; `None` if it has none of them.
fn without(metadata: &[u8], hidden: &[&str]) -> Option<Vec<u8>> {
    hidden.iter().find_map(|name| memmem::find(metadata, name.as_bytes()))?;
    let annotations = members::value(metadata, "annotations")?;
    let mut rest: Map<String, Value> = serde_json::from_slice(annotations).ok()?;
    let n_before = rest.len();
    rest.retain(|name, _| !hidden.contains(&&**name));
    if rest.len() == n_before {
        return None;
    }
    // The value is a part of the metadata.
    let at = (annotations.as_ptr() as usize).checked_sub(metadata.as_ptr() as usize)?;
    let (mut start, mut end) = (at, at + annotations.len());
    if rest.is_empty() {
        start = at.checked_sub("\"annotations\":".len())?;
        match (metadata.get(end), start.checked_sub(1).and_then(|before| metadata.get(before))) {
            (Some(b','), _) => end += 1,
            (_, Some(b',')) => start -= 1,
            _ => {}
        }
    }
    let mut out = metadata.get(..start)?.to_vec();
    if !rest.is_empty() {
        encode::push(&mut out, &Value::Object(rest));
    }
    out.extend_from_slice(metadata.get(end..)?);
    Some(out)
}

/// The kind of the metadata-only form of a list.
pub(crate) const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// Head and tail around the items of a list in metadata-only form; `is_empty`: there will be none.
pub(crate) fn partial_envelope(
    metadata: &str,
    version: MetaVersion,
    is_empty: bool,
) -> (String, &'static str) {
    let version = version.api_version();
    let (start, tail) = around_elements(is_empty);
    let head = format!(
        "{{\"kind\":\"{PARTIAL_LIST}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":{start}"
    );
    (head, tail)
}

/// What begins and ends the elements of a form, which are its last member. The reference fills some
/// forms by appending: without elements these have `null`.
fn around_elements(is_null: bool) -> (&'static str, &'static str) {
    if is_null { ("null", "}") } else { ("[", "]}") }
}

/// The metadata of a single object's Table: its resourceVersion.
pub(crate) fn object_metadata(object: &[u8]) -> String {
    let version = members::value(object, "metadata")
        .and_then(|metadata| members::value(metadata, "resourceVersion"))
        .and_then(|version| std::str::from_utf8(version).ok());
    version.map_or_else(|| "{}".to_owned(), |version| format!("{{\"resourceVersion\":{version}}}"))
}

/// 406: the metadata form of an object was requested for a list, or the reverse.
pub(crate) fn wrong_shape(asked: &str, is_list: bool, target: &Target) -> ApiError {
    let not = if is_list { "is a list" } else { "is not a list" };
    let ty = match target.subresource {
        Some(Subresource::Scale) => "autoscaling.Scale".to_owned(),
        _ => go_type(&target.resource, is_list),
    };
    let text = format!("you requested {asked}, but the requested object {not} (*{ty})");
    ApiError::new(406, Reason::NotAcceptable, text)
}

/// The Go type of a resource's objects or lists on the reference server.
fn go_type(resource: &Resource, is_list: bool) -> String {
    let suffix = if is_list { "List" } else { "" };
    let group = &*resource.gvk.group;
    let package = match group {
        _ if resource.schema.language() == SchemaLanguage::OpenApi => {
            return format!("unstructured.Unstructured{suffix}");
        }
        // Both have one internal version.
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("{package}.{}{suffix}", resource.gvk.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_has_no_annotations_that_are_fields_of_the_internal_version() {
        static HIDES: Kind =
            Kind { hidden_annotations: &["x", "internal"], ..Kind::plain("ex.io", "A") };
        static HIDES_NONE: Kind = Kind::plain("ex.io", "B");
        let of = |kind: &'static Kind, metadata: &str| {
            let object = format!(r#"{{"kind":"{}","metadata":{metadata}}}"#, kind.kind);
            let mut out = Vec::new();
            partial(&mut out, object.as_bytes(), kind, MetaVersion::V1);
            let partial: Value = serde_json::from_slice(&out).unwrap();
            partial["metadata"].to_string()
        };
        let key = r#""internal":"1""#;
        for (metadata, expected) in [
            (format!(r#"{{"annotations":{{{key}}},"name":"a"}}"#), r#"{"name":"a"}"#),
            (format!(r#"{{"name":"a","annotations":{{{key}}}}}"#), r#"{"name":"a"}"#),
            (format!(r#"{{"annotations":{{{key}}}}}"#), "{}"),
            (format!(r#"{{"annotations":{{"b":"c",{key}}}}}"#), r#"{"annotations":{"b":"c"}}"#),
            (r#"{"annotations":{"b":"c"}}"#.to_owned(), r#"{"annotations":{"b":"c"}}"#),
        ] {
            assert_eq!(of(&HIDES, &metadata), expected, "{metadata}");
            assert_eq!(of(&HIDES_NONE, &metadata).contains(key), metadata.contains(key));
        }
    }

    #[test]
    fn rows_say_that_their_objects_are_completed() {
        static TASK: Kind = Kind {
            completion: |task| (task["phase"] == "Failed").then_some(("Failed", "It failed.")),
            ..Kind::plain("ex.io", "Task")
        };
        let row = |object: &str| {
            let printer = Printer {
                kind: &TASK,
                columns: None,
                version: MetaVersion::V1,
                include: IncludeObject::None,
                now: Timestamp::default(),
            };
            let mut out = Vec::new();
            printer.row(&mut out, object.as_bytes());
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            row(r#"{"metadata":{"name":"p"},"phase":"Failed"}"#),
            r#"{"cells":["p",null],"conditions":[{"type":"Completed","status":"True","reason":"Failed","message":"It failed."}],"object":null}"#
        );
        assert_eq!(row("{}"), r#"{"cells":[null,null],"object":null}"#);
    }
}
