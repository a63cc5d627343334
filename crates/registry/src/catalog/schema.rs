//! The schema of a row, and the definition that a custom schema comes from.
use crate::figures::Figures;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_object::{ApiError, Reason, field, members, skim};
use setpoint_schema::crd::is_structural;
use setpoint_schema::decode::{self, DecodeError, MapKeys};
use setpoint_schema::default::{self, DefaultsTooLarge};
use setpoint_schema::node::TypeSchema;
use setpoint_schema::{INLINE_BYTES_MAX, prune, rules, validate};
use sha2::{Digest as _, Sha256};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// The schema of a row; cheap to clone. The schema of a custom resource is compiled on first use,
/// and freed with the last row that has it.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Lazy>);
#[derive(Debug)]
struct Lazy {
    compiled: OnceLock<TypeSchema>,
    language: SchemaLanguage,
    /// The definition and the version's name.
    source: Option<(Arc<DefinitionSource>, Box<str>)>,
}
/// The language of a schema. Both define types; they differ in their rules for objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaLanguage {
    /// The types of the built-in kinds: values of another type are refused; validation is code.
    GoTypes,
    /// `openAPIV3Schema`: undeclared fields are pruned; validation rules are part of it.
    OpenApi,
}

/// The answer to an object whose defaults exceed the size limit.
pub(crate) fn too_large(why: DefaultsTooLarge) -> ApiError {
    ApiError::new(413, Reason::RequestEntityTooLarge, why.to_string())
}

impl Schema {
    /// The schema of one version of a definition.
    pub(crate) fn of_definition(source: Arc<DefinitionSource>, version: &str) -> Self {
        let source = Some((source, version.into()));
        let language = SchemaLanguage::OpenApi;
        Self(Arc::new(Lazy { compiled: OnceLock::new(), language, source }))
    }
    /// The schema of a compiled-in kind that has an `openAPIV3Schema`.
    pub(crate) fn open_api(schema: TypeSchema) -> Self {
        let (compiled, language) = (OnceLock::from(schema), SchemaLanguage::OpenApi);
        Self(Arc::new(Lazy { compiled, language, source: None }))
    }
}
impl Schema {
    /// Its language.
    pub fn language(&self) -> SchemaLanguage {
        self.0.language
    }
    /// Whether it is not compiled yet and compilation takes long.
    pub(crate) fn compiles_slowly(&self) -> bool {
        let source = self.0.source.as_ref().filter(|_| self.0.compiled.get().is_none());
        source.is_some_and(|(source, _)| source.bytes.lock().len() > INLINE_BYTES_MAX)
    }
    /// Whether defaulting or validating an object of this type may take long, even for a small
    /// object.
    pub(crate) fn is_costly(&self) -> bool {
        let has_rules = self.0.language == SchemaLanguage::OpenApi;
        has_rules && (self.compiles_slowly() || self.has_costly_validation())
    }
}
impl Schema {
    /// Converts a tree to the type: makes scalars canonical, drops unknown fields and reports them.
    ///
    /// # Errors
    ///
    /// A value has another type.
    pub(crate) fn conform(
        &self,
        kind: &str,
        value: &mut Value,
        problems: &mut Vec<String>,
    ) -> Result<(), DecodeError> {
        self.conform_changed(kind, value, &Value::Null, MapKeys::Shown, problems)
    }
    /// As [`Self::conform`], for an object that was made by changing one of the type.
    ///
    /// # Errors
    ///
    /// Those of [`Self::conform`].
    pub(crate) fn conform_changed(
        &self,
        kind: &str,
        value: &mut Value,
        before: &Value,
        keys: MapKeys,
        problems: &mut Vec<String>,
    ) -> Result<(), DecodeError> {
        match self.0.language {
            SchemaLanguage::GoTypes => {
                decode::conform_changed(self, kind, value, before, keys, problems)
            }
            // Its schema may have changed since.
            SchemaLanguage::OpenApi => decode::conform_custom(self, value, problems),
        }
    }
    /// Fills in the declared defaults.
    ///
    /// # Errors
    ///
    /// 413: the defaults of items exceed the size limit.
    pub(crate) fn fill_defaults(&self, value: &mut Value) -> Result<(), ApiError> {
        match self.0.language {
            SchemaLanguage::GoTypes => default::declared(self, value),
            SchemaLanguage::OpenApi => default::apply(self, value).map_err(too_large)?,
        }
        Ok(())
    }
    /// The same for a custom object that server-side apply has merged, or admission has changed:
    /// nulls of a configuration, or of a patch, are not dropped.
    ///
    /// # Errors
    ///
    /// As [`Self::fill_defaults`].
    pub(crate) fn fill_merged(&self, value: &mut Value) -> Result<(), ApiError> {
        default::fill(self, value).map_err(too_large)
    }
    /// Validates an object with the schema's rules: errors, and warnings. Built-in kinds are
    /// validated by their kind modules. A write to `/status` (`of_status`) is held to the schema of
    /// the status, and to all rules. Rules are counted in `figures`. `earlier`: errors that the
    /// caller reports first. `others`: further errors, which come before those of lists and of
    /// rules.
    pub(crate) fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        of_status: bool,
        earlier: &[field::Error],
        others: Vec<field::Error>,
        figures: &Figures,
    ) -> (Vec<field::Error>, Vec<String>) {
        match self.0.language {
            SchemaLanguage::GoTypes => (others, Vec::new()),
            SchemaLanguage::OpenApi => {
                let mut errors = match of_status {
                    true => validate::validate_status(self, object, old, others),
                    false => validate::validate_with(self, object, old, others),
                };
                if !self.has_rules() {
                    return (errors, Vec::new());
                }
                let begun = Instant::now();
                let compiled = self.compile_rules().then(Instant::now);
                let warnings = rules::check(self, object, old, earlier, &mut errors);
                figures.evaluated(compiled.unwrap_or(begun).elapsed());
                if let Some(compiled) = compiled {
                    figures.compiled(compiled - begun);
                }
                (errors, warnings)
            }
        }
    }
    /// Drops undeclared fields, and nulls that are neither nullable nor have a default, from an
    /// object that was written in another version.
    pub(crate) fn prune(&self, object: &mut Value) {
        if self.0.language == SchemaLanguage::OpenApi {
            prune::prune(self, object);
            default::drop_odd_nulls(self, object);
        }
    }
}
/// The schema of a built-in type.
impl From<TypeSchema> for Schema {
    fn from(schema: TypeSchema) -> Self {
        let (compiled, language) = (OnceLock::from(schema), SchemaLanguage::GoTypes);
        Self(Arc::new(Lazy { compiled, language, source: None }))
    }
}
impl Deref for Schema {
    type Target = TypeSchema;
    fn deref(&self) -> &TypeSchema {
        self.0.compiled.get_or_init(|| {
            let written =
                self.0.source.as_ref().and_then(|(source, version)| source.open_api(version));
            let mut tree: Option<Value> =
                written.and_then(|text| serde_json::from_slice(&text).ok());
            let source = self.0.source.as_ref();
            if let Some(tree) = tree.as_mut().filter(|_| source.is_some_and(|(s, _)| s.keeps_all()))
            {
                keep_all(tree);
            }
            setpoint_schema::crd::type_schema(tree.as_ref().unwrap_or(&Value::Null))
        })
    }
}

