//! Creates over HTTPS: a data folder compared with memory.

use super::median;
use super::payload::Settings;
use crate::https::Load;
use crate::process::Program;
use crate::table::Table;
use std::ffi::OsStr;
use std::time::Duration;

/// Duration of one turn.
const TURN: Duration = Duration::from_secs(3);
/// Number of turns of each.
const ROUNDS: usize = 3;
const N_CONNECTIONS: usize = 16;
/// Goal for the share of the rate with memory.
const GOAL: f64 = 0.8;
/// Rate of kube-apiserver 1.36 with etcd 3.5 with as many connections and the client on the same
/// cores, from another run.
const PEER: f64 = 2192.0;
/// Goal for the factor over that rate.
const PEER_GOAL: f64 = 5.0;

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let data = Settings::new(1).text(1024);
    let load = Load { n_connections: N_CONNECTIONS, lasting: TURN, data: &data, prefix: "cm" };
    let (mut memory, mut durable) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let program = Program::start()?;
        memory.push(runtime.block_on(load.run(&program.kubeconfig))?);
        drop(program);
        let folder = tempfile::tempdir()?;
        let program = Program::start_with(&[OsStr::new("--data"), folder.path().as_os_str()])?;
        durable.push(runtime.block_on(load.run(&program.kubeconfig))?);
    }
    let (memory, durable) = (median(memory), median(durable));
    let creates =
        format!("ConfigMap (1 KiB) creates over HTTPS, {N_CONNECTIONS} connections, `--data`");
    let share = durable / memory;
    table.judged(
        &format!("{creates}, against memory"),
        format!("{durable:.0} a second = {:.0} % of {memory:.0}", share * 100.0),
        &format!("≥ {:.0} %", GOAL * 100.0),
        Some(share >= GOAL),
    );
    table.judged(
        &format!("{creates}, against kube-apiserver and etcd (figure of another run)"),
        format!("{:.1}× its {PEER:.0} a second", durable / PEER),
        &format!("≥ {PEER_GOAL:.0}×"),
        Some(durable / PEER >= PEER_GOAL),
    );
    Ok(())
}
