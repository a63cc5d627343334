//! Maps and objects.

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::{Equivalent, IndexMap};
use serde_json::Value as Json;

use super::{Fuel, Str, Value, equal_options, json};
use crate::decl::{DeclType, FieldDecl, ObjectDecl};
use crate::escape::escape;
use crate::eval::Error;

/// A map.
#[derive(Clone, Debug)]
pub struct Map<'v>(Entries<'v>);

#[derive(Clone, Debug)]
enum Entries<'v> {
    Values(Arc<IndexMap<Key, Value<'v>>>),
    Struct {
        name: Arc<str>,
        fields: Arc<IndexMap<Key, Value<'v>>>,
    },
    Json {
        map: &'v serde_json::Map<String, Json>,
        decl: &'v DeclType,
    },
    /// Every key has a value, but only those of `entries` are there.
    Defaulted {
        entries: Arc<IndexMap<Key, Value<'v>>>,
        default: Arc<Value<'v>>,
    },
}

/// A key that is looked up. Its text is not copied.
enum KeyRef<'k> {
    Bool(bool),
    Number(i128),
    String(&'k str),
}

/// As that of a [`Key`].
impl std::hash::Hash for KeyRef<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            KeyRef::Bool(value) => value.hash(state),
            KeyRef::Number(value) => value.hash(state),
            KeyRef::String(value) => value.hash(state),
        }
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        match (self, key) {
            (KeyRef::Bool(a), Key::Bool(b)) => a == b,
            (KeyRef::Number(a), Key::Number(b, _)) => a == b,
            (KeyRef::String(a), Key::String(b)) => **a == **b,
            _ => false,
        }
    }
}

impl<'k> KeyRef<'k> {
    /// Whole doubles count as numbers. `None`: no key has the value.
    fn of(value: &'k Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => KeyRef::Bool(*value),
            Value::Int(value) => KeyRef::Number((*value).into()),
            Value::Uint(value) => KeyRef::Number((*value).into()),
            Value::Double(value) if value.fract() == 0.0 && value.abs() < 2f64.powi(65) => {
                KeyRef::Number(*value as i128)
            }
            Value::String(text) => KeyRef::String(text),
            _ => return None,
        })
    }
}

/// The keys of a map, one after the other.
pub struct Keys<'v>(KeysInner<'v>);

/// Without the keys.
impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

enum KeysInner<'v> {
    Values { entries: Arc<IndexMap<Key, Value<'v>>>, next: usize },
    Json(serde_json::map::Keys<'v>),
}

impl<'v> Iterator for Keys<'v> {
    type Item = Value<'v>;
    fn next(&mut self) -> Option<Value<'v>> {
        match &mut self.0 {
            KeysInner::Values { entries, next } => {
                let (key, _) = entries.get_index(*next)?;
                *next += 1;
                Some(key.value())
            }
            KeysInner::Json(keys) => Some(Value::String(Str::Borrowed(keys.next()?))),
        }
    }
}

/// An object of a schema: its fields are those declared.
#[derive(Clone, Copy, Debug)]
pub struct Object<'v> {
    pub(super) map: &'v serde_json::Map<String, Json>,
    decl: &'v ObjectDecl,
}

/// The key of a map entry. Numbers of the same value are the same key, also if their types differ.
#[derive(Clone, Debug)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// A number, and whether it is a `uint`.
    Number(i128, bool),
    /// A text.
    String(Arc<str>),
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        match (self, other) {
            (Key::Bool(a), Key::Bool(b)) => a == b,
            (Key::Number(a, _), Key::Number(b, _)) => a == b,
            (Key::String(a), Key::String(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Key {}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Key::Bool(value) => value.hash(state),
            Key::Number(value, _) => value.hash(state),
            Key::String(value) => value.hash(state),
        }
    }
}

