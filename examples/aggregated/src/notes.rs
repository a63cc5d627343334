//! `notes.store.example.dev`: notes in a store of this server. They are the custom resources of a
//! definition that the server itself has: it gets watches, patches, apply, Tables and OpenAPI with
//! it, and its host stores nothing.

use crate::apply;
use serde_json::json;
use setpoint::kube_client::Client;
use setpoint::prelude::BoxError;

/// The group.
pub const GROUP: &str = "store.example.dev";
/// The version.
pub const VERSION: &str = "v1";

/// Defines notes at this server.
///
/// # Errors
///
/// The server does not accept the definition.
pub async fn define(own: &Client) -> Result<(), BoxError> {
    let text = json!({"type": "string", "maxLength": 1000, "description": "What it says."});
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": {
            "type": "object", "required": ["text"], "properties": {"text": text},
        }},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("notes.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "notes", "singular": "note", "kind": "Note"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": [
                    {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
                ],
            }],
        },
    });
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/notes.{GROUP}");
    apply(own, &path, &definition).await
}
