//! Type checks of validating admission policies, written to their `status` (spec: admission §5).
//!
//! Expressions of policies are compiled with objects of unknown types. This task compiles them once
//! more for each kind that a policy names, with the kind's schema, and writes what it finds to
//! `status.typeChecking`. `status.observedGeneration` says that it is done. Nothing depends on the
//! result: it is for the author of the policy.
use crate::cache::ChangeSignal;
use crate::catalog::{Catalog, Resource};
use crate::kind::admissionregistration::expression::{Environment, Wanted};
use crate::kind::{list, text};
use crate::request::{Body, Format, WriteOptions};
use crate::routed::{Attributes, Target};
use crate::shared::Registry;
use crate::stored::tree;
use crate::subresource::Subresource;
use crate::verb::Verb;
use serde_json::{Value, json};
use setpoint_cel::types::Type;
use setpoint_object::error::chain;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, GroupVersion, Reason, encode, keys};
use setpoint_schema::rules::object_type;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const GROUP: &str = "admissionregistration.k8s.io";
const RESOURCE: &str = "validatingadmissionpolicies";
/// The user agent of the writes, which becomes their field manager.
const MANAGER: &str = "validatingadmissionpolicy-status-controller";
/// Maximum number of kinds that a rule of a policy is checked for: as Kubernetes.
const KINDS_OF_RULE_MAX: usize = 10;
/// Maximum number of kinds that a policy is checked for. Each compiles all of its expressions.
const KINDS_MAX: usize = 40;
/// Maximum bytes of all warnings of a policy. An object may have 3 MiB, and a warning repeats the
/// expression for each kind.
const WARNINGS_BYTES_MAX: usize = 256 << 10;
/// The pause before a write that failed is repeated: one second, as for definitions.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Checks policies until `stop`.
///
/// # Errors
///
/// None: a write that fails is repeated. Dropping the future leaves no state behind.
pub(crate) async fn run(registry: &Registry, stop: CancellationToken) -> Result<(), ApiError> {
    tokio::select! {
        biased;
        // Cancel safe: all state is in the store.
        never = follow(registry) => match never {},
        () = stop.cancelled() => Ok(()),
    }
}

/// Never returns: without changes it waits.
async fn follow(registry: &Registry) -> Infallible {
    registry.wait_ready().await;
    let cache = registry.inner.cache.resource(&keys::built_in_prefix(GROUP, RESOURCE));
    let mut changes = ChangeSignal::new(cache.clone(), None);
    // The versions that need no look any more.
    let mut settled = BTreeMap::new();
    loop {
        let (index, _) = cache.snapshot();
        let mut due = Vec::new();
        let mut present = BTreeMap::new();
        for item in index.range(Bound::Unbounded, Bound::Unbounded) {
            present.insert(item.key.clone(), item.revision);
            if settled.get(&item.key) != Some(&item.revision) {
                due.push(item.clone());
            }
        }
        let mut is_settled = true;
        for item in due {
            // Boxed, so that an idle registry holds no space for writes.
            let settled = Box::pin(settle(registry, &item.value, item.revision)).await;
            if let Err(error) = settled {
                tracing::warn!(error = chain(&error), "write the status of an admission policy");
                present.remove(&item.key);
                is_settled = false;
            }
        }
        settled = present;
        tokio::select! {
            biased;
            // Cancel safe: changes are found in the next snapshot.
            () = changes.changed() => {}
            // Cancel safe: a sleep takes nothing.
            () = tokio::time::sleep(RETRY_PERIOD), if !is_settled => {}
        }
    }
}

/// Checks one policy if its present generation is not checked yet.
async fn settle(registry: &Registry, stored: &[u8], revision: u64) -> Result<(), ApiError> {
    let mut policy = tree(stored)?;
    let generation = policy["metadata"]["generation"].as_i64().unwrap_or_default();
    let observed = policy["status"]["observedGeneration"].as_i64().unwrap_or_default();
    if observed >= generation {
        return Ok(());
    }
    let (catalog, spec) = (registry.catalog(), policy["spec"].clone());
    let check = async move { warnings(&catalog, &spec) };
    let warnings = registry.inner.threads.run(check).await?;
    if !policy["status"].is_object() {
        policy["status"] = json!({});
    }
    policy["status"]["observedGeneration"] = generation.into();
    policy["status"]["typeChecking"] = match warnings.is_empty() {
        true => json!({}),
        false => json!({"expressionWarnings": warnings}),
    };
    policy.set_meta("resourceVersion", revision.to_string().into());
    match write(registry, policy).await {
        // Another writer was first: the new state comes with the next change.
        Err(error) if matches!(error.reason(), Reason::Conflict | Reason::NotFound) => Ok(()),
        written => written,
    }
}

