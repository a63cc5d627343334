//! Time until a control plane serves a million stored objects.

use super::median;
use super::payload::Settings;
use crate::https::{Load, connect};
use crate::process::Program;
use crate::table::Table;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use nix::sys::signal::Signal;
use setpoint_store::{DiskOptions, DiskStore, Op, Store as _, Txn};
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of concurrent commits while the folder is filled.
const UNDER_WAY: u64 = 2048;
/// Number of timings of each start.
const ROUNDS: usize = 3;
/// Duration of the load that a kill interrupts.
const LOAD: Duration = Duration::from_secs(3);
const CLEAN_GOAL: f64 = 3.0;
const KILLED_GOAL: f64 = 6.0;

/// Fills a folder with ConfigMaps of 1 KiB of data, a commit each.
fn fill(folder: &Path, n_objects: u64) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = DiskStore::open(folder, DiskOptions::default())?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for lane in 0..UNDER_WAY {
            let store = store.clone();
            tasks.spawn(async move {
                let mut settings = Settings::new(lane + 1);
                for n in (lane..n_objects).step_by(UNDER_WAY as usize) {
                    let name = name(n);
                    let key = Bytes::from(format!("/registry/configmaps/default/{name}"));
                    let value = Bytes::from(settings.config_map(&name, 1024));
                    let ops = vec![Op::Put(key, value)];
                    store.commit(Txn { ops, ..Txn::default() }).await?;
                }
                Ok::<_, setpoint_store::StoreError>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        store.close().await;
        Ok(())
    })
}

fn name(n: u64) -> String {
    format!("object-{n:08}")
}

pub(super) fn measure(table: &mut Table, n_objects: u64) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let started = Instant::now();
    fill(folder.path(), n_objects)?;
    let mut n_bytes = 0;
    for entry in std::fs::read_dir(folder.path())? {
        n_bytes += entry?.metadata()?.len();
    }
    let file_gib = n_bytes as f64 / f64::from(1 << 30);
    eprintln!("{n_objects} objects in {file_gib:.2} GiB after {:?}", started.elapsed());
    let args = [OsStr::new("--data"), folder.path().as_os_str()];
    let start = || {
        let started = Instant::now();
        Program::start_with(&args).map(|program| (program, started.elapsed().as_secs_f64()))
    };

    // The first start creates the default objects.
    start()?.0.stop()?;
    let (mut clean, mut resident) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (program, took) = start()?;
        eprintln!("after a clean stop: {took:.2} s");
        clean.push(took);
        resident.push(program.resident_kib()? as f64 / f64::from(1 << 20));
        runtime.block_on(check(&program, n_objects))?;
        program.stop()?;
    }
    let mut killed = Vec::new();
    let (mut program, _) = start()?;
    for round in 0..ROUNDS {
        let data = Settings::new(1).text(1024);
        let prefix = format!("load-{round}");
        let load = Load { n_connections: 16, lasting: LOAD, data: &data, prefix: &prefix };
        runtime.block_on(async {
            // In the middle of the load.
            let killed = async {
                tokio::time::sleep(LOAD.mul_f64(0.7)).await;
                program.signal(Signal::SIGKILL)
            };
            tokio::select! {
                killed = killed => killed,
                ended = load.run(&program.kubeconfig) => {
                    ended.and_then(|_| program.signal(Signal::SIGKILL))
                }
            }
        })?;
        drop(program);
        let took;
        (program, took) = start()?;
        eprintln!("after a kill: {took:.2} s");
        killed.push(took);
        runtime.block_on(check(&program, n_objects))?;
    }
    drop(program);

    let (clean, killed) = (median(clean), median(killed));
    let what = format!("start to `ready` with {n_objects} ConfigMaps of 1 KiB");
    let mut judged = |how: &str, took: f64, goal: f64| {
        let formatted = format!("≤ {goal:.0} s");
        table.judged(
            &format!("{what}, {how}"),
            format!("{took:.2} s"),
            &formatted,
            Some(took <= goal),
        );
    };
    judged("after a clean stop", clean, CLEAN_GOAL);
    judged("after kill -9 under a write load", killed, KILLED_GOAL);
    let resident = format!("{:.2} GiB (the file: {file_gib:.2} GiB)", median(resident));
    table.judged("resident memory when ready, with them", resident, "–", None);
    Ok(())
}

/// Checks that the first and the last object are served.
async fn check(program: &Program, n_objects: u64) -> anyhow::Result<()> {
    let api = connect(&program.kubeconfig).await?;
    for n in [0, n_objects - 1] {
        let found = api.get_opt(&name(n)).await?.context("a stored object is missing")?;
        let n_bytes = found.data.unwrap_or_default().values().map(String::len).sum::<usize>();
        ensure!(n_bytes == 1024, "{} holds {n_bytes} bytes", name(n));
    }
    Ok(())
}
