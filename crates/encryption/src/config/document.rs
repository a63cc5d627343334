//! The file as a tree, traversed by hand.

use super::error::{ConfigError, Fault, Violation, shown};
use super::{FILE_BYTES_MAX, rules};
use crate::cipher::Kind;
use crate::kms::Plugin;
use crate::provider::{Key, Provider};
use crate::resource::GroupResource;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::sync::Arc;
use zeroize::Zeroizing;

/// One element of `resources`.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) resources: Vec<GroupResource>,
    pub(super) providers: Vec<Arc<Provider>>,
}

/// Accepted kind and API version: the current one, and the one before it, which Kubernetes still
/// accepts.
const KINDS: [(&str, &str); 2] =
    [("apiserver.config.k8s.io/v1", "EncryptionConfiguration"), ("v1", "EncryptionConfig")];

/// Parses a file.
pub(super) fn read(text: &[u8]) -> Result<Vec<Entry>, ConfigError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(ConfigError::Empty);
    }
    if text.len() > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { max: FILE_BYTES_MAX });
    }
    let tree: Value = serde_saphyr::from_slice(text).map_err(|error| {
        // The parser's message may quote the file, secrets included.
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        ConfigError::Syntax { line, column }
    })?;
    let mut reader = Reader::default();
    let entries = reader.document(&tree);
    if reader.faults.is_empty() { Ok(entries) } else { Err(ConfigError::Faults(reader.faults)) }
}

/// The place of a value in the file.
#[derive(Debug, Clone)]
struct Place(String);

impl Place {
    fn member(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }
    fn element(&self, idx: usize) -> Self {
        Self(format!("{}[{idx}]", self.0))
    }
}

/// Collects faults.
#[derive(Debug, Default)]
struct Reader {
    faults: Vec<Fault>,
    plugin_names: rules::PluginNames,
}

impl Reader {
    fn fault(&mut self, place: &Place, why: Violation) {
        if self.faults.len() < ConfigError::FAULTS_MAX {
            self.faults.push(Fault { path: place.0.clone(), why });
        }
    }

