//! RBAC: the authorizer that follows the server's roles and bindings, and the objects that it
//! creates at start.
//!
//! [`Rbac`] holds an index of all roles and bindings ([`setpoint_rbac::Index`]) and follows the
//! changes of the objects in this process, so a decision reads memory only. Requests that it has to
//! decide wait until the index is filled, which takes milliseconds after the start.
//!
//! At start it creates the roles and bindings of a Kubernetes API server (`bootstrap.json`), in the
//! form in which they are stored, with the rules of aggregated roles (`bootstrap/roles.txt`; a test
//! makes it). It adds labels, annotations, rules, selectors and subjects that an existing one
//! lacks, and never removes any. A binding of another role is replaced: its subjects would get that
//! role. Objects with the annotation `rbac.authorization.kubernetes.io/autoupdate: "false"` stay as
//! they are.
//!
//! The roles of the start are read once per process. All control planes share their index until
//! they have other roles, and an object that the registry has written at its start
//! ([`Registry::is_of_start`]) is not read again.
use crate::authorize::{Authorizer, Decision, is_probe};
use crate::bootstrap::template::{Template, create_missing};
use crate::bootstrap::{absent_roles, objects};
use crate::cache::{ObjectChange, StoredObject};
use crate::catalog::Resource;
use crate::features::FeatureGates;
use crate::fifo_watch::FifoWatch;
use crate::identity::Identity;
use crate::request::{Body, DeleteOptions, Format, WriteOptions};
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::verb::Verb;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, StreamExt as _};
use parking_lot::RwLock;
use serde_json::{Value, json};
use setpoint_object::error::chain;
use setpoint_object::keys::{self, Scope};
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Reason, encode};
use setpoint_rbac::{Index, MissingRole, Request, Rule, Subject, rules_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::watch;

/// The group of roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
/// The roles and bindings of a new cluster, by resource.
const BOOTSTRAP: &str = include_str!("rbac/bootstrap.json");
/// What feature gates add to them, by gate.
const OF_GATES: &str = include_str!("rbac/gates.json");
/// The binding that gave the rights to public information before Kubernetes 1.14, and the one that
/// gives them since, to the role of its own name.
const SPLIT: [&str; 2] = ["system:discovery", "system:public-info-viewer"];
/// Who writes the objects of the start, in their managed fields.
const MANAGER: &str = "kube-apiserver";
/// How many objects are created at the same time.
const AT_ONCE: usize = 32;
/// How long roles that cannot be created are left.
const RETRY: Duration = Duration::from_secs(10);
/// How often an object that others write at the same time is tried.
const ATTEMPTS_MAX: usize = 8;

/// The RBAC authorizer. Add it with
/// [`RegistryBuilder::authorizer`](crate::RegistryBuilder::authorizer) and run [`Rbac::run`] beside
/// the registry.
#[derive(Debug, Default)]
pub struct Rbac {
    /// `None` until every role and binding is known.
    index: RwLock<Option<Arc<Index>>>,
    is_filled: FifoWatch<bool>,
}

impl Authorizer for Rbac {
    fn kind(&self) -> (&str, &str) {
        ("RBAC", "rbac")
    }

    fn authorize<'a>(
        &'a self,
        request: &'a Attributes,
    ) -> BoxFuture<'a, Result<Decision, ApiError>> {
        async move {
            // A probe is answered while the roles are read.
            if is_probe(request) && !self.is_filled.get() {
                return Ok(Decision::Allow(String::new()));
            }
            self.is_filled.wait_for(|is_filled| *is_filled).await;
            self.decide(request)
        }
        .boxed()
    }

    fn decides_health(&self) -> bool {
        true
    }

    fn rules(&self, identity: &Identity, namespace: &str) -> Option<Vec<Arc<[Rule]>>> {
        let index = self.index.read();
        Some(index.as_ref()?.rules(&subject(identity), namespace))
    }

    fn missing_roles(&self, identity: &Identity, namespace: &str) -> Vec<MissingRole> {
        let index = self.index.read();
        index.as_ref().map_or_else(Vec::new, |i| i.missing_roles(&subject(identity), namespace))
    }

    fn role(&self, namespace: &str, is_cluster: bool, name: &str) -> Option<Arc<[Rule]>> {
        self.index.read().as_ref()?.role(namespace, is_cluster, name)
    }
}

fn subject(identity: &Identity) -> Subject<'_, Arc<str>> {
    Subject { user: &identity.user, groups: &identity.groups }
}

impl Rbac {
    /// An authorizer without any roles.
    pub fn new() -> Self {
        Self::default()
    }

