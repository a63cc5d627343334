//! Authorization of a request's further actions: creating by PUT or apply, granting rights.
//!
//! | write                                      | requires                                    |
//! |--------------------------------------------|---------------------------------------------|
//! | PUT or apply of an absent object           | `create` of the object                      |
//! | a change of a Role's or ClusterRole's rules | every right of the rules, or `escalate` of the role |
//! | a change of an `aggregationRule`           | all rights, or `escalate` of the role       |
//! | a change of a binding's role or subjects   | every right of the role that it refers to, or `bind` of it |
use super::Write;
use crate::attributes::{Requested, Target};
use crate::authorize::Decision;
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::{ApiError, Scope};
use setpoint_rbac::grant::Missing;
use setpoint_rbac::{Rule, rules_of};
use std::sync::Arc;

/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

impl Write<'_> {
    /// Checks that the user may create the target by another verb.
    pub(super) async fn may_create(&self) -> Result<(), ApiError> {
        self.may(Verb::Create, self.target.clone()).await
    }
    /// Checks that the user may grant the rights of a role or a binding.
    pub(super) async fn check_grant(
        &self,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if self.resource.kind.group != RBAC {
            return Ok(());
        }
        let changes = |members: [&str; 2]| {
            old.is_none_or(|old| members.iter().any(|member| old.get(*member) != new.get(*member)))
        };
        match &*self.resource.resource {
            "roles" | "clusterroles" if changes(["rules", "aggregationRule"]) => {
                let target = Target { name: new.name().to_owned(), ..self.target.clone() };
                if self.is_allowed(Verb::Escalate, target).await? {
                    return Ok(());
                }
                let old_rule = old.and_then(|old| old.get("aggregationRule"));
                let rule = new.get("aggregationRule").filter(|rule| !rule.is_null());
                if rule.is_some() && rule != old_rule && !self.holds_everything() {
                    return Err(self.refuse(
                        new,
                        "must have cluster-admin privileges to use the aggregationRule",
                    ));
                }
                self.check_held(new, &rules_of(new))
            }
            "rolebindings" | "clusterrolebindings" if changes(["roleRef", "subjects"]) => {
                let text = |member: &str| new["roleRef"][member].as_str().unwrap_or_default();
                let catalog = self.inner.catalog.borrow().clone();
                let mut rows = catalog.group_version(RBAC, &self.resource.gvk.version);
                // Validation refuses a reference to any other kind.
                let row = rows.find(|row| *row.gvk.kind == *text("kind"));
                let Some(row) = row else { return Ok(()) };
                let namespace = self.target.namespace.clone();
                let role = Target::new(row.clone(), namespace, text("name"));
                if self.is_allowed(Verb::Bind, role).await? {
                    return Ok(());
                }
                let is_cluster = row.scope == Scope::Cluster;
                let chain = &self.inner.authorization;
                match chain.role(&self.target.namespace, is_cluster, text("name")) {
                    Some(rules) => self.check_held(new, &rules),
                    None => Err(ApiError::not_found(&self.resource.group_resource(), text("name"))),
                }
            }
            _ => Ok(()),
        }
    }
    /// Refuses to give rights that the user does not hold.
    fn check_held(&self, object: &Value, rules: &[Rule]) -> Result<(), ApiError> {
        let held = self.held();
        let held: Vec<&Rule> = held.iter().flat_map(|rules| rules.iter()).collect();
        let identity = &self.attributes.identity;
        let lines = match setpoint_rbac::missing(rules, &held) {
            None => return Ok(()),
            Some(Missing::Rights(lines)) => lines,
            Some(_) => "(too many to compare)".to_owned(),
        };
        let groups: Vec<String> =
            identity.groups.iter().map(|group| format!("{group:?}")).collect();
        let why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{lines}",
            &*identity.user,
            groups.join(" "),
        );
        Err(self.refuse(object, &why))
    }
    fn holds_everything(&self) -> bool {
        let all = || vec!["*".to_owned()];
        let everything = [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ];
        let held = self.held();
        let held: Vec<&Rule> = held.iter().flat_map(|rules| rules.iter()).collect();
        setpoint_rbac::missing(&everything, &held).is_none()
    }
    /// The rules of the user at the scope of the target.
    fn held(&self) -> Vec<Arc<[Rule]>> {
        let chain = &self.inner.authorization;
        chain.rules(&self.attributes.identity, &self.target.namespace).rules
    }
    fn refuse(&self, object: &Value, why: &str) -> ApiError {
        ApiError::forbidden(&self.resource.group_resource(), object.name(), why)
    }
    /// Whether an authorizer allows another action of the user.
    async fn is_allowed(&self, verb: Verb, target: Target) -> Result<bool, ApiError> {
        let request = self.attributes.with(verb, Requested::Resource(target));
        let decision = self.inner.authorization.decide(&request).await?;
        Ok(matches!(decision, Decision::Allow(_)))
    }
    async fn may(&self, verb: Verb, target: Target) -> Result<(), ApiError> {
        let request = self.attributes.with(verb, Requested::Resource(target));
        self.inner.authorization.authorize(&request).await
    }
}
