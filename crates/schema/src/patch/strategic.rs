//! Strategic merge patch: a JSON document merged with schema knowledge (spec: patch §4).

use super::directive::{
    DELETE_FROM_LIST, ELEMENT_ORDER, PATCH, RETAIN_KEYS, bad_retain_keys, field_of, no_list,
    no_merge_key, not_an_object, strip, unknown_patch_type,
};
use super::merge::drop_nulls;
use super::notation::{go_kind, go_value};
use super::order::{Identity, arrange, as_map, check_directive, directive_list};
use crate::decode::{Format, parse};
use crate::node::{TypeSchema, View};
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Strategic merge with schema knowledge; see the table of spec: patch §4 for every directive.
///
/// The result is held to the schema's types, as the reference does while it turns the merged map
/// into an object.
///
/// # Errors
/// 400 for a body that is no JSON object or for malformed directives, 500 for structural errors,
/// 422 for a result of a wrong type.
pub fn strategic_merge_patch(
    schema: &TypeSchema,
    target: &mut Value,
    patch: &[u8],
    problems: &mut Vec<String>,
) -> Result<(), ApiError> {
    let decoded =
        parse(patch, Format::Json).map_err(|error| ApiError::bad_request(error.to_string()))?;
    problems.extend(decoded.problems);
    let patch = match decoded.value {
        Value::Object(patch) => patch,
        Value::Null => return Ok(()),
        other => return Err(ApiError::bad_request(not_an_object(&other))),
    };
    let shown = Value::Object(patch.clone());
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(members) = target {
        merge_map(members, patch, schema.view())?;
    }
    super::check::types(schema.view(), target)
        .map_err(|why| super::undecodable(&go_value(&shown), &why))
}

fn merge_map(
    target: &mut Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: View<'_>,
) -> Result<(), ApiError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                *target = patch;
            }
            Some("delete") => target.clear(),
            _ => return Err(unknown_patch_type(directive, &patch)),
        }
        return Ok(());
    }
    retain_keys(target, &mut patch)?;
    merge_ordered(target, &mut patch, schema)?;
    for (member, value) in patch {
        if member.starts_with(DELETE_FROM_LIST) {
            let field = field_of(&member, DELETE_FROM_LIST)?;
            delete_from_list(target, field, value)?;
        } else {
            merge_member(target, member, value, schema)?;
        }
    }
    Ok(())
}

/// `$retainKeys`: drops the members it does not name; the patch may not have others either.
fn retain_keys(
    target: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(kept) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(kept) = kept else { return Err(bad_retain_keys()) };
    let kept: HashSet<&str> = kept.iter().filter_map(Value::as_str).collect();
    let keeps = |name: &str| kept.contains(name);
    let directive =
        |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !directive(name) && !keeps(name)) {
        return Err(bad_retain_keys());
    }
    target.retain(|name, _| keeps(name));
    Ok(())
}

/// Lists with an order directive, together with the patch's list of the same name.
fn merge_ordered(
    target: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    schema: View<'_>,
) -> Result<(), ApiError> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let order = directive_list(order)?;
        let name = field_of(&directive, ELEMENT_ORDER)?;
        let mut live = match target.get(name) {
            None => None,
            Some(Value::Array(list)) => Some(list.clone()),
            Some(other) => return Err(no_list(other)),
        };
        let given = match patch.remove(name) {
            None => None,
            Some(Value::Array(list)) => Some(list),
            Some(other) => return Err(no_list(&other)),
        };
        let field = list_field(schema, name)?;
        let identity = Identity::of(field.patch.merge_key.as_deref());
        check_directive(given.as_deref().unwrap_or_default(), &order, identity)?;
        let kind =
            element_kind(live.as_deref().unwrap_or_default(), given.as_deref().unwrap_or_default());
        let merged = match (&live, given) {
            (None, None) => continue,
            (Some(live), None) => live.clone(),
            (None, Some(mut given)) => {
                given.retain_mut(strip);
                given
            }
            (Some(before), Some(given)) => {
                let (merged, after) = merge_list(before.clone(), given, field)?;
                live = Some(after);
                merged
            }
        };
        let live = live.unwrap_or_default();
        if kind?.is_none() {
            return Err(ApiError::unclassified("no elements in any of the given slices"));
        }
        target.insert(name.to_owned(), Value::Array(arrange(merged, &order, &live, identity)?));
    }
    Ok(())
}