    fn decide(&self, request: &Attributes) -> Result<Decision, ApiError> {
        let index = self.index.read();
        let index = index
            .as_ref()
            .ok_or_else(|| ApiError::internal("roles and bindings have not been read yet"))?;
        let question = Request {
            verb: request.verb.as_str(),
            group: request.group(),
            resource: request.resource(),
            subresource: request.subresource().map_or("", Subresource::as_str),
            name: request.name(),
            path: request.non_resource_path(),
        };
        let verdict = index.decide(&subject(&request.identity), request.scope(), &question);
        Ok(match verdict.allowed {
            Some(reason) => Decision::Allow(reason),
            None => Decision::NoOpinion(verdict.refusal()),
        })
    }

    /// Becomes true once the roles of the start have been created and every role and binding has
    /// been read. Until then, requests wait.
    pub fn filled(&self) -> watch::Receiver<bool> {
        self.is_filled.subscribe()
    }

    /// Creates missing roles and bindings, then follows all of them until the registry stops. If
    /// some cannot be created, because the store is full or an object is damaged, the others count,
    /// and they are tried again every ten seconds. Dropping the future leaves the index as it is.
    pub async fn run(&self, registry: &Registry) {
        registry.wait_ready().await;
        let mut failed = None;
        if !registry.has_started_with_roles() || registry.inner.features != FeatureGates::default()
        {
            failed = ensure(registry).await.err();
            // The index begins with what was created.
            if let Ok(revision) = registry.inner.store.revision().await {
                registry.inner.cache.wait_until(revision.0).await;
            }
        }
        let retry = async {
            while let Some(error) = failed {
                tracing::error!(
                    error = chain(&error),
                    "create the roles and bindings of the start"
                );
                tokio::time::sleep(RETRY).await;
                failed = ensure(registry).await.err();
            }
        };
        tokio::join!(retry, self.follow(registry));
    }

    async fn follow(&self, registry: &Registry) {
        let rows = Rows::of(registry);
        let wanted = rows.clone();
        let mut changes = registry.object_changes_where(move |key, _| wanted.of_key(key).is_some());
        let mut filling: Option<Filling> = None;
        while let Some(change) = changes.next().await {
            match change {
                ObjectChange::Resync => filling = Some(Filling::new()),
                ObjectChange::Synced(_) => {
                    if let Some(filling) = filling.take() {
                        *self.index.write() = Some(filling.end());
                        self.is_filled.change(|is_filled| *is_filled = true);
                    }
                }
                ObjectChange::Put(object) => {
                    let Some(row) = rows.of_key(&object.key) else { continue };
                    let is_known = filling.as_mut().is_some_and(|filling| {
                        filling.confirm(&object) && registry.is_of_start(object.revision)
                    });
                    if is_known {
                        continue;
                    }
                    match tree(&object.value) {
                        Ok(object) => self.change(&mut filling, |index| row.put(index, &object)),
                        Err(error) => {
                            let error = chain(&error);
                            tracing::warn!(error, key = ?object.key, "read a role or a binding");
                            // It may have fewer rights now.
                            self.remove(&mut filling, row, &object.key);
                        }
                    }
                }
                ObjectChange::Deleted(object) => {
                    if let Some(row) = rows.of_key(&object.key) {
                        self.remove(&mut filling, row, &object.key);
                    }
                }
            }
        }
    }

    /// Removes an object, whatever its value is.
    fn remove(&self, filling: &mut Option<Filling>, row: Row, key: &[u8]) {
        let prefix = keys::prefix_of(key).unwrap_or_default();
        // Names contain no slash: that of a cluster's role has no namespace before it.
        let (namespace, name) = keys::names(prefix.len(), Scope::Namespaced, key);
        self.change(filling, |index| row.delete(index, namespace, name));
    }

    /// Changes the index that is being filled, or else the one that decides.
    fn change(&self, filling: &mut Option<Filling>, change: impl FnOnce(&mut Index)) {
        match filling {
            Some(filling) => change(Arc::make_mut(&mut filling.index)),
            None => {
                if let Some(index) = self.index.write().as_mut() {
                    change(Arc::make_mut(index));
                }
            }
        }
    }
}

/// An index that is being filled. It begins with the roles of the start; those that turn out not to
/// exist are removed at the end.
struct Filling {
    index: Arc<Index>,
    /// For each object of the start, whether it exists.
    exist: Vec<bool>,
}

