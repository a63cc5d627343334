//! How long one request holds a thread of the server.
//!
//! The server is in this process, on a thread of its own, whose tasks take turns with a probe. The
//! probe notes how much CPU time of the thread passes between two of its turns: that is what the
//! others computed in theirs. Work on threads that may block is not counted, as it delays nobody.

use super::client::{Ask, Connection, Endpoint};
use super::floods::{Flood, LARGE_GROUP, floods, large_definition, prepare};
use super::large::{self, Form};
use super::payload::{self, CONFIG_MAPS, PODS, config_map, pod};
use super::{Figures, Goal, Unit};
use crate::definitions;
use crate::process::thread_cpu;
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;
use setpoint::ControlPlane;
use setpoint::prelude::CancellationToken;
use setpoint::serve::ServeOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Number of times each request is sent; the figure is the median of the longest turns.
const REPEATS: u64 = 9;
/// A watch from the beginning.
const WATCH: &str = "/api/v1/pods?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                     &resourceVersionMatch=NotOlderThan";
/// Values of the large ConfigMap.
const LARGE_VALUES: usize = 40_000;
/// Goal for the longest turn, in milliseconds.
const TURN_GOAL: f64 = 5.0;

/// The longest turn since it was last taken, in nanoseconds.
#[derive(Debug, Clone, Default)]
struct Longest(Arc<AtomicU64>);

impl Longest {
    /// Takes turns with the tasks of the server.
    async fn probe(self) -> anyhow::Result<()> {
        let mut last = thread_cpu()?;
        loop {
            tokio::task::yield_now().await;
            let now = thread_cpu()?;
            let turn = now.saturating_sub(last);
            self.0.fetch_max(u64::try_from(turn.as_nanos())?, Ordering::Relaxed);
            last = now;
        }
    }

    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Ordering::Relaxed))
    }
}

pub(super) fn measure(figures: &mut Figures, n_pods: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let (longest, stop) = (Longest::default(), CancellationToken::new());
    let (started, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        // Also if a measurement fails.
        let _stopped = stop.clone().drop_guard();
        let server = scope.spawn(|| serve(&kubeconfig, longest.clone(), stop.clone(), started));
        let measured = match is_ready.recv() {
            Ok(()) => requests(&Endpoint::of(&kubeconfig)?, &longest, figures, n_pods),
            // The server's error says more.
            Err(_) => Ok(()),
        };
        stop.cancel();
        server.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
        measured
    })
}

fn serve(
    kubeconfig: &Path,
    longest: Longest,
    stop: CancellationToken,
    started: mpsc::Sender<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = ServeOptions::new(address).kubeconfig(kubeconfig);
        let serving = ControlPlane::builder().build().serve(options).await?;
        let mut ready = serving.ready();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { Ok(serving.run(stop).await?) });
        ready.wait_for(|ready| *ready).await.context("it has ended")?;
        started.send(())?;
        tasks.spawn(longest.probe());
        // The server ends, or the probe fails.
        tasks.join_next().await.context("no task")??
    })
}

/// Sends every kind of request, and reads the longest turn after each.
fn requests(
    endpoint: &Endpoint,
    longest: &Longest,
    figures: &mut Figures,
    n_pods: usize,
) -> anyhow::Result<()> {
    payload::prepare(endpoint)?;
    large::fill(endpoint, n_pods)?;
    prepare(endpoint)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = endpoint.connect().await?;
        connection.send(Ask::write("POST", PODS), pod("own-0")).await?.ok()?;
        connection.send(Ask::write("POST", CONFIG_MAPS), config_map("own-0", 0)).await?.ok()?;
        for request in all() {
            let mut turns = Vec::new();
            for n in 0..REPEATS {
                longest.take();
                request.send(&mut connection, n).await?;
                turns.push(longest.take());
            }
            turns.sort_unstable();
            let turn = turns[turns.len() / 2].as_secs_f64() * 1e3;
            let name = format!("a thread is held for, at the longest: {}", request.name());
            figures.add(&name, Unit::Millis, Goal::Most(TURN_GOAL), turn);
        }
        Ok(())
    })
}

