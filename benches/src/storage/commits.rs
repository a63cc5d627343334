//! Durable commits per second: this project's store, the engine below it, the disk.

use super::median;
use super::payload::Settings;
use crate::table::Table;
use anyhow::Context as _;
use bytes::Bytes;
use redb::{Database, TableDefinition};
use setpoint_store::{Compare, DiskOptions, DiskStore, Op, Store as _, Txn};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Duration of one turn.
const TURN: Duration = Duration::from_millis(800);
/// Number of turns of each.
const ROUNDS: usize = 3;
/// Goal for the share of the engine's rate.
const GOAL: f64 = 0.7;

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// The engine with full batches: this number of rows per transaction, on one thread, without a
/// queue.
fn full_batches(folder: &Path, n_writers: usize, n_bytes: usize) -> anyhow::Result<f64> {
    let database = Database::create(folder.join("engine.redb"))?;
    let value = Settings::new(1).config_map("cm", n_bytes);
    let (started, mut n) = (Instant::now(), 0_u64);
    while started.elapsed() < TURN {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(redb::Durability::Immediate)?;
        {
            let mut table = transaction.open_table(ROWS)?;
            for writer in 0..n_writers {
                let key = key(writer, n / n_writers as u64);
                table.insert(key.as_bytes(), value.as_bytes())?;
                n += 1;
            }
        }
        transaction.commit()?;
    }
    Ok(n as f64 / started.elapsed().as_secs_f64())
}

/// A row, and the sender to notify when it is durable.
type Request = (String, Bytes, oneshot::Sender<()>);

/// The engine behind a queue: a thread writes all waiting rows in one transaction, and answers.
fn engine(folder: &Path, n_writers: usize, n_bytes: usize) -> anyhow::Result<f64> {
    let database = Database::create(folder.join("engine.redb"))?;
    let (requests, mut receiver) = mpsc::channel::<Request>(4096);
    let writer = std::thread::spawn(move || {
        while let Some(first) = receiver.blocking_recv() {
            let mut batch = vec![first];
            while let Ok(next) = receiver.try_recv() {
                batch.push(next);
            }
            let mut transaction = database.begin_write()?;
            transaction.set_durability(redb::Durability::Immediate)?;
            {
                let mut table = transaction.open_table(ROWS)?;
                for (key, value, _) in &batch {
                    table.insert(key.as_bytes(), &value[..])?;
                }
            }
            transaction.commit()?;
            for (_, _, answer) in batch {
                let _ = answer.send(());
            }
        }
        anyhow::Ok(())
    });
    let per_second = writers(n_writers, n_bytes, move |key, value| {
        let requests = requests.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            requests.send((key, value, answer)).await?;
            Ok(answered.await?)
        }
    });
    match writer.join() {
        Ok(ended) => ended?,
        Err(_) => anyhow::bail!("the engine's thread panicked"),
    }
    per_second
}

/// This project's store: each commit is a create that checks that the key is free, and has a
/// revision.
fn store(folder: &Path, n_writers: usize, n_bytes: usize) -> anyhow::Result<f64> {
    let store = DiskStore::open(folder, DiskOptions::default())?;
    writers(n_writers, n_bytes, move |key, value| {
        let store = store.clone();
        async move {
            let key = Bytes::from(key);
            let compares = vec![Compare::Absent(key.clone())];
            store.commit(Txn { compares, ops: vec![Op::Put(key, value)], ttl: None }).await?;
            Ok(())
        }
    })
}

/// Runs one task per writer, each with one write at a time.
fn writers<F: Future<Output = anyhow::Result<()>> + Send>(
    n_writers: usize,
    n_bytes: usize,
    write: impl Fn(String, Bytes) -> F + Clone + Send + 'static,
) -> anyhow::Result<f64> {
    // Two threads, as `setpoint up` uses here.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        let started = Instant::now();
        for writer in 0..n_writers {
            let write = write.clone();
            let value = Bytes::from(Settings::new(writer as u64 + 1).config_map("cm", n_bytes));
            tasks.spawn(async move {
                let mut n = 0_u64;
                while started.elapsed() < TURN {
                    write(key(writer, n), value.clone()).await?;
                    n += 1;
                }
                anyhow::Ok(n)
            });
        }
        drop(write);
        let mut n = 0;
        while let Some(ended) = tasks.join_next().await {
            n += ended??;
        }
        Ok(n as f64 / started.elapsed().as_secs_f64())
    })
}

fn key(writer: usize, n: u64) -> String {
    format!("/registry/configmaps/default/cm-{writer:02}-{n:08}")
}

/// Appends to a plain file, with a sync after each.
fn disk(folder: &Path, n_bytes: usize) -> anyhow::Result<f64> {
    let mut file = std::fs::File::create(folder.join("plain"))?;
    let value = Settings::new(1).config_map("cm", n_bytes);
    let (started, mut n) = (Instant::now(), 0_u64);
    while started.elapsed() < TURN {
        file.write_all(value.as_bytes())?;
        file.sync_data()?;
        n += 1;
    }
    Ok(n as f64 / started.elapsed().as_secs_f64())
}

fn in_turn(mut measure: impl FnMut(&Path) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir().context("a folder to write in")?;
    measure(folder.path())
}

pub(super) fn measure(table: &mut Table) -> anyhow::Result<()> {
    for n_bytes in [1024, 4096] {
        let size = if n_bytes == 1024 { "1 KiB" } else { "4 KiB" };
        let mut synced = Vec::new();
        for n_writers in [1, 16, 64] {
            let (mut ours, mut queued, mut full) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                synced.push(in_turn(|folder| disk(folder, n_bytes))?);
                queued.push(in_turn(|folder| engine(folder, n_writers, n_bytes))?);
                full.push(in_turn(|folder| full_batches(folder, n_writers, n_bytes))?);
                ours.push(in_turn(|folder| store(folder, n_writers, n_bytes))?);
            }
            let (ours, queued, full) = (median(ours), median(queued), median(full));
            let writers = if n_writers == 1 { "writer" } else { "writers" };
            let share = ours / queued;
            let figure = format!(
                "{ours:.0} a second = {:.0} % of redb's {queued:.0} (its batches always full: {full:.0})",
                share * 100.0,
            );
            let what = format!("durable commits, {n_writers} {writers} of {size}");
            eprintln!("{what}: {figure}");
            let goal = format!("≥ {:.0} % of the engine", GOAL * 100.0);
            table.judged(&what, figure, &goal, Some(share >= GOAL));
        }
        let figure = format!("{:.0} a second", median(synced));
        table.judged(&format!("append of {size} to a plain file and fdatasync"), figure, "–", None);
    }
    Ok(())
}
