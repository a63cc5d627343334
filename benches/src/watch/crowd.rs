//! A change that no watcher matches, with few watchers and with many.

use crate::table::{Table, short};
use anyhow::Context as _;
use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use setpoint::object::field_selector::FieldSelector;
use setpoint::object::label::Selector;
use setpoint::object::time::Clock;
use setpoint::prelude::CancellationToken;
use setpoint_registry::{Attributes, ListOptions, Registry, Target, Verb, WatchStream};
use setpoint_store::{MemoryStore, Op, Store as _, Txn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CROWDS: [usize; 2] = [1, 10_000];
/// Number of alternating measurements of each crowd.
const TURNS: usize = 40;
/// Number of changes in one turn, in addition to the last one.
const CHANGES: usize = 500;
/// Goal for the ratio of the larger to the smaller crowd.
const RATIO_GOAL: f64 = 1.1;

/// The watchers' selectors: as of kubelets, of controllers, and of a client that waits for one
/// object.
#[derive(Debug, Clone, Copy)]
enum By {
    Field,
    Label,
    Name,
}

/// A registry with watchers that no change concerns, and one that matches.
struct Plane {
    store: Arc<MemoryStore>,
    probe: WatchStream,
    n_woken: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

fn pod(name: &str, node: &str, payload: usize) -> Bytes {
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "nobody", "tier": node},
            "annotations": {"payload": "x".repeat(payload)}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}});
    pod.to_string().into()
}

impl Plane {
    async fn new(n_watchers: usize, by: By) -> anyhow::Result<Self> {
        let store = Arc::new(MemoryStore::default());
        let (registry, worker) = Registry::builder(store.clone(), Clock::wall()).seed(0).build();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { drop(worker.run(CancellationToken::new()).await) });
        registry.wait_ready().await;
        let watch = |fields: &str, labels: &str| {
            let (fields, labels) = (FieldSelector::parse(fields), Selector::parse(labels));
            let registry = registry.clone();
            async move {
                let resource = registry.catalog().get("", "v1", "pods").context("pods")?.clone();
                let request = Attributes::loopback(Verb::Watch, Target::new(resource, "", ""));
                let options =
                    ListOptions { fields: fields?, labels: labels?, ..ListOptions::default() };
                Ok::<_, anyhow::Error>(registry.watch(&request, &options).await?)
            }
        };
        let n_woken = Arc::new(AtomicU64::new(0));
        for n in 0..n_watchers {
            let mut stream = match by {
                By::Field => watch(&format!("spec.nodeName=node-{n}"), "").await?,
                By::Label => watch("", &format!("app=app-{n}")).await?,
                By::Name => watch(&format!("metadata.name=pod-{n}"), "").await?,
            };
            let n_woken = n_woken.clone();
            tasks.spawn(async move {
                while stream.next().await.is_some() {
                    n_woken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let probe = watch("metadata.name=probe", "").await?;
        Ok(Self { store, probe, n_woken, _tasks: tasks })
    }

    /// The time of one change, from the commit to the watch cache.
    async fn turn(&mut self) -> anyhow::Result<Duration> {
        let value = pod("other", "node-x", 700);
        let started = Instant::now();
        for n in 0..CHANGES {
            let key = Bytes::from(format!("/registry/pods/default/other-{}", n % 64));
            let ops = vec![Op::Put(key, value.clone())];
            self.store.commit(Txn { ops, ..Txn::default() }).await?;
            // The cache processes each separately, as it does when they arrive one by one.
            tokio::task::yield_now().await;
        }
        let ops = vec![Op::Put("/registry/pods/default/probe".into(), pod("probe", "node-x", 0))];
        self.store.commit(Txn { ops, ..Txn::default() }).await?;
        self.probe.next().await.context("the probe's watch ended")??;
        Ok(started.elapsed() / u32::try_from(CHANGES + 1)?)
    }
}

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    for (by, selector) in [(By::Field, "field"), (By::Label, "label"), (By::Name, "name")] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ([few, many], ratio) = runtime.block_on(compare(by))?;
        let what = format!(
            "a Pod's change that none of {} watchers by {selector} matches, commit to watch cache, against one that 1 does not match",
            CROWDS[1]
        );
        let figure = format!("{ratio:.2}×: {} against {}", short(many), short(few));
        let goal = format!("the same (≤ {RATIO_GOAL}×)");
        table.judged(&what, figure, &goal, Some(ratio <= RATIO_GOAL));
    }
    Ok(())
}

/// The medians of both crowds, and of their turns' ratios.
async fn compare(by: By) -> anyhow::Result<([Duration; 2], f64)> {
    let mut planes = Vec::new();
    for n_watchers in CROWDS {
        let mut plane = Plane::new(n_watchers, by).await?;
        for _ in 0..4 {
            plane.turn().await?;
        }
        planes.push(plane);
    }
    let (mut figures, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for turn in 0..TURNS {
        let mut pair = [Duration::ZERO; 2];
        // The crowds alternate in going first.
        for idx in [turn % 2, 1 - turn % 2] {
            pair[idx] = planes[idx].turn().await?;
            figures[idx].push(pair[idx]);
        }
        ratios.push(pair[1].as_secs_f64() / pair[0].as_secs_f64());
    }
    let n_woken: u64 = planes.iter().map(|plane| plane.n_woken.load(Ordering::Relaxed)).sum();
    anyhow::ensure!(n_woken == 0, "a watcher was woken by a change that does not concern it");
    ratios.sort_unstable_by(f64::total_cmp);
    let medians = figures.map(|mut figures| {
        figures.sort_unstable();
        figures[figures.len() / 2]
    });
    Ok((medians, ratios[ratios.len() / 2]))
}
