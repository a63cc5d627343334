//! What pods get, and when.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use serde_json::{Value, json};
use setpoint::ControlPlane;
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::kube_client::{Api, Client};
use setpoint::prelude::*;
use sidecar_injector::{INJECT, NAMESPACE, Place, STATUS, inject, install, manager};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn config(text: &str) -> ConfigMap {
    serde_json::from_value(
        json!({"metadata": {"resourceVersion": "7"}, "data": {"inject.yaml": text}}),
    )
    .expect("a ConfigMap")
}

fn pod(name: &str, annotations: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }))
    .expect("a pod")
}

fn containers(pod: &Pod) -> Vec<&str> {
    let spec = pod.spec.as_ref().expect("a spec");
    spec.containers.iter().map(|container| &*container.name).collect()
}

const PROXY: &str = "
containers:
- {name: proxy, image: proxy:1, env: [{name: A, value: a}]}
volumes:
- {name: certs, emptyDir: {}}
";

#[test]
fn a_pod_gets_containers_and_volumes_once() -> Result<(), BoxError> {
    let config = config(PROXY);
    let once =
        inject(pod("a", Value::Null), Some(&config)).map_err(|e| e.status().message.clone())?;
    assert_eq!(containers(&once), ["app", "proxy"]);
    let annotations = once.metadata.annotations.clone().ok_or("annotations")?;
    let status: Value = serde_json::from_str(&annotations[STATUS])?;
    assert_eq!(
        status,
        json!({"containers": ["proxy"], "initContainers": [], "volumes": ["certs"], "config": "7"})
    );
    let twice = inject(once.clone(), Some(&config)).map_err(|e| e.status().message.clone())?;
    assert_eq!(twice, once);
    Ok(())
}

#[test]
fn a_pod_may_refuse_and_may_have_its_own_proxy() -> Result<(), BoxError> {
    let config = config(PROXY);
    let refused = inject(pod("a", json!({INJECT: "false"})), Some(&config));
    assert_eq!(containers(&refused.map_err(|e| e.status().message.clone())?), ["app"]);
    let mut own = pod("a", Value::Null);
    let spec = own.spec.as_mut().ok_or("a spec")?;
    spec.containers.push(serde_json::from_value(
        json!({"name": "proxy", "image": "mine", "env": [{"name": "B", "value": "b"}]}),
    )?);
    let merged = inject(own, Some(&config)).map_err(|e| e.status().message.clone())?;
    let proxy = &merged.spec.as_ref().ok_or("a spec")?.containers[1];
    assert_eq!(proxy.image.as_deref(), Some("proxy:1"));
    let names = |env: &[k8s_openapi::api::core::v1::EnvVar]| {
        env.iter().map(|variable| variable.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(proxy.env.as_deref().unwrap_or_default()), ["B", "A"]);
    Ok(())
}

#[test]
fn without_a_good_config_the_pod_is_refused() {
    for (config, why) in [
        (None, "there is no ConfigMap sidecar-injector/sidecars"),
        (Some(config("containers: 7")), "inject.yaml of sidecars"),
    ] {
        let error =
            inject(pod("a", Value::Null), config.as_ref()).map_err(|e| e.status().message.clone());
        let error = error.err().unwrap_or_default();
        assert!(error.contains(why), "{error}");
    }
}

/// Creates a pod, and waits while the server does not reach the injector yet.
async fn create(client: &Client, namespace: &str, name: &str) -> Pod {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    loop {
        match pods.create(&PostParams::default(), &pod(name, Value::Null)).await {
            Ok(pod) => return pod,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A free address: the configuration names it before the injector listens. Its port is below those
/// of outgoing connections, which could take it until then.
fn free_address() -> Result<SocketAddr, BoxError> {
    let mut ports = (12_000..32_000_u16).cycle().skip(std::process::id() as usize % 20_000);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let free = |port| TcpListener::bind(address(port)).ok()?.local_addr().ok();
    ports.find_map(free).ok_or_else(|| "no free port".into())
}

/// Runs the injector on this machine while `act` uses the server.
async fn with_injector(
    client: &Client,
    act: impl AsyncFnOnce() -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let address = free_address()?;
    install(client, address).await?;
    let builder = Manager::builder(client.clone()).namespaces([NAMESPACE])?;
    let (manager, _) =
        manager(builder, Place::Host("127.0.0.1"), |server| server.listen(address)).await?;
    let stop = CancellationToken::new();
    let acting = async {
        let acted = act().await;
        stop.cancel();
        acted
    };
    let (ran, acted) = tokio::join!(manager.run(stop.clone()), acting);
    ran?;
    acted
}

#[tokio::test]
async fn a_server_injects_into_labelled_namespaces() -> Result<(), BoxError> {
    let plane = ControlPlane::builder().build();
    let client = plane.client();
    let stop = CancellationToken::new();
    let running = plane.run(stop.clone());
    let acting = async {
        let acted = with_injector(&client, async || {
            let namespaces = Api::<Namespace>::all(client.clone());
            let shop =
                json!({"metadata": {"name": "shop", "labels": {"sidecar-injection": "enabled"}}});
            namespaces.create(&PostParams::default(), &serde_json::from_value(shop)?).await?;
            assert_eq!(containers(&create(&client, "shop", "a").await), ["app", "envoy"]);
            assert_eq!(containers(&create(&client, "default", "a").await), ["app"]);
            // A change of the ConfigMap counts without a restart.
            let configs = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
            let patch = json!({"data": {"inject.yaml": PROXY}});
            configs.patch("sidecars", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            for n in 0.. {
                let pod = create(&client, "shop", &format!("b{n}")).await;
                if containers(&pod) == ["app", "proxy"] {
                    break;
                }
            }
            Ok(())
        })
        .await;
        stop.cancel();
        acted
    };
    let (ran, acted) = tokio::join!(running, acting);
    ran?;
    acted
}