/// A request of the list.
#[derive(Debug)]
enum Request {
    List(Form),
    Flood(Flood),
    /// All Pods as the initial events of a watch, to the last.
    InitialEvents(Form),
    /// The same by a label that no Pod has, and by a field.
    NoInitialEvents(&'static str),
    /// A ConfigMap of 1 MB is created, seen by a watch, and deleted.
    LargeEvent(Form),
    /// The same with a watch by a field that it does not have.
    NoLargeEvent,
    /// A definition of 1 MB is created, and deleted.
    Definition,
    /// All Pods, dry run.
    DeleteCollection,
}

fn all() -> Vec<Request> {
    let lists = [Form::JSON, Form::GZIP, Form::TABLE, Form::YAML, Form::PROTOBUF];
    let floods = floods().into_iter().filter(|flood| !matches!(flood, Flood::Watches));
    let watches = [Form::JSON, Form::TABLE, Form::PROTOBUF].map(Request::InitialEvents);
    let selected = ["labelSelector=app%3Dnobody", "fieldSelector=spec.nodeName%3Dnowhere"]
        .map(Request::NoInitialEvents);
    let events = [Form::JSON, Form::TABLE, Form::PROTOBUF].map(Request::LargeEvent);
    let others = [Request::NoLargeEvent, Request::Definition, Request::DeleteCollection];
    let others = watches.into_iter().chain(selected).chain(events).chain(others);
    lists.map(Request::List).into_iter().chain(floods.map(Request::Flood)).chain(others).collect()
}

impl Request {
    fn name(&self) -> String {
        match self {
            Self::List(form) => format!("LIST of Pods, {}", form.name),
            Self::Flood(flood) => flood.name(),
            Self::InitialEvents(form) => {
                format!("watch of all Pods from the beginning, {}", form.name)
            }
            Self::NoInitialEvents(selector) => {
                let (by, _) = selector.split_once("Selector").unwrap_or_default();
                format!("watch of all Pods from the beginning, by a {by} that none has")
            }
            Self::LargeEvent(form) => {
                format!("create, watch and delete of a ConfigMap of 1 MB, {}", form.name)
            }
            Self::NoLargeEvent => {
                "create and delete of a ConfigMap of 1 MB beside a watch of others".to_owned()
            }
            Self::Definition => "create and delete of a definition of 1 MB".to_owned(),
            Self::DeleteCollection => "deletecollection of Pods, dry run".to_owned(),
        }
    }

    async fn send(&self, connection: &mut Connection, n: u64) -> anyhow::Result<()> {
        match self {
            Self::List(form) => drop(connection.send(form.ask(), Bytes::new()).await?.ok()?),
            Self::Flood(Flood::Same(same)) => drop(same.send(connection).await?),
            Self::Flood(Flood::Small(load)) => {
                let (method, path, content_type, body) = load.request("held", 0, n);
                let ask = Ask { content_type, ..Ask::write(method, &path) };
                connection.send(ask, body).await?.ok()?;
            }
            Self::Flood(Flood::Watches) => {}
            Self::InitialEvents(form) => initial_events(connection, form.ask_for(WATCH)).await?,
            Self::NoInitialEvents(selector) => {
                let path = format!("{WATCH}&{selector}");
                initial_events(connection, Form::JSON.ask_for(&path)).await?;
            }
            Self::LargeEvent(form) => {
                let path = format!("{CONFIG_MAPS}?watch=true");
                let watch = connection.begin(form.ask_for(&path), Bytes::new()).await?;
                large_config_map(connection, n).await?;
                an_event(watch.into_body(), form.is_text()).await?;
            }
            Self::NoLargeEvent => {
                let path = format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Dother");
                let watch = connection.begin(Form::JSON.ask_for(&path), Bytes::new()).await?;
                large_config_map(connection, n).await?;
                drop(watch);
            }
            Self::Definition => {
                let plural = format!("held{n}");
                let create = Ask::write("POST", definitions::PATH);
                connection.send(create, large_definition(&plural)).await?.ok()?;
                let path = format!("{}/{plural}.{LARGE_GROUP}", definitions::PATH);
                connection.send(Ask::write("DELETE", &path), Bytes::new()).await?.ok()?;
            }
            Self::DeleteCollection => {
                let path = format!("{PODS}?dryRun=All");
                connection.send(Ask::write("DELETE", &path), Bytes::new()).await?.ok()?;
            }
        }
        Ok(())
    }
}

/// Creates and deletes a ConfigMap that is 1 MB when stored, half of it the managed fields of its
/// values.
async fn large_config_map(connection: &mut Connection, n: u64) -> anyhow::Result<()> {
    let data: serde_json::Map<_, _> =
        (0..LARGE_VALUES).map(|at| (format!("k{at}"), "v".into())).collect();
    let body = json!({"metadata": {"name": format!("large-{n}")}, "data": data}).to_string();
    connection.send(Ask::write("POST", CONFIG_MAPS), body.into()).await?.ok()?;
    let path = format!("{CONFIG_MAPS}/large-{n}");
    connection.send(Ask::write("DELETE", &path), Bytes::new()).await?.ok()?;
    Ok(())
}

/// Reads an event of a watch, which ends with a line if it is text. What else is in the same frame
/// is discarded.
async fn an_event(mut body: Incoming, is_text: bool) -> anyhow::Result<()> {
    let (mut n_bytes, mut length) = (0, None);
    while length.is_none_or(|length| n_bytes < length) {
        let frame = body.frame().await.context("the watch has ended")??;
        let Some(data) = frame.data_ref() else { continue };
        if is_text && data.contains(&b'\n') {
            break;
        }
        // Others begin with their length.
        if let (false, 0, Some(head)) = (is_text, n_bytes, data.first_chunk::<4>()) {
            length = Some(usize::try_from(u32::from_be_bytes(*head))?);
        }
        n_bytes += data.len();
    }
    Ok(())
}

/// Watches until the end of the initial events.
async fn initial_events(connection: &mut Connection, ask: Ask<'_>) -> anyhow::Result<()> {
    let mut body = connection.begin(ask, Bytes::new()).await?.into_body();
    let end = memchr::memmem::Finder::new("initial-events-end");
    while let Some(frame) = body.frame().await {
        if frame?.data_ref().is_some_and(|data| end.find(data).is_some()) {
            break;
        }
    }
    Ok(())
}
