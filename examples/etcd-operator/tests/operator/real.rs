//! Real etcd clusters on loopback: pods of a process node. Skipped, with a message, if
//! `SETPOINT_TEST_ETCD` and `SETPOINT_TEST_ETCDCTL` are not set; `cargo xtask test` sets them.

use etcd_operator::api::{EtcdBackup, EtcdCluster};
use etcd_operator::backup::Agent;
use etcd_operator::etcd::Gateway;
use etcd_operator::manager;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use setpoint::kube_client::api::{Patch, PatchParams, PostParams};
use setpoint::kube_client::{Api, Client};
use setpoint::prelude::*;
use setpoint::process_node::ProcessNodes;
use setpoint::runtime::election::machine_identity;
use setpoint::runtime::events::EventApi;
use setpoint::{ControlPlane, Selection};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The longest wait for a state: a shared machine may be slow.
const PATIENCE: Duration = Duration::from_secs(240);

/// The programs, if they are there.
struct Programs {
    etcd: PathBuf,
    etcdctl: PathBuf,
}

impl Programs {
    fn find() -> Option<Self> {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let found = path("SETPOINT_TEST_ETCD").zip(path("SETPOINT_TEST_ETCDCTL"));
        if found.is_none() {
            eprintln!("skipped: SETPOINT_TEST_ETCD and SETPOINT_TEST_ETCDCTL are not both set");
        }
        found.map(|(etcd, etcdctl)| Self { etcd, etcdctl })
    }

    /// What restores: etcdutl since 3.5, etcdctl before.
    fn restore_command(&self) -> Value {
        let etcdutl = self.etcdctl.with_file_name("etcdutl");
        let program = if etcdutl.exists() { &etcdutl } else { &self.etcdctl };
        json!([program, "snapshot", "restore"])
    }

    async fn has_flag(&self, flag: &str) -> bool {
        let help = Command::new(&self.etcd).arg("--help").output().await.unwrap();
        [help.stdout, help.stderr].iter().any(|text| String::from_utf8_lossy(text).contains(flag))
    }
}

/// A control plane with a process node and the operator.
struct Stage {
    programs: Programs,
    client: Client,
    folder: PathBuf,
    args: Vec<String>,
}

/// Runs a test on a stage, and ends everything after it.
async fn on_stage(act: impl AsyncFnOnce(&Stage) -> Result<(), BoxError>) {
    let Some(programs) = Programs::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nodes = folder.path().join("nodes");
    // Other tests run at the same time: an address of its own for each.
    let network = format!("127.{}.0.0/16", 128 + std::process::id() % 120);
    let nodes = ProcessNodes::new(1, nodes, machine_identity().unwrap())
        .pod_network(network.parse().unwrap());
    let plane = ControlPlane::builder()
        .controllers(Selection::all())
        .nodes(0)
        .node_agent(nodes.agent())
        .build();
    let client = plane.client();
    let (stop_plane, stop) = (CancellationToken::new(), CancellationToken::new());
    let running = plane.run(stop_plane.clone());
    let acting = async {
        let mut kubelet = Manager::builder(client.clone()).events(EventApi::Core).build();
        nodes.add_to(&mut kubelet).unwrap();
        let agent = Agent {
            image: "etcd-operator".to_owned(),
            command: env!("CARGO_BIN_EXE_etcd-operator").to_owned(),
        };
        let operator = manager(Manager::builder(client.clone()), Arc::new(Gateway), agent);
        let operator = operator.await.unwrap();
        let mut args =
            vec!["--heartbeat-interval=200".to_owned(), "--election-timeout=2000".into()];
        if programs.has_flag("--unsafe-no-fsync").await {
            args.push("--unsafe-no-fsync".to_owned());
        }
        let folder = folder.path().to_owned();
        let stage = Stage { programs, client: client.clone(), folder, args };
        let acting = async {
            let acted = act(&stage).await;
            stop.cancel();
            acted
        };
        let (kubelet, operator, acted) =
            tokio::join!(kubelet.run(stop.clone()), operator.run(stop.clone()), acting);
        stop_plane.cancel();
        (kubelet, operator, acted)
    };
    let (ran, (kubelet, operator, acted)) = tokio::join!(running, acting);
    acted.unwrap();
    operator.unwrap();
    kubelet.unwrap();
    ran.unwrap();
}

