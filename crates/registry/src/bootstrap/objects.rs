//! The objects of a fresh control plane: namespaces, priority classes, the `kubernetes` Service and
//! ServiceCIDR, the levels and schemas of flow control, and the APIServices of the built-in groups.
//!
//! They are [templates](super::template): a fresh control plane costs some commits and no schema
//! work. A test compares them with the output of the write path. Existing objects are not changed
//! at start. Authorization completes roles and bindings; controllers create configuration maps,
//! endpoints and service accounts. In an empty store the roles, and what every namespace has, are
//! created here for them ([`RegistryBuilder::roles`](crate::RegistryBuilder::roles),
//! [`RegistryBuilder::default_accounts`](crate::RegistryBuilder::default_accounts)): a fresh
//! control plane then has nothing that a controller would have to do
//! ([`Registry::is_as_started`]).
//!
//! [`maintain`] creates again what Kubernetes would, once a minute ([`keep_service`] its Service
//! sooner, [`keep_addresses`] objects of addresses), and restores the specs of flow control objects
//! that users have not taken over. Resources whose objects are still those of the
//! start cost it nothing.
use super::template::{self, Template, create_missing};
use crate::allocate::ServiceNumbers;
use crate::cache::ChangeSignal;
use crate::request::{Body, Format, WriteOptions};
use crate::routed::{Attributes, Target};
use crate::shared::{Inner, Registry};
use crate::stored::{store_error, tree};
use crate::verb::Verb;
use bytes::Bytes;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, encode, keys};
use setpoint_schema::encode::to_bytes;
use setpoint_store::{At, Compare, Op, Txn};
use std::ops::Bound;
use std::sync::LazyLock;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A [`Template`] per line, in the order of creation.
const OBJECTS: &str = include_str!("objects.txt");
/// The same, of the ServiceAccount that each of the namespaces has.
const ACCOUNTS: &str = include_str!("accounts.txt");
/// The same, of the ConfigMap with the listener's CA that each of the namespaces has.
const ROOT_CAS: &str = include_str!("root_cas.txt");
/// The same, of roles and bindings.
const ROLES: &str = include_str!("roles.txt");
/// The period of [`maintain`]: a minute, as in kube-apiserver.
const PERIOD: Duration = Duration::from_secs(60);
/// The key of the Service of the API servers.
const SERVICE: &str = "/registry/services/specs/default/kubernetes";
/// After how long it is created again: kube-apiserver looks every ten seconds.
const SERVICE_PAUSE: Duration = Duration::from_secs(5);
/// After how long the addresses of a changed Service are looked at: a kube-apiserver makes such an
/// address's object within some seconds.
const ADDRESS_PAUSE: Duration = Duration::from_secs(3);
/// Prefixes of the keys of objects that are created at start only. A later deletion is deliberate.
const ONLY_AT_START: [&str; 2] =
    ["/registry/apiregistration.k8s.io/", "/registry/priorityclasses/"];
/// Flow control objects, by the beginning of their keys, and their resources.
const FLOW_CONTROL: [(&str, &str); 2] = [
    ("/registry/flowschemas/", "flowschemas"),
    ("/registry/prioritylevelconfigurations/", "prioritylevelconfigurations"),
];
const FLOW_CONTROL_GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The writer of flow control objects.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
/// Whether a flow control object follows the server's specs.
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
/// Prefix of the keys of APIServices; the name is version and group.
const API_SERVICES: &str = "/registry/apiregistration.k8s.io/apiservices/";
/// Flow control objects that always do, except for the shares of the level.
const MANDATORY: [&str; 2] = ["exempt", "catch-all"];

/// The objects of every control plane, in the order of creation.
fn objects() -> &'static [Template] {
    static OF_ALL: LazyLock<Vec<Template>> = LazyLock::new(|| template::read(OBJECTS));
    &OF_ALL
}

/// The group and version of an APIService's object.
fn group_version(object: &Template) -> Option<(&'static str, &'static str)> {
    let (version, group) = object.key.strip_prefix(API_SERVICES)?.split_once('.')?;
    Some((group, version))
}

