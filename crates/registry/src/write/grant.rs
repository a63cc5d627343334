//! Authorization of a request's further actions: creating by PUT or apply, granting rights.
//!
//! | write                                      | requires                                    |
//! |--------------------------------------------|---------------------------------------------|
//! | PUT or apply of an absent object           | `create` of the object                      |
//! | a change of a Role's or ClusterRole's rules | `escalate` of the role                     |
//! | a change of a binding's role or subjects   | `bind` of the role that it refers to        |
use super::Write;
use crate::attributes::{Requested, Target};
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

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
                self.may(Verb::Escalate, target).await
            }
            "rolebindings" | "clusterrolebindings" if changes(["roleRef", "subjects"]) => {
                let text = |member: &str| new["roleRef"][member].as_str().unwrap_or_default();
                let catalog = self.inner.catalog.borrow().clone();
                let mut rows = catalog.group_version(RBAC, &self.resource.gvk.version);
                // Validation refuses a reference to any other kind.
                let row = rows.find(|row| *row.gvk.kind == *text("kind"));
                let Some(row) = row else { return Ok(()) };
                let namespace = self.target.namespace.clone();
                self.may(Verb::Bind, Target::new(row.clone(), namespace, text("name"))).await
            }
            _ => Ok(()),
        }
    }
    async fn may(&self, verb: Verb, target: Target) -> Result<(), ApiError> {
        let request = self.attributes.with(verb, Requested::Resource(target));
        self.inner.authorization.authorize(&request).await
    }
}
