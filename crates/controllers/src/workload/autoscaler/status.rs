//! Writes of the status.

use super::super::difference::difference;
use super::{Autoscaler, api};
use crate::workload::pod_control::message;
use kube_core::params::Patch;
use serde_json::json;
use setpoint_runtime::{BoxError, Client, Context, ObjectReference, Request};

/// Writes what differs of a status.
pub(super) async fn write(
    client: &Client,
    context: &Context,
    autoscaler: &Autoscaler,
    status: &api::HorizontalPodAutoscalerStatus,
    request: &Request,
) -> Result<(), BoxError> {
    let (old, new) = (serde_json::to_value(&autoscaler.status)?, serde_json::to_value(status)?);
    let patch = difference(&old, &new);
    if patch.is_empty() {
        return Ok(());
    }
    let meta = &autoscaler.metadata;
    let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": patch}));
    match client.api::<Autoscaler>().patch_status(request, &patch).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => {
            let reference = ObjectReference::of(autoscaler);
            let note = message(&error);
            context.recorder().warning(&reference, "FailedUpdateStatus", note);
            Err(error.into())
        }
    }
}