/// Whether an object is that of a group version that is turned off.
fn is_unserved(inner: &Inner, object: &Template) -> bool {
    group_version(object).is_some_and(|(group, version)| {
        let group = inner.compiled.group(group);
        !group.is_some_and(|group| group.versions.iter().any(|known| **known == *version))
    })
}

/// The objects without those of group versions that are turned off.
fn served(inner: &Inner) -> impl Iterator<Item = &'static Template> {
    objects().iter().filter(|object| !is_unserved(inner, object))
}

/// Removes what a former start has created for group versions that are turned off now.
async fn remove_unserved(inner: &Inner) -> Result<(), ApiError> {
    for object in objects().iter().filter(|object| is_unserved(inner, object)) {
        let key = Bytes::from_static(object.key.as_bytes());
        let found = inner.store.get(&key, At::Latest).await.map_err(store_error)?.value;
        let Some(found) = found else { continue };
        let txn = Txn {
            compares: vec![Compare::Modified(key.clone(), found.modified)],
            ops: vec![Op::Delete(key)],
            ..Txn::default()
        };
        // Whoever was faster decides.
        inner.store.commit(txn).await.map(drop).map_err(store_error)?;
    }
    Ok(())
}

/// The ServiceAccounts of the first namespaces.
fn accounts() -> &'static [Template] {
    static OF_NAMESPACES: LazyLock<Vec<Template>> = LazyLock::new(|| template::read(ACCOUNTS));
    &OF_NAMESPACES
}

/// The ConfigMaps with the listener's CA of the first namespaces.
fn root_cas() -> &'static [Template] {
    static OF_NAMESPACES: LazyLock<Vec<Template>> = LazyLock::new(|| template::read(ROOT_CAS));
    &OF_NAMESPACES
}

/// The roles and bindings of a new cluster.
pub(crate) fn roles() -> &'static [Template] {
    static OF_ALL: LazyLock<Vec<Template>> = LazyLock::new(|| template::read(ROLES));
    &OF_ALL
}

/// Creates all objects in an empty store, without looking. Returns their number. `root_ca` is the
/// CA of the listener.
pub(crate) async fn create_all(inner: &Inner, root_ca: Option<&str>) -> Result<usize, ApiError> {
    let accounts = if inner.default_accounts { accounts() } else { &[] };
    let root_cas = root_ca.map_or(&[][..], |_| root_cas());
    let roles = if inner.has_roles { roles() } else { &[] };
    let all = served(inner).chain(accounts).chain(root_cas).chain(roles);
    let all: Vec<&Template> = all.collect();
    template::create_all(inner, root_ca.unwrap_or_default(), &all, common(roles)).await?;
    Ok(all.len())
}

/// The objects that control planes of a process may have in common. Not namespaces: the uid of
/// `kube-system` identifies a cluster, and the others are like it.
fn common(roles: &'static [Template]) -> impl Iterator<Item = &'static Template> {
    let is_common =
        |object: &&Template| object.is_common() && !object.key.starts_with("/registry/namespaces/");
    objects().iter().chain(roles).filter(is_common)
}

/// Creates the missing objects, except those that others complete.
pub(crate) async fn ensure(inner: &Inner) -> Result<(), ApiError> {
    let accounts = if inner.default_accounts { accounts() } else { &[] };
    create_missing(inner, served(inner).chain(accounts)).await?;
    remove_unserved(inner).await?;
    widen_range(inner).await
}

/// Adds the second network to a ServiceCIDR `kubernetes` that has only the first: its servers had
/// one family before. One with other networks is its user's, as with kube-apiserver.
async fn widen_range(inner: &Inner) -> Result<(), ApiError> {
    let networks: Vec<String> = inner.allocator.networks().texts().collect();
    let [first, _] = &*networks else { return Ok(()) };
    let key = Bytes::from(format!("{}kubernetes", keys::SERVICE_CIDRS));
    let found = inner.store.get(&key, At::Latest).await.map_err(store_error)?.value;
    let Some(found) = found else { return Ok(()) };
    let mut range = tree(&found.value)?;
    if range["spec"]["cidrs"] != json!([first]) || !range.deletion_timestamp().is_empty() {
        return Ok(());
    }
    range["spec"]["cidrs"] = networks.into();
    let txn = Txn {
        compares: vec![Compare::Modified(key.clone(), found.modified)],
        ops: vec![Op::Put(key, to_bytes(&range))],
        ..Txn::default()
    };
    // If another server was faster, it has done the same.
    inner.store.commit(txn).await.map(drop).map_err(store_error)
}

/// Whether [`maintain`] creates an object again.
fn is_lasting(object: &Template) -> bool {
    !ONLY_AT_START.iter().any(|start| object.key.starts_with(start))
}

/// Once a minute, creates what is missing and restores what the server owns. Failures are repeated
/// a minute later.
pub(crate) async fn maintain(
    registry: &Registry,
    stop: &CancellationToken,
) -> Result<(), ApiError> {
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            // Cancel safe: a sleep holds no state.
            () = tokio::time::sleep(PERIOD) => {}
        }
        // Boxed, so that an idle registry holds no space for writes.
        Box::pin(maintain_once(registry)).await;
    }
}

