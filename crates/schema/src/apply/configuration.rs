//! Configurations that a mutating admission policy makes: merged as an apply merges, without
//! ownership.

use super::merge::merge;
use super::types::{Form, Relation, Type};
use super::validate::validate;
use crate::node::TypeSchema;
use serde_json::Value;

/// The most bytes of paths that an error shows: 64 KiB.
const PATHS_BYTES_MAX: usize = 64 << 10;

/// Merges a configuration into an object: maps and keyed lists merge, scalars are replaced. Atomic
/// lists, maps and structs cannot be set, because that would remove what the configuration leaves
/// out. `is_custom`: the type is an OpenAPI schema.
///
/// # Errors
///
/// In the reference's words: the configuration does not fit its type, or sets something atomic.
pub fn merge_configuration(
    schema: &TypeSchema,
    is_custom: bool,
    object: &mut Value,
    configuration: &Value,
) -> Result<(), String> {
    let ty = Type::root(schema.view(), is_custom);
    validate(ty, configuration)
        .map_err(|why| format!("failed to convert patch object to typed object: {why}"))?;
    let mut atomics = Atomics::default();
    atomics.find(ty, configuration);
    if !atomics.paths.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.paths.join(", ")
        ));
    }
    merge(ty, object, configuration).map_err(|why| format!("failed to merge patch: {why}"))
}

/// The atomic values of a configuration.
#[derive(Default)]
struct Atomics {
    path: String,
    paths: Vec<String>,
    bytes: usize,
}
impl Atomics {
    fn found(&mut self) {
        if self.bytes < PATHS_BYTES_MAX {
            self.bytes += self.path.len();
            self.paths.push(self.path.clone());
        }
    }
    fn find(&mut self, ty: Type<'_>, value: &Value) {
        let length = self.path.len();
        match (ty.form(Some(value)), value) {
            (Form::Map, Value::Object(members)) => {
                if ty.atomic_map() {
                    self.found();
                }
                for (name, value) in members {
                    // Only declared fields can be atomic.
                    let Some((member, true)) = ty.member(name) else { continue };
                    self.path.push('.');
                    self.path.push_str(name);
                    self.find(member, value);
                    self.path.truncate(length);
                }
            }
            (Form::List, Value::Array(items)) => {
                if matches!(ty.relation(), Relation::Atomic) {
                    self.found();
                }
                for (at, item) in items.iter().enumerate() {
                    self.path.push_str(&format!("[{at}]"));
                    self.find(ty.items(), item);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }
}
