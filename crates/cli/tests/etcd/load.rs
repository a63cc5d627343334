//! Members and servers are killed and stopped under load: no acknowledged write is lost, and no
//! watcher misses an event.

use crate::server::Server;
use crate::two::{client, maps, serve};
use crate::writers::{Written, check, follow, revision, write};
use kube_client::Client;
use setpoint_store_etcd::testing::Cluster;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long a killed process stays down, and how long everything works in between.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Two servers, and their clients.
struct Two {
    servers: Vec<Server>,
    clients: Vec<watch::Sender<Client>>,
}

impl Two {
    fn start(cluster: &Cluster) -> Self {
        let servers = vec![serve(cluster), serve(cluster)];
        let clients = servers.iter().map(|server| watch::Sender::new(client(server))).collect();
        Self { servers, clients }
    }

    /// Runs two writers and a watcher at each server while `happen` runs, and checks what they
    /// observed.
    async fn under_load(&mut self, happen: impl AsyncFnOnce(&mut Self)) {
        let from = revision(&self.clients[0].borrow().clone()).await;
        let (stop, until) = (CancellationToken::new(), watch::Sender::new(None));
        let (mut writers, mut watchers) = (JoinSet::new(), JoinSet::new());
        for (i, client) in self.clients.iter().enumerate() {
            watchers.spawn(follow(client.subscribe(), from, until.subscribe()));
            for n in 0..2 {
                let (client, stop) = (client.subscribe(), stop.clone());
                let name = format!("of-{i}-{n}");
                writers.spawn(async move {
                    let written = write(client, &name, &stop).await;
                    (name, written)
                });
            }
        }
        tokio::time::sleep(A_WHILE).await;
        happen(self).await;
        tokio::time::sleep(A_WHILE).await;
        stop.cancel();
        let written: BTreeMap<String, Written> = writers.join_all().await.into_iter().collect();
        // Up to the current state of each object.
        let now = maps(&self.clients[0].borrow().clone()).list(&Default::default()).await.unwrap();
        let now: BTreeMap<String, u64> = now
            .items
            .iter()
            .map(|map| (map.metadata.name.clone().unwrap(), &map.metadata.resource_version))
            .filter(|(name, _)| written.contains_key(name))
            .map(|(name, revision)| (name, revision.as_deref().unwrap().parse().unwrap()))
            .collect();
        for (name, written) in &written {
            let last = written.acknowledged.last().unwrap().0;
            assert!(now[name] >= last, "{name}: what was acknowledged is there");
        }
        until.send_replace(Some(Arc::new(now)));
        let observed = tokio::time::timeout(crate::server::PATIENCE, watchers.join_all());
        for observed in observed.await.expect("watchers receive everything") {
            check(&written, &observed);
            println!("a watcher resumed {} times", observed.n_resumed);
        }
        let n: usize = written.values().map(|written| written.acknowledged.len()).sum();
        let n_failed: usize = written.values().map(|written| written.n_failed).sum();
        println!("{n} writes acknowledged, {n_failed} answered by an error or not at all");
        assert!(n > 40, "there was load: {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_members_lose_nothing() {
    let mut cluster = Cluster::start(3).await;
    let mut two = Two::start(&cluster);
    two.under_load(async |_| {
        for round in 0..4 {
            let leader = cluster.leader().await;
            // The leader and another member in turns; first killed, then only stopped.
            let member = if round % 2 == 0 { leader } else { (leader + 1) % cluster.len() };
            if round < 2 {
                cluster.kill(member);
                tokio::time::sleep(A_WHILE).await;
                cluster.restart(member);
            } else {
                cluster.pause(member);
                tokio::time::sleep(A_WHILE).await;
                cluster.resume(member);
            }
            cluster.wait_healthy().await;
            tokio::time::sleep(A_WHILE / 3).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_servers_lose_nothing() {
    let cluster = Cluster::start(1).await;
    let mut two = Two::start(&cluster);
    two.under_load(async |two| {
        // Its writers and its watcher continue at its successor, the watcher by resourceVersion.
        assert!(!two.servers[1].stop("KILL").success());
        two.servers[1] = serve(&cluster);
        two.clients[1].send_replace(client(&two.servers[1]));
        tokio::time::sleep(A_WHILE).await;
        // The first server holds the Lease of the built-in controllers.
        two.servers[0].signal("STOP");
        tokio::time::sleep(2 * A_WHILE).await;
        two.servers[0].signal("CONT");
        tokio::time::sleep(A_WHILE).await;
    })
    .await;
    // The resumed server serves the current state at once.
    let (a, b) = (two.clients[0].borrow().clone(), two.clients[1].borrow().clone());
    let new = serde_json::from_value(serde_json::json!({"metadata": {"name": "new"}})).unwrap();
    maps(&b).create(&Default::default(), &new).await.unwrap();
    let list = maps(&a).list(&Default::default()).await.unwrap();
    assert!(list.items.iter().any(|map| map.metadata.name.as_deref() == Some("new")));
}
