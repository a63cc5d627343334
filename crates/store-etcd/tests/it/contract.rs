//! The conformance suite, each case in a namespace of its own.

use crate::patient;
use setpoint_store::conformance;
use setpoint_store_etcd::{EtcdStore, testing};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testing::Cluster;

/// etcd grants leases of whole seconds, and none shorter than its elections.
const TTL_SHORTEST: Duration = Duration::from_secs(2);

async fn check(endpoints: Vec<String>) {
    let n = AtomicU32::new(0);
    let engine = conformance::Options::default().ttl_shortest(TTL_SHORTEST);
    conformance::check_with(engine, async || {
        let mut options = patient(endpoints.clone());
        options.namespace = format!("case-{}", n.fetch_add(1, Ordering::Relaxed)).into();
        EtcdStore::connect(options).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn one_member_conforms() {
    if !testing::available() {
        return;
    }
    let cluster = Cluster::start(1).await;
    check(cluster.endpoints()).await;
}

/// An unused follower dies and restarts all the time. Callers do not notice the loss of a minority.
#[tokio::test]
async fn three_members_conform_while_one_dies_and_restarts() {
    if !testing::available() {
        return;
    }
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let victim = (0..3).rev().find(|i| *i != leader).unwrap();
    let mut endpoints = cluster.endpoints();
    // Calls go to the first endpoint: the leader, which stays.
    endpoints.swap(0, leader);
    let churn = async {
        loop {
            cluster.kill(victim);
            tokio::time::sleep(Duration::from_millis(300)).await;
            cluster.restart(victim);
            cluster.wait_healthy().await;
        }
    };
    tokio::select! {
        () = check(endpoints) => {}
        () = churn => {}
    }
}
