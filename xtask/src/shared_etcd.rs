//! `cargo xtask shared-etcd`: Kubernetes' own kube-apiserver and `setpoint up` on one etcd. Writes
//! what differs in `docs/shared-etcd.md`.
//!
//! One server creates an object, the other reads it; then both change it in turn, and one deletes
//! what the other has given a finalizer. Then the same with the servers exchanged. After each step
//! both must answer the same bytes, in JSON and in protobuf, and watches of both must have seen the
//! same. What each has written is read from the etcd itself. At last both allocate addresses and
//! node ports at the same time, and publish themselves.

mod object;
mod page;
mod shared;
mod subject;

use crate::http::{Address, Answer, Connection};
use crate::servers::{Layout, Programs};
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use subject::Subject;

/// How often something is looked at that the servers do in the background.
const PATIENCE_ROUNDS: usize = 200;
/// The time between two looks.
const ROUND: Duration = Duration::from_millis(50);
/// The namespace of the objects.
const NAMESPACE: &str = "fixtures";

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// Only objects of this kind; leaves the page alone.
    #[arg(long)]
    kind: Option<String>,
}

/// The two servers, by their names on the page.
const NAMES: [&str; 2] = ["kube-apiserver", "setpoint"];

/// Connections to both servers, in the order of [`NAMES`], and to the etcd.
struct Clients {
    servers: [Connection; 2],
    etcd: Connection,
    addresses: [Address; 2],
}

impl Clients {
    /// Reads or writes JSON at a server.
    fn json(
        &mut self,
        server: usize,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<(u16, Value)> {
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.servers[server].send(method, path, bytes.as_bytes())?;
        let value = serde_json::from_slice(&answer.body).unwrap_or_default();
        Ok((answer.code, value))
    }

    /// Removes a key that stays, so that it is not in the way.
    fn etcd_delete(&mut self, key: &str) -> Result<()> {
        if !key.is_empty() {
            let body = json!({"key": STANDARD.encode(key)}).to_string();
            self.etcd.send("POST", "/v3/kv/deleterange", body.as_bytes())?;
        }
        Ok(())
    }

    /// Keys and values of the etcd in a range of keys, with more members of the request.
    fn range(&mut self, from: &str, to: &str, more: &Value) -> Result<Vec<(String, Vec<u8>)>> {
        let mut request = more.clone();
        request["key"] = STANDARD.encode(from).into();
        request["range_end"] = STANDARD.encode(to).into();
        let body = request.to_string();
        let answer = self.etcd.send("POST", "/v3/kv/range", body.as_bytes())?;
        let answer: Value = serde_json::from_slice(&answer.body).context("an answer of etcd")?;
        let bytes = |pair: &Value, member: &str| {
            STANDARD.decode(pair[member].as_str().unwrap_or_default()).context("base64 of etcd")
        };
        let pairs = answer["kvs"].as_array().into_iter().flatten();
        pairs
            .map(|pair| {
                let key = String::from_utf8(bytes(pair, "key")?)?;
                Ok((key, bytes(pair, "value")?))
            })
            .collect()
    }
}

/// What an answer that is no success says.
fn text(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let message = body["message"].as_str().map(str::to_owned);
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(&answer.body).into_owned());
    format!("{} {message}", answer.code)
}

/// Looks until something is there. `None`: it did not come.
fn eventually<T>(mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    for _ in 0..PATIENCE_ROUNDS {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        pause(ROUND);
    }
    Ok(None)
}

#[expect(clippy::disallowed_methods, reason = "other processes are waited for")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("shared-etcd", Layout::Shared)?;
    let addresses = [servers.original.clone(), servers.ours.clone()];
    let mut clients = Clients {
        servers: [Connection::new(&addresses[0]), Connection::new(&addresses[1])],
        etcd: Connection::new(&servers.etcd),
        addresses,
    };
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    clients.json(0, "POST", "/api/v1/namespaces", &namespace)?;
    let mut rows = Vec::new();
    let subjects = subject::subjects(args.kind.as_deref())?;
    subject::define(&mut clients, &subjects)?;
    for subject in &subjects {
        let row = object::compare(&mut clients, subject)?;
        for problem in &row.problems {
            println!("{}: {problem}", row.title);
        }
        rows.push(row);
    }
    let facts = match args.kind {
        Some(_) => Vec::new(),
        None => shared::compare(&mut clients)?,
    };
    for fact in &facts {
        println!("{}: {}", fact.what, fact.problem.as_deref().unwrap_or("ok"));
    }
    let differing = rows.iter().filter(|row| !row.problems.is_empty()).count();
    println!("{} objects, {differing} differ", rows.len());
    if args.kind.is_none() && args.programs.is_default() {
        let missing = subject::missing(&subjects);
        page::write(&rows, &facts, &missing, &args.programs.version()?)?;
    }
    Ok(())
}
