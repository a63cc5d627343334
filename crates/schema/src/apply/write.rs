//! The two writes: update and apply.

use super::compare::Comparison;
use super::conflict::{self, Conflict};
use super::created;
use super::fieldset::FieldSet;
use super::last_applied;
use super::leaves::leaves;
use super::lift::lift;
use super::managed::{self, BEFORE_FIRST_APPLY, Entry, Operation};
use super::merge::merge;
use super::owners::Owners;
use super::prune::{Last, prune};
use super::scope::{Scope, strip};
use super::stored::Stored;
use super::types::Type;
use super::validate::{validate, validate_object};
use super::value::equal;
use super::versions::{Elsewhere, Live, Taken, TakenByVersion};
use super::{Manager, Typing};
use crate::decode::{self, zero};
use crate::patch::check;
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

/// After an update, create or non-apply patch: recomputes `new.metadata.managedFields` from `old`
/// (`None` on create) (spec 5.3). Never fails.
///
/// An object that is not tracked stays untracked; entries that cannot be read count as none. An
/// entry of a version that the kind does not have may end the tracking ([`Typing::versions`]), and
/// so does one of a version that lacks a field of the object, and a custom object with a value of
/// another type than the schema has: one that was stored under another schema.
pub fn update(typing: &Typing<'_>, old: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    let stored = old.and_then(managed::of);
    // Decoding a custom resource drops an empty list.
    let is_dropped = |given: &Value| typing.custom && given.as_array().is_some_and(Vec::is_empty);
    let is_given = |given: &Value| manager.subresource.is_empty() && !is_dropped(given);
    let is_copy = |given: &Value| stored == Some(given) && !managed::is_reset(given);
    // Most changes are made to a copy of the stored object.
    let (given, copy) = match managed::take(new) {
        Some(taken) if is_copy(&taken) => (None, Some(taken)),
        taken => (taken.filter(is_given), None),
    };
    let entries = entries_after(
        typing,
        (old, Stored::Tree(stored)),
        (new, given.as_ref()),
        manager,
        |entries| managed::encode_with(entries, copy),
    );
    managed::put(new, entries);
}

/// The same for objects whose managedFields are beside them. Returns those of `new`.
pub fn update_apart(
    typing: &Typing<'_>,
    old: Option<(&Value, Option<&Owners<'_>>)>,
    new: &Value,
    manager: &Manager<'_>,
) -> Option<Owners<'static>> {
    if old.is_none() && created::is_plain(typing.reset) {
        return owners_of_created(typing, new, manager).map(Owners::of_text);
    }
    let (old, owners) = old.unzip();
    let stored = Stored::Text(owners.flatten().map(Owners::as_str));
    let text = entries_after(typing, (old, stored), (new, None), manager, |entries| {
        managed::encode_text(entries, typing.custom)
    });
    text.map(Owners::of_text)
}

fn owners_of_created(typing: &Typing<'_>, new: &Value, manager: &Manager<'_>) -> Option<String> {
    let entry = Entry {
        time: Some(Cow::Owned(manager.now.rfc3339())),
        ..Entry::new(manager, Operation::Update, FieldSet::new())
    };
    let ty = Type::root(typing.schema.view(), typing.custom);
    let objects = (&empty_object(typing), new);
    managed::encode_created(&entry, typing.custom, |out| {
        created::push_fields(out, ty, objects, typing.reset, typing.custom)
    })
}