impl Filling {
    fn new() -> Self {
        let start = StartRoles::get();
        Self { index: start.index.clone(), exist: vec![false; start.objects.len()] }
    }

    /// Notes that an object exists. Whether it has the key of one of the start.
    fn confirm(&mut self, object: &StoredObject) -> bool {
        let place = StartRoles::get().places.get(&*object.key);
        place.and_then(|place| self.exist.get_mut(*place)).map(|exists| *exists = true).is_some()
    }

    fn end(mut self) -> Arc<Index> {
        let objects = StartRoles::get().objects.iter().zip(self.exist);
        for ((row, namespace, name), _) in objects.filter(|(_, exists)| !exists) {
            row.delete(Arc::make_mut(&mut self.index), namespace, name);
        }
        self.index
    }
}

/// The roles and bindings of the start, read.
struct StartRoles {
    index: Arc<Index>,
    /// Row, namespace and name of each.
    objects: Vec<(Row, String, String)>,
    /// Their places in `objects`, by key.
    places: HashMap<&'static [u8], usize>,
}

impl StartRoles {
    fn get() -> &'static Self {
        static READ: LazyLock<StartRoles> = LazyLock::new(StartRoles::read);
        &READ
    }

    fn read() -> Self {
        let mut start = Self { index: Arc::default(), objects: Vec::new(), places: HashMap::new() };
        let index = Arc::make_mut(&mut start.index);
        for Template { key, text, .. } in objects::roles() {
            let row = if key.contains("bindings/") { Row::Binding } else { Row::Role };
            // The placeholders are inside of texts.
            let Ok(object) = tree(text.as_bytes()) else { continue };
            row.put(index, &object);
            start.places.insert(key.as_bytes(), start.objects.len());
            start.objects.push((row, object.namespace().to_owned(), object.name().to_owned()));
        }
        start
    }
}

/// The prefixes of the four resources.
#[derive(Clone)]
struct Rows([(Arc<str>, Row); 4]);

/// Whether the objects of a resource are roles or bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Role,
    Binding,
}

impl Rows {
    fn of(registry: &Registry) -> Self {
        let catalog = registry.catalog();
        let row = |resource: &str, row| {
            let served = catalog.get(GROUP, "v1", resource);
            (served.map_or_else(|| "".into(), |served| served.storage_prefix.clone()), row)
        };
        Self([
            row("clusterroles", Row::Role),
            row("clusterrolebindings", Row::Binding),
            row("roles", Row::Role),
            row("rolebindings", Row::Binding),
        ])
    }

    fn of_key(&self, key: &[u8]) -> Option<Row> {
        let prefix = keys::prefix_of(key)?;
        self.0.iter().find(|(own, _)| **own == *prefix).map(|(_, row)| *row)
    }
}

impl Row {
    fn put(self, index: &mut Index, object: &Value) {
        let (namespace, name) = (object.namespace(), object.name());
        match self {
            Self::Role => index.put_role(namespace, name, object),
            Self::Binding => index.put_binding(namespace, name, object),
        }
    }

    fn delete(self, index: &mut Index, namespace: &str, name: &str) {
        match self {
            Self::Role => index.delete_role(namespace, name),
            Self::Binding => index.delete_binding(namespace, name),
        }
    }
}

/// Creates and completes the roles and bindings of a new cluster, and those of feature gates.
async fn ensure(registry: &Registry) -> Result<(), ApiError> {
    if !registry.has_started_with_roles() {
        ensure_bootstrap(registry).await?;
    }
    for objects in of_gates(registry.inner.features)? {
        ensure_all(registry, &objects, None).await?;
    }
    Ok(())
}

/// Roles and bindings, by resource.
type Objects = BTreeMap<String, Vec<Value>>;

/// The roles and bindings of features that are on.
fn of_gates(gates: FeatureGates) -> Result<Vec<Objects>, ApiError> {
    if gates == FeatureGates::default() {
        return Ok(Vec::new());
    }
    let mut all: BTreeMap<String, Objects> = serde_json::from_str(OF_GATES)
        .map_err(|error| ApiError::internal(format!("read the roles of gates: {error}")))?;
    Ok(gates.on().filter_map(|feature| all.remove(feature.name())).collect())
}

/// The roles and bindings of a new cluster with these features, but for what gates add.
fn bootstrap_objects(gates: FeatureGates) -> Result<Objects, ApiError> {
    let mut objects: Objects = serde_json::from_str(BOOTSTRAP)
        .map_err(|error| ApiError::internal(format!("read the bootstrap roles: {error}")))?;
    absent_roles::drop_from(&mut objects, gates);
    Ok(objects)
}