impl Stage {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::default_namespaced(self.client.clone())
    }

    async fn create<K>(&self, object: Value) -> Result<(), BoxError>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
        K::DynamicType: Default,
    {
        self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    async fn create_cluster(&self, name: &str, spec: Value) -> Result<(), BoxError> {
        let mut object = json!({
            "apiVersion": "etcd.example.dev/v1", "kind": "EtcdCluster", "metadata": {"name": name},
            "spec": {
                "version": "3.5.0",
                "command": [self.programs.etcd],
                "restoreCommand": self.programs.restore_command(),
                "storage": {"size": "1Gi", "storageClassName": "local"},
                "addresses": "PodIp",
                "extraArgs": self.args,
            },
        });
        for (member, value) in spec.as_object().unwrap() {
            object["spec"][member] = value.clone();
        }
        self.create::<EtcdCluster>(object).await
    }

    async fn change(&self, name: &str, spec: Value) -> Result<(), BoxError> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<EtcdCluster>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a cluster runs as declared and meets the condition.
    async fn settled(&self, name: &str, what: impl Fn(&EtcdCluster) -> bool) -> EtcdCluster {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let cluster = self.api::<EtcdCluster>().get(name).await.unwrap();
            let status = cluster.status.clone().unwrap_or_default();
            let is_settled = status.phase == "Running"
                && status.observed_generation == cluster.metadata.generation
                && status.ready_members == cluster.spec.size;
            if is_settled && what(&cluster) {
                return cluster;
            }
            if Instant::now() > deadline {
                let pods = self.api::<Pod>().list(&Default::default()).await.unwrap();
                let pods: Vec<_> =
                    pods.items.iter().map(|pod| json!([pod.name_any(), pod.status])).collect();
                panic!("{name} does not settle: {status:#?}\n{:#}", json!(pods));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Runs etcdctl against a cluster; returns its output.
    async fn etcdctl(&self, cluster: &EtcdCluster, words: &[&str]) -> String {
        let endpoints = cluster.status.as_ref().unwrap().endpoints.join(",");
        let mut command = Command::new(&self.programs.etcdctl);
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(endpoints);
        command.args(["--command-timeout=30s", "--dial-timeout=10s"]).args(words);
        let output = command.output().await.unwrap();
        let (out, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "etcdctl {words:?}: {out}{error}");
        out.into_owned()
    }

    /// Everything that a cluster has.
    async fn content(&self, cluster: &EtcdCluster) -> String {
        self.etcdctl(cluster, &["get", "", "--prefix", "--order=ASCEND"]).await
    }

    /// The processes of a member.
    fn processes(&self, member: &str) -> Vec<i32> {
        let name = format!("--name={member}");
        let folder = self.folder.to_string_lossy().into_owned();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let found = all.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).into_owned();
            let is_own = words.split('\0').any(|word| word == name) && words.contains(&folder);
            is_own.then_some(pid)
        });
        found.collect()
    }

    /// Kills a member.
    async fn kill(&self, member: &str) {
        let found = self.processes(member);
        assert!(!found.is_empty(), "{member} runs");
        for pid in found {
            let pid = pid.to_string();
            let killed = Command::new("kill").args(["-s", "KILL", &pid]).status().await.unwrap();
            assert!(killed.success());
        }
    }

    /// The folder of a member's claim.
    async fn claim_folder(&self, member: &str) -> PathBuf {
        let claim = self.api::<PersistentVolumeClaim>().get(member).await.unwrap();
        let uid = claim.metadata.uid.unwrap();
        self.folder.join("nodes/claims/default").join(format!("{member}_{uid}"))
    }
}

fn id_of(cluster: &EtcdCluster, member: &str) -> String {
    let members = &cluster.status.as_ref().unwrap().members;
    let found = members.iter().find(|known| known.name == member);
    found.map(|known| known.id.clone()).unwrap_or_default()
}

/// The class whose claims are folders of the process node.
async fn make_class(client: &Client) -> Result<(), BoxError> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = json!({
        "metadata": {"name": "local"}, "provisioner": "volumes.setpoint.dev/simulated",
    });
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    Ok(())
}