impl Key {
    /// The key of a value. A double is a key only for looking up, and only if it is a whole
    /// number. `None` if the value cannot be a key.
    pub fn of(value: &Value<'_>) -> Option<Key> {
        Some(match value {
            Value::Bool(value) => Key::Bool(*value),
            Value::Int(value) => Key::Number((*value).into(), false),
            Value::Uint(value) => Key::Number((*value).into(), true),
            Value::String(text) => Key::String(text.shared()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn value<'v>(&self) -> Value<'v> {
        match self {
            Key::Bool(value) => Value::Bool(*value),
            Key::Number(value, true) => Value::Uint(u64::try_from(*value).unwrap_or(u64::MAX)),
            Key::Number(value, false) => Value::Int(i64::try_from(*value).unwrap_or(i64::MAX)),
            Key::String(text) => Value::String(Str::Shared(text.clone())),
        }
    }
}

impl<'v> Map<'v> {
    /// A map of values.
    pub fn new(entries: IndexMap<Key, Value<'v>>) -> Self {
        Self(Entries::Values(Arc::new(entries)))
    }

    /// A map that has `default` for each key without an entry.
    pub(crate) fn with_default(entries: IndexMap<Key, Value<'v>>, default: Value<'v>) -> Self {
        Self(Entries::Defaulted { entries: Arc::new(entries), default: Arc::new(default) })
    }

    /// The fields of `Name{…}`.
    pub(crate) fn of_struct(name: Arc<str>, fields: IndexMap<Key, Value<'v>>) -> Self {
        Self(Entries::Struct { name, fields: Arc::new(fields) })
    }

    /// The name of the struct that the map has the fields of; `None`: it is a map.
    pub fn struct_name(&self) -> Option<&str> {
        match &self.0 {
            Entries::Struct { name, .. } => Some(name),
            Entries::Values(_) | Entries::Json { .. } | Entries::Defaulted { .. } => None,
        }
    }

    pub(crate) fn json(map: &'v serde_json::Map<String, Json>, decl: &'v DeclType) -> Self {
        Self(Entries::Json { map, decl })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Values(entries)
            | Entries::Struct { fields: entries, .. }
            | Entries::Defaulted { entries, .. } => entries.len(),
            Entries::Json { map, .. } => map.len(),
        }
    }

    /// Whether it is the empty map of an expression. cel-go does not ask the maps of trees.
    pub(crate) fn is_zero(&self) -> bool {
        !matches!(self.0, Entries::Json { .. }) && self.is_empty()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key; `None` if there is no such key.
    pub fn get(&self, key: &Value<'_>) -> Option<Result<Value<'v>, Error>> {
        match (&self.0, key) {
            (Entries::Values(entries) | Entries::Struct { fields: entries, .. }, _) => {
                entries.get(&KeyRef::of(key)?).cloned().map(Ok)
            }
            (Entries::Json { map, decl }, Value::String(text)) => {
                map.get(&**text).map(|tree| json::view(tree, decl))
            }
            (Entries::Defaulted { entries, default }, _) => {
                let found = KeyRef::of(key).and_then(|key| entries.get(&key));
                Some(Ok(found.unwrap_or(&**default).clone()))
            }
            (Entries::Json { .. }, _) => None,
        }
    }

    /// Whether a key is among the keys.
    pub(crate) fn has(&self, key: &Value<'_>) -> bool {
        match &self.0 {
            Entries::Defaulted { entries, .. } => {
                KeyRef::of(key).is_some_and(|key| entries.contains_key(&key))
            }
            Entries::Json { map, .. } => {
                matches!(key, Value::String(text) if map.contains_key(&**text))
            }
            Entries::Values(entries) | Entries::Struct { fields: entries, .. } => {
                KeyRef::of(key).is_some_and(|key| entries.contains_key(&key))
            }
        }
    }

    /// The value of a text key.
    pub fn get_str(&self, key: &str) -> Option<Result<Value<'v>, Error>> {
        self.get(&Value::String(Str::Borrowed(key)))
    }

    /// All keys, in the order of the literal or the tree.
    pub fn keys(&self) -> Keys<'v> {
        Keys(match &self.0 {
            Entries::Values(entries)
            | Entries::Struct { fields: entries, .. }
            | Entries::Defaulted { entries, .. } => {
                KeysInner::Values { entries: entries.clone(), next: 0 }
            }
            Entries::Json { map, .. } => KeysInner::Json(map.keys()),
        })
    }

    /// The tree of a key, if the map is one of a tree.
    pub(super) fn tree(&self, key: &str) -> Option<&'v Json> {
        match &self.0 {
            Entries::Json { map, .. } => map.get(key),
            _ => None,
        }
    }

    /// How many bytes are read to make the value of a key.
    pub(crate) fn read_bytes(&self, key: &Value<'_>) -> usize {
        match (&self.0, key) {
            (Entries::Json { map, decl }, Value::String(text)) => {
                map.get(&**text).map_or(0, |tree| json::read_bytes(tree, decl))
            }
            _ => 0,
        }
    }

    /// Inserts in place if the map is not shared. `false` if the key exists.
    pub(crate) fn insert(&mut self, key: Key, value: Value<'v>) -> Result<bool, Error> {
        if let Entries::Json { map, decl } = &self.0 {
            let entries = map
                .iter()
                .map(|(key, tree)| Ok((Key::String(key.as_str().into()), json::view(tree, decl)?)))
                .collect::<Result<_, Error>>()?;
            self.0 = Entries::Values(Arc::new(entries));
        }
        let Entries::Values(entries) = &mut self.0 else { return Ok(false) };
        if entries.contains_key(&key) {
            return Ok(false);
        }
        Arc::make_mut(entries).insert(key, value);
        Ok(true)
    }

    pub(super) fn equals(&self, other: &Map<'v>, fuel: &mut Fuel) -> Result<bool, Error> {
        if self.len() != other.len() {
            return Ok(false);
        }
        for key in self.keys() {
            // The key is hashed or compared twice.
            let bytes = self.read_bytes(&key).saturating_add(other.read_bytes(&key));
            fuel.read(bytes.saturating_add(2 * key.text_bytes()))?;
            if !equal_options(self.get(&key), other.get(&key), fuel)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'v> Object<'v> {
    pub(crate) fn json(map: &'v serde_json::Map<String, Json>, decl: &'v ObjectDecl) -> Self {
        Self { map, decl }
    }

    /// The number of properties, undeclared ones too.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The type's name.
    pub fn name(&self) -> &'v str {
        &self.decl.name
    }

    /// How many fields are declared.
    pub(crate) fn n_declared(&self) -> usize {
        self.decl.fields.len()
    }

    /// How many bytes are read to make the value of a declared field.
    pub(crate) fn read_bytes(&self, field: &str) -> usize {
        let Some(field) = self.declared(field) else { return 0 };
        self.map.get(&field.json).map_or(0, |tree| json::read_bytes(tree, &field.decl))
    }

    /// The value of a declared field, by its escaped name; `None` if it is absent or null. The name
    /// in JSON will do, unless it could be an escaped one.
    pub fn get(&self, field: &str) -> Option<Result<Value<'v>, Error>> {
        let field = self.declared(field)?;
        match self.map.get(&field.json)? {
            Json::Null => None,
            tree => Some(json::view(tree, &field.decl)),
        }
    }

    /// Whether a declared field is there, by the names of [`Self::get`].
    pub(crate) fn has(&self, field: &str) -> bool {
        let tree = self.declared(field).and_then(|field| self.map.get(&field.json));
        tree.is_some_and(|tree| !tree.is_null())
    }

    fn declared(&self, field: &str) -> Option<&'v FieldDecl> {
        let decl: &'v ObjectDecl = self.decl;
        decl.fields.get(field).or_else(|| match field.contains("__") {
            true => None,
            false => decl.fields.get(&escape(field)?),
        })
    }

    /// The escaped names of the declared fields that are there.
    pub fn keys(&self) -> Vec<String> {
        let fields = self.decl.fields.iter();
        fields
            .filter(|(_, field)| self.map.get(&field.json).is_some_and(|tree| !tree.is_null()))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn equals(&self, other: &Object<'v>, fuel: &mut Fuel) -> Result<bool, Error> {
        if self.map.len() != other.map.len() {
            return Ok(false);
        }
        fuel.take(self.n_declared() as u64)?;
        for name in self.decl.fields.keys() {
            fuel.read(self.read_bytes(name).saturating_add(other.read_bytes(name)))?;
            if !equal_options(self.get(name), other.get(name), fuel)? {
                return Ok(false);
            }
        }
        // Undeclared fields are compared as JSON.
        let mut declared: Option<HashSet<&str>> = None;
        for (key, tree) in self.map {
            fuel.read(key.len())?;
            let declared = declared.get_or_insert_with(|| {
                self.decl.fields.values().map(|field| &*field.json).collect()
            });
            if !declared.contains(&**key)
                && let Some(other) = other.map.get(key)
                && !json::equals(tree, other, fuel)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
