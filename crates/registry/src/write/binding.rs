//! `pods/binding` and `bindings`: the scheduler's decision (spec: api-server §5.6).
use super::Write;
use super::update::Changed;
use crate::attributes::Target;
use crate::kind::set_condition;
use crate::request::{Body, Object, Written};
use crate::stored::tree;
use crate::subresource::Subresource;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::status::Status;
use setpoint_object::{ApiError, GroupResource};

impl Write<'_> {
    /// POST of a Binding.
    pub(super) async fn bind(&self, body: &Body) -> Result<Written, ApiError> {
        let own = &self.resource.gvk;
        let subresource = self.resource.subresource(&Subresource::Binding);
        let binding = self.decode_as(subresource.map_or(own, |row| &row.gvk), body)?;
        let mut name = self.target.name.clone();
        if name.is_empty() {
            name = binding.name().to_owned();
        } else if binding.name() != name {
            return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
        }
        super::metadata::settle_namespace(self.target, &mut binding.clone())?;
        let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
        if node.is_empty() {
            return Err(ApiError::unclassified("target.name: Required value"));
        }
        let catalog = self.inner.catalog.borrow().clone();
        let pods = catalog.get("", "v1", "pods").ok_or_else(ApiError::no_route)?.clone();
        let target = Target {
            resource: pods.clone(),
            namespace: self.target.namespace.clone(),
            name,
            subresource: Some(Subresource::Binding),
        };
        let write = Write { target: &target, resource: &pods, ..*self };
        let refuse = |why: &str| {
            let resource = GroupResource { group: "".into(), resource: "pods/binding".into() };
            ApiError::conflict(&resource, &target.name, why)
        };
        write
            .change(&mut |pod, _| {
                write.check_uid(binding.uid(), pod.uid())?;
                if !pod.deletion_timestamp().is_empty() {
                    return Err(refuse(&format!(
                        "pod {} is being deleted, cannot be assigned to a host",
                        target.name
                    )));
                }
                if let Some(assigned) = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()) {
                    return Err(refuse(&format!(
                        "pod {} is already assigned to node {assigned:?}",
                        target.name
                    )));
                }
                if pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
                    return Err(refuse(&format!(
                        "pod {} has non-empty .spec.schedulingGates",
                        target.name
                    )));
                }
                let mut object = pod.clone();
                object["spec"]["nodeName"] = node.as_str().into();
                set_condition(
                    &mut object,
                    json!({"type": "PodScheduled", "status": "True"}),
                    write.now,
                );
                let annotations = binding.meta().and_then(|m| m.get("annotations"));
                for (key, value) in annotations.and_then(Value::as_object).into_iter().flatten() {
                    object["metadata"]["annotations"][key] = value.clone();
                }
                object.set_meta("resourceVersion", binding.resource_version().into());
                // Kubernetes records no manager for this.
                Ok(Changed { object, owned: true })
            })
            .await?;
        Ok(success())
    }
    /// The newest state of a pod of the target's namespace.
    pub(super) async fn stored_target(
        &self,
    ) -> Result<(Value, setpoint_store::KeyValue), ApiError> {
        let found = self.inner.live(&self.key(&self.target.name)).await?;
        let found = found.ok_or_else(|| self.not_found())?;
        Ok((tree(&found.value)?, found))
    }
}
/// 201 with a Success Status.
pub(super) fn success() -> Written {
    let status = Status { code: Some(201), ..Status::success() };
    Written { object: Object { bytes: status.to_json().into() }, created: true }
}