async fn ensure_bootstrap(registry: &Registry) -> Result<(), ApiError> {
    let split = split_binding(registry).await;
    let created = match split {
        // Templates are whole.
        Ok(()) if !absent_roles::has_all(registry.inner.features) => {
            return ensure_all(registry, &bootstrap_objects(registry.inner.features)?, None).await;
        }
        Ok(()) => create_missing(&registry.inner, objects::roles().iter()).await,
        // The others may exist or not: each is looked at below.
        Err(error) => Err(error),
    };
    // A new cluster, as most are. Otherwise the objects that exist may lack something.
    if created.as_ref().is_ok_and(Vec::is_empty) && !objects::roles().is_empty() {
        return Ok(());
    }
    ensure_all(registry, &bootstrap_objects(registry.inner.features)?, created.err()).await
}

/// Makes the second binding of [`SPLIT`] if there is only the first: with its subjects, labels and
/// annotations, so that nobody gets rights that a user has taken away.
async fn split_binding(registry: &Registry) -> Result<(), ApiError> {
    let catalog = registry.catalog();
    let row = catalog.get(GROUP, "v1", "clusterrolebindings").ok_or_else(ApiError::no_route)?;
    let [source, name] = SPLIT;
    if registry.inner.live(&row.key("", name)).await?.is_some() {
        return Ok(());
    }
    let Some(source) = registry.inner.live(&row.key("", source)).await? else { return Ok(()) };
    let source = tree(&source.value)?;
    let binding = json!({
        "apiVersion": source["apiVersion"], "kind": source["kind"],
        "metadata": {
            "name": name,
            "labels": source["metadata"]["labels"],
            "annotations": source["metadata"]["annotations"],
        },
        "roleRef": {"apiGroup": GROUP, "kind": source["roleRef"]["kind"], "name": name},
        "subjects": source["subjects"],
    });
    let request = Attributes::loopback(Verb::Create, Target::new(row.clone(), "", ""));
    let options = WriteOptions { field_manager: MANAGER.to_owned(), ..WriteOptions::default() };
    let body = Body { bytes: encode::to_bytes(&binding), format: Format::Json };
    match registry.create(&request, body, &options).await {
        Err(error) if error.reason() != Reason::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Creates and completes all. Returns the first error, which may be an earlier one.
async fn ensure_all(
    registry: &Registry,
    objects: &Objects,
    mut first: Option<ApiError>,
) -> Result<(), ApiError> {
    for resource in ["clusterroles", "roles", "clusterrolebindings", "rolebindings"] {
        let catalog = registry.catalog();
        let row = catalog.get(GROUP, "v1", resource).ok_or_else(ApiError::no_route)?;
        // Together, so that a durable store syncs many at once.
        let mut ensured: Vec<BoxFuture<'_, Result<(), ApiError>>> = Vec::new();
        for wanted in objects.get(resource).into_iter().flatten() {
            ensured.push(ensure_one(registry, row, wanted).boxed());
        }
        let ended: Vec<_> = stream::iter(ensured).buffer_unordered(AT_ONCE).collect().await;
        for error in ended.into_iter().filter_map(Result::err) {
            first.get_or_insert(error);
        }
    }
    first.map_or(Ok(()), Err)
}

/// The rules of a ClusterRole of a new cluster with these features; none if there is no such role.
pub(crate) fn bootstrap_rules(name: &str, gates: FeatureGates) -> Vec<Rule> {
    // Tests read all of them.
    let all = bootstrap_objects(gates).into_iter().chain(of_gates(gates).unwrap_or_default());
    let roles = all.flat_map(|mut objects| objects.remove("clusterroles").unwrap_or_default());
    roles.filter(|role| role.name() == name).flat_map(|role| rules_of(&role)).collect()
}

async fn ensure_one(
    registry: &Registry,
    row: &Arc<Resource>,
    wanted: &Value,
) -> Result<(), ApiError> {
    let (namespace, name) = (wanted.namespace(), wanted.name());
    let body = |object: &Value| Body { bytes: encode::to_bytes(object), format: Format::Json };
    let options = WriteOptions { field_manager: MANAGER.to_owned(), ..WriteOptions::default() };
    for attempt in 1.. {
        let found = registry.inner.live(&row.key(namespace, name)).await?;
        let written = match found {
            None => {
                let collection = Target::new(row.clone(), namespace, "");
                let request = Attributes::loopback(Verb::Create, collection);
                registry.create(&request, body(wanted), &options).await
            }
            Some(found) => {
                let mut object = tree(&found.value)?;
                if is_protected(&object) {
                    return Ok(());
                }
                if gives_another_role(&object, wanted) {
                    if attempt == ATTEMPTS_MAX {
                        return Err(ApiError::internal(format_args!(
                            "{name} gives another role, and cannot be replaced"
                        )));
                    }
                    let target = Target::new(row.clone(), namespace, name);
                    let request = Attributes::loopback(Verb::Delete, target);
                    let uid = Some(object.uid().to_owned());
                    let options = DeleteOptions { uid, ..DeleteOptions::default() };
                    match registry.delete(&request, &options).await {
                        Err(error)
                            if !matches!(error.reason(), Reason::NotFound | Reason::Conflict) =>
                        {
                            return Err(error);
                        }
                        // The next attempt creates it.
                        _ => continue,
                    }
                }
                if !complete(&mut object, wanted) {
                    return Ok(());
                }
                object.set_meta("resourceVersion", found.modified.to_string().into());
                let request =
                    Attributes::loopback(Verb::Update, Target::new(row.clone(), namespace, name));
                registry.update(&request, body(&object), &options).await
            }
        };
        match written {
            // Another server of the same store was faster: look again.
            Err(error)
                if matches!(error.reason(), Reason::AlreadyExists | Reason::Conflict)
                    && attempt < ATTEMPTS_MAX => {}
            written => return written.map(|_| ()),
        }
    }
    Ok(())
}

/// Whether an object stays as it is.
fn is_protected(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|all| all.get(AUTO_UPDATE)).is_some_and(|value| value == "false")
}

/// Whether a binding refers to another role than it should.
fn gives_another_role(object: &Value, wanted: &Value) -> bool {
    let role = |binding: &Value| {
        let reference = &binding["roleRef"];
        ["apiGroup", "kind", "name"].map(|member| reference[member].clone())
    };
    role(object) != role(wanted)
}

/// Adds what an object lacks; whether it lacked something.
fn complete(object: &mut Value, wanted: &Value) -> bool {
    let mut is_changed = false;
    for member in ["annotations", "labels"] {
        let texts = wanted.meta().and_then(|meta| meta.get(member)).and_then(Value::as_object);
        for (key, text) in texts.into_iter().flatten() {
            let known = object.meta_mut().entry(member).or_insert_with(|| json!({}));
            if known.get(key).is_none() {
                known[key.as_str()] = text.clone();
                is_changed = true;
            }
        }
    }
    is_changed |= complete_aggregation(object, wanted);
    // The rules of an aggregated role are the controller's.
    if wanted.get("aggregationRule").is_none() {
        let (held, new) = (rules_of(object), rules_of(wanted));
        let held: Vec<&Rule> = held.iter().collect();
        let lacking = new.iter().flat_map(|rule| setpoint_rbac::missing_rules(rule, &held));
        is_changed |= append(object, "rules", lacking.map(|rule| json!(rule)).collect());
    }
    let subjects = object.get("subjects").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_bound = |wanted: &&Value| {
        let same = |member: &str, other: &Value| other.get(member) == wanted.get(member);
        !subjects.iter().any(|own| ["kind", "name", "namespace"].iter().all(|m| same(m, own)))
    };
    let wanted = wanted.get("subjects").and_then(Value::as_array);
    let lacking: Vec<Value> = wanted.into_iter().flatten().filter(is_bound).cloned().collect();
    is_changed | append(object, "subjects", lacking)
}

/// Adds missing selectors of an aggregated role. A role that should not be aggregated is not.
fn complete_aggregation(object: &mut Value, wanted: &Value) -> bool {
    let Some(rule) = wanted.get("aggregationRule") else {
        let removed = object.as_object_mut().and_then(|role| role.remove("aggregationRule"));
        return removed.is_some_and(|rule| !rule.is_null());
    };
    let selectors = |rule: &Value| -> Vec<Value> {
        rule["clusterRoleSelectors"].as_array().cloned().unwrap_or_default()
    };
    let known = selectors(&object["aggregationRule"]);
    let lacking = selectors(rule).into_iter().filter(|one| !known.contains(one)).collect();
    append(&mut object["aggregationRule"], "clusterRoleSelectors", lacking)
}

fn append(object: &mut Value, member: &str, more: Vec<Value>) -> bool {
    if more.is_empty() {
        return false;
    }
    match object.get_mut(member).and_then(Value::as_array_mut) {
        Some(list) => list.extend(more),
        None => object[member] = more.into(),
    }
    true
}

#[cfg(test)]
mod tests;