fn is_there(path: &Path) -> bool {
    path.join("data/member").is_dir()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_cluster_grows_heals_is_upgraded_and_restored() {
    on_stage(async |stage| {
        make_class(&stage.client).await?;
        stage.create_cluster("demo", json!({"size": 1})).await?;
        let one = stage.settled("demo", |_| true).await;
        for n in 0..10 {
            let (key, value) = (format!("key-{n}"), format!("value {n}"));
            stage.etcdctl(&one, &["put", &key, &value]).await;
        }
        let content = stage.content(&one).await;
        assert!(content.contains("key-9\nvalue 9"), "{content}");

        stage.change("demo", json!({"size": 3})).await?;
        let three = stage.settled("demo", |_| true).await;
        assert_eq!(stage.content(&three).await, content);
        stage.etcdctl(&three, &["endpoint", "health", "--cluster"]).await;

        // A member dies and comes back with its data.
        stage.kill("demo-1").await;
        until("demo-1 is back", async || {
            let pod = stage.api::<Pod>().get("demo-1").await.unwrap();
            let statuses = pod.status.and_then(|status| status.container_statuses);
            statuses.is_some_and(|all| all[0].restart_count == 1 && all[0].ready)
        })
        .await;
        let back = stage.settled("demo", |_| true).await;
        assert_eq!(id_of(&back, "demo-1"), id_of(&three, "demo-1"));

        // Another loses its data too, and is replaced.
        let folder = stage.claim_folder("demo-2").await;
        assert!(is_there(&folder), "{}", folder.display());
        std::fs::remove_dir_all(folder.join("data"))?;
        stage.kill("demo-2").await;
        let old = id_of(&three, "demo-2");
        let healed = stage.settled("demo", |found| {
            !id_of(found, "demo-2").is_empty() && id_of(found, "demo-2") != old
        });
        let healed = healed.await;
        assert_eq!(stage.content(&healed).await, content);
        until("the old claim is gone", async || !folder.exists()).await;

        stage.change("demo", json!({"size": 5})).await?;
        let five = stage.settled("demo", |_| true).await;
        assert_eq!(stage.content(&five).await, content);
        stage.change("demo", json!({"size": 3})).await?;
        let three = stage.settled("demo", |_| true).await;
        assert_eq!(stage.content(&three).await, content);
        let members = stage.etcdctl(&three, &["member", "list"]).await;
        assert_eq!(members.lines().filter(|line| line.contains("started")).count(), 3, "{members}");
        assert!(stage.processes("demo-4").is_empty());

        // New flags: all pods are replaced, one at a time, and keep their data.
        let mut args = stage.args.clone();
        args.push("--snapshot-count=5000".to_owned());
        stage.change("demo", json!({"extraArgs": args})).await?;
        let upgraded = stage.settled("demo", |_| true).await;
        assert_eq!(stage.content(&upgraded).await, content);
        assert_eq!(id_of(&upgraded, "demo-0"), id_of(&three, "demo-0"));

        // A backup, a write after it, and a new cluster from the backup.
        stage
            .create::<PersistentVolumeClaim>(json!({
                "metadata": {"name": "backups"},
                "spec": {
                    "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }))
            .await?;
        stage
            .create::<EtcdBackup>(json!({
                "apiVersion": "etcd.example.dev/v1", "kind": "EtcdBackup",
                "metadata": {"name": "monday"},
                "spec": {"cluster": "demo", "destination": {"claimName": "backups"}},
            }))
            .await?;
        until("the backup is complete", async || {
            let backup = stage.api::<EtcdBackup>().get("monday").await.unwrap();
            let status = backup.status.unwrap_or_default();
            assert_ne!(status.phase, "Failed", "{status:?}");
            status.phase == "Complete"
                && status.revision >= Some(11)
                && status.size_bytes > Some(16_384)
        })
        .await;
        stage.etcdctl(&upgraded, &["put", "later", "not in the backup"]).await;
        stage
            .create_cluster("copy", json!({"size": 3, "restoreFrom": {"backup": "monday"}}))
            .await?;
        let copy = stage.settled("copy", |_| true).await;
        assert_eq!(stage.content(&copy).await, content);
        let id = |cluster: &EtcdCluster| cluster.status.clone().unwrap().cluster_id;
        assert_ne!(id(&copy), id(&upgraded));
        assert!(stage.content(&upgraded).await.contains("later"));
        Ok(())
    })
    .await;
}

/// Waits until something holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} until {what}");
        sleep(Duration::from_millis(100)).await;
    }
}
