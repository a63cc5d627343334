//! Lists of many Pods, one after the other.

use super::client::{Ask, Connection, Endpoint};
use super::payload::{CONFIG_MAPS, PODS, config_map, listed_pod, status_patch};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use anyhow::ensure;
use bytes::Bytes;
use std::time::Duration;
use tokio::task::JoinSet;

/// The Pods of all namespaces.
pub(super) const ALL_PODS: &str = "/api/v1/pods";
/// Number of reads of each list in a turn.
const READS: u32 = 10;
/// Connections that create the objects.
const N_FILLERS: usize = 16;

/// The format of a list request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) name: &'static str,
    accept: &'static str,
    gzip: bool,
    /// Goals for total time, server CPU, and time to the first bytes, in milliseconds.
    goals: [Goal; 3],
}

impl Form {
    pub(super) const JSON: Self = Self {
        name: "JSON",
        accept: "application/json",
        gzip: false,
        goals: [Goal::Most(60.0), Goal::Most(40.0), Goal::None],
    };
    pub(super) const GZIP: Self =
        Self { name: "JSON in gzip", gzip: true, ..Self::free("application/json") };
    pub(super) const YAML: Self = Self { name: "YAML", ..Self::free("application/yaml") };
    pub(super) const TABLE: Self =
        Self { name: "Table", ..Self::free("application/json;as=Table;g=meta.k8s.io;v=v1") };
    pub(super) const PROTOBUF: Self =
        Self { name: "protobuf", ..Self::free("application/vnd.kubernetes.protobuf") };

    const fn free(accept: &'static str) -> Self {
        Self { name: "", accept, gzip: false, goals: [Goal::None; 3] }
    }

    /// Whether an event of a watch in it is a line of text.
    pub(super) fn is_text(self) -> bool {
        self.accept != Self::PROTOBUF.accept
    }

    /// The request for all Pods.
    pub(super) fn ask(self) -> Ask<'static> {
        self.ask_for(ALL_PODS)
    }

    /// The same of another path.
    pub(super) fn ask_for(self, path: &str) -> Ask<'_> {
        Ask { accept: self.accept, gzip: self.gzip, ..Ask::get(path) }
    }
}

/// What reads of a list took.
#[derive(Debug)]
pub(super) struct Read {
    /// Each until its last byte.
    pub(super) whole: Vec<Duration>,
    /// Each until its first bytes.
    first: Vec<Duration>,
    /// The server's CPU time of one.
    pub(super) cpu: Duration,
    /// The size of the body, as sent.
    n_bytes: usize,
}

impl Form {
    /// Reads the list at a path once, and then [`READS`] times for the figures. `cpu` is the
    /// server's.
    pub(super) async fn read(
        self,
        connection: &mut Connection,
        path: &str,
        cpu: impl Fn() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Read> {
        connection.send(self.ask_for(path), Bytes::new()).await?.ok()?;
        let before = cpu()?;
        let (mut whole, mut first, mut n_bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..READS {
            let answer = connection.send(self.ask_for(path), Bytes::new()).await?.ok()?;
            whole.push(answer.whole);
            first.push(answer.first);
            n_bytes = answer.n_bytes;
        }
        Ok(Read { whole, first, cpu: (cpu()? - before) / READS, n_bytes })
    }
}

fn median(mut figures: Vec<Duration>) -> Duration {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

fn millis(figure: Duration) -> f64 {
    figure.as_secs_f64() * 1e3
}

/// Creates ConfigMaps of 1 KiB.
pub(super) fn fill_config_maps(endpoint: &Endpoint, n_objects: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for filler in 0..N_FILLERS {
            let mut connection = endpoint.connect().await?;
            tasks.spawn(async move {
                for n in (filler..n_objects).step_by(N_FILLERS) {
                    let body = config_map(&format!("listed-{n}"), n as u64);
                    connection.send(Ask::write("POST", CONFIG_MAPS), body).await?.ok()?;
                }
                anyhow::Ok(())
            });
        }
        tasks.join_all().await.into_iter().collect()
    })
}

/// Creates Pods with a status.
pub(super) fn fill(endpoint: &Endpoint, n_pods: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for filler in 0..N_FILLERS {
            let mut connection = endpoint.connect().await?;
            tasks.spawn(async move {
                for n in (filler..n_pods).step_by(N_FILLERS) {
                    let name = format!("pod-{n}");
                    connection.send(Ask::write("POST", PODS), listed_pod(&name)).await?.ok()?;
                    let path = format!("{PODS}/{name}/status");
                    let content_type = "application/merge-patch+json";
                    let ask = Ask { content_type, ..Ask::write("PATCH", &path) };
                    connection.send(ask, status_patch(n as u64)).await?.ok()?;
                }
                anyhow::Ok(())
            });
        }
        tasks.join_all().await.into_iter().collect()
    })
}

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
    n_pods: usize,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        for form in [Form::JSON, Form::GZIP, Form::TABLE, Form::YAML, Form::PROTOBUF] {
            let Read { whole, first, cpu, n_bytes } =
                form.read(&mut connection, ALL_PODS, || program.cpu()).await?;
            ensure!(n_bytes > n_pods, "{n_bytes} bytes for {n_pods} Pods");
            let name = format!("LIST of {n_pods} Pods, {}", form.name);
            let [whole_goal, cpu_goal, first_goal] = form.goals;
            figures.add(&format!("{name}: whole"), Unit::Millis, whole_goal, millis(median(whole)));
            figures.add(&format!("{name}: CPU"), Unit::Millis, cpu_goal, millis(cpu));
            figures.add(
                &format!("{name}: first bytes"),
                Unit::Millis,
                first_goal,
                millis(median(first)),
            );
            let mib = n_bytes as f64 / f64::from(1 << 20);
            figures.add(&format!("{name}: size"), Unit::Mebibytes, Goal::None, mib);
        }
        Ok(())
    })
}