/// The entries of `new`, as `encode` writes them. `old`: with its entries; `new`: with those that
/// the client has given.
fn entries_after<T>(
    typing: &Typing<'_>,
    (old, stored): (Option<&Value>, Stored<'_>),
    (new, given): (&Value, Option<&Value>),
    manager: &Manager<'_>,
    encode: impl FnOnce(Vec<Entry<'_>>) -> Option<T>,
) -> Option<T> {
    let empty = old.is_none().then(|| empty_object(typing));
    let before = old.or(empty.as_ref()).unwrap_or(&Value::Null);
    // As there: what does not fit its type has no owners. Validation lets nothing of the kind in.
    if old.is_some_and(|old| unfit(typing, old).is_some()) {
        return None;
    }
    let changes = changes(typing, before, new);
    let given = given.map(|given| Stored::Tree(Some(given)));
    let elsewhere = match (typing.others, old) {
        (Some(_), Some(old)) if typing.custom || !changes.is_empty() => {
            let lists = [Some(stored), given].into_iter().flatten();
            let versions: Vec<_> = lists.flat_map(Stored::versions).collect();
            let versions = versions.iter().map(|version| &**version);
            Elsewhere::convertible(typing, manager, versions, old, new)?
        }
        _ => Vec::new(),
    };
    let read = || {
        let sets = (&changes.changed, &changes.removed);
        let entries = match typing.custom || !elsewhere.is_empty() {
            // Its schema may have changed, and with it what is owned as a whole.
            true => managed::decode(stored),
            false => managed::decode_touched(stored, sets, |entry| {
                entry.is_updated_by(manager, manager.name)
            }),
        };
        entries.unwrap_or_default()
    };
    let is_reset = |given| matches!(given, Stored::Tree(Some(given)) if managed::is_reset(given));
    let mut entries = match given {
        Some(given) if is_reset(given) => Vec::new(),
        Some(given) => match managed::decode(given) {
            Ok(entries) if !entries.is_empty() => entries,
            _ => read(),
        },
        None => read(),
    };
    if entries.is_empty() && old.is_some() {
        return None;
    }
    settle_entries(typing, &mut entries).ok()?;
    let changes = TakenByVersion::new(typing, changes, &elsewhere);
    let mut entries = record(entries, changes, manager, manager.name);
    managed::cap(&mut entries);
    encode(entries)
}

/// The versions of the entries of an object. `owners`: those entries, if they are beside it.
pub fn versions_of(object: &Value, owners: Option<&Owners<'_>>) -> BTreeSet<String> {
    let stored = match owners {
        Some(owners) => Stored::Text(Some(owners.as_str())),
        None => Stored::Tree(managed::of(object)),
    };
    stored.versions().into_iter().map(Cow::into_owned).collect()
}

/// The object that a created one is compared with.
fn empty_object(typing: &Typing<'_>) -> Value {
    if typing.custom { Value::Object(Map::new()) } else { zero(typing.schema.view()) }
}

/// The differences between two objects, as far as they are in the scope of the endpoint. What
/// nobody owns is not among them: every write changes some of it, and the sets of those who own
/// other metadata need not be read for that.
fn changes<'a>(typing: &Typing<'a>, old: &'a Value, new: &'a Value) -> Taken<'a> {
    let ty = Type::root(typing.schema.view(), typing.custom);
    let mut taken = Taken::from(Comparison::in_scope(ty, Scope::new(typing.reset), old, new));
    strip(&mut taken.changed);
    strip(&mut taken.removed);
    taken
}

/// Gives a manager what differs between two objects, and takes it from the others.
fn record<'a>(
    mut entries: Vec<Entry<'a>>,
    changes: TakenByVersion<'a>,
    manager: &Manager<'a>,
    name: &'a str,
) -> Vec<Entry<'a>> {
    for entry in &mut entries {
        let Taken { changed, removed } = changes.of_entry(entry);
        entry.lose(changed);
        entry.lose(removed);
    }
    let gained = changes.into_here().changed;
    entries.retain(|entry| !entry.is_empty());
    if gained.is_empty() {
        return entries;
    }
    let mine = |entry: &&mut Entry<'_>| entry.is_updated_by(manager, name);
    let time = Some(Cow::Owned(manager.now.rfc3339()));
    match entries.iter_mut().find(mine) {
        Some(entry) => {
            // What has not been read has these fields.
            if entry.unread.is_none() {
                entry.set = std::mem::take(&mut entry.set).union(gained);
            }
            entry.time = time;
            entry.raw = None;
        }
        None => entries.push(Entry {
            manager: name.into(),
            time,
            ..Entry::new(manager, Operation::Update, gained)
        }),
    }
    entries
}

