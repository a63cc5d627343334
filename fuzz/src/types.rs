//! The custom type that several checks use.
use setpoint_schema::crd;
use setpoint_schema::node::TypeSchema;
use std::sync::LazyLock;

/// A type with one of everything that merging, pruning and defaults know.
pub(crate) fn custom() -> TypeSchema {
    static TYPE: LazyLock<TypeSchema> = LazyLock::new(|| {
        crd::type_schema(
            &serde_json::json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "number": {"type": "integer", "default": 1, "maximum": 9},
                "either": {"x-kubernetes-int-or-string": true},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "pattern": "^[a-z]*$"}},
                "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
                    "items": {"type": "object", "properties": {"name": {"type": "string"}, "kind": {"type": "string", "default": "k"},
                        "value": {"type": "integer"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string", "nullable": true}},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}}}),
        )
    });
    TYPE.clone()
}