/// Nothing is pruned by a schema of a definition that another server accepted with
/// `preserveUnknownFields`, and nothing gets a default.
fn keep_all(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("default");
            for (name, inner) in members.iter_mut() {
                match (name.as_str(), inner) {
                    ("properties", Value::Object(properties)) => {
                        properties.values_mut().for_each(keep_all);
                    }
                    ("items" | "additionalProperties", inner) => keep_all(inner),
                    _ => {}
                }
            }
            members.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(keep_all),
        _ => {}
    }
}

/// The schemas of a definition as they were written: its stored bytes, parsed on each access.
#[derive(Debug)]
pub(crate) struct DefinitionSource {
    uid: Box<str>,
    generation: i64,
    /// Whether a schema may have no structure.
    may_lack_structure: bool,
    bytes: Mutex<Bytes>,
}
impl DefinitionSource {
    /// From the stored bytes of a definition.
    pub(crate) fn new(uid: &str, generation: i64, bytes: Bytes) -> Self {
        let may_lack_structure = false;
        Self { uid: uid.into(), generation, may_lack_structure, bytes: Mutex::new(bytes) }
    }
    /// Says whether one of the schemas has no structure: another program has accepted it.
    pub(crate) fn may_lack_structure(mut self, may_lack: bool) -> Self {
        self.may_lack_structure = may_lack;
        self
    }
    /// From the schema of the one version of a compiled-in kind.
    pub(crate) fn compiled(version: &str, schema: &Value) -> Self {
        let versions = json!([{"name": version, "schema": {"openAPIV3Schema": schema}}]);
        let bytes = Bytes::from(json!({"spec": {"versions": versions}}).to_string());
        // Another program may have another schema under the same name.
        let hash = Sha256::digest(&bytes);
        let uid: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::new(&uid, 0, bytes)
    }
    /// Stores newer bytes of the same generation, so that the older ones are freed.
    pub(crate) fn renew(&self, bytes: Bytes) {
        *self.bytes.lock() = bytes;
    }
    /// `<uid>/<generation>`.
    pub(crate) fn identity(&self) -> String {
        format!("{}/{}", self.uid, self.generation)
    }
    /// [`open_api`](Self::open_api), unless the schema has no structure.
    pub(crate) fn structural_open_api(&self, version: &str) -> Option<Bytes> {
        let written = self.open_api(version);
        let is_structural = |text: &Bytes| {
            let parsed = || serde_json::from_slice(text).ok();
            !self.may_lack_structure || parsed().is_some_and(|schema| is_structural(&schema))
        };
        written.filter(is_structural)
    }
    /// Whether objects keep what the schemas do not declare.
    pub(crate) fn keeps_all(&self) -> bool {
        let bytes = self.bytes.lock().clone();
        skim::scalar(&bytes, &["spec", "preserveUnknownFields"]).is_some_and(|kept| kept == "true")
    }
    /// `openAPIV3Schema` of a version as it was written: a part of the stored bytes.
    pub(crate) fn open_api(&self, version: &str) -> Option<Bytes> {
        let path = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let bytes = self.bytes.lock().clone();
        // They are long, so they are not read for their end.
        let versions = skim::value_from(&bytes, &path(&["spec", "versions"]))?;
        let is_wanted =
            |found: &&[u8]| skim::scalar(found, &["name"]).is_some_and(|n| n == version);
        let mut all = members::elements(versions).map(|element| &versions[element]);
        let found = all.find(is_wanted)?;
        let text = skim::value_at(found, &path(&["schema", "openAPIV3Schema"]))
            .filter(|text| *text != b"null")?;
        Some(bytes.slice_ref(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_read_from_the_definition_on_demand() {
        let text = r#"{"spec":{"versions":[{"name":"v1"},{"name":"v2","schema":{"openAPIV3Schema":{"type":"object","properties":{"n":{"type":"integer"}}}}}]}}"#;
        let source = Arc::new(DefinitionSource::new("u", 3, Bytes::from_static(text.as_bytes())));
        assert_eq!(source.identity(), "u/3");
        assert_eq!((source.open_api("v1"), source.open_api("v3")), (None, None));
        let written = source.open_api("v2").unwrap();
        assert_eq!(written, r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#);
        let schema = Schema::of_definition(source, "v2");
        assert!(schema.0.compiled.get().is_none());
        assert!(schema.view().property("n").is_some() && schema.view().property("kind").is_some());
        assert!(schema.clone().0.compiled.get().is_some());
    }

    /// In cubic time this would take a minute.
    #[test]
    fn each_of_many_versions_is_found() {
        let version = |n: usize| {
            let name = format!("v{n}");
            json!({"name": name, "schema": {"openAPIV3Schema": {"description": name}}})
        };
        let versions: Value = (0..500).map(version).collect();
        let text = json!({"spec": {"versions": versions}}).to_string();
        let source = DefinitionSource::new("u", 1, Bytes::from(text));
        for n in 0..500 {
            let written = source.open_api(&format!("v{n}")).unwrap();
            assert_eq!(written, format!(r#"{{"description":"v{n}"}}"#));
        }
        assert_eq!(source.open_api("v500"), None);
    }

    #[test]
    fn schemas_without_structure_are_not_published() {
        let text = r#"{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"n":{}}}}},{"name":"v2","schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
        let source = || DefinitionSource::new("u", 3, Bytes::from_static(text.as_bytes()));
        assert!(source().structural_open_api("v1").is_some(), "this server has checked it");
        let source = source().may_lack_structure(true);
        assert_eq!(source.structural_open_api("v1"), None);
        assert!(source.structural_open_api("v2").is_some());
        assert!(source.open_api("v1").is_some(), "it is still the schema of objects");
    }

    #[test]
    fn objects_of_definitions_that_preserve_unknown_fields_keep_everything() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b": {"type": "integer", "default": 1}}},
            "l": {"type": "array", "items": {"type": "object"}},
            "n": {"type": "object", "additionalProperties": {"type": "object"}}}});
        let version = json!({"name": "v1", "schema": {"openAPIV3Schema": schema}});
        let pruned = |preserves: bool| {
            let spec = json!({"preserveUnknownFields": preserves, "versions": [version]});
            let bytes = Bytes::from(json!({ "spec": spec }).to_string());
            let source = Arc::new(DefinitionSource::new("u", 1, bytes));
            let schema = Schema::of_definition(source, "v1");
            let mut object =
                json!({"a": {"x": {"y": 1}}, "l": [{"x": 1}], "n": {"m": {"x": 1}}, "z": 1});
            schema.prune(&mut object);
            setpoint_schema::default::apply(&schema, &mut object).unwrap();
            object
        };
        assert_eq!(
            pruned(true),
            json!({"a": {"x": {"y": 1}}, "l": [{"x": 1}], "n": {"m": {"x": 1}}, "z": 1})
        );
        assert_eq!(pruned(false), json!({"a": {"b": 1}, "l": [{}], "n": {"m": {}}}));
    }
}