/// Holds stored entries to the schema and the versions of today. Sets that have not been read stay
/// as they are until a write touches them.
///
/// # Errors
///
/// An entry of a version that the kind cannot be converted to, in the reference's words.
fn settle_entries(typing: &Typing<'_>, entries: &mut Vec<Entry<'_>>) -> Result<(), String> {
    let ty = Type::root(typing.schema.view(), typing.custom);
    let known: HashSet<&str> = typing.versions.iter().map(String::as_str).collect();
    let is_known = |entry: &Entry<'_>| known.is_empty() || known.contains(&*entry.api_version);
    for entry in entries.iter().filter(|entry| !is_known(entry)) {
        let version = &entry.api_version;
        if version.matches('/').count() > 1 {
            return Err(format!("unexpected GroupVersion string: {version}"));
        }
        if typing.custom {
            return Err(format!("request to convert CR to an invalid group/version: {version}"));
        }
    }
    entries.retain(is_known);
    for entry in entries {
        let there = typing.others.and_then(|others| others.schema(&entry.api_version));
        let ty = there.map_or(ty, |schema| Type::root(schema.view(), typing.custom));
        if lift(ty, &mut entry.set) {
            entry.raw = None;
        }
    }
    Ok(())
}

/// What an apply makes of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The object in the version of the request.
    pub object: Value,
    /// Whether it is the live object, but for its owners. Nothing is filled in then.
    pub is_live: bool,
}

