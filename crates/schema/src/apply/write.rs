//! The two writes: update and apply.

use super::compare::Comparison;
use super::conflict::{self, Conflict};
use super::fieldset::FieldSet;
use super::last_applied;
use super::leaves::leaves;
use super::lift::lift;
use super::managed::{self, BEFORE_FIRST_APPLY, Entry, Operation};
use super::merge::merge;
use super::remove::prune;
use super::scope::{Scope, strip};
use super::types::Type;
use super::validate::validate;
use super::value::equal;
use super::{Manager, Typing};
use crate::decode::zero;
use crate::patch::check;
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use std::borrow::Cow;
use std::collections::HashSet;

/// After an update, create or non-apply patch: recomputes `new.metadata.managedFields` from `old`
/// (`None` on create) (spec 5.3). Never fails.
///
/// An object that is not tracked stays untracked; entries that cannot be read count as none.
pub fn update(typing: &Typing<'_>, old: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    // Decoding a custom resource drops an empty list.
    let is_dropped = |given: &Value| typing.custom && given.as_array().is_some_and(Vec::is_empty);
    let given =
        managed::take(new).filter(|given| manager.subresource.is_empty() && !is_dropped(given));
    let entries = {
        let empty = old.is_none().then(|| empty_object(typing));
        let before = old.or(empty.as_ref()).unwrap_or(&Value::Null);
        let changes = Changes::of(typing, before, new);
        let stored = old.and_then(managed::of);
        let read = || {
            let sets = [&changes.gained, &changes.removed];
            let entries = match typing.custom {
                // Its schema may have changed, and with it what is owned as a whole.
                true => managed::decode(stored),
                false => managed::decode_touched(stored, sets, |entry| {
                    entry.is_updated_by(manager, manager.name)
                }),
            };
            entries.unwrap_or_default()
        };
        let entries = match &given {
            Some(given) if managed::is_reset(given) => Vec::new(),
            Some(given) if stored != Some(given) => match managed::decode(Some(given)) {
                Ok(entries) if !entries.is_empty() => entries,
                _ => read(),
            },
            _ => read(),
        };
        if entries.is_empty() && old.is_some() {
            return;
        }
        let mut entries = record(typing, entries, changes, manager, manager.name);
        managed::cap(&mut entries);
        managed::encode(entries)
    };
    managed::put(new, entries);
}

/// The object that a created one is compared with.
fn empty_object(typing: &Typing<'_>) -> Value {
    if typing.custom { Value::Object(Map::new()) } else { zero(typing.schema.view()) }
}

/// What a write changes.
struct Changes<'a> {
    /// Added or modified fields.
    gained: FieldSet<'a>,
    removed: FieldSet<'a>,
}

impl<'a> Changes<'a> {
    /// The differences between two objects, as far as they are in the scope of the endpoint.
    fn of(typing: &Typing<'a>, old: &'a Value, new: &'a Value) -> Self {
        let ty = Type::root(typing.schema.view(), typing.custom);
        let scope = Scope::new(typing.reset);
        let Comparison { mut added, mut removed, mut modified } = Comparison::of(ty, old, new);
        for set in [&mut added, &mut removed, &mut modified] {
            scope.apply(set);
        }
        Self { gained: added.union(modified), removed }
    }
}

/// Gives a manager what differs between two objects, and takes it from the others.
fn record<'a>(
    typing: &Typing<'a>,
    mut entries: Vec<Entry<'a>>,
    changes: Changes<'a>,
    manager: &Manager<'a>,
    name: &'a str,
) -> Vec<Entry<'a>> {
    let Changes { mut gained, removed } = changes;
    settle_entries(typing, &mut entries);
    for entry in &mut entries {
        entry.lose(&gained);
        entry.lose(&removed);
    }
    entries.retain(|entry| !entry.is_empty());
    strip(&mut gained);
    if gained.is_empty() {
        return entries;
    }
    let mine = |entry: &&mut Entry<'_>| entry.is_updated_by(manager, name);
    let time = Some(Cow::Owned(manager.now.rfc3339()));
    match entries.iter_mut().find(mine) {
        Some(entry) => {
            entry.set = std::mem::take(&mut entry.set).union(gained);
            entry.time = time;
            entry.raw = None;
        }
        None => entries.push(Entry {
            manager: name.into(),
            operation: Operation::Update,
            api_version: manager.api_version.into(),
            subresource: manager.subresource.into(),
            time,
            set: gained,
            unread: false,
            raw: None,
        }),
    }
    entries
}