/// Creates the Service `kubernetes` again some seconds after a deletion.
pub(crate) async fn keep_service(
    registry: &Registry,
    stop: &CancellationToken,
) -> Result<(), ApiError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        // Cancel safe: it waits for a state.
        () = registry.wait_ready() => {}
    }
    let service = || objects().iter().filter(|object| object.key == SERVICE);
    let mut changes = registry.change_signal(start_of(SERVICE), Some("kubernetes"));
    while next_change(&mut changes, SERVICE_PAUSE, stop).await {
        // Boxed, so that an idle registry holds no space for writes.
        if let Err(error) = Box::pin(create_missing(&registry.inner, service())).await {
            tracing::warn!(error = chain(&error), "create the Service of the API servers");
        }
    }
    Ok(())
}

/// Makes the objects of addresses that Services have which another program has written, some
/// seconds after it: kube-apiserver and setpoint write them together. Only a shared store can have
/// such Services.
pub(crate) async fn keep_addresses(
    registry: &Registry,
    stop: &CancellationToken,
) -> Result<(), ApiError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        // Cancel safe: it waits for a state.
        () = registry.wait_ready() => {}
    }
    if !registry.inner.is_shared {
        return Ok(());
    }
    let mut changes = registry.change_signal(keys::SERVICES, None);
    // The others were repaired at the start.
    let (_, mut seen) = registry.inner.cache.resource(keys::SERVICES).snapshot();
    while next_change(&mut changes, ADDRESS_PAUSE, stop).await {
        let inner = &registry.inner;
        let (services, newest) = inner.cache.resource(keys::SERVICES).snapshot();
        let changed = services.range(Bound::Unbounded, Bound::Unbounded);
        let changed = changed.filter(|service| service.revision > seen);
        let addresses = inner.cache.resource(keys::IP_ADDRESSES);
        let lacks_object = changed
            .filter_map(|service| Some(ServiceNumbers::of(&tree(&service.value).ok()?)))
            .flat_map(|numbers| numbers.object_keys())
            .any(|key| addresses.get(&key).is_none());
        seen = newest;
        if lacks_object {
            let birth = inner.birth();
            // Boxed, so that an idle registry holds no space for writes.
            let repair = Box::pin(inner.allocator.repair(&*inner.store, &birth));
            if let Err(error) = repair.await {
                tracing::warn!(error = chain(&error), "repair the objects of cluster addresses");
            }
        }
    }
    Ok(())
}

/// Waits for a change, and then for a pause. `false`: it is to stop.
async fn next_change(
    changes: &mut ChangeSignal,
    pause: Duration,
    stop: &CancellationToken,
) -> bool {
    let waited = async {
        changes.changed().await;
        tokio::time::sleep(pause).await;
    };
    // Cancel safe: whoever stops needs no change.
    stop.run_until_cancelled(waited).await.is_some()
}

