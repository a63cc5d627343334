//! What a request does besides, and needs a right of its own for: creating by PUT or apply,
//! granting rights.
//!
//! | write                                      | asks for                                    |
//! |--------------------------------------------|---------------------------------------------|
//! | PUT or apply of an absent object           | `create` of the object                      |
//! | a Role or ClusterRole gets other rules     | `escalate` of the role                      |
//! | a binding gets another role or subjects    | `bind` of the role that it refers to        |
use super::Write;
use crate::attributes::{Requested, Target};
use crate::verb::Verb;
use serde_json::Value;
use setpoint_object::ApiError;
use setpoint_object::meta::ObjectExt;

/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

impl Write<'_> {
    /// Whether the user may create the target by another verb.
    pub(super) async fn may_create(&self) -> Result<(), ApiError> {
        self.may(Verb::Create, self.target.clone()).await
    }
    /// Whether the user may grant what a role or a binding grants.
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
                // A reference to anything else is refused by validation.
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
