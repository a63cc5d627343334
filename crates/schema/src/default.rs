//! Defaults that a schema declares. Defaults that Kubernetes fills in code belong to
//! the registry's kinds.

use crate::node::{Node, Property, Shape, TypeSchema, View};
use serde_json::Value;

/// The most bytes of memory that the defaults filled into one object may take, by estimate: 16 MiB.
/// A default of items is filled into each item, so that a small body could become any size.
pub const FILLED_BYTES_MAX: usize = 16 << 20;

/// The defaults of an object take more than [`FILLED_BYTES_MAX`]. Those that fit are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the defaults of the object take more than {FILLED_BYTES_MAX} bytes")]
pub struct DefaultsTooLarge;

/// Fills every absent property that has a default, null handling included (spec: crd §4).
///
/// First a `null` of a property, or in a map, is removed if it is neither nullable nor has a
/// default. Then a property that is absent, or `null` and not nullable, gets its default, whose own
/// absent properties are filled in turn. Parents are never created. Nulls in lists stay unless
/// their schema has a default.
///
/// # Errors
/// The defaults take too much memory.
pub fn apply(schema: &TypeSchema, value: &mut Value) -> Result<(), DefaultsTooLarge> {
    drop_nulls(schema.view(), value, &|_| true);
    Filler { bytes: 0 }.fill(schema.view(), value)
}

/// [`apply`] for what server-side apply has merged. Its first step leaves a `null` to validation,
/// which refuses it, unless the schema takes every value.
///
/// # Errors
/// The defaults take too much memory.
pub fn fill(schema: &TypeSchema, value: &mut Value) -> Result<(), DefaultsTooLarge> {
    let takes_all = |node: &Node| node.shape == Shape::Any && node.validation.is_none();
    drop_nulls(schema.view(), value, &takes_all);
    Filler { bytes: 0 }.fill(schema.view(), value)
}

/// The first step of [`apply`] alone: what a conversion to another version does.
pub fn drop_odd_nulls(schema: &TypeSchema, value: &mut Value) {
    drop_nulls(schema.view(), value, &|_| true);
}

/// Removes nulls of properties and of maps whose schema is neither nullable nor has a default, if
/// it is one of those `of`: the step before defaulting.
fn drop_nulls(schema: View<'_>, value: &mut Value, of: &impl Fn(&Node) -> bool) {
    match value {
        Value::Object(members) => members.retain(|name, member| {
            let Some(schema) = schema.member(name) else { return true };
            if member.is_null() {
                return schema.nullable || schema.default.is_some() || !of(schema.node());
            }
            drop_nulls(schema, member, of);
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| drop_nulls(schema, item, of));
            }
        }
        _ => {}
    }
}

/// Fills defaults and counts what they take.
struct Filler {
    bytes: usize,
}

impl Filler {
    /// A copy of a default.
    fn copy(&mut self, default: &Value) -> Result<Value, DefaultsTooLarge> {
        self.bytes = self.bytes.saturating_add(memory(default));
        if self.bytes > FILLED_BYTES_MAX {
            return Err(DefaultsTooLarge);
        }
        Ok(default.clone())
    }

    fn fill(&mut self, schema: View<'_>, value: &mut Value) -> Result<(), DefaultsTooLarge> {
        match value {
            Value::Object(members) => {
                for Property { name, id, .. } in &schema.node().defaulted {
                    let property = schema.at(*id);
                    let Some(default) = &property.default else { continue };
                    match members.get_mut(name.as_ref()) {
                        None => {
                            members.insert(name.clone().into_owned(), self.copy(default)?);
                        }
                        Some(member) if member.is_null() && !property.nullable => {
                            *member = self.copy(default)?;
                        }
                        Some(_) => {}
                    }
                }
                for (name, member) in members.iter_mut() {
                    if let Some(property) = schema.property(name) {
                        self.fill(property, member)?;
                    } else if let Some(values) = schema.member(name) {
                        self.replace_null(values.node(), member)?;
                        self.fill(values, member)?;
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.items() {
                    for item in items {
                        self.replace_null(schema.node(), item)?;
                        self.fill(schema, item)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn replace_null(&mut self, schema: &Node, value: &mut Value) -> Result<(), DefaultsTooLarge> {
        if value.is_null()
            && !schema.nullable
            && let Some(default) = &schema.default
        {
            *value = self.copy(default)?;
        }
        Ok(())
    }
}

/// Bytes that a value takes, by estimate. A map that is not empty takes a block for at most eleven
/// members.
pub(crate) fn memory(value: &Value) -> usize {
    const BLOCK_BYTES: usize = 640;
    let own = size_of::<Value>();
    match value {
        Value::String(text) => own + text.len(),
        Value::Array(items) => own + items.iter().map(memory).sum::<usize>(),
        Value::Object(members) => {
            let content = members.iter().map(|(name, member)| name.len() + memory(member));
            own + members.len().div_ceil(11) * BLOCK_BYTES + content.sum::<usize>()
        }
        _ => own,
    }
}

/// Fills the scalars of a built-in object that are absent and have a declared default. It must have
/// been put in order by [`crate::decode::conform`], so that "absent" covers null and, for plain
/// fields, zero.
pub fn declared(schema: &TypeSchema, value: &mut Value) {
    fill_declared(schema.view(), value);
}

/// Fills absent scalars that have a declared default. A default that the field's encoding would
/// leave out is none.
fn fill_declared(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for Property { name, id, .. } in &schema.node().filled {
                let property = schema.at(*id);
                let Some(default) = &property.default else { continue };
                let omitted = property.omit_empty
                    && matches!(default, Value::String(text) if text.is_empty());
                if !omitted && !default.is_object() && !members.contains_key(name.as_ref()) {
                    members.insert(name.clone().into_owned(), default.clone());
                }
            }
            for (name, member) in members.iter_mut() {
                if (member.is_object() || member.is_array())
                    && let Some(property) = schema.member(name)
                {
                    fill_declared(property, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| fill_declared(schema, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