async fn maintain_once(registry: &Registry) {
    // Resources as this server has written them have nothing to mend: an idle control plane reads
    // nothing.
    let has_changed = |key: &str| !registry.is_as_started(start_of(key));
    let lasting =
        served(&registry.inner).filter(|object| is_lasting(object) && has_changed(object.key));
    if let Err(error) = create_missing(&registry.inner, lasting).await {
        tracing::warn!(error = chain(&error), "create the objects of the control plane itself");
    }
    if let Err(error) = widen_range(&registry.inner).await {
        tracing::warn!(
            error = chain(&error),
            "add the second network to the ServiceCIDR of the control plane"
        );
    }
    if let Err(error) = repair_addresses(&registry.inner).await {
        tracing::warn!(error = chain(&error), "repair the objects of cluster addresses");
    }
    for (start, resource) in FLOW_CONTROL.into_iter().filter(|(start, _)| has_changed(start)) {
        for Template { key, text, .. } in objects().iter().filter(|o| o.key.starts_with(start)) {
            if let Err(error) = restore(registry, resource, key, text).await {
                tracing::warn!(error = chain(&error), key, "restore a flow control object");
            }
        }
    }
}

/// Repairs the objects of cluster addresses if they differ from the addresses in use.
async fn repair_addresses(inner: &Inner) -> Result<(), ApiError> {
    let (objects, _) = inner.cache.resource(keys::IP_ADDRESSES).snapshot();
    let items = objects.range(Bound::Unbounded, Bound::Unbounded);
    if inner.allocator.has_objects(items.map(|item| (&*item.key, &*item.value))) {
        return Ok(());
    }
    inner.allocator.repair(&*inner.store, &inner.birth()).await
}

/// Restores the spec of a flow control object, unless its user has taken it over.
async fn restore(
    registry: &Registry,
    resource: &str,
    key: &str,
    object: &str,
) -> Result<(), ApiError> {
    let Some(found) = registry.inner.recent(start_of(key), key.as_bytes()) else { return Ok(()) };
    if registry.is_of_start(found.modified.0) {
        return Ok(());
    }
    let (mut found, modified) = (tree(&found.value)?, found.modified);
    let wanted = tree(object.as_bytes())?;
    let is_mandatory = MANDATORY.contains(&wanted.name());
    // The shares of the exempt level are the user's.
    let is_exempt_level = is_mandatory && wanted["spec"]["exempt"].is_object();
    let annotation = found.pointer("/metadata/annotations").and_then(|all| all.get(AUTO_UPDATE));
    let is_owned = match annotation.and_then(Value::as_str) {
        _ if is_mandatory => !is_exempt_level,
        Some(value) => value == "true",
        // Nobody has changed it.
        None => found["metadata"]["generation"] == 1,
    };
    if !is_owned || found["spec"] == wanted["spec"] {
        return Ok(());
    }
    found["spec"] = wanted["spec"].clone();
    found.set_meta("resourceVersion", modified.to_string().into());
    let catalog = registry.catalog();
    let row = catalog.get(FLOW_CONTROL_GROUP, "v1", resource).ok_or_else(ApiError::no_route)?;
    let target = Target::new(row.clone(), "", wanted.name());
    let request = Attributes::loopback(Verb::Update, target);
    let body = Body { bytes: encode::to_bytes(&found), format: Format::Json };
    let options = WriteOptions { field_manager: PRODUCER.to_owned(), ..WriteOptions::default() };
    match registry.update(&request, body, &options).await {
        // Another server was faster, or it is being changed: the next round looks again.
        Err(error) if matches!(error.reason(), Reason::Conflict | Reason::NotFound) => Ok(()),
        written => written.map(drop),
    }
}

/// The prefix of a key's resource.
fn start_of(key: &str) -> &str {
    keys::prefix_of(key.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_version_has_an_api_service() {
        let registered: Vec<_> = objects().iter().filter_map(group_version).collect();
        // That of APIServices themselves has none.
        let has_one =
            |row: &&setpoint_facts::Resource| !["", "apiregistration.k8s.io"].contains(&row.group);
        for row in setpoint_facts::RESOURCES.iter().filter(has_one) {
            assert!(
                registered.contains(&(row.group, row.version)),
                "{} {}",
                row.group,
                row.version
            );
        }
    }
}
