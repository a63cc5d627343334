//! Descriptions of built-in types and of parameters, from published OpenAPI documents.

mod parameters;

use parameters::Parameters;
use serde::Deserialize;
use serde_json::Value;
use setpoint_facts::DEFINITIONS;
use sha2::{Digest as _, Sha512};
use std::collections::{BTreeMap, HashMap};

/// Maximum size of one document, in bytes. Kubernetes' `swagger.json` has 4 MiB.
pub const OPEN_API_FILE_BYTES_MAX: usize = 32 << 20;
/// Maximum size of one description, in bytes. The longest of Kubernetes has 4 KiB.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum size of all descriptions, in bytes. Those of Kubernetes have less than a MiB.
const ALL_BYTES_MAX: usize = 8 << 20;

/// Why a document cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenApiFileError {
    /// More than [`OPEN_API_FILE_BYTES_MAX`].
    #[error("the document is larger than {OPEN_API_FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not JSON, or definitions of another form.
    #[error("the document is not OpenAPI in JSON")]
    Json(#[source] serde_json::Error),
    /// Neither `swagger: "2.0"` nor `openapi: 3.…`.
    #[error("the document is neither OpenAPI 2.0 nor 3")]
    Version,
    /// A description of more than 64 KiB. The name of the definition or of the parameter.
    #[error("a description of {0} has more than {TEXT_BYTES_MAX} bytes")]
    LongText(String),
    /// Descriptions of more than 8 MiB.
    #[error("all descriptions together have more than {ALL_BYTES_MAX} bytes")]
    TooMuchText,
}

/// Descriptions of built-in types, their fields and of parameters, and the known values of texts,
/// from the OpenAPI documents that Kubernetes publishes: `swagger.json`, or documents of version 3.
///
/// The documents of this server then have them, so that `kubectl explain` shows them. Types and
/// fields that this server does not have are left out; the rest of the documents is not used.
#[derive(Debug, Default)]
pub struct OpenApiDescriptions {
    types: HashMap<&'static str, Described>,
    parameters: Parameters,
    bounded: Bounded,
}

/// The size of what was taken, and its hash.
#[derive(Debug, Default)]
struct Bounded {
    n_bytes: usize,
    hash: Sha512,
}

impl Bounded {
    /// Takes a text. `owner`: what it describes.
    fn text(&mut self, text: &str, owner: &str) -> Result<Box<str>, OpenApiFileError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(OpenApiFileError::LongText(owner.to_owned()));
        }
        self.n_bytes += text.len();
        if self.n_bytes > ALL_BYTES_MAX {
            return Err(OpenApiFileError::TooMuchText);
        }
        self.hash.update((text.len() as u64).to_le_bytes());
        self.hash.update(text);
        Ok(text.into())
    }
}

#[derive(Debug, Default)]
struct Described {
    text: Option<Box<str>>,
    fields: HashMap<&'static str, Box<str>>,
    /// The known values of fields: lists of texts.
    enums: HashMap<&'static str, Value>,
}

#[derive(Deserialize)]
struct Document {
    swagger: Option<String>,
    openapi: Option<String>,
    #[serde(default)]
    definitions: BTreeMap<String, Definition>,
    #[serde(default)]
    components: Components,
    #[serde(default)]
    paths: BTreeMap<String, parameters::PathItem>,
    /// Those of version 2 that operations refer to.
    #[serde(default)]
    parameters: BTreeMap<String, parameters::Published>,
}
#[derive(Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Definition>,
}
#[derive(Deserialize)]
struct Definition {
    description: Option<String>,
    #[serde(default)]
    properties: BTreeMap<String, Property>,
}
#[derive(Deserialize)]
struct Property {
    description: Option<String>,
    #[serde(rename = "enum")]
    values: Option<Value>,
    items: Option<Items>,
}
#[derive(Deserialize)]
struct Items {
    #[serde(rename = "enum")]
    values: Option<Value>,
}

impl Property {
    /// The known values of a text, or of the texts in a list.
    fn known_values(&mut self) -> Option<Value> {
        let of_items = self.items.take().and_then(|items| items.values);
        let values = self.values.take().or(of_items)?;
        let is_text = values.as_array().is_some_and(|all| all.iter().all(Value::is_string));
        is_text.then_some(values)
    }
}