/// Server-side apply of `config` onto `live` (`None`: create). Returns the merged object with its
/// managedFields, not yet defaulted by built-in defaulting nor validated; the caller runs the
/// ordinary update path, then [`super::settle_times`] (spec 5.4).
///
/// # Errors
/// 400 for a configuration of another type or with managedFields, 500 without a reason for one that
/// does not fit its schema and for entries of a version that a custom resource does not have, 409
/// for conflicts when `force` is off.
pub fn apply(
    typing: &Typing<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Merged, ApiError> {
    let live = live.map(|live| (live, Stored::Tree(managed::of(live))));
    let (mut merged, entries) = merged(typing, live, config, manager, force, managed::encode)?;
    managed::put(&mut merged.object, entries);
    Ok(merged)
}

/// The same for objects whose managedFields are beside them.
///
/// # Errors
/// As [`apply`].
pub fn apply_apart(
    typing: &Typing<'_>,
    live: Option<(&Value, Option<&Owners<'_>>)>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<(Merged, Option<Owners<'static>>), ApiError> {
    let live = live.map(|(live, owners)| (live, Stored::Text(owners.map(Owners::as_str))));
    let encode = |entries: Vec<Entry<'_>>| managed::encode_text(entries, typing.custom);
    let (merged, text) = merged(typing, live, config, manager, force, encode)?;
    Ok((merged, text.map(Owners::of_text)))
}

/// The merged object without managedFields, and its entries, as `encode` writes them.
fn merged<T>(
    typing: &Typing<'_>,
    live: Option<(&Value, Stored<'_>)>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
    encode: impl FnOnce(Vec<Entry<'_>>) -> Option<T>,
) -> Result<(Merged, Option<T>), ApiError> {
    let ty = Type::root(typing.schema.view(), typing.custom);
    let scope = Scope::new(typing.reset);
    check_request(typing, config, manager)?;
    let live = match live {
        Some((live, stored)) => {
            let entries = managed::decode(stored).map_err(|why| {
                ApiError::unclassified(format!("failed to decode managed fields: {why}"))
            })?;
            Some((live, entries, unfit(typing, live)))
        }
        None => None,
    };
    if let Some((live, entries, Some(why))) = &live
        && entries.is_empty()
    {
        let subject = subject(manager.api_version, typing.kind, live);
        return Err(ApiError::unclassified(format!(
            "failed to create manager for existing fields: failed to convert new object \
             ({subject}) to smd typed: {why}"
        )));
    }
    let untyped = |what: &str, object: &Value, why: &str| {
        let subject = subject(manager.api_version, typing.kind, object);
        ApiError::unclassified(format!("failed to create typed {what} object ({subject}): {why}"))
    };
    validate(ty, config).map_err(|why| untyped("patch", config, &why))?;
    if let Some((live, _, Some(why))) = &live {
        return Err(untyped("live", live, why));
    }
    let mut applied = leaves(ty, config);
    scope.apply(&mut applied);
    let Some((live, mut entries, _)) = live else {
        check_values(typing, config, manager)?;
        strip(&mut applied);
        let mut entry = Entry::new(manager, Operation::Apply, applied);
        entry.time = Some(Cow::Owned(manager.now.rfc3339()));
        let entries = encode(if entry.set.is_empty() { vec![] } else { vec![entry] });
        let mut object = config.clone();
        managed::take(&mut object);
        return Ok((Merged { object, is_live: false }, entries));
    };

    let empty;
    if entries.is_empty() {
        empty = empty_object(typing);
        let changes = TakenByVersion::new(typing, changes(typing, &empty, live), &[]);
        entries = record(entries, changes, manager, BEFORE_FIRST_APPLY);
    }
    settle_entries(typing, &mut entries).map_err(ApiError::unclassified)?;
    let versions = entries.iter().map(|entry| &*entry.api_version);
    let lives = Live::all(typing, manager, versions, live)?;

    let mut merged = without_managed_fields(live);
    merge(ty, &mut merged, config)
        .map_err(|why| ApiError::unclassified(format!("failed to merge config: {why}")))?;
    managed::take(&mut merged);
    let mine = entries.iter().position(|entry| {
        entry.belongs_to(Operation::Apply, manager.name, "", manager.subresource)
    });
    let last = match mine {
        Some(at) => {
            let entry = &mut entries[at];
            let api_version = entry.api_version.to_string();
            if entry.api_version != manager.api_version {
                entry.api_version = manager.api_version.into();
                entry.raw = None;
            }
            let set = std::mem::replace(&mut entry.set, applied);
            Last { entry: at, api_version, set }
        }
        None => {
            entries.push(Entry::new(manager, Operation::Apply, applied));
            let api_version = manager.api_version.to_owned();
            Last { entry: entries.len() - 1, api_version, set: FieldSet::new() }
        }
    };
    let mine = last.entry;
    prune(typing, manager, &mut merged, &last, &entries)?;

    let unchanged = same_object(live, &merged);
    let elsewhere = match unchanged {
        true => Vec::new(),
        false => Elsewhere::all(typing, lives, &merged)?,
    };
    let comparison = match unchanged {
        true => Comparison::default(),
        false => Comparison::in_scope(ty, scope, live, &merged),
    };
    let taken = TakenByVersion::new(typing, comparison.into(), &elsewhere);
    let mut conflicts = Vec::new();
    for (at, entry) in entries.iter().enumerate().filter(|(at, _)| *at != mine) {
        let fields = entry.set.intersection(&taken.of_entry(entry).changed);
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
        let Taken { changed, removed } = taken.of_entry(entry);
        entry.lose(changed);
        entry.lose(removed);
    }
    let own = &mut entries[mine];
    strip(&mut own.set);
    if !unchanged {
        own.time = Some(Cow::Owned(manager.now.rfc3339()));
    }
    if !unchanged || own.set != last.set {
        own.raw = None;
    }
    entries.retain(|entry| !entry.set.is_empty());
    let entries = encode(entries);
    if manager.name == last_applied::KUBECTL {
        last_applied::refresh(&mut merged, config);
    }
    Ok((Merged { object: merged, is_live: unchanged }, entries))
}

/// What of a custom object does not fit its type: it was stored under another schema, or in another
/// version.
fn unfit(typing: &Typing<'_>, object: &Value) -> Option<String> {
    if !typing.custom {
        return None;
    }
    validate_object(Type::root(typing.schema.view(), true), object).err()
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
    check::types(typing.schema.view(), config)
        .map_err(|why| unconvertible(manager.api_version, typing.kind, config, &why))
}

/// 500: an applied configuration of a built-in kind has a value that its Go type cannot hold, such
/// as a text that is no time.
pub fn unconvertible(api_version: &str, kind: &str, config: &Value, why: &str) -> ApiError {
    let (type_name, subject) = (type_name(api_version, kind), subject(api_version, kind, config));
    let why = decode::converter_error(why);
    ApiError::unclassified(format!(
        "failed to convert new object ({subject}) to proper version: unable to convert unstructured object to \
         {type_name}: {why}"
    ))
}

/// `namespace/name; apps/v1, Kind=Deployment`, with the names that the object has.
fn subject(api_version: &str, kind: &str, object: &Value) -> String {
    let text = |name: &str| {
        object.get("metadata").and_then(|m| m.get(name)).and_then(Value::as_str).unwrap_or_default()
    };
    format!("{}/{}; {}", text("namespace"), text("name"), type_name(api_version, kind))
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
