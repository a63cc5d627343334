//! One manager with several clusters.

use std::{fmt, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, ObjectReference, Request, Watch, cluster::Cluster,
    manager::AddError,
};

use crate::{
    server::Server,
    world::{CONFIG_MAPS, EVENTS, Running, Trace, builder, config_map, pass, settle},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A key that names its cluster (CLU-2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    cluster: &'static str,
    object: Request,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.object)
    }
}

#[tokio::test(start_paused = true)]
async fn clu_1_a_controller_copies_from_one_cluster_to_another() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[CONFIG_MAPS, EVENTS]));
    east.put(MAPS, config_map("from-east"));
    west.put(MAPS, config_map("from-west"));
    let trace = Trace::default();
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    assert_eq!(
        manager.add_cluster("east", Cluster::builder(east.client())).err(),
        Some(AddError::DuplicateCluster { name: "east".into() })
    );
    let (sink, other) = (trace.clone(), cluster.clone());
    let reconcile = move |place: Place, context: Context| {
        let (sink, other) = (sink.clone(), other.clone());
        async move {
            let client = if place.cluster == "east" { other.client() } else { context.client() };
            let map = client.api::<ConfigMap>().get(&place.object)?;
            if let Some(map) = map {
                sink.record(format!("{place}"));
                let recorder = other.recorder("copier");
                recorder.normal(&ObjectReference::of(&*map), "Seen", "it was seen");
            }
            Ok::<_, BoxError>(Action::await_change())
        }
    };
    let of = |cluster: &'static str| {
        move |event: &setpoint_informer::Event<ConfigMap>| {
            vec![Place { cluster, object: event.key().clone() }]
        }
    };
    let controller = Controller::<Place>::builder_of("copier")
        .watches(Watch::<ConfigMap>::new(), of("west"))
        .watches(Watch::<ConfigMap>::new().cluster(&cluster), of("east"))
        .build(reconcile)
        .unwrap();
    manager.add(controller).unwrap();
    let metrics = manager.metrics();
    let running = Running::start(manager);
    pass(Duration::from_secs(1)).await;
    let mut text: Vec<String> = trace.take().split(" · ").map(str::to_owned).collect();
    text.sort();
    assert_eq!(text, ["east/default/from-east", "west/default/from-west"]);
    let text = metrics.prometheus();
    for name in ["manager", "east"] {
        let line = format!(
            "informer_store_objects{{name=\"{name}\",group=\"\",version=\"v1\",resource=\"configmaps\"}} 1"
        );
        assert!(text.contains(&line), "{line} in {text}");
    }
    let events = |server: &Server| {
        server.take_writes().iter().filter(|write| write.contains("events")).count()
    };
    settle().await;
    assert_eq!((events(&west), events(&east)), (0, 2), "of the cluster whose recorder it is");
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mgr_3_members_without_a_leader_wait_for_the_caches_of_all_clusters() {
    let (west, east) = (Server::new(&[CONFIG_MAPS, EVENTS]), Server::new(&[EVENTS]));
    let trace = Trace::default();
    let mut manager = builder(&west).build();
    let cluster = manager.add_cluster("east", Cluster::builder(east.client())).unwrap();
    let informer = cluster.cache().informer::<ConfigMap>();
    let sink = trace.clone();
    manager
        .add_task("task", move |_| async move {
            sink.record("it runs");
            Ok(())
        })
        .unwrap();
    let running = Running::start(manager);
    pass(Duration::from_secs(60)).await;
    assert_eq!(trace.take(), "");
    east.serve(CONFIG_MAPS);
    pass(Duration::from_secs(60)).await;
    assert!(informer.has_synced());
    assert_eq!(trace.take(), "it runs");
    running.stop().await.unwrap();
}