/// Holds stored entries to the schema and the versions of today. Sets that have not been read stay
/// as they are until a write touches them.
fn settle_entries(typing: &Typing<'_>, entries: &mut Vec<Entry<'_>>) {
    let ty = Type::root(typing.schema.view(), typing.custom);
    let served: HashSet<&str> = typing.versions.iter().map(String::as_str).collect();
    entries.retain(|entry| {
        let version = entry.api_version.rsplit('/').next().unwrap_or_default();
        served.is_empty() || served.contains(version) || served.contains(&*entry.api_version)
    });
    for entry in entries {
        if lift(ty, &mut entry.set) {
            entry.raw = None;
        }
    }
}

/// Server-side apply of `config` onto `live` (`None`: create). Returns the merged object with its
/// managedFields, not yet defaulted by built-in defaulting nor validated; the caller runs the
/// ordinary update path, then [`super::settle_times`] (spec 5.4).
///
/// # Errors
/// 400 for a configuration of another type or with managedFields, 500 without a reason for one that
/// does not fit its schema, 409 for conflicts when `force` is off.
pub fn apply(
    typing: &Typing<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let ty = Type::root(typing.schema.view(), typing.custom);
    let scope = Scope::new(typing.reset);
    check_request(typing, config, manager)?;
    validate(ty, config).map_err(|why| refused(typing, config, manager, &why))?;
    let mut applied = leaves(ty, config);
    scope.apply(&mut applied);
    let Some(live) = live else {
        check_values(typing, config, manager)?;
        strip(&mut applied);
        let mut object = config.clone();
        let mut entry = own_entry(manager, applied);
        entry.time = Some(Cow::Owned(manager.now.rfc3339()));
        let entries = managed::encode(if entry.set.is_empty() { vec![] } else { vec![entry] });
        managed::put(&mut object, entries);
        return Ok(object);
    };

    let empty;
    let mut entries = managed::decode(managed::of(live))
        .map_err(|why| ApiError::unclassified(format!("failed to decode managed fields: {why}")))?;
    if entries.is_empty() {
        empty = empty_object(typing);
        let changes = Changes::of(typing, &empty, live);
        entries = record(typing, entries, changes, manager, BEFORE_FIRST_APPLY);
    }
    settle_entries(typing, &mut entries);

    let mut merged = without_managed_fields(live);
    merge(ty, &mut merged, config)
        .map_err(|why| ApiError::unclassified(format!("failed to merge config: {why}")))?;
    let mine = entries.iter().position(|entry| {
        entry.belongs_to(Operation::Apply, manager.name, "", manager.subresource)
    });
    let (mine, last) = match mine {
        Some(at) => {
            let entry = &mut entries[at];
            if entry.api_version != manager.api_version {
                entry.api_version = manager.api_version.into();
                entry.raw = None;
            }
            (at, std::mem::replace(&mut entries[at].set, applied))
        }
        None => {
            entries.push(own_entry(manager, applied));
            (entries.len() - 1, FieldSet::new())
        }
    };
    if !last.is_within(&entries[mine].set) {
        let owned = FieldSet::union_of(entries.iter().map(|entry| entry.set.clone()));
        prune(ty, &mut merged, &last, &owned);
    }

    let unchanged = same_object(live, &merged);
    let mut comparison =
        if unchanged { Comparison::default() } else { Comparison::of(ty, live, &merged) };
    for set in [&mut comparison.added, &mut comparison.removed, &mut comparison.modified] {
        scope.apply(set);
    }
    let changed = comparison.changed();
    let mut conflicts = Vec::new();
    for (at, entry) in entries.iter().enumerate().filter(|(at, _)| *at != mine) {
        let fields = entry.set.intersection(&changed);
        if !fields.is_empty() {
            conflicts.push(Conflict { entry: at, fields });
        }
    }
    if !force && !conflicts.is_empty() {
        take_over(ty, live, manager, &mut conflicts);
        if !conflicts.is_empty() {
            return Err(conflict::error(&entries, &conflicts));
        }
    }
    check_values(typing, config, manager)?;
    for (_, entry) in entries.iter_mut().enumerate().filter(|(at, _)| *at != mine) {
        entry.lose(&changed);
        entry.lose(&comparison.removed);
    }
    let own = &mut entries[mine];
    strip(&mut own.set);
    if !unchanged {
        own.time = Some(Cow::Owned(manager.now.rfc3339()));
    }
    if !unchanged || own.set != last {
        own.raw = None;
    }
    entries.retain(|entry| !entry.set.is_empty());
    let encoded = managed::encode(entries);
    managed::put(&mut merged, encoded);
    if manager.name == last_applied::KUBECTL {
        last_applied::refresh(&mut merged, config);
    }
    Ok(merged)
}

