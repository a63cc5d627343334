//! One change to many watchers, each on a separate connection: the server's cost of a delivery.

use super::client::{Ask, Endpoint};
use super::payload::{CONFIG_MAPS, config_map};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(super) const WATCHERS: usize = 1000;
/// The number of changes, and the time between them.
const CHANGES: u64 = 100;
const PERIOD: Duration = Duration::from_millis(20);

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let each = deliver(endpoint, || program.cpu())?.as_secs_f64() * 1e6;
    let name = format!("delivery of a change of 1 KiB to {WATCHERS} watchers: CPU each");
    figures.add(&name, Unit::Micros, Goal::None, each);
    Ok(())
}

/// The server's CPU time of one delivery. `cpu` is what it has used so far.
pub(super) fn deliver(
    endpoint: &Endpoint,
    cpu: impl Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut writer = endpoint.connect().await?;
        writer.send(Ask::write("POST", CONFIG_MAPS), config_map("watched", 0)).await?.ok()?;
        let delivered = Arc::new(Semaphore::new(0));
        let mut watchers = JoinSet::new();
        for _ in 0..WATCHERS {
            let mut connection = endpoint.connect().await?;
            let path = format!(
                "{CONFIG_MAPS}?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
            );
            let response = connection.begin(Ask::get(&path), Bytes::new()).await?;
            let delivered = delivered.clone();
            watchers.spawn(async move {
                // The connection must live as long as its watch is read.
                let _connection = connection;
                let mut body = response.into_body();
                while let Some(frame) = body.frame().await {
                    if let Ok(data) = frame?.into_data() {
                        delivered.add_permits(memchr::memchr_iter(b'\n', &data).count());
                    }
                }
                anyhow::Ok(())
            });
        }
        let before = cpu()?;
        let mut period = tokio::time::interval(PERIOD);
        let path = format!("{CONFIG_MAPS}/watched");
        for n in 1..=CHANGES {
            period.tick().await;
            writer.send(Ask::write("PUT", &path), config_map("watched", n)).await?.ok()?;
        }
        let n = WATCHERS * CHANGES as usize;
        let all = delivered.acquire_many(u32::try_from(n)?);
        let _ = tokio::time::timeout(Duration::from_secs(60), all)
            .await
            .context("not everything was delivered within a minute")?;
        Ok((cpu()? - before) / u32::try_from(n)?)
    })
}
