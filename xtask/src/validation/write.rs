//! The kinds of writes, and how they are sent.

use serde_json::{Value, json};

/// A kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    Create,
    Put,
    Merge,
    Json,
    Strategic,
    Apply,
    Delete,
}

impl Write {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Put => "update",
            Self::Merge => "merge patch",
            Self::Json => "JSON patch",
            Self::Strategic => "strategic patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
        }
    }

    /// The name with the subresource that it is sent to; empty: the object itself.
    pub(super) fn name_of(self, subresource: &str) -> String {
        match subresource {
            "" => self.name().to_owned(),
            subresource => format!("{} of {subresource}", self.name()),
        }
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Create => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Merge | Self::Json | Self::Strategic | Self::Apply => "PATCH",
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Create | Self::Put | Self::Delete => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }

    /// A Scale of an object with this name, in the form of this write.
    pub(super) fn scale(self, name: &Value, replicas: Value) -> Value {
        match self {
            Self::Json => json!([{"op": "replace", "path": "/spec/replicas", "value": replicas}]),
            Self::Merge | Self::Strategic => json!({"spec": {"replicas": replicas}}),
            _ => json!({
                "apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": name}, "spec": {"replicas": replicas},
            }),
        }
    }
}