fn own_entry<'a>(manager: &Manager<'a>, set: FieldSet<'a>) -> Entry<'a> {
    Entry {
        manager: manager.name.into(),
        operation: Operation::Apply,
        api_version: manager.api_version.into(),
        subresource: manager.subresource.into(),
        time: None,
        set,
        unread: false,
        raw: None,
    }
}

/// An apply by kubectl to what client-side apply made: conflicts about fields that still are as it
/// left them vanish. When none is left the apply goes on as if forced; otherwise only the others
/// are reported.
fn take_over(ty: Type<'_>, live: &Value, manager: &Manager<'_>, conflicts: &mut Vec<Conflict<'_>>) {
    if manager.name != last_applied::KUBECTL {
        return;
    }
    let Some(allowed) = last_applied::taken_over(ty, live, manager.api_version) else { return };
    for conflict in &mut *conflicts {
        conflict.fields.subtract(&allowed);
    }
    conflicts.retain(|conflict| !conflict.fields.is_empty());
}

/// Holds a configuration to the endpoint's kind and version, and refuses managedFields.
fn check_request(
    typing: &Typing<'_>,
    config: &Value,
    manager: &Manager<'_>,
) -> Result<(), ApiError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != manager.api_version || kind != typing.kind {
        let type_name = type_name(api_version, kind);
        return Err(ApiError::bad_request(format!("invalid object type: {type_name}")));
    }
    match managed::of(config) {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(ApiError::bad_request("metadata.managedFields must be nil")),
    }
}

/// `apps/v1, Kind=Deployment`; the core group is empty: `/v1, Kind=Pod`.
fn type_name(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

/// Holds a built-in configuration to what its Go type can hold, which is narrower than its field
/// types: integers, quantities.
fn check_values(
    typing: &Typing<'_>,
    config: &Value,
    manager: &Manager<'_>,
) -> Result<(), ApiError> {
    if typing.custom {
        return Ok(());
    }
    check::types(typing.schema.view(), config).map_err(|why| {
        let type_name = type_name(manager.api_version, typing.kind);
        let about = about(config);
        ApiError::unclassified(format!(
            "failed to convert new object ({about}; {type_name}) to proper version: unable to convert unstructured object to \
             {type_name}: {why}"
        ))
    })
}

/// `namespace/name` as the configuration has them.
fn about(config: &Value) -> String {
    let text = |name: &str| {
        config.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or_default()
    };
    format!("{}/{}", text("namespace"), text("name"))
}

fn refused(typing: &Typing<'_>, config: &Value, manager: &Manager<'_>, why: &str) -> ApiError {
    let about = about(config);
    let type_name = type_name(manager.api_version, typing.kind);
    ApiError::unclassified(format!(
        "failed to create typed patch object ({about}; {type_name}): {why}"
    ))
}

/// A copy without managedFields, which often are most of an object.
fn without_managed_fields(object: &Value) -> Value {
    let Value::Object(members) = object else { return object.clone() };
    let copy = members.iter().map(|(name, value)| {
        let value = match value {
            Value::Object(metadata) if name == "metadata" => Value::Object(
                metadata
                    .iter()
                    .filter(|(name, _)| *name != "managedFields")
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
            other => other.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(copy.collect())
}

/// Whether the merged object is the live one, managedFields aside.
fn same_object(live: &Value, merged: &Value) -> bool {
    let (Some(live), Some(merged)) = (live.as_object(), merged.as_object()) else { return false };
    live.len() == merged.len()
        && live.iter().all(|(name, a)| {
            merged.get(name).is_some_and(|b| match (a.as_object(), b.as_object()) {
                (Some(a), Some(b)) if name == "metadata" => {
                    let tracked = |name: &str| name != "managedFields";
                    a.keys().filter(|n| tracked(n)).count() == b.len()
                        && a.iter().all(|(name, a)| {
                            !tracked(name) || b.get(name).is_some_and(|b| equal(a, b))
                        })
                }
                _ => equal(a, b),
            })
        })
}
