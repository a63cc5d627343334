//! Manifests: what plugins run that is in files of whoever runs the server, and no object of the
//! API (`staticManifestsDir`).
//!
//! # Theory
//!
//! ```text
//! files ──▶ documents ──▶ objects, checked as those of the API ──▶ Manifests ──▶ composed: what they
//!                     load: all or none                                say, then what the API says
//! ```
//!
//! - Nobody can change or remove a manifest through the API. So they also see writes of the objects
//!   that configure admission.
//! - They refer to nothing in the API: policies have no params, webhooks are URLs.
//! - [`Manifests::load`] takes all files or none. A refused change leaves what was loaded before.
use crate::kind::admissionregistration::manifest::{self, Manifest};
use crate::kind::admissionregistration::{SUFFIX, is_reserved};
use crate::kind::text;
use parking_lot::Mutex;
use serde_json::Value;
use setpoint_object::bounded;
use setpoint_object::meta::ObjectExt;
use setpoint_schema::decode::{self, Format};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Maximum bytes that an error shows of what is no object.
const EXCERPT_BYTES_MAX: usize = 1024;

/// A file of manifests: JSON, or YAML of any number of documents.
#[derive(Debug, Clone)]
pub struct ManifestFile {
    /// How errors name it.
    pub path: String,
    /// Its bytes.
    pub text: Vec<u8>,
}

/// Why manifests are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A file cannot be read as objects, or an object in it is refused.
    #[error("error loading {path}: {why}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// A binding without its policy.
    #[error(
        "binding {binding:?} references policy {policy:?} which does not exist in the manifest directory"
    )]
    NoPolicy {
        /// The name of the binding.
        binding: String,
        /// The name of the policy.
        policy: String,
    },
}

/// What the manifests of a plugin may have: policies or configurations of webhooks, and bindings.
#[derive(Debug)]
struct Kinds {
    plugin: &'static str,
    hooks: &'static Manifest,
    bindings: Option<&'static Manifest>,
}

/// The plugins that have manifests.
static PLUGINS: [Kinds; 4] = [
    Kinds {
        plugin: "MutatingAdmissionPolicy",
        hooks: &manifest::MUTATING_POLICY,
        bindings: Some(&manifest::MUTATING_POLICY_BINDING),
    },
    Kinds {
        plugin: "MutatingAdmissionWebhook",
        hooks: &manifest::MUTATING_WEBHOOKS,
        bindings: None,
    },
    Kinds {
        plugin: "ValidatingAdmissionPolicy",
        hooks: &manifest::VALIDATING_POLICY,
        bindings: Some(&manifest::VALIDATING_POLICY_BINDING),
    },
    Kinds {
        plugin: "ValidatingAdmissionWebhook",
        hooks: &manifest::VALIDATING_WEBHOOKS,
        bindings: None,
    },
];

/// The objects of manifests, in the order of their names.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Policies, or configurations of webhooks.
    pub(super) hooks: Vec<Value>,
    pub(super) bindings: Vec<Value>,
}

/// The manifests of one plugin, which may be loaded again while the server runs. A clone is the
/// same.
///
/// ```
/// use setpoint_registry::{AdmissionOptions, ManifestFile, Manifests};
///
/// let manifests = Manifests::of("ValidatingAdmissionPolicy").expect("it has manifests");
/// let text = "
/// apiVersion: admissionregistration.k8s.io/v1
/// kind: ValidatingAdmissionPolicy
/// metadata: {name: no-secrets.static.k8s.io}
/// spec:
///   matchConstraints:
///     resourceRules:
///       - {apiGroups: [''], apiVersions: [v1], resources: [secrets], operations: [CREATE]}
///   validations: [{expression: 'false'}]
/// ---
/// apiVersion: admissionregistration.k8s.io/v1
/// kind: ValidatingAdmissionPolicyBinding
/// metadata: {name: no-secrets.static.k8s.io}
/// spec: {policyName: no-secrets.static.k8s.io, validationActions: [Deny]}
/// ";
/// manifests.load(&[ManifestFile { path: "secrets.yaml".to_owned(), text: text.into() }])?;
/// let plugins = AdmissionOptions::default().manifests(&manifests).build();
/// # assert!(plugins.is_ok());
/// # Ok::<(), setpoint_registry::ManifestError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Manifests {
    kinds: &'static Kinds,
    loaded: Arc<Mutex<Arc<Loaded>>>,
}

