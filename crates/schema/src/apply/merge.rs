//! Merging an applied configuration into the live object, by schema (spec: patch §5.4).

use super::element::path_element;
use super::path::PathElement;
use super::types::{Form, Relation, Type};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Merges `config` into `live`: scalars and atomic values replace, maps merge, lists merge by key.
/// Nothing is removed.
///
/// # Errors
/// An element of the live object without an identity, in the reference's words.
pub(super) fn merge(ty: Type<'_>, live: &mut Value, config: &Value) -> Result<(), String> {
    match ty.form(Some(config)) {
        Form::Map if !ty.atomic_map() => merge_map(ty, live, config),
        Form::List if !matches!(ty.relation(), Relation::Atomic) => merge_list(ty, live, config),
        _ => {
            *live = config.clone();
            Ok(())
        }
    }
}

fn merge_map(ty: Type<'_>, live: &mut Value, config: &Value) -> Result<(), String> {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !live.is_empty() => {
            merge_members(ty, live, config)
        }
        // `null` claims the field and changes nothing in it.
        (Value::Object(live), _) if !live.is_empty() => Ok(()),
        (live, config) => {
            *live = config.clone();
            Ok(())
        }
    }
}

fn merge_members(
    ty: Type<'_>,
    live: &mut Map<String, Value>,
    config: &Map<String, Value>,
) -> Result<(), String> {
    for (name, value) in config {
        match live.get_mut(name) {
            Some(old) => {
                let Some((member, _)) = ty.member(name) else { continue };
                merge(member, old, value).map_err(|why| format!(".{name}{why}"))?;
            }
            None => {
                live.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(())
}

fn merge_list(ty: Type<'_>, live: &mut Value, config: &Value) -> Result<(), String> {
    match (live, config) {
        (Value::Array(live), Value::Array(config)) if !live.is_empty() => {
            merge_items(ty, live, config)
        }
        (Value::Array(live), _) if !live.is_empty() => Ok(()),
        (live, config) => {
            *live = config.clone();
            Ok(())
        }
    }
}

/// Where an element of the merged list comes from, by position.
enum Source {
    Live(usize),
    /// From the configuration, merged into the live element when there is exactly one.
    Config(usize, Option<usize>),
}

fn merge_items(ty: Type<'_>, live: &mut Vec<Value>, config: &[Value]) -> Result<(), String> {
    let sources = plan(&elements(ty, live)?, &elements(ty, config)?);
    let items = ty.items();
    let mut merged = Vec::with_capacity(sources.len());
    for source in sources {
        match source {
            Source::Live(at) => merged.push(std::mem::take(&mut live[at])),
            Source::Config(from, Some(at)) => {
                let mut item = std::mem::take(&mut live[at]);
                merge(items, &mut item, &config[from])?;
                merged.push(item);
            }
            Source::Config(from, None) => merged.push(config[from].clone()),
        }
    }
    *live = merged;
    Ok(())
}

fn elements<'a>(ty: Type<'a>, items: &'a [Value]) -> Result<Vec<PathElement<'a>>, String> {
    items
        .iter()
        .enumerate()
        .map(|(at, item)| path_element(ty, item).map_err(|why| format!(": element {at}: {why}")))
        .collect()
}

/// The order of the merged list: shared elements in the configuration's order, live-only elements
/// where they stood relative to their live neighbours, new elements where they stand in the
/// configuration, after live-only elements that come before the next shared one.
fn plan(live: &[PathElement<'_>], config: &[PathElement<'_>]) -> Vec<Source> {
    let mut in_live: BTreeMap<&PathElement<'_>, Option<usize>> = BTreeMap::new();
    for (at, element) in live.iter().enumerate() {
        // A duplicate element is not merged but replaced.
        in_live.entry(element).and_modify(|at| *at = None).or_insert(Some(at));
    }
    let in_config: BTreeMap<&PathElement<'_>, usize> =
        config.iter().enumerate().map(|(at, element)| (element, at)).collect();
    let mut shared = config.iter().filter(|element| in_live.contains_key(element)).peekable();
    let mut taken = vec![false; config.len()];
    let mut sources = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut c) = (0, 0);
    while l < live.len() || c < config.len() {
        if let Some(element) = live.get(l) {
            let twin = in_config.get(element).copied();
            if let Some(head) = config.get(c) {
                if element == head {
                    taken[c] = true;
                    sources.push(Source::Config(c, in_live.get(element).copied().flatten()));
                    (l, c) = (l + 1, c + 1);
                    shared.next();
                    continue;
                }
                if twin.is_some() && shared.peek().is_some_and(|next| *next != element) {
                    // Shared, but not its turn: it comes out in the configuration's order.
                    l += 1;
                    continue;
                }
            }
            match twin {
                None => {
                    sources.push(Source::Live(l));
                    l += 1;
                    continue;
                }
                Some(twin) if taken[twin] => l += 1,
                Some(_) => {}
            }
        }
        if let Some(head) = config.get(c) {
            taken[c] = true;
            sources.push(Source::Config(c, in_live.get(head).copied().flatten()));
            c += 1;
            if shared.peek().is_some_and(|next| *next == head) {
                shared.next();
            }
        }
    }
    sources
}
