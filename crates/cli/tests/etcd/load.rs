//! Members and servers that are killed and stopped under load: nothing acknowledged is lost, no
//! watcher misses anything.

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

/// How long something that was killed stays away, and how long all is well in between.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Two servers, and who asks them.
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

    /// Two writers at each server and a watcher at each, while `happen` goes on. What they saw is
    /// checked.
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
        // Up to the state that there is now, of each object.
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
        let told = tokio::time::timeout(crate::server::PATIENCE, watchers.join_all());
        for told in told.await.expect("watchers are told everything") {
            check(&written, &told);
            println!("a watcher resumed {} times", told.n_resumed);
        }
        let n: usize = written.values().map(|written| written.acknowledged.len()).sum();
        let n_failed: usize = written.values().map(|written| written.n_failed).sum();
        println!("{n} writes acknowledged, {n_failed} answered by an error or not at all");
        assert!(n > 40, "there was load: {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_die_or_stall_lose_nothing() {
    let mut cluster = Cluster::start(3).await;
    let mut two = Two::start(&cluster);
    two.under_load(async |_| {
        for round in 0..4 {
            let leader = cluster.leader().await;
            // The leader and another one in turns; dead, then only silent.
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
async fn servers_that_die_or_stall_lose_nothing() {
    let cluster = Cluster::start(1).await;
    let mut two = Two::start(&cluster);
    two.under_load(async |two| {
        // Its writers and its watcher go on at its successor, the watcher by resourceVersion.
        assert!(!two.servers[1].stop("KILL").success());
        two.servers[1] = serve(&cluster);
        two.clients[1].send_replace(client(&two.servers[1]));
        tokio::time::sleep(A_WHILE).await;
        // The first one holds the Lease of the built-in controllers.
        two.servers[0].signal("STOP");
        tokio::time::sleep(2 * A_WHILE).await;
        two.servers[0].signal("CONT");
        tokio::time::sleep(A_WHILE).await;
    })
    .await;
    // What was stalled reads the present at once.
    let (a, b) = (two.clients[0].borrow().clone(), two.clients[1].borrow().clone());
    let new = serde_json::from_value(serde_json::json!({"metadata": {"name": "new"}})).unwrap();
    maps(&b).create(&Default::default(), &new).await.unwrap();
    let list = maps(&a).list(&Default::default()).await.unwrap();
    assert!(list.items.iter().any(|map| map.metadata.name.as_deref() == Some("new")));
}