fn merge_member(
    target: &mut Map<String, Value>,
    name: String,
    mut value: Value,
    schema: View<'_>,
) -> Result<(), ApiError> {
    if value.is_null() {
        target.remove(&name);
        return Ok(());
    }
    match (target.get_mut(&name), &mut value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let field = map_field(schema, &name)?;
            let new = std::mem::take(new);
            if field.patch.replace {
                *old = new;
                return Ok(());
            }
            merge_map(old, new, field)
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let field = list_field(schema, &name)?;
            (*old, _) = merge_list(std::mem::take(old), std::mem::take(new), field)?;
            Ok(())
        }
        (old, _) => {
            if old.is_none_or(|old| go_kind(old) != go_kind(&value)) {
                drop_nulls(&mut value);
            }
            if strip(&mut value) {
                target.insert(name, value);
            } else {
                target.remove(&name);
            }
            Ok(())
        }
    }
}

/// `$deleteFromPrimitiveList`: removes scalars; an absent list, and a value that is no list, are
/// ignored.
fn delete_from_list(
    target: &mut Map<String, Value>,
    field: &str,
    value: Value,
) -> Result<(), ApiError> {
    if value.is_null() {
        target.remove(field);
    }
    if let (Some(Value::Array(live)), Value::Array(gone)) = (target.get_mut(field), value)
        && element_kind(live, &gone)? != Some("map")
    {
        let gone: HashSet<&Value> = gone.iter().collect();
        live.retain(|element| !gone.contains(element));
    }
    Ok(())
}

/// A list of a field onto the live one, ordered by the patch's list; and what an order directive
/// then takes for the live order.
///
/// That is the live list, except that elements that are new take the places of deleted ones: the
/// reference works on one array, and kubectl's patches (a deletion and an addition with an order
/// directive) come out accordingly.
fn merge_list(
    live: Vec<Value>,
    patch: Vec<Value>,
    field: View<'_>,
) -> Result<(Vec<Value>, Vec<Value>), ApiError> {
    if !field.patch.merge {
        return Ok((patch, live));
    }
    let Some(kind) = element_kind(&live, &patch)? else { return Ok((live.clone(), live)) };
    if kind != "map" {
        let mut merged = live.clone();
        merged.extend(patch.iter().cloned());
        deduplicate(&mut merged);
        return Ok((arrange(merged, &patch, &live, Identity::Scalar)?, live));
    }
    let Some(key) = field.patch.merge_key.as_deref() else {
        return Err(ApiError::unclassified("cannot merge lists without merge key for struct"));
    };
    let Some(items) = field.items() else { return Ok((patch, live)) };
    let n_before = live.len();
    let Special { live, patch, replaced } = special_elements(live, patch, key)?;
    if let Some(replaced) = replaced {
        return Ok((arrange(live.clone(), &patch, &live, Identity::Key(key))?, replaced));
    }
    let identity = Identity::Key(key);
    // The place of each key's first element. Merging leaves the key of an element as it is.
    let mut places: HashMap<&Value, usize> = HashMap::with_capacity(live.len() + patch.len());
    for (place, element) in live.iter().enumerate() {
        if let Some(id) = identity.get(element) {
            places.entry(id).or_insert(place);
        }
    }
    let mut merged = live.clone();
    for element in &patch {
        let map = as_map(element)?;
        let wanted = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
        let place = *places.entry(wanted).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(Value::Object(old)) => merge_map(old, map.clone(), items)?,
            _ => merged.push(element.clone()),
        }
    }
    let after = merged.iter().take(n_before).cloned().collect();
    Ok((arrange(merged, &patch, &live, identity)?, after))
}