    /// The members of an object. Other members are faults.
    fn members<'v>(
        &mut self,
        place: &Place,
        value: &'v Value,
        names: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(members) = value.as_object() else {
            self.fault(place, Violation::Type { wanted: "an object" });
            return None;
        };
        for name in members.keys().filter(|name| !names.contains(&name.as_str())) {
            self.fault(&place.member(shown(name)), Violation::Unknown);
        }
        Some(members)
    }

    /// The elements of a list; empty if absent.
    fn elements<'v>(&mut self, place: &Place, value: Option<&'v Value>) -> &'v [Value] {
        match value {
            None | Some(Value::Null) => &[],
            Some(Value::Array(elements)) => elements,
            Some(_) => {
                self.fault(place, Violation::Type { wanted: "a list" });
                &[]
            }
        }
    }

    /// A string; empty if absent.
    fn text<'v>(&mut self, place: &Place, value: Option<&'v Value>) -> Option<&'v str> {
        match value {
            None | Some(Value::Null) => Some(""),
            Some(Value::String(text)) => Some(text),
            Some(_) => {
                self.fault(place, Violation::Type { wanted: "a string" });
                None
            }
        }
    }

    fn document(&mut self, tree: &Value) -> Vec<Entry> {
        let root = Place(String::new());
        let names = ["apiVersion", "kind", "resources"];
        let Some(members) = self.members(&root, tree, &names) else { return Vec::new() };
        let [version, kind] = ["apiVersion", "kind"]
            .map(|name| self.text(&root.member(name), members.get(name)).unwrap_or_default());
        if !KINDS.contains(&(version, kind)) {
            let found = format!("{} {}", shown(version), shown(kind));
            self.fault(&root.member("kind"), Violation::Kind { found });
            return Vec::new();
        }
        let place = root.member("resources");
        let before = self.faults.len();
        let elements = self.elements(&place, members.get("resources"));
        if elements.is_empty() && self.faults.len() == before {
            self.fault(&place, Violation::NoElement("resources".to_owned()));
        }
        let elements = elements.iter().enumerate();
        let entries: Vec<Entry> = elements
            .filter_map(|(idx, element)| self.entry(&place.element(idx), element))
            .collect();
        if self.faults.is_empty() {
            self.masks(&place, &entries);
        }
        entries
    }

    /// Checks for entries that earlier ones cover. Only without other faults, because then places
    /// and entries correspond.
    fn masks(&mut self, place: &Place, entries: &[Entry]) {
        let mut masks = rules::Masks::default();
        for (idx, entry) in entries.iter().enumerate() {
            let place = place.element(idx).member("resources");
            for (idx, name) in entry.resources.iter().enumerate() {
                if let Some(why) = masks.take(name) {
                    self.fault(&place.element(idx), why);
                }
            }
        }
    }

    fn entry(&mut self, place: &Place, value: &Value) -> Option<Entry> {
        let members = self.members(place, value, &["resources", "providers"])?;
        let names_place = place.member("resources");
        let elements = self.elements(&names_place, members.get("resources"));
        if elements.is_empty() {
            self.fault(&names_place, Violation::NoElement(names_place.0.clone()));
        }
        let mut names = Vec::new();
        for (idx, element) in elements.iter().enumerate() {
            let place = names_place.element(idx);
            let Some(name) = self.text(&place, Some(element)) else { continue };
            names.push(name);
            if let Some(why) = rules::name_fault(name) {
                self.fault(&place, why);
            }
        }
        for why in rules::list_faults(&names) {
            self.fault(&names_place, why);
        }
        let place = place.member("providers");
        let elements = self.elements(&place, members.get("providers"));
        if elements.is_empty() {
            self.fault(&place, Violation::NoElement(place.0.clone()));
        }
        let elements = elements.iter().enumerate();
        let providers = elements
            .filter_map(|(idx, element)| self.provider(&place.element(idx), element))
            .map(Arc::new)
            .collect();
        let resources = names.into_iter().map(GroupResource::parse).collect();
        Some(Entry { resources, providers })
    }

    fn provider(&mut self, place: &Place, value: &Value) -> Option<Provider> {
        let names = ["kms", "aesgcm", "aescbc", "secretbox", "identity"];
        let n_faults = self.faults.len();
        let members = self.members(place, value, &names)?;
        let given = |name: &&str| members.get(*name).is_some_and(|value| !value.is_null());
        let mut given = names.into_iter().filter(given);
        let (Some(name), other) = (given.next(), given.next()) else {
            // An unknown provider has already been reported.
            if self.faults.len() == n_faults {
                self.fault(place, Violation::NoProvider);
            }
            return None;
        };
        if other.is_some() {
            self.fault(place, Violation::TwoProviders);
            return None;
        }
        let (place, value) = (place.member(name), &members[name]);
        let kind = match name {
            "aesgcm" => Kind::AesGcm,
            "aescbc" => Kind::AesCbc,
            "secretbox" => Kind::Secretbox,
            "identity" => {
                self.members(&place, value, &[])?;
                return Some(Provider::Identity);
            }
            _ => return self.plugin(&place, value).map(|plugin| Provider::Kms(Arc::new(plugin))),
        };
        let members = self.members(&place, value, &["keys"])?;
        let place = place.member("keys");
        let elements = self.elements(&place, members.get("keys"));
        if elements.is_empty() {
            self.fault(&place, Violation::NoElement("keys".to_owned()));
        }
        let elements = elements.iter().enumerate();
        let keys = elements
            .filter_map(|(idx, element)| self.key(&place.element(idx), kind, element))
            .collect();
        Some(Provider::Keys(kind, keys))
    }

    /// A plugin: the faults in the order of Kubernetes' checks.
    fn plugin(&mut self, place: &Place, value: &Value) -> Option<Plugin> {
        let names = ["apiVersion", "name", "cachesize", "endpoint", "timeout"];
        let n_faults = self.faults.len();
        let members = self.members(place, value, &names)?;
        let text = |reader: &mut Self, name| reader.text(&place.member(name), members.get(name));
        let version = match text(self, "apiVersion")? {
            "" => "v1",
            version => version,
        };
        let name = text(self, "name")?;
        for why in self.plugin_names.faults(name, version) {
            self.fault(&place.member("name"), why);
        }
        let timeout = rules::timeout(text(self, "timeout")?);
        let timeout = self.valid(&place.member("timeout"), timeout);
        let path = rules::socket(text(self, "endpoint")?);
        let path = self.valid(&place.member("endpoint"), path);
        let size = place.member("cachesize");
        match members.get("cachesize").filter(|size| !size.is_null()).map(Value::as_i64) {
            Some(None) => self.fault(&size, Violation::Type { wanted: "a number" }),
            Some(Some(n)) if version != "v1" => self.fault(&size, Violation::CacheSize(n)),
            _ => {}
        }
        if !["v1", "v2"].contains(&version) {
            let version = shown(version).to_owned();
            self.fault(&place.member("apiVersion"), Violation::KmsVersion(version));
        }
        if version == "v1" && self.faults.len() == n_faults {
            self.fault(place, Violation::KmsV1);
        }
        Some(Plugin::new(name, &path?, timeout?))
    }

    /// A value, unless it is a fault.
    fn valid<T>(&mut self, place: &Place, value: Result<T, Violation>) -> Option<T> {
        value.map_err(|why| self.fault(place, why)).ok()
    }

    fn key(&mut self, place: &Place, kind: Kind, value: &Value) -> Option<Key> {
        let members = self.members(place, value, &["name", "secret"])?;
        let name = self.text(&place.member("name"), members.get("name"));
        if name == Some("") {
            self.fault(&place.member("name"), Violation::NoMember("name"));
        }
        let place = place.member("secret");
        let secret = self.text(&place, members.get("secret"))?;
        if secret.is_empty() {
            self.fault(&place, Violation::NoMember("secret"));
            return None;
        }
        // Like Go's decoder: line ends are ignored.
        let secret: Zeroizing<String> =
            Zeroizing::new(secret.chars().filter(|c| !matches!(c, '\r' | '\n')).collect());
        let Ok(secret) = STANDARD.decode(&*secret).map(Zeroizing::new) else {
            self.fault(&place, Violation::Base64);
            return None;
        };
        let key = Key::new(kind, name?, &secret);
        if key.is_none() {
            let (got, wanted) = (secret.len(), kind.key_bytes());
            self.fault(&place, Violation::KeyBytes { got, wanted });
        }
        key
    }
}
