//! Small requests on sixteen connections, with one request at a time each.

use super::client::{Ask, Connection, Endpoint};
use super::payload::{
    CONFIG_MAPS, PODS, applied, config_map, config_map_protobuf, pod, ruled, rules_path,
    status_patch,
};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use bytes::Bytes;
use std::time::{Duration, Instant};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(super) const N_CONNECTIONS: usize = 16;
/// Duration of each load.
const LOAD: Duration = Duration::from_secs(3);
/// Goal for the share of the other build's CPU time.
const SHARE: f64 = 0.67;

/// The request that a connection repeats.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    Create,
    Get,
    Update,
    Apply,
    PodCreate,
    StatusPatch,
    Delete,
    /// Bodies and answers in protobuf.
    CreateProtobuf,
    GetProtobuf,
    UpdateProtobuf,
    /// The client takes gzip, as client-go says of every request.
    GetGzip,
    /// The create of a custom object whose definition has this many CEL rules.
    Ruled(usize),
}

impl Load {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create of a ConfigMap (1 KiB)",
            Self::Get => "get of a ConfigMap",
            Self::Update => "update of a ConfigMap",
            Self::Apply => "apply of a ConfigMap",
            Self::PodCreate => "create of a Pod (4 KB)",
            Self::StatusPatch => "status merge patch of a Pod (4 KB)",
            Self::Delete => "delete of a ConfigMap",
            Self::CreateProtobuf => "create of a ConfigMap (1 KiB) in protobuf",
            Self::GetProtobuf => "get of a ConfigMap in protobuf",
            Self::UpdateProtobuf => "update of a ConfigMap in protobuf",
            Self::GetGzip => "get of a ConfigMap, gzip accepted",
            Self::Ruled(1) => "create of a custom object with a CEL rule",
            Self::Ruled(_) => "create of a custom object with 20 CEL rules",
        }
    }

    fn goal(self) -> Goal {
        match self {
            Self::Create | Self::Get | Self::Update | Self::PodCreate | Self::StatusPatch => {
                Goal::Share(SHARE)
            }
            _ => Goal::None,
        }
    }

    /// Method, path, type and body of a connection's `n`th request. `run` distinguishes names of
    /// different loads.
    pub(super) fn request(
        self,
        run: &str,
        connection: usize,
        n: u64,
    ) -> (&'static str, String, &'static str, Bytes) {
        let json = "application/json";
        let own = format!("own-{connection}");
        let new = format!("{run}-{connection}-{n}");
        match self {
            Self::Create => ("POST", CONFIG_MAPS.to_owned(), json, config_map(&new, n)),
            Self::CreateProtobuf => {
                let body = config_map_protobuf(&format!("protobuf-{new}"), n);
                ("POST", CONFIG_MAPS.to_owned(), PROTOBUF, body)
            }
            Self::UpdateProtobuf => {
                let body = config_map_protobuf(&own, n + 1);
                ("PUT", format!("{CONFIG_MAPS}/{own}"), PROTOBUF, body)
            }
            Self::Get | Self::GetProtobuf | Self::GetGzip => {
                ("GET", format!("{CONFIG_MAPS}/{own}"), json, Bytes::new())
            }
            Self::Update => ("PUT", format!("{CONFIG_MAPS}/{own}"), json, config_map(&own, n + 1)),
            Self::Apply => (
                "PATCH",
                format!("{CONFIG_MAPS}/applied-{connection}?fieldManager=bench&force=true"),
                "application/apply-patch+yaml",
                applied(&format!("applied-{connection}"), n + 1),
            ),
            Self::PodCreate => ("POST", PODS.to_owned(), json, pod(&new)),
            Self::StatusPatch => (
                "PATCH",
                format!("{PODS}/{own}/status"),
                "application/merge-patch+json",
                status_patch(n + 1),
            ),
            Self::Ruled(n_rules) => ("POST", rules_path(n_rules), json, ruled(&new, n_rules)),
            Self::Delete => {
                ("DELETE", format!("{CONFIG_MAPS}/create-{connection}-{n}"), json, Bytes::new())
            }
        }
    }

    /// The type of its answers.
    fn accept(self) -> &'static str {
        match self {
            Self::CreateProtobuf | Self::GetProtobuf | Self::UpdateProtobuf => PROTOBUF,
            _ => "application/json",
        }
    }

    fn run_name(self) -> &'static str {
        match self {
            Self::PodCreate => "pod",
            _ => "create",
        }
    }
}

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let loads = [
        Load::Create,
        Load::Get,
        Load::Update,
        Load::Apply,
        Load::PodCreate,
        Load::StatusPatch,
        Load::Delete,
    ];
    run(program, endpoint, figures, "", &loads)
}

