//! Aggregated ClusterRoles: a role with an `aggregationRule` has the rules of all roles that its
//! selectors match.
//!
//! # Theory
//!
//! The rules of the matching roles are joined in the order of the roles' names, each rule once, and
//! applied as field manager `clusterrole-aggregation-controller`, which takes the field from
//! anybody who edited it. If no role matches, the field is given back: rules that somebody else
//! wrote stay, as in the reference. Every aggregated role is compared when any ClusterRole changes:
//! one may be the source of another. The rules are those of kube-controller-manager's controller of
//! that name.

use crate::api::{Api, RequestError, ignore_not_found};
use crate::boxed::{Boxed, BoxedReconciler};
use crate::first_error::FirstError;
use crate::setup::Setup;
use bytes::Bytes;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube_core::metadata::PartialObjectMeta;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use setpoint_informer::Event;
use setpoint_object::label::Selector;
use setpoint_object::meta::ObjectExt;
use setpoint_object::url::escape_segment;
use setpoint_runtime::{Action, BoxError, Context, Controller, Manager, Request, Watch};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The field manager of aggregated rules.
const MANAGER: &str = "clusterrole-aggregation-controller";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Keeps aggregated ClusterRoles. Does nothing until a manager runs it.
#[derive(Debug)]
#[must_use]
pub struct ClusterRoleAggregation {
    setup: Setup,
}

impl ClusterRoleAggregation {
    /// Creates a controller that starts from `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { setup }
    }

    /// Whether the controller has nothing to do, by all ClusterRoles as encoded objects.
    pub fn is_settled(roles: &[Bytes]) -> bool {
        let read =
            roles.iter().map(|role| Some((role, serde_json::from_slice::<Read>(role).ok()?)));
        let Some(read) = read.collect::<Option<Vec<_>>>() else { return false };
        let rules = read.iter().filter_map(|(_, role)| role.aggregation_rule.as_ref());
        let selectors: Vec<Selector> = rules.filter_map(selectors_of).flatten().collect();
        let mut by_label: HashMap<_, Vec<&Selector>> = HashMap::new();
        for selector in &selectors {
            by_label.entry(selector.required().next()).or_default().push(selector);
        }
        // The others, which are most, are not decoded.
        let takes_part = |role: &Read| {
            let labels = role.metadata.labels.as_ref();
            let is_matched =
                |selector: &&Selector| selector.matches(|key| labels?.get(key).map(String::as_str));
            let own = labels.into_iter().flatten().map(|(key, value)| Some((&**key, &**value)));
            let mut candidates = own.chain([None]).filter_map(|label| by_label.get(&label));
            role.aggregation_rule.is_some() || candidates.any(|all| all.iter().any(is_matched))
        };
        let taking_part = read.iter().filter(|(_, role)| takes_part(role));
        let decoded = taking_part.map(|(role, _)| serde_json::from_slice::<Value>(role).ok());
        let Some(decoded) = decoded.collect::<Option<Vec<_>>>() else { return false };
        let roles = decoded.into_iter().map(|role| (role.name().to_owned(), role)).collect();
        due(&roles).next().is_none()
    }

    /// Adds it to a manager of [`Setup::manager`], which runs it; [`Setup::run`] makes one.
    ///
    /// # Errors
    ///
    /// If the manager refuses it, for example because it has one of that name.
    pub fn add_to(self, manager: &mut Manager) -> Result<(), BoxError> {
        let roles = Roles { api: self.setup.api(MANAGER) };
        let controller = Controller::builder(MANAGER)
            // All roles have one key: a pass lists and compares all of them.
            .watches(
                Watch::<ClusterRole>::metadata(),
                |_: &Event<PartialObjectMeta<ClusterRole>>| vec![Request::cluster("all")],
            )
            .sync_timeout(None)
            .build(Boxed(roles))?;
        manager.add(controller)?;
        Ok(())
    }
}

struct Roles {
    api: Api,
}

impl BoxedReconciler for Roles {
    type Error = RequestError;

    async fn pass(&self, _: &Request, _: &Context) -> Result<Action, RequestError> {
        let mut roles = BTreeMap::new();
        self.api
            .list_pages(ROLES, |role| {
                roles.insert(role.name().to_owned(), role);
            })
            .await?;
        // A role that is refused does not keep the others.
        let mut errors = FirstError::new();
        for (name, rules) in due(&roles) {
            // With the uid, because an apply would create a role that was deleted meanwhile.
            let uid = roles.get(name).map(|role| role.uid());
            let mut applied = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": name, "uid": uid},
            });
            if !rules.is_empty() {
                applied["rules"] = rules.into();
            }
            let name = escape_segment(name);
            let path = format!("{ROLES}/{name}?fieldManager={MANAGER}&force=true");
            // Deleted in the meantime: the next event has the others.
            errors.note(ignore_not_found(self.api.apply(&path, &applied).await));
        }
        errors.into_result()?;
        Ok(Action::await_change())
    }
}

