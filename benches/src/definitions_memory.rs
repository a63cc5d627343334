//! Memory of definitions and a first object of each, with counted allocations.

use crate::definitions::{DEFINITIONS, PATH, create, established, large, object, path};
use serde::{Deserialize, Serialize};
use setpoint::ControlPlane;
use setpoint::prelude::CancellationToken;
use std::time::Duration;
use tokio::task::JoinSet;

/// Idle time of the control plane until all memory of requests is freed. Encoded watch events are
/// cached for ten seconds.
const SETTLE: Duration = Duration::from_secs(15);

/// Heap of one control plane, in addition to that without definitions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Weighed {
    /// With the definitions.
    pub(crate) definitions_bytes: u64,
    /// With the definitions and an object of each.
    pub(crate) with_objects_bytes: u64,
}

/// Measures. `heap` returns the allocated bytes.
#[allow(dead_code, reason = "only one of the two programs counts")]
pub(crate) fn weigh(heap: fn() -> u64) -> anyhow::Result<Weighed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let plane = ControlPlane::builder().build();
        let (client, stop) = (plane.client(), CancellationToken::new());
        let mut ready = plane.ready();
        let mut running = JoinSet::new();
        running.spawn(plane.run(stop.clone()));
        ready.wait_for(|ready| *ready).await?;
        tokio::time::sleep(SETTLE).await;
        let before = heap();
        for at in 0..DEFINITIONS {
            create(&client, PATH, large(at).to_string()).await?;
        }
        established(&client, &path(DEFINITIONS - 1)).await?;
        tokio::time::sleep(SETTLE).await;
        let definitions_bytes = heap().saturating_sub(before);
        for at in 0..DEFINITIONS {
            let (path, object) = object(at);
            create(&client, &path, object.to_string()).await?;
        }
        tokio::time::sleep(SETTLE).await;
        let with_objects_bytes = heap().saturating_sub(before);
        stop.cancel();
        while let Some(ended) = running.join_next().await {
            ended??;
        }
        Ok(Weighed { definitions_bytes, with_objects_bytes })
    })
}
