//! The served rows of definitions, and the catalog made from them.
use super::fence::{self, State};
use super::{Definition, row};
use crate::catalog::{Catalog, DefinitionSource, Fence, Group, Resource, Routes};
use crate::shared::Inner;
use serde_json::Value;
use setpoint_schema::crd::condition_is_true;
use setpoint_store::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rows of one definition and their inputs.
#[derive(Debug)]
pub(super) struct Served {
    state: State,
    names: Value,
    prefix: Arc<str>,
    /// See [`crate::catalog::Stored::since`].
    since: u64,
    fence: Fence,
    /// Another server has written the fence since.
    is_overtaken: bool,
    source: Arc<DefinitionSource>,
    retired: Arc<AtomicBool>,
    rows: Vec<Arc<Resource>>,
}
impl Served {
    /// Records that the fence was written, or removed (`None`), at a revision.
    pub(super) fn note_fence(&mut self, written: Option<u64>) {
        self.is_overtaken = written != Some(self.fence.revision.0);
    }
}

/// The changes of the served definitions since the last catalog was sent.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The catalog has changed.
    pub(super) any: bool,
    /// Storage prefixes of resources that are served differently from now on: watches restart.
    pub(super) closed: Vec<Arc<str>>,
    /// Storage prefixes of resources that are no longer served.
    pub(super) gone: Vec<Arc<str>>,
    /// Fences of deleted definitions.
    pub(super) fences: Vec<Fence>,
}

/// Whether a definition is served. Once established, it stays served even if its names conflict
/// later.
fn is_served(definition: &Value) -> bool {
    condition_is_true(definition, "Established")
}

/// Updates the served rows of one definition; unchanged ones are reused.
///
/// # Errors
///
/// The store is unavailable. Nothing has changed then.
pub(super) async fn update(
    served: &mut BTreeMap<String, Served>,
    name: &str,
    definition: Option<&Definition>,
    inner: &Inner,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    let Some(definition) = definition.filter(|d| is_served(&d.object)) else {
        if let Some(gone) = served.remove(name) {
            gone.retired.store(true, Ordering::Relaxed);
            changes.any = true;
            changes.gone.push(gone.prefix);
            changes.fences.push(gone.fence);
        }
        return Ok(());
    };
    let state = State::of(definition);
    let names = &definition.object["status"]["acceptedNames"];
    let known = served.get(name);
    if let Some(known) = known.filter(|known| known.state.is_same(&state)) {
        // The same schemas; the older bytes can be freed.
        known.source.renew(definition.bytes.clone());
        if known.names == *names && !known.is_overtaken {
            return Ok(());
        }
    }
    // Before the rows are served, so that writes that were prepared with other rows cannot be
    // committed any more.
    let Some(fence) = fence::establish(&*inner.store, name, &state).await? else {
        // The store has a newer state of the definition, which will come through the feed.
        return Ok(());
    };
    let same_schema = known.filter(|known| known.state.is_same_schema(&state));
    let is_another = known.is_some_and(|known| !known.state.is_same_object(&state));
    let since = match same_schema {
        // Writers without fences may exist: none of its objects is assumed to match the schema.
        _ if inner.is_shared => u64::MAX,
        // A create drops `status` after the defaults were applied.
        _ if row::has_status_default(&definition.object) => u64::MAX,
        Some(known) if !known.is_overtaken => known.since,
        _ => fence.revision.0,
    };
    let prefix = row::storage_prefix(&definition.object);
    let (source, retired) = match same_schema {
        Some(known) if known.names == *names => (known.source.clone(), known.retired.clone()),
        _ => (definition.source(), Arc::default()),
    };
    if let Some(known) = known
        && !Arc::ptr_eq(&known.retired, &retired)
    {
        known.retired.store(true, Ordering::Relaxed);
        let prefixes = if is_another { &mut changes.gone } else { &mut changes.closed };
        prefixes.push(known.prefix.clone());
    }
    changes.any = true;
    let stored = row::stored(&definition.object, &source, since, fence.clone(), retired.clone());
    let rows = row::rows(&definition.object, &source, &stored);
    let names = names.clone();
    let now =
        Served { state, names, prefix, since, fence, is_overtaken: false, source, retired, rows };
    served.insert(name.to_owned(), now);
    Ok(())
}

/// The compiled-in rows and those of the definitions. Compiled-in rows are never replaced, and a
/// group version of Kubernetes has no others: its resources are known without definitions.
pub(super) fn catalog(
    compiled: &Catalog,
    generation: u64,
    served: &BTreeMap<String, Served>,
) -> Catalog {
    let mut groups = compiled.groups.clone();
    let mut rows = compiled.rows.clone();
    let mut custom: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
    let built_in = compiled.rows.values().filter(|row| row.has_go_type());
    let built_in: BTreeSet<_> =
        built_in.map(|row| (row.gvk.group.clone(), row.gvk.version.clone())).collect();
    let of_definitions = served.values().flat_map(|served| &served.rows);
    for row in of_definitions {
        let gvk = &row.gvk;
        if built_in.contains(&(gvk.group.clone(), gvk.version.clone())) {
            continue;
        }
        let key = (gvk.group.clone(), gvk.version.clone(), row.resource.clone());
        rows.entry(key).or_insert_with(|| row.clone());
        custom.entry(gvk.group.clone()).or_default().insert(gvk.version.clone());
    }
    // Each name comes once, so those that are added need not be searched.
    let n_compiled = groups.len();
    for (name, versions) in custom {
        let mut versions: Vec<Arc<str>> = versions.into_iter().collect();
        versions.sort_by(|a, b| row::compare_versions(a, b));
        match groups[..n_compiled].iter_mut().find(|group| group.name == name) {
            Some(group) => {
                versions.retain(|version| !group.versions.contains(version));
                group.versions.append(&mut versions);
            }
            None => groups.push(Group { name, versions, routes: Routes::Dynamic }),
        }
    }
    Catalog { generation, groups, rows }
}