impl Manifests {
    /// Those of a plugin, without files; `None`: it has no manifests.
    pub fn of(plugin: &str) -> Option<Self> {
        let kinds = PLUGINS.iter().find(|kinds| kinds.plugin == plugin)?;
        Some(Self { kinds, loaded: Arc::default() })
    }

    /// The plugin.
    pub fn plugin(&self) -> &'static str {
        self.kinds.plugin
    }

    /// Replaces what was loaded by what is in these files. The next request sees it. Compiles
    /// expressions, so it may take long: call it on a thread that may be blocked.
    ///
    /// # Errors
    ///
    /// A file is not YAML; an object is of another kind, has unknown members, is invalid by the
    /// rules of the API or those of manifests, or has a name that another one has; a binding has no
    /// policy. What was loaded before stays.
    pub fn load(&self, files: &[ManifestFile]) -> Result<(), ManifestError> {
        let mut reading = Reading::new(self.kinds);
        for file in files {
            reading.file(file).map_err(|why| {
                let path = file.path.clone();
                ManifestError::File { path, why }
            })?;
        }
        *self.loaded.lock() = Arc::new(reading.finish()?);
        Ok(())
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        self.loaded.lock().clone()
    }
}

/// Files that are being read.
struct Reading {
    kinds: &'static Kinds,
    loaded: Loaded,
    /// Kind and name, and the file with it.
    seen: HashMap<(&'static str, String), String>,
}

impl Reading {
    fn new(kinds: &'static Kinds) -> Self {
        Self { kinds, loaded: Loaded::default(), seen: HashMap::new() }
    }

    fn file(&mut self, file: &ManifestFile) -> Result<(), String> {
        for document in documents(&file.text)? {
            let decoded = decode::parse(document, Format::Yaml).map_err(|e| e.to_string())?;
            self.object(decoded.value, decoded.problems, &file.path)?;
        }
        Ok(())
    }