/// What `$patch` elements leave.
struct Special {
    /// The live list without deleted elements; after `replace` the patch's ordinary elements.
    live: Vec<Value>,
    /// The patch's ordinary elements; after `replace` none.
    patch: Vec<Value>,
    /// After `replace`: the live list without deleted elements.
    replaced: Option<Vec<Value>>,
}

/// Carries out `$patch` elements of a list.
fn special_elements(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<Special, ApiError> {
    let mut ordinary = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for element in patch {
        let map = as_map(&element)?;
        let Some(directive) = map.get(PATCH) else {
            ordinary.push(element);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                gone.insert(map.get(key).ok_or_else(|| no_merge_key(map, key))?.clone());
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(ApiError::unclassified(
                    "merging lists cannot yet be specified in the patch",
                ));
            }
            _ => return Err(unknown_patch_type(directive, map)),
        }
    }
    if !gone.is_empty() {
        live.retain(|e| Identity::Key(key).get(e).is_none_or(|id| !gone.contains(id)));
    }
    Ok(if replace {
        Special { live: ordinary, patch: Vec::new(), replaced: Some(live) }
    } else {
        Special { live, patch: ordinary, replaced: None }
    })
}

/// The kind that all elements of both lists have; `None` without elements.
fn element_kind(live: &[Value], patch: &[Value]) -> Result<Option<&'static str>, ApiError> {
    let mut kinds = live.iter().chain(patch).map(go_kind);
    let Some(kind) = kinds.next() else { return Ok(None) };
    if kind == "slice" {
        return Err(super::rejected());
    }
    if kinds.any(|other| other != kind) {
        let lists = Value::from(vec![Value::from(live), Value::from(patch)]);
        return Err(ApiError::unclassified(format!(
            "list element types are not identical: {}",
            go_value(&lists)
        )));
    }
    Ok(Some(kind))
}

/// Removes repeated scalars as the reference does: the last element takes the place of a repeated
/// one.
///
/// Equal elements are found by their positions, which takes `n log n`; comparing all pairs would
/// be quadratic.
pub(super) fn deduplicate(list: &mut Vec<Value>) {
    let mut ids: HashMap<&Value, usize> = HashMap::with_capacity(list.len());
    let mut order: Vec<usize> = (0..list.len()).collect();
    let mut places: Vec<BTreeSet<usize>> = Vec::new();
    let id_of: Vec<usize> = list
        .iter()
        .enumerate()
        .map(|(at, value)| {
            let id = *ids.entry(value).or_insert(places.len());
            if id == places.len() {
                places.push(BTreeSet::new());
            }
            places[id].insert(at);
            id
        })
        .collect();
    drop(ids);
    if places.len() == list.len() {
        return;
    }
    let mut at = 0;
    while at < order.len() {
        let id = id_of[order[at]];
        places[id].remove(&at);
        while let Some(other) = places[id].first().copied() {
            let last = order.len() - 1;
            let moved = id_of[order[last]];
            order.swap_remove(other);
            places[id].remove(&other);
            if other < last {
                places[moved].remove(&last);
                places[moved].insert(other);
            }
        }
        at += 1;
    }
    let mut values: Vec<Value> = std::mem::take(list);
    *list = order.into_iter().map(|at| std::mem::take(&mut values[at])).collect();
}

fn map_field<'a>(schema: View<'a>, name: &str) -> Result<View<'a>, ApiError> {
    if let Some(field) = schema.property(name) {
        return Ok(field);
    }
    Err(ApiError::unclassified(if schema.additional.is_some() && schema.properties.is_empty() {
        "merging an object in json but data type is not struct, instead is: map".to_owned()
    } else {
        let owner = schema.node().type_name.as_deref().unwrap_or_default();
        let owner = owner.rsplit('.').next().unwrap_or_default();
        format!("unable to find api field in struct {owner} for the json field \"{name}\"")
    }))
}

fn list_field<'a>(schema: View<'a>, name: &str) -> Result<View<'a>, ApiError> {
    let field = map_field(schema, name)?;
    if field.items.is_none() {
        return Err(ApiError::unclassified("expected slice or array type, but got: struct"));
    }
    Ok(field)
}