async fn write(registry: &Registry, policy: Value) -> Result<(), ApiError> {
    let catalog = registry.catalog();
    let resource = catalog
        .get(GROUP, "v1", RESOURCE)
        .ok_or_else(|| ApiError::internal("admission policies are not served"))?;
    let target = Target {
        resource: resource.clone(),
        namespace: String::new(),
        name: policy.name().to_owned(),
        subresource: Subresource::of("status"),
    };
    let request =
        Attributes { user_agent: MANAGER.to_owned(), ..Attributes::loopback(Verb::Update, target) };
    let body = Body { bytes: encode::to_bytes(&policy), format: Format::Json };
    registry.update(&request, body, &WriteOptions::default()).await.map(|_| ())
}

/// `expressionWarnings` of a policy.
fn warnings(catalog: &Catalog, spec: &Value) -> Vec<Value> {
    let kinds = kinds(catalog, spec);
    let has_params = spec["paramKind"].is_object();
    let params = params(catalog, &spec["paramKind"]);
    let environments: Vec<(String, Environment)> = kinds
        .iter()
        .map(|row| {
            let object = ty(row);
            let mut environment = Environment::new(has_params).with_types(object, params.clone());
            for variable in list(spec, "variables") {
                // Variables are not checked, but their types count.
                _ = environment.variable(text(variable, "name"), text(variable, "expression"));
            }
            let gvk = &row.gvk;
            (format!("{}/{}, Kind={}", gvk.group, gvk.version, gvk.kind), environment)
        })
        .collect();
    let mut warnings = Vec::new();
    let mut bytes = 0;
    for (i, validation) in list(spec, "validations").iter().enumerate() {
        for (member, wanted) in
            [("expression", Wanted::Bool), ("messageExpression", Wanted::Message)]
        {
            let expression = text(validation, member);
            if expression.is_empty() || bytes > WARNINGS_BYTES_MAX {
                continue;
            }
            let issues = environments.iter().filter_map(|(kind, environment)| {
                let issues = environment.issues(expression, wanted).err()?;
                Some(format!("{kind}: {issues}\n"))
            });
            let blocks: Vec<String> = issues.collect();
            if !blocks.is_empty() {
                let warning = blocks.join("\n");
                bytes += warning.len();
                let field = format!("spec.validations[{i}].{member}");
                warnings.push(json!({"fieldRef": field, "warning": warning}));
            }
        }
    }
    warnings
}

/// The type of a row's objects.
fn ty(row: &Resource) -> Type {
    object_type(&row.schema, &row.gvk.kind).ty
}

/// The type of the params, if their kind is known.
fn params(catalog: &Catalog, kind: &Value) -> Option<Type> {
    let version = GroupVersion::parse(text(kind, "apiVersion"))?;
    let mut rows = catalog.group_version(&version.group, &version.version);
    rows.find(|row| *row.gvk.kind == *text(kind, "kind")).map(|row| ty(row))
}

/// The kinds that the rules of a policy name, without subresources. A rule whose groups or versions
/// have a wildcard names none. As in Kubernetes, the core group stands for every group, and a rule
/// that names too many kinds is the last one.
///
/// Looks at each row once per rule: the combinations of groups, versions and resources that an
/// object has space for are too many.
fn kinds(catalog: &Catalog, spec: &Value) -> Vec<Arc<Resource>> {
    let mut kinds = BTreeMap::new();
    for rule in list(&spec["matchConstraints"], "resourceRules") {
        let [groups, versions, mut resources] =
            ["apiGroups", "apiVersions", "resources"].map(|member| texts(rule, member));
        if groups.iter().chain(&versions).any(|name| name.contains('*')) {
            continue;
        }
        resources.retain(|resource| !resource.contains(['*', '/']));
        let is_of_all_groups = groups.contains("");
        let is_named = |row: &&Arc<Resource>| {
            (is_of_all_groups || groups.contains(&*row.gvk.group))
                && versions.contains(&*row.gvk.version)
                && (resources.contains(&*row.resource) || resources.contains(&*row.singular))
        };
        let mut rows: Vec<_> = catalog.rows.values().filter(is_named).collect();
        if is_of_all_groups {
            rows.sort_by_key(|row| (row.gvk.version.clone(), row.resource.clone()));
        }
        for (n, row) in rows.into_iter().enumerate() {
            let gvk = &row.gvk;
            kinds.insert((gvk.group.clone(), gvk.version.clone(), gvk.kind.clone()), row.clone());
            if n + 1 == KINDS_OF_RULE_MAX || kinds.len() == KINDS_MAX {
                return kinds.into_values().collect();
            }
        }
    }
    kinds.into_values().collect()
}

/// Resources are found in any case.
fn texts(rule: &Value, member: &str) -> BTreeSet<String> {
    let texts = list(rule, member).iter().filter_map(Value::as_str);
    texts
        .map(|text| if member == "resources" { text.to_lowercase() } else { text.to_owned() })
        .collect()
}