    /// Takes an object, or those of a list.
    fn object(&mut self, object: Value, problems: Vec<String>, path: &str) -> Result<(), String> {
        let (version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
        if let Some(missing) = match (version, kind) {
            (_, "") => Some("Kind"),
            ("", _) => Some("apiVersion"),
            _ => None,
        } {
            let shown = bounded::text(object.to_string(), EXCERPT_BYTES_MAX);
            return Err(format!("Object '{missing}' is missing in '{shown}'"));
        }
        if (version, kind) == ("v1", "List") {
            for item in items(object, problems)? {
                self.object(item, Vec::new(), path)?;
            }
            return Ok(());
        }
        let unsupported = || format!("unsupported resource type {version}, Kind={kind}");
        if version.strip_prefix("admissionregistration.k8s.io/") != Some(manifest::VERSION) {
            return Err(unsupported());
        }
        let (own, is_list) = match kind.strip_suffix("List") {
            Some(own) => (own, true),
            None => (kind, false),
        };
        let kinds = [Some(self.kinds.hooks), self.kinds.bindings];
        let row = kinds.into_iter().flatten().find(|row| row.kind() == own);
        let row = row.ok_or_else(unsupported)?;
        if !is_list {
            return self.take(row, object, problems, path);
        }
        for item in items(object, problems)? {
            self.take(row, item, Vec::new(), path)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        row: &'static Manifest,
        mut object: Value,
        problems: Vec<String>,
        path: &str,
    ) -> Result<(), String> {
        row.complete(&mut object, problems)?;
        let name = object.name().to_owned();
        if !is_reserved(&name) {
            return Err(format!(
                "{name:?} in file {path:?} must have a name ending with {:?}",
                SUFFIX
            ));
        }
        if let Some(other) = self.seen.get(&(row.kind(), name.clone())) {
            return Err(format!(
                "duplicate name {name:?} found in file {path:?} (previously seen in {other:?})"
            ));
        }
        if let Some(why) = row.unsupported(&object, path) {
            return Err(why);
        }
        self.seen.insert((row.kind(), name), path.to_owned());
        match row.kind() == self.kinds.hooks.kind() {
            true => self.loaded.hooks.push(object),
            false => self.loaded.bindings.push(object),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Loaded, ManifestError> {
        let Loaded { hooks, bindings } = &mut self.loaded;
        for all in [&mut *hooks, &mut *bindings] {
            all.sort_by(|one, other| one.name().cmp(other.name()));
        }
        let policies: HashSet<&str> = hooks.iter().map(ObjectExt::name).collect();
        for binding in bindings.iter() {
            let policy = text(&binding["spec"], "policyName");
            if !policies.contains(policy) {
                let (binding, policy) = (binding.name().to_owned(), policy.to_owned());
                return Err(ManifestError::NoPolicy { binding, policy });
            }
        }
        Ok(self.loaded)
    }
}

/// The items of a list. `problems`: of the document.
fn items(mut list: Value, mut problems: Vec<String>) -> Result<Vec<Value>, String> {
    let members = list.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let unknown =
        members.filter(|name| !matches!(*name, "apiVersion" | "kind" | "metadata" | "items"));
    problems.extend(unknown.map(|name| format!("unknown field {name:?}")));
    if !problems.is_empty() {
        return Err(decode::strict_error(&problems));
    }
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(Vec::new()),
        _ => Err("items is not a list".to_owned()),
    }
}

/// The documents of a file, which lines of three dashes separate.
fn documents(text: &[u8]) -> Result<Vec<&[u8]>, String> {
    let (mut documents, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = rest.trim_ascii();
            if !rest.is_empty() && !rest.starts_with(b"#") {
                let rest = String::from_utf8_lossy(rest);
                return Err(format!("invalid Yaml document separator: {rest}"));
            }
            documents.push(&text[begin..at]);
            begin = at + line.len();
        }
        at += line.len();
    }
    documents.push(&text[begin..]);
    documents.retain(|document| !document.trim_ascii().is_empty());
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: admissionregistration.k8s.io/v1\n";

    fn policy(name: &str, more: &str) -> String {
        let constraints = "{resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: [CREATE]}]}";
        format!(
            "{HEAD}kind: ValidatingAdmissionPolicy\nmetadata: {{name: {name}}}\nspec: {{matchConstraints: {constraints}, validations: [{{expression: 'true'}}]{more}}}\n"
        )
    }

    fn binding(name: &str, policy: &str) -> String {
        format!(
            "{HEAD}kind: ValidatingAdmissionPolicyBinding\nmetadata: {{name: {name}}}\nspec: {{policyName: {policy}, validationActions: [Deny]}}\n"
        )
    }

    fn webhooks(client: &str) -> String {
        format!(
            "{HEAD}kind: ValidatingWebhookConfiguration\nmetadata: {{name: w.static.k8s.io}}\nwebhooks:\n- {{name: a.example.com, clientConfig: {client}, sideEffects: None, admissionReviewVersions: [v1]}}\n"
        )
    }

    /// The names of what was loaded, or the error.
    fn load(plugin: &str, files: &[(&str, String)]) -> Result<String, String> {
        let file = |(path, text): &(&str, String)| ManifestFile {
            path: (*path).to_owned(),
            text: text.clone().into(),
        };
        let files: Vec<_> = files.iter().map(file).collect();
        let manifests = Manifests::of(plugin).unwrap();
        let outcome = manifests.load(&files);
        let loaded = manifests.loaded();
        let names = loaded.hooks.iter().chain(&loaded.bindings).map(ObjectExt::name);
        let names = names.collect::<Vec<_>>().join(" ");
        outcome.map_err(|error| {
            assert_eq!(names, "", "all or nothing");
            error.to_string()
        })?;
        Ok(names)
    }

    #[test]
    fn objects_of_several_files_documents_and_lists_are_loaded_by_name() {
        let several = format!(
            "---\n# for the platform\n{}--- # and\n{}",
            policy("b.static.k8s.io", ""),
            policy("a.static.k8s.io", "")
        );
        let indented = |text: &str| text.replace('\n', "\n  ");
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}\n- {HEAD}  kind: ValidatingAdmissionPolicyBindingList\n  items:\n  - metadata: {{name: d.static.k8s.io}}\n    spec: {{policyName: a.static.k8s.io, validationActions: [Deny]}}\n",
            indented(&binding("c.static.k8s.io", "b.static.k8s.io")).trim_end(),
        );
        let files = [("one.yaml", several), ("list.yaml", list), ("empty.yaml", "\n".to_owned())];
        let names = load("ValidatingAdmissionPolicy", &files).unwrap();
        assert_eq!(names, "a.static.k8s.io b.static.k8s.io c.static.k8s.io d.static.k8s.io");
        let json = r#"{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "m.static.k8s.io"}}"#;
        let names = load("MutatingAdmissionWebhook", &[("m.json", json.to_owned())]);
        assert_eq!(names.unwrap(), "m.static.k8s.io");
        assert_eq!(load("MutatingAdmissionPolicy", &[]).unwrap(), "");
        assert!(Manifests::of("Priority").is_none());
    }

