//! Pruning of fields a structural schema does not declare (spec: crd §4).
//!
//! `apiVersion`, `kind` and `metadata` are never touched at the root and in embedded resources.
//! Below a node with `x-kubernetes-preserve-unknown-fields` undeclared fields stay, also those of a
//! list's items, while declared ones are pruned by their own schema. Below
//! `additionalProperties: true` or `false` direct keys stay, but nested objects lose their fields.
use crate::node::{TYPE_AND_METADATA, TypeSchema, View};
use serde_json::{Map, Value};

/// The most bytes of paths that are returned of one value. Paths repeat the names above them, so
/// that all of them could take the square of the body.
const PATHS_BYTES_MAX: usize = 256 << 10;

/// Removes undeclared fields and returns their paths (`spec.foo`, `spec.l[0].u`), sorted. Paths
/// beyond a quarter of a MiB are left out; their fields are removed all the same. `metadata` at the
/// root is left to the caller.
pub fn prune(schema: &TypeSchema, value: &mut Value) -> Vec<String> {
    Pruner::default().run(schema, true, value)
}

/// Prunes a value that is no root: it has no type or metadata of its own.
pub(crate) fn prune_node(schema: &TypeSchema, value: &mut Value) -> Vec<String> {
    Pruner::default().run(schema, false, value)
}

#[derive(Default)]
struct Pruner {
    path: String,
    removed: Vec<String>,
    removed_bytes: usize,
}

impl Pruner {
    fn run(mut self, schema: &TypeSchema, root: bool, value: &mut Value) -> Vec<String> {
        self.node(Some(schema.view()), root, false, value);
        self.removed.sort_unstable();
        self.removed
    }

    /// Prunes by `schema`; nothing is declared without one. `kept`: it is an item of a list whose
    /// undeclared fields stay.
    fn node(&mut self, schema: Option<View<'_>>, root: bool, kept: bool, value: &mut Value) {
        let keep = kept || schema.is_some_and(|s| s.preserve_unknown);
        match value {
            Value::Object(members) => self.object(schema, root, keep, members),
            Value::Array(items) => {
                let items_schema = schema.and_then(|s| s.items());
                if keep && items_schema.is_none() {
                    return;
                }
                let base = self.path.len();
                for (i, item) in items.iter_mut().enumerate() {
                    self.path.push('[');
                    self.path.push_str(itoa::Buffer::new().format(i));
                    self.path.push(']');
                    self.node(items_schema, false, keep, item);
                    self.path.truncate(base);
                }
            }
            _ => {}
        }
    }

    fn object(
        &mut self,
        schema: Option<View<'_>>,
        root: bool,
        keep: bool,
        members: &mut Map<String, Value>,
    ) {
        let embedded = root || schema.is_some_and(|s| s.embedded_resource);
        let mut undeclared = Vec::new();
        let base = self.path.len();
        for (name, member) in members.iter_mut() {
            if embedded && TYPE_AND_METADATA.contains(&name.as_str()) {
                continue;
            }
            let declared = schema.and_then(|s| s.member(name));
            // Validation refuses what is forbidden.
            let any = schema.is_some_and(|s| {
                s.additional_any || s.validation.as_ref().is_some_and(|v| v.additional_forbidden)
            });
            if declared.is_some() || any {
                self.enter(base, name);
                self.node(declared, false, false, member);
                self.path.truncate(base);
            } else if !keep {
                undeclared.push(name.clone());
            }
        }
        for name in undeclared {
            members.remove(&name);
            if self.removed_bytes > PATHS_BYTES_MAX {
                continue;
            }
            self.enter(base, &name);
            self.removed_bytes += self.path.len();
            self.removed.push(self.path.clone());
            self.path.truncate(base);
        }
    }

    fn enter(&mut self, base: usize, name: &str) {
        if base > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
    }
}

#[cfg(test)]
mod tests;
