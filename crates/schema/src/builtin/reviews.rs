//! The types of what webhooks answer. No API serves them, so that the published schemas do not have
//! them (source: spec admission §4, crd §10).

use super::{META, definition};
use crate::node::{Document, Node, NodeId, Property, Scalar, Shape, TypeSchema};
use std::sync::Arc;

/// A review's type, by the versions that webhooks may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// `admission.k8s.io/AdmissionReview`.
    Admission,
    /// `apiextensions.k8s.io/ConversionReview`.
    Conversion,
}

impl Review {
    /// The group of the type.
    pub fn group(self) -> &'static str {
        match self {
            Self::Admission => "admission.k8s.io",
            Self::Conversion => "apiextensions.k8s.io",
        }
    }

    /// The kind of the type.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Admission => "AdmissionReview",
            Self::Conversion => "ConversionReview",
        }
    }

    /// The type in a version, `v1` or `v1beta1`.
    pub fn schema(self, version: &str) -> TypeSchema {
        let (package, what) = match self {
            Self::Admission => ("io.k8s.api.admission", "Admission"),
            Self::Conversion => {
                ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions", "Conversion")
            }
        };
        let mut document = Document::default();
        let status = status(&mut document);
        let mut push = |node: Node| document.push(node);
        let text = push(omitted(Shape::String));
        let text_value = push(Node { shape: Shape::String, ..Node::default() });
        // Its members are not looked at.
        let request = push(structure(format!("{package}.{version}.{what}Request"), Vec::new()));
        let fields = match self {
            Self::Admission => vec![
                ("allowed", push(omitted(Shape::Boolean))),
                (
                    "auditAnnotations",
                    push(Node { additional: Some(text_value), ..omitted(Shape::Object) }),
                ),
                ("patch", push(Node { scalar: Scalar::Bytes, ..omitted(Shape::String) })),
                ("patchType", text_value),
                ("status", status),
                ("uid", text),
                ("warnings", push(Node { items: Some(text_value), ..omitted(Shape::Array) })),
            ],
            Self::Conversion => {
                let raw = "io.k8s.apimachinery.pkg.runtime.RawExtension";
                let object = push(Node {
                    shape: Shape::Any,
                    type_name: Some(raw.into()),
                    ..Node::default()
                });
                let objects = push(Node { items: Some(object), ..omitted(Shape::Array) });
                vec![("convertedObjects", objects), ("result", status), ("uid", text)]
            }
        };
        let response = push(structure(format!("{package}.{version}.{what}Response"), fields));
        let fields = vec![
            ("apiVersion", text),
            ("kind", text),
            ("request", request),
            ("response", response),
        ];
        let root = push(structure(format!("{package}.{version}.{}", self.kind()), fields));
        TypeSchema { document: Arc::new(document), root }
    }
}

/// A field that is left out when it is empty.
fn omitted(shape: Shape) -> Node {
    Node { shape, omit_empty: true, ..Node::default() }
}

/// A struct with fields, sorted by name.
fn structure(name: String, fields: Vec<(&'static str, NodeId)>) -> Node {
    let properties = fields.into_iter().map(|(name, id)| Property::new(name, id)).collect();
    Node { shape: Shape::Object, type_name: Some(name.into()), properties, ..Node::default() }
}

/// The node of a `Status`, whose properties are borrowed. What it always has is left out.
fn status(document: &mut Document) -> NodeId {
    let Some(schema) = definition(&format!("{META}Status")) else {
        return document.push(Node { shape: Shape::Any, ..Node::default() });
    };
    document.borrow_from(&schema.document);
    let mut node = schema.view().node().clone();
    for property in &mut node.properties {
        property.id = property.id.borrowed();
    }
    node.filled = Box::default();
    document.push(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Format, conform_error};

    #[test]
    fn what_is_wrong_with_an_answer_is_told_in_the_words_of_go() {
        let told = |review: Review, version: &str, body: &str| {
            let schema = review.schema(version);
            conform_error(&schema, review.kind(), body.as_bytes(), Format::Json)
                .map_or_else(String::new, |error| error.to_string())
        };
        let wrong = "json: cannot unmarshal";
        for (body, fault) in [
            (
                r#"{"response":{"uid":1}}"#,
                "number into Go struct field AdmissionResponse.response.uid of type types.UID",
            ),
            (
                r#"{"response":{"status":{"code":"x"}}}"#,
                "string into Go struct field Status.response.status.code of type int32",
            ),
            (
                r#"{"response":{"status":{"details":[]}}}"#,
                "array into Go struct field Status.response.status.details of type v1.StatusDetails",
            ),
            (
                r#"{"response":{"auditAnnotations":{"k":1}}}"#,
                "number into Go struct field AdmissionResponse.response.auditAnnotations of type string",
            ),
            (
                r#"{"response":{"patch":1,"allowed":2}}"#,
                "number into Go struct field AdmissionResponse.response.patch of type []uint8",
            ),
            (
                r#"{"response":{"warnings":"w"}}"#,
                "string into Go struct field AdmissionResponse.response.warnings of type []string",
            ),
            (
                r#"{"response":{"patchType":[]}}"#,
                "array into Go struct field AdmissionResponse.response.patchType of type v1beta1.PatchType",
            ),
            (
                r#"{"response":7}"#,
                "number into Go struct field AdmissionReview.response of type v1beta1.AdmissionResponse",
            ),
        ] {
            assert_eq!(told(Review::Admission, "v1beta1", body), format!("{wrong} {fault}"));
        }
        for (body, fault) in [
            (
                r#"{"response":{"convertedObjects":{}}}"#,
                "object into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
            ),
            (
                r#"{"response":{"result":[]}}"#,
                "array into Go struct field ConversionResponse.response.result of type v1.Status",
            ),
        ] {
            assert_eq!(told(Review::Conversion, "v1", body), format!("{wrong} {fault}"));
        }
        assert_eq!(
            told(
                Review::Admission,
                "v1",
                r#"{"x":1,"request":{"z":[]},"response":{"y":2,"status":null}}"#
            ),
            ""
        );
    }
}