    #[test]
    fn defaults_are_those_of_the_api() {
        let manifests = Manifests::of("ValidatingAdmissionWebhook").unwrap();
        let text = webhooks("{url: 'https://a.example.com'}").into();
        manifests.load(&[ManifestFile { path: "a".to_owned(), text }]).unwrap();
        let hook = manifests.loaded().hooks[0]["webhooks"][0].clone();
        assert_eq!((&hook["failurePolicy"], &hook["timeoutSeconds"]), (&"Fail".into(), &10.into()));
    }

    #[test]
    fn what_is_not_a_valid_manifest_is_refused() {
        let a = "a.static.k8s.io";
        let other = binding("b.static.k8s.io", "other.static.k8s.io");
        let unknown = policy(a, ", validation: []");
        let param = policy(a, ", paramKind: {apiVersion: v1, kind: ConfigMap}");
        let service = "{service: {name: s, namespace: ns}}";
        for (plugin, text, error) in [
            (
                "ValidatingAdmissionPolicy",
                policy("a", ""),
                r#"error loading f: "a" in file "f" must have a name ending with ".static.k8s.io""#,
            ),
            (
                "ValidatingAdmissionPolicy",
                policy("A.static.k8s.io", ""),
                "error loading f: ValidatingAdmissionPolicy \"A.static.k8s.io\": metadata.name: Invalid value: \"A.static.k8s.io\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                "ValidatingAdmissionPolicy",
                format!("{}---\n{}", policy(a, ""), policy(a, "")),
                r#"error loading f: duplicate name "a.static.k8s.io" found in file "f" (previously seen in "f")"#,
            ),
            (
                "ValidatingAdmissionPolicy",
                unknown,
                r#"error loading f: strict decoding error: unknown field "spec.validation""#,
            ),
            (
                "ValidatingAdmissionPolicy",
                format!("{}kind: ValidatingAdmissionPolicy\n", policy(a, "")),
                "error loading f: strict decoding error: yaml: unmarshal errors:\n  line 5: key \"kind\" already set in map",
            ),
            (
                "ValidatingAdmissionPolicy",
                param,
                r#"error loading f: ValidatingAdmissionPolicy "a.static.k8s.io": spec.paramKind is not supported for static manifests"#,
            ),
            (
                "ValidatingAdmissionPolicy",
                binding("b.static.k8s.io", "p"),
                r#"error loading f: binding "b.static.k8s.io": spec.policyName "p" must end with ".static.k8s.io""#,
            ),
            (
                "ValidatingAdmissionPolicy",
                other,
                r#"binding "b.static.k8s.io" references policy "other.static.k8s.io" which does not exist in the manifest directory"#,
            ),
            (
                "ValidatingAdmissionPolicy",
                webhooks("{}"),
                "error loading f: unsupported resource type admissionregistration.k8s.io/v1, Kind=ValidatingWebhookConfiguration",
            ),
            (
                "MutatingAdmissionPolicy",
                policy(a, ""),
                "error loading f: unsupported resource type admissionregistration.k8s.io/v1, Kind=ValidatingAdmissionPolicy",
            ),
            (
                "ValidatingAdmissionWebhook",
                webhooks(service),
                r#"error loading f: webhook "a.example.com" in "w.static.k8s.io" (file "f"): clientConfig.service is not supported for static manifests; use clientConfig.url instead"#,
            ),
            (
                "ValidatingAdmissionWebhook",
                webhooks("{}"),
                r#"error loading f: ValidatingWebhookConfiguration "w.static.k8s.io": webhooks[0].clientConfig: Required value: exactly one of url or service is required"#,
            ),
            (
                "ValidatingAdmissionWebhook",
                "apiVersion: v1\nkind: List\nitem: []\n".to_owned(),
                r#"error loading f: strict decoding error: unknown field "item""#,
            ),
            (
                "ValidatingAdmissionWebhook",
                "# nothing".to_owned(),
                "error loading f: Object 'Kind' is missing in 'null'",
            ),
            (
                "ValidatingAdmissionWebhook",
                "a: b".to_owned(),
                r#"error loading f: Object 'Kind' is missing in '{"a":"b"}'"#,
            ),
            (
                "ValidatingAdmissionWebhook",
                "kind: List".to_owned(),
                r#"error loading f: Object 'apiVersion' is missing in '{"kind":"List"}'"#,
            ),
            (
                "ValidatingAdmissionWebhook",
                "--- a".to_owned(),
                "error loading f: invalid Yaml document separator: a",
            ),
        ] {
            assert_eq!(load(plugin, &[("f", text)]).unwrap_err(), error);
        }
    }
}
