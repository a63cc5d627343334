//! Documents of configuration kinds, as the files that an API server is given.
//!
//! # Theory
//!
//! Such a document is YAML or JSON. `apiVersion` and `kind` must be those of a [`Kind`]; what is
//! read is then a Rust type, and members that it lacks are refused, with their paths as Kubernetes
//! writes them. A member that is null is as an absent one. Errors do not quote the document, which
//! may have credentials.
//!
//! The size of documents is bounded by who reads them, aliases and depth by the parser of YAML.
//!
//! ```
//! use serde::Deserialize;
//! use setpoint_configuration::Kind;
//!
//! #[derive(Debug, PartialEq, Deserialize)]
//! struct Lamp {
//!     watts: u32,
//! }
//!
//! let lamps = Kind { name: "Lamp", versions: &["home/v1", "home/v1beta1"] };
//! let lamp: Lamp = lamps.parse(b"{apiVersion: home/v1, kind: Lamp, watts: 40}").unwrap();
//! assert_eq!(lamp, Lamp { watts: 40 });
//! let error = lamps.parse::<Lamp>(b"{apiVersion: home/v1, kind: Lamp, watts: 4, on: 1}");
//! assert_eq!(error.unwrap_err().to_string(), r#"strict decoding error: unknown field "on""#);
//! ```

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use std::fmt::Display;

/// A kind of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Its API versions, the preferred one first.
    pub versions: &'static [&'static str],
}

/// Why a document is refused, in Kubernetes' words where it has some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// Not YAML or JSON, or a member has another type.
    #[error("{0}")]
    Syntax(String),
    /// It has no kind.
    #[error("Object 'Kind' is missing")]
    NoKind,
    /// It has no API version.
    #[error("Object 'apiVersion' is missing")]
    NoVersion,
    /// Another kind or version.
    #[error(
        "no kind {kind:?} is registered for version {version:?}: expected {} in {}",
        expected.name,
        expected.versions.join(" or ")
    )]
    Kind {
        /// Its API version.
        version: String,
        /// Its kind.
        kind: String,
        /// What it should have.
        expected: Kind,
    },
    /// Members that do not exist.
    #[error("strict decoding error: {}", listed(.0))]
    UnknownFields(Vec<String>),
}

fn listed(fields: &[String]) -> String {
    fields.iter().map(|field| format!("unknown field {field:?}")).collect::<Vec<_>>().join(", ")
}

impl Kind {
    /// Reads a document. `apiVersion` and `kind` need not be members of the type.
    ///
    /// # Errors
    ///
    /// It has another kind, unknown members, or members of another type.
    pub fn parse<T: DeserializeOwned>(&self, document: &[u8]) -> Result<T, DocumentError> {
        let syntax = |why: &dyn Display| DocumentError::Syntax(why.to_string());
        let mut tree: Value =
            serde_saphyr::from_slice(document).map_err(|error| syntax(error.without_snippet()))?;
        drop_nulls(&mut tree);
        let text = |member: &str| tree.get(member).and_then(Value::as_str).unwrap_or_default();
        match (text("kind"), text("apiVersion")) {
            ("", _) => return Err(DocumentError::NoKind),
            (_, "") => return Err(DocumentError::NoVersion),
            (kind, version) if kind == self.name && self.versions.contains(&version) => {}
            (kind, version) => {
                let (kind, version) = (kind.to_owned(), version.to_owned());
                return Err(DocumentError::Kind { version, kind, expected: *self });
            }
        }
        let mut unknown = Vec::new();
        let read = serde_ignored::deserialize(tree, |path| {
            let path = written(&path);
            if path != "apiVersion" && path != "kind" {
                unknown.push(path);
            }
        });
        let read = read.map_err(|error| syntax(&error))?;
        if unknown.is_empty() { Ok(read) } else { Err(DocumentError::UnknownFields(unknown)) }
    }
}

/// Removes members that are null: in Go, they are as absent ones.
fn drop_nulls(tree: &mut Value) {
    match tree {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// A path as Kubernetes writes it: `jwt[0].issuer.url`.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => match written(parent) {
            before if before.is_empty() => key.clone(),
            before => format!("{before}.{key}"),
        },
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => written(parent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    const LAMPS: Kind = Kind { name: "Lamps", versions: &["home/v1", "home/v1beta1"] };

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Lamps {
        lamps: Option<Vec<Lamp>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Lamp {
        watts: u32,
    }

    fn parse(document: &str) -> Result<Lamps, String> {
        LAMPS.parse(document.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn all_versions_are_read() {
        for version in LAMPS.versions {
            let json =
                format!(r#"{{"apiVersion":"{version}","kind":"Lamps","lamps":[{{"watts":4}}]}}"#);
            assert_eq!(parse(&json), Ok(Lamps { lamps: Some(vec![Lamp { watts: 4 }]) }));
        }
    }

    #[test]
    fn null_is_absent() {
        let document = "{kind: Lamps, apiVersion: home/v1, lamps: }";
        assert_eq!(parse(document), Ok(Lamps { lamps: None }));
        let document = "{kind: Lamps, apiVersion: home/v1, lamps: [{watts: }]}";
        assert!(parse(document).unwrap_err().contains("missing field `watts`"));
    }

    #[test]
    fn others_are_refused() {
        for (document, why) in [
            ("{}", "Object 'Kind' is missing"),
            ("", "Object 'Kind' is missing"),
            ("kind: Lamps", "Object 'apiVersion' is missing"),
            (
                "{kind: Lamps, apiVersion: home/v2}",
                r#"no kind "Lamps" is registered for version "home/v2": expected Lamps in home/v1 or home/v1beta1"#,
            ),
            (
                "{kind: Lamps, apiVersion: home/v1, lamps: [{watts: 1, on: 1}], off: 1}",
                r#"strict decoding error: unknown field "lamps[0].on", unknown field "off""#,
            ),
        ] {
            assert_eq!(parse(document).unwrap_err(), why, "{document}");
        }
        for secret in ["kind: [hunter2", "{kind: Lamps, apiVersion: home/v1, lamps: hunter2}"] {
            let error = LAMPS.parse::<Lamps>(secret.as_bytes()).unwrap_err();
            assert!(matches!(error, DocumentError::Syntax(_)), "{error}");
        }
    }
}
