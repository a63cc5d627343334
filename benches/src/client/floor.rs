//! The floor under every client: reads the bytes through the same HTTP client and finds where each object ends. Keeps nothing.
//!
//! A list is collected whole and cut with `serde_json`'s `RawValue`; a stream is cut at its newlines with `memchr`.
use super::{Findings, Run};
use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use kube_client::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

pub(super) async fn run(mut run: Run) -> anyhow::Result<Findings> {
    run.sync_begins()?;
    let query = match run.args.stream {
        true => {
            "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        }
        false => "?resourceVersion=0",
    };
    let request = http::Request::get(format!("/api/v1/pods{query}")).body(Body::empty())?;
    let response = run.client.send(request).await?;
    ensure!(response.status().is_success(), "{}", response.status());
    let mut body = response.into_body();
    if run.args.stream {
        let n_objects = run.facts.n_objects;
        let n_lines = lines(&mut body, n_objects + 1).await?;
        run.sync_ends(n_lines - 1)?;
        if run.wants_events() {
            run.events_begin().await?;
            let n_events = lines(&mut body, run.facts.n_events).await?;
            run.events_end(n_events)?;
        }
    } else {
        let bytes = body.collect().await?.to_bytes();
        let list: List<'_> = serde_json::from_slice(&bytes)?;
        run.sync_ends(list.items.len() as u64)?;
    }
    Ok(run.findings)
}

/// Reads until so many newlines have passed; each ends an object.
async fn lines(body: &mut Body, wanted: u64) -> anyhow::Result<u64> {
    let mut found = 0;
    while found < wanted {
        let frame = body.frame().await.context("the stream ended")??;
        if let Some(data) = frame.data_ref() {
            found += memchr::memchr_iter(b'\n', data).count() as u64;
        }
    }
    Ok(found)
}
