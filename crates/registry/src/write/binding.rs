//! `pods/binding` and `bindings`: the scheduler's decision (spec: api-server §5.6).
use super::Write;
use super::change::{Changed, Owned, Present, Tracking};
use crate::admission::Operation;
use crate::attributes::check_name;
use crate::kind::core::pod::actions::{binding_fault, place};
use crate::request::{Body, Object, Written};
use crate::routed::Target;
use crate::stored::tree;
use crate::subresource::Subresource;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::status::Status;
use setpoint_object::{ApiError, GroupResource};

impl Write<'_> {
    /// POST of a Binding.
    pub(super) async fn bind(&self, body: &Body) -> Result<Written, ApiError> {
        let own = &self.resource.gvk;
        let subresource = self.resource.subresource(&Subresource::Binding);
        let kind = subresource.map_or(own, |row| &row.gvk);
        let mut binding = self.decode_as(kind, &[], body)?;
        super::metadata::set_namespace(self.target, &mut binding)?;
        let is_of_collection = self.target.name.is_empty();
        let mut name = self.target.name.clone();
        if is_of_collection {
            name = binding.name().to_owned();
            // As of every new object: a collection has no preconditions.
            binding.set_meta("uid", Value::Null);
        }
        self.own_as(kind, &mut binding);
        // Admission sees the binding; the change of the pod is a part of it.
        let check = |binding: &Value| {
            if !is_of_collection && binding.name() != name {
                let why = "name in URL does not match name in Binding object";
                return Err(ApiError::bad_request(why));
            }
            binding_fault(binding).map_or(Ok(()), |fault| Err(ApiError::unclassified(fault)))
        };
        let (binding, ()) = self.admit(Operation::Create, &name, binding, check).await?;
        let catalog = self.inner.catalog.borrow().clone();
        let pods = catalog.get("", "v1", "pods").ok_or_else(ApiError::no_route)?.clone();
        let target = Target {
            resource: pods.clone(),
            namespace: self.target.namespace.clone(),
            name: binding.name().to_owned(),
            subresource: Some(Subresource::Binding),
        };
        check_name(&target.name)?;
        let write = Write { target: &target, resource: &pods, is_reviewed: false, ..*self };
        let refuse = |why: &str| {
            let resource = GroupResource { group: "".into(), resource: "pods/binding".into() };
            ApiError::conflict(&resource, &target.name, why)
        };
        write
            .change(Tracking::Within, &mut |Present { object: pod, revision, .. }| {
                write.check_uid(binding.uid(), pod.uid())?;
                let (wanted, is) = (binding.resource_version(), revision.to_string());
                write.check_precondition("ResourceVersion", wanted, &is)?;
                let mut object = place(pod, &binding, write.now, write.inner.features)
                    .map_err(|why| refuse(&why))?;
                object.set_meta("resourceVersion", Value::Null);
                // Kubernetes records no manager for this.
                Ok(Changed::of(object, Owned::Within))
            })
            .await?;
        Ok(success())
    }
    /// The present state of a pod in the target's namespace.
    pub(super) async fn stored_target(
        &self,
    ) -> Result<(Value, setpoint_store::KeyValue), ApiError> {
        let found = self.inner.live(&self.key(&self.target.name)).await?;
        let found = found.ok_or_else(|| self.not_found())?;
        self.leave_if_large(found.value.len()).await;
        Ok((tree(&found.value)?, found))
    }
}
/// 201 with a Success Status.
pub(super) fn success() -> Written {
    let status = Status { code: Some(201), ..Status::success() };
    Written { object: Object { bytes: status.to_json().into() }, created: true, status: true }
}
