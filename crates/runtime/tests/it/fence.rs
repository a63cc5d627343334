//! Writes are sent only while a lease is held: checked at each point where they can be delayed.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::params::PostParams;
use parking_lot::Mutex;
use setpoint_runtime::{
    ClientError,
    fence::{Fence, Fenced},
};

use crate::{
    link::Link,
    server::Server,
    world::{CONFIG_MAPS, builder, config_map, pass, settle},
};

/// A fence that a test opens and closes.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<bool>>);

impl Fence for Gate {
    fn check(&self) -> Result<(), Fenced> {
        if *self.0.lock() { Ok(()) } else { Err(Fenced::NotHeld) }
    }
}

fn some_map(name: &str) -> ConfigMap {
    let mut map = serde_json::from_value::<ConfigMap>(config_map(name)).unwrap();
    map.metadata.namespace = Some("default".to_owned());
    map
}

#[tokio::test(start_paused = true)]
async fn closed_fence_refuses_writes_and_lets_reads_pass() {
    let server = Server::new(&[CONFIG_MAPS]);
    let manager = builder(&server).build();
    let gate = Gate::default();
    let client = manager.client().fenced(Arc::new(gate.clone()));
    let api = client.api::<ConfigMap>();
    let refused = api.create(&some_map("a")).await.unwrap_err();
    assert!(matches!(refused, ClientError::Fenced { source: Fenced::NotHeld, .. }), "{refused:?}");
    assert!(api.get_live(&setpoint_runtime::Request::new("default", "a")).await.unwrap().is_none());
    assert_eq!(server.take_writes(), Vec::<String>::new());

    *gate.0.lock() = true;
    api.create(&some_map("a")).await.unwrap();
    assert_eq!(server.list("/api/v1/configmaps").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn request_delayed_after_the_first_check_fails_at_the_second() {
    let server = Server::new(&[CONFIG_MAPS]);
    let link = Link::new(&server, 0);
    let manager = builder(&server).build();
    let gate = Gate::default();
    *gate.0.lock() = true;
    let unfenced = manager.client().clone();
    drop(unfenced);
    let kube = setpoint_runtime::fence::FenceLayer::new(Arc::new(gate.clone()));
    let kube = {
        use tower::Layer;
        let inner = link.client();
        let service = tower::service_fn(move |request| {
            let inner = inner.clone();
            async move { inner.send(request).await }
        });
        kube_client::Client::new(kube.layer(service), "default")
    };
    let api: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(kube, "default");

    for name in ["create", "delete"] {
        *gate.0.lock() = true;
        link.hold(true);
        let (gate, link) = (gate.clone(), link.clone());
        let late = async move {
            settle().await;
            // It has passed the first check, and waits inside the process.
            *gate.0.lock() = false;
            pass(Duration::from_secs(1)).await;
            link.hold(false);
        };
        let write = async {
            match name {
                "create" => api.create(&PostParams::default(), &some_map("a")).await.map(drop),
                // The same for a request without a body.
                _ => {
                    let request = http::Request::delete("/api/v1/namespaces/default/configmaps/a")
                        .body(Vec::new())
                        .unwrap();
                    api.clone().into_client().request_text(request).await.map(drop)
                }
            }
        };
        let (failed, ()) = futures::join!(write, late);
        let failed = failed.unwrap_err();
        assert_eq!(Fenced::find(&failed), Some(&Fenced::NotHeld), "{name}: {failed:?}");
    }
    assert!(link.writes().is_empty(), "{:?}", link.writes());
    assert_eq!(server.take_writes(), Vec::<String>::new());
}