impl OpenApiDescriptions {
    /// Without any.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds those of a document. Of two descriptions of the same, the later one counts; of a
    /// parameter's, the first.
    ///
    /// # Errors
    ///
    /// The document cannot be used; what was added of it stays.
    pub fn add(&mut self, json: &[u8]) -> Result<(), OpenApiFileError> {
        if json.len() > OPEN_API_FILE_BYTES_MAX {
            return Err(OpenApiFileError::TooLarge);
        }
        let document: Document = serde_json::from_slice(json).map_err(OpenApiFileError::Json)?;
        let is_2 = document.swagger.as_deref() == Some("2.0");
        let is_3 = document.openapi.is_some_and(|version| version.starts_with("3."));
        if !is_2 && !is_3 {
            return Err(OpenApiFileError::Version);
        }
        for (name, described) in document.definitions.into_iter().chain(document.components.schemas)
        {
            let Some(at) = setpoint_facts::definition(&name) else { continue };
            let known = &DEFINITIONS[usize::from(at)];
            let own = self.types.entry(known.name).or_default();
            if let Some(text) = described.description.filter(|text| !text.is_empty()) {
                own.text = Some(self.bounded.text(&text, &name)?);
            }
            for (field, mut property) in described.properties {
                let field = known.fields.iter().find(|known| known.name == field);
                let Some(field) = field else { continue };
                if let Some(values) = property.known_values() {
                    self.bounded.text(&values.to_string(), &name)?;
                    own.enums.insert(field.name, values);
                }
                if let Some(text) = property.description.filter(|text| !text.is_empty()) {
                    own.fields.insert(field.name, self.bounded.text(&text, &name)?);
                }
            }
        }
        for (path, item) in &document.paths {
            self.parameters.add(path, item, &document.parameters, &mut self.bounded)?;
        }
        Ok(())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bounded.n_bytes == 0
    }

    /// The description of a definition.
    pub(super) fn of(&self, definition: &str) -> Option<&str> {
        self.types.get(definition)?.text.as_deref()
    }

    /// The description of a field of a definition.
    pub(super) fn of_field(&self, definition: &str, field: &str) -> Option<&str> {
        self.types.get(definition)?.fields.get(field).map(|text| &**text)
    }

    /// The known values of a field of a definition, or of the elements of its list.
    pub(super) fn values_of_field(&self, definition: &str, field: &str) -> Option<&Value> {
        self.types.get(definition)?.enums.get(field)
    }