/// The aggregated roles that have other rules than they should, with the right ones.
fn due(roles: &BTreeMap<String, Value>) -> impl Iterator<Item = (&String, Vec<Value>)> {
    let sources = Sources::of(roles);
    roles.iter().filter_map(move |(name, role)| {
        let rules = aggregate(name, &selectors(role)?, &sources);
        let held = role.get("rules").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_due = held != rules && (!rules.is_empty() || has_applied_rules(role));
        is_due.then_some((name, rules))
    })
}

/// Whether this controller owns the rules of a role.
fn has_applied_rules(role: &Value) -> bool {
    let managers = role.meta().and_then(|meta| meta.get("managedFields")?.as_array());
    managers
        .into_iter()
        .flatten()
        .any(|entry| entry["manager"] == MANAGER && entry["fieldsV1"].get("f:rules").is_some())
}

/// The selectors of an aggregated role; `None` if it is none, or if it is being deleted: an apply
/// would only create it again.
fn selectors(role: &Value) -> Option<Vec<Selector>> {
    let selectors = selectors_of(role.get("aggregationRule")?)?;
    role.deletion_timestamp().is_empty().then_some(selectors)
}

/// The selectors of an `aggregationRule`.
fn selectors_of(rule: &Value) -> Option<Vec<Selector>> {
    let selectors = rule.get("clusterRoleSelectors")?.as_array()?;
    // A selector that cannot be read matches nothing.
    let selector = |selector| Selector::from_object(selector).ok().flatten();
    Some(selectors.iter().filter_map(selector).collect())
}

/// What [`ClusterRoleAggregation::is_settled`] reads of every role.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    metadata: ReadMetadata,
    aggregation_rule: Option<Value>,
}

#[derive(Deserialize)]
struct ReadMetadata {
    labels: Option<BTreeMap<String, String>>,
}

/// The roles that selectors are looked up in: there may be thousands of both.
struct Sources<'a> {
    roles: &'a BTreeMap<String, Value>,
    /// The names of the roles with a label of a value, sorted.
    by_label: HashMap<(&'a str, &'a str), Vec<&'a str>>,
}

impl<'a> Sources<'a> {
    fn of(roles: &'a BTreeMap<String, Value>) -> Self {
        let mut by_label: HashMap<_, Vec<&str>> = HashMap::new();
        for (name, role) in roles {
            for (key, value) in labels(role).into_iter().flatten() {
                let value = value.as_str().unwrap_or_default();
                by_label.entry((key.as_str(), value)).or_default().push(name);
            }
        }
        Self { roles, by_label }
    }

    /// The roles that a selector matches, by name.
    fn matching<'s>(
        &'s self,
        selector: &'s Selector,
    ) -> impl Iterator<Item = (&'s str, &'s Value)> {
        let named = selector
            .required()
            .map(|label| self.by_label.get(&label).map_or(&[][..], Vec::as_slice));
        let rarest = named.min_by_key(|names| names.len());
        let is_any = rarest.is_none();
        let all = self.roles.keys().filter(move |_| is_any).map(String::as_str);
        let names = rarest.into_iter().flatten().copied().chain(all);
        let roles = names.filter_map(|name| Some((name, self.roles.get(name)?)));
        roles.filter(|(_, role)| selector.matches(|key| labels(role)?.get(key)?.as_str()))
    }
}

fn labels(role: &Value) -> Option<&Map<String, Value>> {
    role.meta()?.get("labels")?.as_object()
}

/// The rules of the roles that the selectors match, each once.
fn aggregate(own: &str, selectors: &[Selector], sources: &Sources<'_>) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    let mut known = HashSet::new();
    for selector in selectors {
        for (_, role) in sources.matching(selector).filter(|(name, _)| *name != own) {
            for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
                if known.insert(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn role(name: &str, labels: &BTreeMap<String, String>) -> (String, Value) {
        let role = json!({
            "metadata": {"name": name, "labels": labels}, "rules": [{"verbs": [name]}],
        });
        (name.to_owned(), role)
    }

    proptest! {
        #[test]
        fn roles_are_found_as_by_looking_at_all(
            labels in prop::collection::vec(
                prop::collection::btree_map("[ab]", "[xy]", 0..3), 0..8,
            ),
            selector in prop_oneof![
                Just(String::new()), Just("a".to_owned()), Just("!a".to_owned()), "[ab]=[xyz]",
                "[ab]!=[xy]", "a=[xy],b=[xy]", "a=[xy],!b", "[ab] in \\([xy]\\)", Just("a in (x,y)".to_owned()),
            ],
        ) {
            let named = labels.iter().enumerate().map(|(n, labels)| role(&format!("r{n}"), labels));
            let roles: BTreeMap<_, _> = named.collect();
            let selector = Selector::parse(&selector).unwrap();
            let all = labels.iter().enumerate().filter(|(n, labels)| {
                *n != 1 && selector.matches(|key| labels.get(key).map(String::as_str))
            });
            let expected: Vec<Value> =
                all.map(|(n, _)| json!({"verbs": [format!("r{n}")]})).collect();
            prop_assert_eq!(aggregate("r1", &[selector], &Sources::of(&roles)), expected);
        }
    }
}
