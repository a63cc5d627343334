//! The end of a served control plane.

use crate::user::User;
use setpoint_control_plane::{ControlPlane, ServeOptions};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";

/// kube-apiserver goes on to serve for the delay, and publishes its address no longer.
#[tokio::test(start_paused = true)]
async fn requests_are_served_for_the_delay_after_the_stop() {
    let delay = Duration::from_secs(30);
    let plane = ControlPlane::builder().simulated(1).build();
    let user = User::of(&plane);
    let options = ServeOptions::new((Ipv4Addr::LOCALHOST, 0))
        .advertise_address([192, 0, 2, 1].into())
        .shutdown_delay(delay)
        .shutdown_send_retry_after(true);
    let serving = plane.serve(options).await.unwrap();
    let mut ready = serving.ready();
    let stop = CancellationToken::new();
    let running = async {
        serving.run(stop.clone()).await.unwrap();
        Instant::now()
    };
    let acting = async {
        ready.wait_for(|ready| *ready).await.unwrap();
        user.until(ENDPOINTS, |found| found.to_string().contains("192.0.2.1")).await;
        let stopped = Instant::now();
        stop.cancel();
        user.until(ENDPOINTS, |found| !found.to_string().contains("192.0.2.1")).await;
        let map = serde_json::json!({"metadata": {"name": "late"}});
        user.create(MAPS, map).await;
        let not_ready = user.text("/readyz").await;
        assert!(not_ready.contains("[-]shutdown failed"), "{not_ready}");
        stopped
    };
    let (ended, stopped) = tokio::join!(running, acting);
    assert!(ended - stopped >= delay, "{:?}", ended - stopped);
}