    /// Differs if the descriptions do.
    pub(super) fn digest(&self) -> String {
        super::hex(self.bounded.hash.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::parameter::Parameter;
    use crate::openapi::path::Action;
    use crate::openapi::{Dialect, Texts, schema};
    use serde_json::json;

    const POD: &str = "io.k8s.api.core.v1.Pod";

    fn schemas() -> serde_json::Value {
        json!({
            POD: {
                "description": "A pod.",
                "type": "object",
                "properties": {
                    "spec": {"description": "What it is to be.", "allOf": [{"$ref": "#/x"}]},
                    "unheard": {"description": "Of another version."},
                },
            },
            "io.ex.v1.Ring": {"description": "Not built in."},
        })
    }

    #[test]
    fn descriptions_of_known_types_and_fields_are_taken_from_both_versions() {
        let v2 = json!({"swagger": "2.0", "definitions": schemas(), "paths": {"/": [[]]}});
        let v3 = json!({"openapi": "3.0.0", "components": {"schemas": schemas()}});
        for document in [v2, v3] {
            let mut all = OpenApiDescriptions::new();
            assert!(all.is_empty());
            all.add(document.to_string().as_bytes()).unwrap();
            assert_eq!(all.of(POD), Some("A pod."));
            assert_eq!(all.of_field(POD, "spec"), Some("What it is to be."));
            assert_eq!((all.of_field(POD, "unheard"), all.of("io.ex.v1.Ring")), (None, None));
            assert_ne!(all.digest(), OpenApiDescriptions::new().digest());
        }
    }

    /// Those of version 2 are shared by reference; those of a subresource's options differ.
    #[test]
    fn descriptions_of_parameters_are_taken_from_operations() {
        let limit = json!({"name": "limit", "in": "query", "description": "How many."});
        let option = |text| json!({"name": "container", "in": "query", "description": text});
        let list = |parameter| json!({"x-kubernetes-action": "list", "parameters": [parameter]});
        let get =
            |parameter| json!({"get": {"x-kubernetes-action": "get"}, "parameters": [parameter]});
        let paths = |limit: Value| {
            json!({
                "/api/v1/pods": {"get": list(limit)},
                "/api/v1/namespaces/{namespace}/pods/{name}/exec": get(option("To run in.")),
                "/api/v1/namespaces/{namespace}/pods/{name}/log": get(option("That wrote.")),
                "/api/v1/other": get(json!({"name": "unheard", "in": "query", "description": "x"})),
            })
        };
        let referred = json!({"$ref": "#/parameters/limit-x"});
        let documents = [
            json!({"swagger": "2.0", "paths": paths(referred), "parameters": {"limit-x": limit}}),
            json!({"openapi": "3.0.0", "paths": paths(limit)}),
        ];
        for document in documents {
            let mut all = OpenApiDescriptions::new();
            all.add(document.to_string().as_bytes()).unwrap();
            let query = |name, ty| Parameter::Query((name, ty));
            let limit = query("limit", "integer");
            assert_eq!(all.of_parameter(None, Action::List, limit), Some("How many."));
            assert_eq!(all.of_parameter(None, Action::Watch, limit), Some("How many."));
            let container = query("container", "string");
            let of = |sub| all.of_parameter(Some(("pods", sub)), Action::Get, container);
            assert_eq!((of("exec"), of("log")), (Some("To run in."), Some("That wrote.")));
            assert_eq!(all.of_parameter(None, Action::List, query("watch", "boolean")), None);
        }
    }

    #[test]
    fn known_values_of_texts_are_in_the_schemas() {
        let claim = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
        let mut all = OpenApiDescriptions::new();
        let document = json!({"swagger": "2.0", "definitions": {claim: {"properties": {
            "accessModes": {"type": "array", "items": {"type": "string", "enum": ["A", "B"]}},
            "volumeMode": {"type": "string", "enum": ["C"]},
            "volumeName": {"type": "string", "enum": [1]},
            "resources": {"enum": ["D"]},
        }}}});
        all.add(document.to_string().as_bytes()).unwrap();
        for dialect in [Dialect::V2, Dialect::V3] {
            let made = schema::definition(
                claim,
                dialect,
                Texts { descriptions: Some(&all), ..Texts::PLAIN },
            );
            let fields = &made["properties"];
            assert_eq!(fields["accessModes"]["items"]["enum"], json!(["A", "B"]));
            assert_eq!(fields["volumeMode"]["enum"], json!(["C"]));
            // Neither values of another type nor those of a field that is no text.
            assert_eq!(fields["volumeName"].get("enum"), None);
            assert_eq!(fields["resources"].get("enum"), None);
        }
    }

    #[test]
    fn unusable_documents_are_refused() {
        let check = |document: &str, expected: &str| {
            let refused = OpenApiDescriptions::new().add(document.as_bytes()).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        };
        check("{", "the document is not OpenAPI in JSON");
        check("[]", "the document is not OpenAPI in JSON");
        check(r#"{"swagger":"2.0","definitions":7}"#, "the document is not OpenAPI in JSON");
        check("{}", "the document is neither OpenAPI 2.0 nor 3");
        check(r#"{"swagger":"1.2"}"#, "the document is neither OpenAPI 2.0 nor 3");
        let deep = format!(r#"{{"swagger":"2.0","definitions":{}"#, r#"{"a":"#.repeat(1_000_000));
        check(&deep, "the document is not OpenAPI in JSON");
        let long = json!({"swagger": "2.0", "definitions": {
            POD: {"description": "x".repeat(TEXT_BYTES_MAX + 1)},
        }});
        check(
            &long.to_string(),
            "a description of io.k8s.api.core.v1.Pod has more than 65536 bytes",
        );
        check(
            &" ".repeat(OPEN_API_FILE_BYTES_MAX + 1),
            "the document is larger than 33554432 bytes",
        );
    }
}
