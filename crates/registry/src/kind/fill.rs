//! Helpers for defaults.
use super::Members;
use serde_json::{Map, Value};

/// Sets defaults in an object. Members of an unexpected type are not changed.
pub trait Fill {
    /// Sets a member that is missing or null (a pointer that Go always encodes).
    fn absent(&mut self, name: &str, value: impl Into<Value>);
    /// A member that is an object.
    fn object(&mut self, name: &str) -> Option<&mut Members>;
    /// A member that is an object, created empty if missing; `None` if it has another type.
    fn object_or_new(&mut self, name: &str) -> Option<&mut Members>;
    /// The objects in a member that is a list.
    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Members>;
    /// A string member; empty if it is missing or has another type.
    fn text(&self, name: &str) -> &str;
}

impl Fill for Members {
    fn absent(&mut self, name: &str, value: impl Into<Value>) {
        if self.get(name).is_none_or(Value::is_null) {
            self.insert(name.to_owned(), value.into());
        }
    }
    fn object(&mut self, name: &str) -> Option<&mut Members> {
        self.get_mut(name).and_then(Value::as_object_mut)
    }
    fn object_or_new(&mut self, name: &str) -> Option<&mut Members> {
        self.absent(name, Map::new());
        self.object(name)
    }
    fn each(&mut self, name: &str) -> impl Iterator<Item = &mut Members> {
        let list = self.get_mut(name).and_then(Value::as_array_mut);
        list.into_iter().flatten().filter_map(Value::as_object_mut)
    }
    fn text(&self, name: &str) -> &str {
        self.get(name).and_then(Value::as_str).unwrap_or("")
    }
}
