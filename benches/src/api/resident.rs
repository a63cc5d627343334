//! Resident memory after a load of many large lists, slow readers, and watchers that do not read.
//!
//! The server is a separate program with `setpoint`'s allocator, which also counts allocated bytes
//! (`benches/src/served.rs`).

use super::client::{Ask, Endpoint};
use super::large::{self, Form};
use super::payload::{self, CONFIG_MAPS, config_map};
use super::{Figures, Goal, Unit, beside};
use crate::process::Program;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long the server is idle before and after the load. The goal applies after this time.
const SETTLE: Duration = Duration::from_secs(60);
/// Slowly read lists, each on a separate connection, and their duration.
const SLOW_READERS: usize = 32;
const SLOWLY: Duration = Duration::from_secs(20);
/// Pause of a slow reader between two pieces.
const PAUSE: Duration = Duration::from_millis(50);
/// Watches that nobody reads, and the number of changes.
const IDLE_WATCHERS: usize = 100;
const CHANGES: u64 = 20_000;
/// Goal for the ratio of resident memory to allocated bytes.
const RATIO_GOAL: f64 = 1.5;

pub(super) fn measure(figures: &mut Figures, n_pods: usize) -> anyhow::Result<()> {
    let binary = std::env::current_exe()?.with_file_name("setpoint-benches-served");
    let mut program = Program::start_binary(&binary, &[])?;
    let endpoint = Endpoint::of(&program.kubeconfig)?;
    payload::prepare(&endpoint)?;
    large::fill(&endpoint, n_pods)?;
    std::thread::sleep(SETTLE);
    let mut tell = |program: &mut Program, when: &str, goal: Goal| -> anyhow::Result<()> {
        let live = program.live_bytes()? as f64 / f64::from(1 << 20);
        let resident = program.resident_kib()? as f64 / 1024.0;
        let when = format!("memory with {n_pods} Pods, {when}");
        figures.add(&format!("{when}: allocated"), Unit::Mebibytes, Goal::None, live);
        figures.add(&format!("{when}: resident"), Unit::Mebibytes, Goal::None, resident);
        let what = format!("{when}: resident ÷ allocated");
        figures.add(&what, Unit::Times, goal, resident / live);
        Ok(())
    };
    tell(&mut program, "a minute after the Pods were created", Goal::None)?;
    for form in [Form::JSON, Form::GZIP, Form::YAML] {
        beside::flood_for(&endpoint, form, beside::LOAD)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(read_slowly(&endpoint))?;
    runtime.block_on(write_beside_idle_watchers(&endpoint))?;
    drop(runtime);
    tell(&mut program, "when the load has just left", Goal::None)?;
    std::thread::sleep(SETTLE);
    tell(&mut program, "a minute after the load has left", Goal::Most(RATIO_GOAL))
}

/// Reads lists slowly, and abandons them at the end.
async fn read_slowly(endpoint: &Endpoint) -> anyhow::Result<()> {
    let end = Instant::now() + SLOWLY;
    let mut readers = JoinSet::new();
    for _ in 0..SLOW_READERS {
        let mut connection = endpoint.connect().await?;
        readers.spawn(async move {
            while Instant::now() < end {
                let response = connection.begin(Form::JSON.ask(), Bytes::new()).await?;
                let mut body = response.into_body();
                // A refusal is short, and the request is repeated.
                while Instant::now() < end && body.frame().await.transpose()?.is_some() {
                    tokio::time::sleep(PAUSE).await;
                }
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(())
        });
    }
    readers.join_all().await.into_iter().collect()
}

/// Changes one object while watchers do not read.
async fn write_beside_idle_watchers(endpoint: &Endpoint) -> anyhow::Result<()> {
    let mut writer = endpoint.connect().await?;
    writer.send(Ask::write("POST", CONFIG_MAPS), config_map("changing", 0)).await?.ok()?;
    let path = format!("{CONFIG_MAPS}?watch=true");
    let mut watches = Vec::new();
    for _ in 0..IDLE_WATCHERS {
        let mut connection = endpoint.connect().await?;
        let response = connection.begin(Ask::get(&path), Bytes::new()).await?;
        watches.push((connection, response));
    }
    let path = format!("{CONFIG_MAPS}/changing");
    for n in 1..=CHANGES {
        writer.send(Ask::write("PUT", &path), config_map("changing", n)).await?.ok()?;
    }
    Ok(())
}
