//! One change to many watchers, each on a separate connection: the server's cost of a delivery.

use super::client::{Ask, Endpoint};
use super::payload::{CONFIG_MAPS, config_map};
use super::{Figures, Goal, Unit};
use crate::process::Program;
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Watchers of one ConfigMap, and its changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    pub(super) watchers: usize,
    /// Number of changes.
    changes: u64,
    /// Time between them.
    period: Duration,
}

impl Crowd {
    pub(super) const MANY: Self =
        Self { watchers: 1000, changes: 100, period: Duration::from_millis(20) };
    pub(super) const FEW: Self =
        Self { watchers: 100, changes: 500, period: Duration::from_millis(10) };
}

/// What deliveries took.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// The server's CPU time of one.
    pub(super) cpu: Duration,
    /// Each, from sending the change until its watcher read it; in no order.
    pub(super) took: Vec<Duration>,
}

pub(super) fn measure(
    program: &Program,
    endpoint: &Endpoint,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let crowd = Crowd::MANY;
    let each = crowd.deliver(endpoint, || program.cpu())?.cpu.as_secs_f64() * 1e6;
    let name = format!("delivery of a change of 1 KiB to {} watchers: CPU each", crowd.watchers);
    figures.add(&name, Unit::Micros, Goal::None, each);
    Ok(())
}

impl Crowd {
    /// Changes the ConfigMap, and waits until every watcher has every change. `cpu` is what the
    /// server has used so far.
    pub(super) fn deliver(
        self,
        endpoint: &Endpoint,
        cpu: impl Fn() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Deliveries> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut writer = endpoint.connect().await?;
            let answer = writer.send(Ask::write("POST", CONFIG_MAPS), config_map("watched", 0));
            ensure!(matches!(answer.await?.status.as_u16(), 201 | 409), "no ConfigMap to watch");
            let path = format!(
                "{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Dwatched\
                 &sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
            );
            let (sent, all_sent) = watch::channel(Vec::new());
            let mut watchers = JoinSet::new();
            for _ in 0..self.watchers {
                let mut connection = endpoint.connect().await?;
                let response = connection.begin(Ask::get(&path), Bytes::new()).await?;
                let sent = all_sent.clone();
                watchers.spawn(async move {
                    // The connection must live as long as its watch is read.
                    let _connection = connection;
                    let (mut body, mut took) = (response.into_body(), Vec::new());
                    while took.len() < self.changes as usize {
                        let frame = body.frame().await.context("the watch ended")??;
                        let n_events = frame
                            .data_ref()
                            .map_or(0, |data| memchr::memchr_iter(b'\n', data).count());
                        let sent = sent.borrow();
                        for _ in 0..n_events {
                            let at: &Instant = sent.get(took.len()).context("an event too many")?;
                            took.push(at.elapsed());
                        }
                    }
                    anyhow::Ok(took)
                });
            }
            let before = cpu()?;
            let mut period = tokio::time::interval(self.period);
            let path = format!("{CONFIG_MAPS}/watched");
            for n in 1..=self.changes {
                period.tick().await;
                sent.send_modify(|sent| sent.push(Instant::now()));
                writer.send(Ask::write("PUT", &path), config_map("watched", n)).await?.ok()?;
            }
            let all = tokio::time::timeout(Duration::from_secs(60), watchers.join_all()).await;
            let each: anyhow::Result<Vec<Vec<Duration>>> =
                all.context("not everything was delivered within a minute")?.into_iter().collect();
            let took = each?.concat();
            Ok(Deliveries { cpu: (cpu()? - before) / u32::try_from(took.len())?, took })
        })
    }
}
