//! Authorization of a request's further actions: creating by PUT or apply, granting rights.
//!
//! | write                                      | requires                                    |
//! |--------------------------------------------|---------------------------------------------|
//! | PUT or apply of an absent object           | `create` of the object                      |
//! | a Role or ClusterRole, new or changed      | every right of its rules, or `escalate` of the role |
//! | one with an `aggregationRule`, now or before | all rights, or `escalate` of the role     |
//! | a binding, new or changed                  | every right of the role that it refers to, or `bind` of it |
//!
//! A changed label counts, because aggregated roles select roles by labels. Changes of owners and
//! finalizers, which the garbage collector makes, do not count.
use super::Write;
use crate::authorize::{Decision, UserRules, forbidden, holds_everything};
use crate::kind::Grants;
use crate::kind::check::changes_for_collection_only;
use crate::routed::{Requested, Target};
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::error::aggregate;
use setpoint_object::field::quote;
use setpoint_object::meta::ObjectExt;
use setpoint_object::users::MASTERS;
use setpoint_object::{ApiError, Reason, Scope};
use setpoint_rbac::grant::Missing;
use setpoint_rbac::{MissingRole, Rule, rules_of};
use std::fmt::Write as _;

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
        let Some(grants) = self.resource.kind.needs.grants else { return Ok(()) };
        if old.is_some_and(|old| changes_for_collection_only(old, new)) {
            return Ok(());
        }
        match grants {
            Grants::Rules => {
                // As in the reference, the name is the path's: a POST has none.
                let target = self.target.clone();
                let Some(held) = self.rules_unless_allowed(Verb::Escalate, target).await? else {
                    return Ok(());
                };
                self.confirm_no_escalation(new, &rules_of(new), &held)?;
                let gathers = |role: &Value| {
                    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
                    selectors.is_some_and(|selectors| !selectors.is_empty())
                };
                if (gathers(new) || old.is_some_and(gathers)) && !holds_everything(&held.rules) {
                    return Err(self.refuse(
                        new,
                        "must have cluster-admin privileges to use the aggregationRule",
                    ));
                }
                Ok(())
            }
            Grants::Role => {
                let text = |member: &str| new["roleRef"][member].as_str().unwrap_or_default();
                let catalog = self.inner.catalog.borrow().clone();
                let gvk = &self.resource.gvk;
                let mut rows = catalog.group_version(&gvk.group, &gvk.version);
                let row = rows.find(|row| *row.gvk.kind == *text("kind"));
                let Some(row) = row else {
                    // Of users who may give any rights, validation refuses it.
                    if self.attributes.identity.is_in(MASTERS) {
                        return Ok(());
                    }
                    let kind = quote(text("kind"));
                    let message = format!("unsupported role reference kind: {kind}");
                    return Err(ApiError::new(500, Reason::Unknown, message));
                };
                let namespace = self.target.namespace.clone();
                let role = Target::new(row.clone(), namespace, text("name"));
                let Some(held) = self.rules_unless_allowed(Verb::Bind, role).await? else {
                    return Ok(());
                };
                let is_cluster = row.scope == Scope::Cluster;
                if !is_cluster && self.target.namespace.is_empty() {
                    return Err(ApiError::bad_request("Namespace parameter required."));
                }
                let chain = &self.inner.authorization;
                match chain.role(&self.target.namespace, is_cluster, text("name")) {
                    Some(rules) => self.confirm_no_escalation(new, &rules, &held),
                    None => Err(ApiError::not_found(&self.resource.group_resource(), text("name"))),
                }
            }
        }
    }
    /// Refuses to give rights that the user does not hold.
    fn confirm_no_escalation(
        &self,
        object: &Value,
        rules: &[Rule],
        user: &UserRules,
    ) -> Result<(), ApiError> {
        let held: Vec<&Rule> = user.rules.iter().flat_map(|rules| rules.iter()).collect();
        let identity = &self.attributes.identity;
        let lines = match setpoint_rbac::missing(rules, &held) {
            None => return Ok(()),
            Some(Missing::Rights(lines)) => lines,
            Some(_) => "(too many to compare)".to_owned(),
        };
        let groups: Vec<String> = identity.groups.iter().map(|group| quote(group)).collect();
        let mut why = format!(
            "user {} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{lines}",
            quote(&identity.user),
            groups.join(" "),
        );
        if !user.missing_roles.is_empty() {
            // Named by the resource of the request.
            let resource = self.resource.group_resource();
            let text =
                |role: &MissingRole| ApiError::not_found(&resource, &role.name).0.message.clone();
            let missing: Vec<String> = user.missing_roles.iter().map(text).collect();
            _ = write!(why, "; resolution errors: [{}]", aggregate(&missing));
        }
        Err(self.refuse(object, &why))
    }
    fn refuse(&self, object: &Value, why: &str) -> ApiError {
        ApiError::forbidden(&self.resource.group_resource(), object.name(), why)
    }
    /// The rules of the user at the scope of the target; `None` if an authorizer allows the verb,
    /// with which the user may give any rights.
    ///
    /// # Errors
    ///
    /// 403: an authorizer denies the verb, or none decides by rules.
    async fn rules_unless_allowed(
        &self,
        verb: Verb,
        target: Target,
    ) -> Result<Option<UserRules>, ApiError> {
        let request = self.attributes.with(verb, Requested::Resource(target));
        let chain = &self.inner.authorization;
        let reason = match chain.decide(&request).await? {
            Decision::Allow(_) => return Ok(None),
            Decision::Deny(reason) => reason,
            Decision::NoOpinion(reason) => {
                let held = chain.rules(&self.attributes.identity, &self.target.namespace);
                if held.is_known {
                    return Ok(Some(held));
                }
                reason
            }
        };
        Err(forbidden(&request, &reason))
    }
    async fn may(&self, verb: Verb, target: Target) -> Result<(), ApiError> {
        let request = self.attributes.with(verb, Requested::Resource(target));
        self.inner.authorization.authorize(&request, &self.inner.figures).await
    }
}
