//! Defaults that a schema declares. What Kubernetes fills in code is each kind's, and the registry's.

use crate::node::{Node, TypeSchema, View};
use serde_json::Value;

/// Fills every absent property that has a default, null handling included (spec: crd §4).
///
/// First a `null` of a property that is neither nullable nor has a default is removed. Then a property that is absent, or `null`
/// and not nullable, gets its default, whose own absent properties are filled in turn. Parents are never created. Nulls in
/// lists and under `additionalProperties` stay unless their schema has a default.
pub fn apply(schema: &TypeSchema, value: &mut Value) {
    drop_nulls(schema.view(), value);
    fill(schema.view(), value);
}

/// Removes nulls of properties that are neither nullable nor have a default: the step before defaulting.
fn drop_nulls(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => members.retain(|name, member| {
            match (schema.property(name), &*member) {
                (Some(property), Value::Null) => {
                    return property.nullable || property.default.is_some();
                }
                (Some(property), _) => drop_nulls(property, member),
                (None, _) => {
                    if let Some(values) = schema.member(name) {
                        drop_nulls(values, member);
                    }
                }
            }
            true
        }),
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                items.iter_mut().for_each(|item| drop_nulls(schema, item));
            }
        }
        _ => {}
    }
}

fn fill(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, id) in &schema.node().properties {
                let property = schema.at(*id);
                let Some(default) = &property.default else { continue };
                match members.get_mut(name.as_ref()) {
                    None => {
                        members.insert(name.clone().into_owned(), default.clone());
                    }
                    Some(member) if member.is_null() && !property.nullable => {
                        *member = default.clone();
                    }
                    Some(_) => {}
                }
            }
            for (name, member) in members.iter_mut() {
                if let Some(property) = schema.property(name) {
                    fill(property, member);
                } else if let Some(values) = schema.member(name) {
                    replace_null(values.node(), member);
                    fill(values, member);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    replace_null(schema.node(), item);
                    fill(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(schema: &Node, value: &mut Value) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}

/// Fills the scalars of a built-in object that are absent and have a declared default. It must have been put in order by
/// [`crate::decode::conform`], so that "absent" covers null and, for plain fields, zero.
pub fn declared(schema: &TypeSchema, value: &mut Value) {
    fill_declared(schema.view(), value);
}

/// Fills absent scalars that have a declared default. A default that the field's encoding would leave out is none.
fn fill_declared(schema: View<'_>, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, id) in &schema.node().properties {
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
