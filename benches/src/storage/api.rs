//! Creates over HTTPS: objects in a data folder against objects in memory.

use super::median;
use super::payload::Settings;
use crate::https::Load;
use crate::process::Program;
use crate::table::Table;
use std::ffi::OsStr;
use std::time::Duration;

/// How long one turn lasts.
const TURN: Duration = Duration::from_secs(3);
/// How often each takes its turn.
const ROUNDS: usize = 3;
const N_CONNECTIONS: usize = 16;
/// The share of the rate with memory that is to be reached.
const GOAL: f64 = 0.8;
/// kube-apiserver 1.36 with etcd 3.5 at as many connections, the client on the same cores: a figure
/// of another run.
const PEER: f64 = 2192.0;
/// How many times that is to be reached.
const PEER_GOAL: f64 = 5.0;

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let data = Settings::new(1).text(1024);
    let load = Load { n_connections: N_CONNECTIONS, lasting: TURN, data: &data, prefix: "cm" };
    let (mut memory, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let program = Program::start()?;
        memory.push(runtime.block_on(load.run(&program.kubeconfig))?);
        drop(program);
        let folder = tempfile::tempdir()?;
        let program = Program::start_with(&[OsStr::new("--data"), folder.path().as_os_str()])?;
        kept.push(runtime.block_on(load.run(&program.kubeconfig))?);
    }
    let (memory, kept) = (median(memory), median(kept));
    let creates =
        format!("ConfigMap (1 KiB) creates over HTTPS, {N_CONNECTIONS} connections, `--data`");
    let share = kept / memory;
    table.judged(
        &format!("{creates}, against memory"),
        format!("{kept:.0} a second = {:.0} % of {memory:.0}", share * 100.0),
        &format!("≥ {:.0} %", GOAL * 100.0),
        Some(share >= GOAL),
    );
    table.judged(
        &format!("{creates}, against kube-apiserver and etcd (figure of another run)"),
        format!("{:.1}× its {PEER:.0} a second", kept / PEER),
        &format!("≥ {PEER_GOAL:.0}×"),
        Some(kept / PEER >= PEER_GOAL),
    );
    Ok(())
}
