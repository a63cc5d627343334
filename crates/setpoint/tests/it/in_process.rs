//! A kube client whose service is the server in the same process.

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube_client::Api;
use kube_client::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube_core::ResourceExt;
use setpoint::ControlPlane;
use setpoint::object::time::Clock;
use tokio_util::sync::CancellationToken;

/// Runs a control plane while `act` uses a client.
async fn with_client<T>(seed: u64, act: impl AsyncFnOnce(kube_client::Client) -> T) -> T {
    with_client_of(ControlPlane::builder().simulated(seed).build(), act).await
}

async fn with_client_of<T>(
    plane: ControlPlane,
    act: impl AsyncFnOnce(kube_client::Client) -> T,
) -> T {
    let client = plane.client();
    let stop = CancellationToken::new();
    let running = plane.run(stop.clone());
    let acting = async {
        let answer = act(client).await;
        stop.cancel();
        answer
    };
    let (ended, answer) = tokio::join!(running, acting);
    ended.unwrap();
    answer
}

fn config_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.into());
    map
}

#[tokio::test(start_paused = true)]
async fn namespaces_exist_from_the_start() {
    let names = with_client(1, async |client| {
        let list = Api::<Namespace>::all(client).list(&ListParams::default()).await.unwrap();
        list.iter().map(ResourceExt::name_any).collect::<Vec<_>>()
    })
    .await;
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
}

#[tokio::test(start_paused = true)]
async fn watch_streams_without_a_socket() {
    with_client(1, async |client| {
        let maps = Api::<ConfigMap>::namespaced(client, "default");
        let params = WatchParams::default().disable_bookmarks();
        let mut events = maps.watch(&params, "0").await.unwrap().boxed();
        maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
        match events.try_next().await.unwrap() {
            Some(WatchEvent::Added(map)) => assert_eq!(map.name_any(), "a"),
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_the_same_objects() {
    let run = async |seed| {
        with_client(seed, async |client| {
            let maps = Api::<ConfigMap>::namespaced(client, "default");
            let map = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
            (map.uid(), map.creation_timestamp(), map.resource_version())
        })
        .await
    };
    let first = run(7).await;
    assert_eq!(run(7).await, first);
    assert_ne!(run(8).await.0, first.0);
}

#[tokio::test]
async fn without_a_seed_the_wall_clock_and_entropy_are_used() {
    let run = async || {
        with_client_of(ControlPlane::builder().build(), async |client| {
            let maps = Api::<ConfigMap>::namespaced(client, "default");
            let map = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
            (map.uid().unwrap(), map.creation_timestamp().unwrap().0.as_second())
        })
        .await
    };
    let (uid, created) = run().await;
    assert_ne!(run().await.0, uid);
    let now = Clock::wall().now().0.as_secs();
    assert!(now.abs_diff(created.unsigned_abs()) < 600, "created at {created}, now {now}");
}

#[tokio::test(start_paused = true)]
async fn failure_is_a_status() {
    let error = with_client(1, async |client| {
        Api::<ConfigMap>::namespaced(client, "default").get("nope").await.unwrap_err()
    })
    .await;
    match error {
        kube_client::Error::Api(status) => {
            assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
        }
        other => panic!("{other:?}"),
    }
}
