//! Removing what an applier no longer claims (spec: patch §5.4, step 4).

use super::fieldset::FieldSet;
use super::leaves::{leaves, leaves_without};
use super::managed::Entry;
use super::remove::{remove, with_named_fields};
use super::types::Type;
use super::versions::{because, converted};
use super::{Manager, Typing, Versions};
use serde_json::Value;
use setpoint_object::ApiError;
use std::collections::BTreeMap;

/// What the applier owned before, and the version it wrote that in.
#[derive(Debug)]
pub(super) struct Last<'e> {
    /// The place of its entry.
    pub(super) entry: usize,
    pub(super) api_version: String,
    pub(super) set: FieldSet<'e>,
}

/// Removes from `merged` what the applier owned and no manager owns any more. `entries`: what all
/// managers own now, the applier's new set included. Unowned fields stay, unless they lie in
/// something that is removed.
///
/// # Errors
///
/// Managers have written in several versions, between which the object cannot be converted.
pub(super) fn prune(
    typing: &Typing<'_>,
    manager: &Manager<'_>,
    merged: &mut Value,
    last: &Last<'_>,
    entries: &[Entry<'_>],
) -> Result<(), ApiError> {
    let is_here = |version: &str| version == manager.api_version;
    let claimed = is_here(&last.api_version) && last.set.is_within(&entries[last.entry].set);
    if claimed || last.set.is_empty() {
        return Ok(());
    }
    let all_here =
        is_here(&last.api_version) && entries.iter().all(|entry| is_here(&entry.api_version));
    match typing.others {
        Some(others) if !all_here => {
            let versions = Conversions { typing, manager, others };
            let pruned = across(&versions, merged, last, entries);
            if let Some(pruned) =
                pruned.map_err(|error| because("failed to prune fields", &error))?
            {
                *merged = pruned;
            }
        }
        _ => {
            let ty = Type::root(typing.schema.view(), typing.custom);
            let owned = FieldSet::union_of(entries.iter().map(|entry| entry.set.clone()));
            within(ty, merged, &last.set, &owned);
        }
    }
    Ok(())
}

/// [`prune`] where everybody has written in one version.
fn within(ty: Type<'_>, merged: &mut Value, last: &FieldSet<'_>, owned: &FieldSet<'_>) {
    let last = with_named_fields(ty, last);
    let owned = with_named_fields(ty, owned);
    let mut given_up = last.clone();
    given_up.subtract(&owned);
    if given_up.is_empty() {
        return;
    }
    let present = with_named_fields(ty, &leaves(ty, merged));
    // First without everything the applier had, then with what somebody owns put back, last with
    // what the applier never had.
    let kept = |gone: &FieldSet<'_>| with_named_fields(ty, &leaves_without(ty, merged, gone));
    let mut unowned = present.clone();
    unowned.subtract(&kept(&last));
    unowned.subtract(&owned);
    let kept = kept(&unowned);
    let mut gone = present;
    gone.subtract(&kept);
    let gone = gone.intersection(&last).into_owned();
    if !gone.is_empty() {
        remove(ty, merged, &gone);
    }
}

/// The versions of the kind.
struct Conversions<'t> {
    typing: &'t Typing<'t>,
    manager: &'t Manager<'t>,
    others: &'t dyn Versions,
}
impl Conversions<'_> {
    /// The type in a version; `None`: it is not served.
    fn ty(&self, api_version: &str) -> Option<Type<'_>> {
        let schema = match api_version == self.manager.api_version {
            true => self.typing.schema,
            false => self.others.schema(api_version)?,
        };
        Some(Type::root(schema.view(), self.typing.custom))
    }
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        match self.ty(api_version) {
            Some(ty) if object.get("apiVersion").is_none_or(|version| version != api_version) => {
                converted(self.others, object, api_version, (ty, self.typing.custom))
            }
            _ => Ok(object.clone()),
        }
    }
}

/// [`prune`] where managers have written in several versions: what each owns is kept in an object
/// of its own version. Returns the object in the version of the request; `None`: it stays, because
/// the applier's last version is not served any more.
fn across(
    versions: &Conversions<'_>,
    merged: &Value,
    last: &Last<'_>,
    entries: &[Entry<'_>],
) -> Result<Option<Value>, ApiError> {
    let convert = |object: &Value, api_version: &str, what: &str| {
        versions.convert(object, api_version).map_err(|error| because(what, &error))
    };
    let Some(ty) = versions.ty(&last.api_version) else { return Ok(None) };
    let before = convert(
        merged,
        &last.api_version,
        "failed to convert merged object to last applied version",
    )?;
    let own = with_named_fields(ty, &last.set);
    let mut kept = before.clone();
    remove(ty, &mut kept, &own);
    let mut whole = before.clone();
    for (api_version, owned) in by_version(entries, &last.api_version) {
        let Some(ty) = versions.ty(api_version) else { continue };
        let failed = |what: &str| {
            format!(
                "failed add back owned items: failed to convert {what} object at version {api_version}"
            )
        };
        whole = convert(&whole, api_version, &failed("merged"))?;
        kept = convert(&kept, api_version, &failed("pruned"))?;
        let mut gone = with_named_fields(ty, &leaves(ty, &whole));
        gone.subtract(&with_named_fields(ty, &leaves(ty, &kept)));
        gone.subtract(&with_named_fields(ty, &owned));
        kept = whole.clone();
        remove(ty, &mut kept, &gone);
    }
    let what =
        "failed add back dangling items: failed to convert pruned object to last applied version";
    let kept = convert(&kept, &last.api_version, what)?;
    let mut gone = with_named_fields(ty, &leaves(ty, &before));
    gone.subtract(&with_named_fields(ty, &leaves(ty, &kept)));
    let gone = gone.intersection(&own);
    let mut pruned = before.clone();
    remove(ty, &mut pruned, &gone);
    versions.convert(&pruned, versions.manager.api_version).map(Some)
}

/// What all managers own in each version, first in that of the applier's last write: fields that
/// a conversion needs are put back before it.
fn by_version<'e, 's>(entries: &'e [Entry<'s>], first: &str) -> Vec<(&'e str, FieldSet<'s>)> {
    let mut sets: BTreeMap<&str, Vec<FieldSet<'s>>> = BTreeMap::new();
    for entry in entries {
        sets.entry(&entry.api_version).or_default().push(entry.set.clone());
    }
    let mut all: Vec<_> =
        sets.into_iter().map(|(version, sets)| (version, FieldSet::union_of(sets))).collect();
    all.sort_by_key(|(version, _)| *version != first);
    all
}
