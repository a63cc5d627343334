//! CustomResourceDefinitions in `v1beta1`, which a kube-apiserver stores.
//!
//! `v1beta1` says once for all versions what `v1` says for each; a kube-apiserver moves settings
//! that are equal in all versions there when it stores a definition. Definitions stored before a
//! field existed lack it, and have the default of `v1beta1`, which may differ from that of `v1`.
use serde_json::{Map, Value, json};

/// Settings that `v1beta1` may have for all versions, and their names in a version.
const LIFTED: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", COLUMNS),
    ("selectableFields", "selectableFields"),
];
const COLUMNS: &str = "additionalPrinterColumns";

/// Converts a definition in `v1` to what is stored, besides its `apiVersion`: [`convert`] undoes
/// it.
pub(super) fn restore(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(Value::Array(mut versions)) = spec.remove("versions") {
        for version in versions.iter_mut().filter_map(Value::as_object_mut) {
            rename_paths(version, "jsonPath", "JSONPath");
        }
        for (lifted, own) in LIFTED {
            let value = versions.first().and_then(|first| first.get(own)).cloned();
            if let Some(value) = value.filter(|value| !value.is_null())
                && versions.iter().all(|version| version.get(own) == Some(&value))
            {
                for version in versions.iter_mut().filter_map(Value::as_object_mut) {
                    version.remove(own);
                }
                spec.insert(lifted.into(), value);
            }
        }
        if let Some(name) = versions.first().and_then(|first| first.get("name")) {
            spec.insert("version".into(), name.clone());
        }
        spec.insert("versions".into(), versions.into());
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
        && let Some(Value::Object(mut webhook)) = conversion.remove("webhook")
    {
        for (own, lifted) in [
            ("clientConfig", "webhookClientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            if let Some(value) = webhook.remove(own) {
                conversion.insert(lifted.into(), value);
            }
        }
    }
    // Without it, it is true in `v1beta1`.
    spec.entry("preserveUnknownFields").or_insert(false.into());
}

/// Renames the path of each column.
fn rename_paths(settings: &mut Map<String, Value>, from: &str, to: &str) {
    let columns = settings.get_mut(COLUMNS).and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove(from) {
            column.insert(to.into(), path);
        }
    }
}

/// Converts a stored definition to `v1`, besides its `apiVersion`.
pub(super) fn convert(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let version =
        spec.remove("version").filter(|name| name.as_str().is_some_and(|n| !n.is_empty()));
    let has_versions =
        spec.get("versions").and_then(Value::as_array).is_some_and(|v| !v.is_empty());
    if !has_versions && let Some(name) = version {
        spec.insert("versions".into(), json!([{"name": name, "served": true, "storage": true}]));
    }
    let lifted =
        LIFTED.map(|(name, own)| (own, spec.remove(name).filter(|value| !value.is_null())));
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        for (own, value) in &lifted {
            if let Some(value) = value {
                version.insert((*own).into(), value.clone());
            }
        }
        rename_paths(version, "JSONPath", "jsonPath");
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        let config = conversion.remove("webhookClientConfig").filter(|value| !value.is_null());
        let reviewed = conversion.remove("conversionReviewVersions");
        if conversion.get("strategy").is_some_and(|strategy| strategy == "Webhook") {
            let is_given = |versions: &Value| versions.as_array().is_some_and(|v| !v.is_empty());
            let reviewed = reviewed.filter(is_given).unwrap_or_else(|| json!(["v1beta1"]));
            let mut webhook = json!({"conversionReviewVersions": reviewed});
            if let Some(config) = config {
                webhook["clientConfig"] = config;
            }
            conversion.insert("webhook".into(), webhook);
        }
    }
    match spec.get("preserveUnknownFields") {
        Some(Value::Bool(false)) => drop(spec.remove("preserveUnknownFields")),
        Some(Value::Bool(true)) => {}
        _ => drop(spec.insert("preserveUnknownFields".into(), true.into())),
    }
    if spec.get("scope").and_then(Value::as_str).is_none_or(str::is_empty) {
        spec.insert("scope".into(), "Namespaced".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_all_versions_become_those_of_each() {
        let mut stored = json!({
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.dev"},
            "spec": {
                "group": "example.dev", "version": "v1", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "preserveUnknownFields": false,
                "validation": {"openAPIV3Schema": {"type": "object"}},
                "subresources": {"status": {}},
                "versions": [
                    {"name": "v1", "served": true, "storage": true,
                     "additionalPrinterColumns": [{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}]},
                    {"name": "v2", "served": true, "storage": false},
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhookClientConfig": {"url": "https://c.example.dev"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        });
        let before = stored.clone();
        convert(&mut stored);
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let expected = json!({
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.dev"},
            "spec": {
                "group": "example.dev", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema,
                     "subresources": {"status": {}},
                     "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]},
                    {"name": "v2", "served": true, "storage": false, "schema": schema,
                     "subresources": {"status": {}}},
                ],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {
                        "clientConfig": {"url": "https://c.example.dev"},
                        "conversionReviewVersions": ["v1"],
                    },
                },
            },
        });
        assert_eq!(stored, expected);
        restore(&mut stored);
        assert_eq!(stored, before);
    }

    #[test]
    fn settings_that_differ_stay_in_their_versions() {
        let version = |name: &str, schema: Value| {
            let columns = json!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]);
            json!({
                "name": name, "served": true, "storage": name == "v1", "schema": schema,
                "additionalPrinterColumns": columns,
            })
        };
        let definition = json!({"spec": {
            "group": "example.dev", "scope": "Cluster", "conversion": {"strategy": "None"},
            "versions": [version("v1", json!({"openAPIV3Schema": {"type": "object"}})), version("v2", json!({}))],
        }});
        let mut stored = definition.clone();
        restore(&mut stored);
        let columns = json!([{"name": "Size", "type": "integer", "JSONPath": ".spec.size"}]);
        let spec = &stored["spec"];
        assert_eq!(spec["additionalPrinterColumns"], columns);
        assert_eq!((&spec["version"], &spec["validation"]), (&json!("v1"), &Value::Null));
        assert_eq!(spec["preserveUnknownFields"], false);
        let own = |n: usize| (&spec["versions"][n]["schema"], spec["versions"][n].get(COLUMNS));
        assert_eq!(own(1), (&json!({}), None));
        convert(&mut stored);
        assert_eq!(stored, definition);
    }

    #[test]
    fn a_definition_with_a_version_alone_gets_a_list_of_it() {
        let mut stored = json!({"spec": {
            "version": "v1", "preserveUnknownFields": true, "conversion": {"strategy": "None"},
            "scope": "Cluster",
            "additionalPrinterColumns": [{"name": "A", "JSONPath": ".a"}],
        }});
        convert(&mut stored);
        let expected = json!({
            "spec": {
                "preserveUnknownFields": true,
                "scope": "Cluster",
                "conversion": {"strategy": "None"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "additionalPrinterColumns": [{"name": "A", "jsonPath": ".a"}],
                }],
            },
        });
        assert_eq!(stored, expected);
    }

    #[test]
    fn what_a_definition_lacks_has_the_default_of_v1beta1() {
        let mut stored = json!({"spec": {
            "versions": [{"name": "v1"}], "conversion": {"strategy": "Webhook"},
        }});
        convert(&mut stored);
        let expected = json!({
            "spec": {
                "preserveUnknownFields": true,
                "scope": "Namespaced",
                "versions": [{"name": "v1"}],
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"conversionReviewVersions": ["v1beta1"]},
                },
            },
        });
        assert_eq!(stored, expected);
    }
}
