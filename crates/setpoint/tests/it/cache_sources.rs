//! A manager whose caches are filled by a control plane in the same process, without HTTP.

use crate::client_calls::{key, map};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::metadata::PartialObjectMeta;
use setpoint::object::label::Selector;
use setpoint::object::time::Timestamp;
use setpoint::prelude::*;
use setpoint::runtime::client::layer::{Interceptor, Next, Verb};
use setpoint::{ControlPlane, InProcessSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[tokio::test(start_paused = true)]
async fn manager_reads_in_process_and_writes_by_its_client() {
    let plane = ControlPlane::builder().simulated(1).build();
    let server = plane.server().clone();
    let (n_reads, n_writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (reads, writes) = (n_reads.clone(), n_writes.clone());
    let requests = Interceptor::new(move |call, request, next: Next| {
        let is_read = [Verb::List, Verb::Watch].contains(&call.verb);
        reads.fetch_add(usize::from(is_read), Relaxed);
        writes.fetch_add(usize::from(call.verb.is_write()), Relaxed);
        next.run(request)
    });
    let caches = CacheOptions::new()
        .labels("of in (a,b)")
        .source(move |request, _| Arc::new(InProcessSource::of_request(&server, request)));
    let manager = Manager::builder(plane.client())
        .layer(&requests)
        .clock(Clock::starting_at(Timestamp::from_secs(1_767_225_600)))
        .seed(1)
        .cache(caches)
        .build();
    let maps = manager.client().api::<ConfigMap>();
    let cached = manager.cache().informer::<ConfigMap>();
    let metadata = manager.cache().informer::<PartialObjectMeta<ConfigMap>>();
    let (stop, stop_plane) = (CancellationToken::new(), CancellationToken::new());
    let mut ready = plane.ready();
    let user = async {
        ready.wait_for(|ready| *ready).await.unwrap();
        cached.synced().await.unwrap();
        for name in ["a", "b", "c"] {
            maps.create(&map(name, "1")).await.unwrap();
        }
        // Reads show own writes, and objects that are not selected are known to be absent.
        let read = maps.get_own(&key("b")).await.unwrap().unwrap();
        assert_eq!(read.data.as_ref().unwrap()["k"], "1");
        let names: Vec<_> = cached
            .lister()
            .list(&Selector::everything())
            .unwrap()
            .iter()
            .map(|map| map.name_any())
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(metadata.lister().get("default", "a").unwrap().unwrap().labels()["of"], "a");
        assert_eq!((n_reads.load(Relaxed), n_writes.load(Relaxed)), (0, 3));
        stop.cancel();
    };
    let client = async {
        let (ended, ()) = tokio::join!(manager.run(stop.clone()), user);
        stop_plane.cancel();
        ended.unwrap();
    };
    let (ended, ()) = tokio::join!(plane.run(stop_plane.clone()), client);
    ended.unwrap();
}
