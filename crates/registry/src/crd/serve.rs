//! What is served of the definitions, and the catalog made of it.
use super::{Definition, row};
use crate::catalog::{Catalog, Group, Resource};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_schema::crd::condition_is_true;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The rows of one definition and what they were made of.
#[derive(Debug)]
pub(super) struct Served {
    uid: String,
    /// Steps with every change of the spec.
    generation: i64,
    names: Value,
    terminating: bool,
    prefix: Arc<str>,
    /// See [`crate::catalog::Stored::since`].
    since: Arc<AtomicU64>,
    rows: Vec<Arc<Resource>>,
}

/// What an update of the served definitions did.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The catalog is another one.
    pub(super) any: bool,
    /// Storage prefixes of what is served differently from now on: watchers start over.
    pub(super) closed: Vec<Arc<str>>,
    /// Storage prefixes of what is served no more.
    pub(super) gone: Vec<Arc<str>>,
    /// To be set to the store's revision once the catalog is out: nothing is written under the older schema any more.
    pub(super) since: Vec<Arc<AtomicU64>>,
}

/// Whether a definition is served. Once established it is, whatever becomes of its names.
fn is_served(definition: &Value) -> bool {
    condition_is_true(definition, "Established")
}

/// Brings the served rows in line with the definitions; rows of unchanged ones are kept. `is_shared`: others write, too.
pub(super) fn update(
    served: &mut BTreeMap<String, Served>,
    definitions: &BTreeMap<String, Definition>,
    is_shared: bool,
) -> Changes {
    let mut changes = Changes::default();
    served.retain(|name, served| {
        let keep = definitions
            .get(name)
            .is_some_and(|d| is_served(&d.object) && d.object.uid() == served.uid);
        if !keep {
            changes.any = true;
            changes.gone.push(served.prefix.clone());
        }
        keep
    });
    for (name, Definition { object, modified, .. }) in definitions {
        if !is_served(object) {
            continue;
        }
        let names = &object["status"]["acceptedNames"];
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        let terminating = !object.deletion_timestamp().is_empty();
        let known = served.get(name);
        let same_rows = known.is_some_and(|s| s.generation == generation && s.names == *names);
        if same_rows && known.is_some_and(|s| s.terminating == terminating) {
            continue;
        }
        changes.any = true;
        let prefix = row::storage_prefix(object);
        let since = match known {
            // Another server may write under an older definition after this one knows the newer one: none of its objects is believed
            // to be as the schema says.
            _ if is_shared => Arc::new(AtomicU64::new(u64::MAX)),
            // What there is was written after the definition was last changed.
            None => Arc::new(AtomicU64::new(modified.0)),
            Some(known) if known.generation == generation => known.since.clone(),
            Some(_) => {
                let since = Arc::new(AtomicU64::new(u64::MAX));
                changes.since.push(since.clone());
                since
            }
        };
        if known.is_some() && !same_rows {
            changes.closed.push(prefix.clone());
        }
        let now = Served {
            uid: object.uid().to_owned(),
            generation,
            names: names.clone(),
            terminating,
            prefix,
            rows: row::rows(object, &since),
            since,
        };
        served.insert(name.clone(), now);
    }
    changes
}

/// The rows that are compiled in and those of the definitions. A row that is compiled in is never
/// replaced.
pub(super) fn catalog(
    compiled: &Catalog,
    generation: u64,
    served: &BTreeMap<String, Served>,
) -> Catalog {
    let mut groups = compiled.groups.clone();
    let mut rows = compiled.rows.clone();
    let mut custom: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for row in served.values().flat_map(|served| &served.rows) {
        let gvk = &row.gvk;
        let key = (gvk.group.clone(), gvk.version.clone(), row.resource.clone());
        rows.entry(key).or_insert_with(|| row.clone());
        let versions = custom.entry(gvk.group.clone()).or_default();
        if !versions.contains(&gvk.version) {
            versions.push(gvk.version.clone());
        }
    }
    for (name, mut versions) in custom {
        versions.sort_by(|a, b| row::compare_versions(a, b));
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => {
                versions.retain(|version| !group.versions.contains(version));
                group.versions.append(&mut versions);
            }
            None => groups.push(Group { name, versions, custom: true }),
        }
    }
    Catalog { generation, groups, rows }
}