pub(super) fn measure_writes(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
    how: &str,
) -> anyhow::Result<()> {
    run(program, endpoint, figures, how, &[Load::Create, Load::Update, Load::StatusPatch])
}

fn run(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
    how: &str,
    loads: &[Load],
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connections = connect(endpoint, N_CONNECTIONS).await?;
        for load in loads {
            let driven = load.drive(&mut connections, load.run_name(), || program.cpu()).await?;
            let (name, n) = (load.name(), driven.took.len() as f64);
            let per_request = driven.cpu.as_secs_f64() * 1e6 / n;
            figures.add(&format!("{name}{how}: CPU"), Unit::Micros, load.goal(), per_request);
            let rate = n / driven.wall.as_secs_f64();
            figures.add(&format!("{name}{how}: rate"), Unit::PerSecond, Goal::None, rate);
        }
        Ok(())
    })
}

/// Opens the connections of a load.
pub(super) async fn connect_only(endpoint: &Endpoint, n: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..n {
        connections.push(endpoint.connect().await?);
    }
    Ok(connections)
}

/// Opens connections, and creates the ConfigMap and the Pod that each gets and changes.
pub(super) async fn connect(endpoint: &Endpoint, n: usize) -> anyhow::Result<Vec<Connection>> {
    let mut connections = connect_only(endpoint, n).await?;
    for (n, connection) in connections.iter_mut().enumerate() {
        let own = format!("own-{n}");
        connection.send(Ask::write("POST", CONFIG_MAPS), config_map(&own, 0)).await?.ok()?;
        connection.send(Ask::write("POST", PODS), pod(&own)).await?.ok()?;
    }
    Ok(connections)
}

/// The result of a load.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) wall: Duration,
    /// How long each request took, in no order.
    pub(super) took: Vec<Duration>,
    /// The server's CPU time of all of them.
    pub(super) cpu: Duration,
}

impl Load {
    /// Repeats the request on each connection for [`LOAD`]. `run` distinguishes the names of what
    /// is created; `cpu` is what the server has used so far.
    pub(super) async fn drive(
        self,
        connections: &mut [Connection],
        run: &str,
        cpu: impl Fn() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Driven> {
        let (before, started) = (cpu()?, Instant::now());
        let each = connections.iter_mut().enumerate().map(async |(number, connection)| {
            let mut took = Vec::new();
            for n in 0.. {
                if started.elapsed() >= LOAD {
                    break;
                }
                let (method, path, content_type, body) = self.request(run, number, n);
                let (accept, gzip) = (self.accept(), matches!(self, Self::GetGzip));
                let ask = Ask { content_type, accept, gzip, ..Ask::write(method, &path) };
                let answer = connection.send(ask, body).await?;
                if matches!(self, Self::Delete) && answer.status == 404 {
                    // No objects remain.
                    break;
                }
                took.push(answer.ok()?.whole);
            }
            anyhow::Ok(took)
        });
        let took = futures::future::try_join_all(each).await?.concat();
        Ok(Driven { wall: started.elapsed(), took, cpu: cpu()? - before })
    }
}
