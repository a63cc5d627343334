//! The lower bound of every client: reads the bytes through the same HTTP client and finds the end
//! of each object. Stores nothing.
//!
//! A stream is split at newlines with `memchr`, which checks nothing else. A list is split as it
//! arrives with [`ValueEnd`], the fastest splitter available here, which must follow brackets and
//! strings.
use super::{Findings, Run};
use anyhow::{Context, ensure};
use http_body_util::BodyExt;
use kube_client::client::Body;
use setpoint::object::ValueEnd;

/// The bytes before a list's first item.
const ITEMS: &[u8] = b"\"items\":[";

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
        let n_items = items(&mut body).await?;
        run.sync_ends(n_items)?;
    }
    Ok(run.findings)
}

/// Reads until this number of newlines; each ends an object.
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

/// Reads a list to its end, and counts its items.
async fn items(body: &mut Body) -> anyhow::Result<u64> {
    let mut found = 0;
    let mut is_inside = false;
    let mut item: Option<ValueEnd> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(mut data) = frame.data_ref().map(|data| &data[..]) else { continue };
        if !is_inside {
            // The source's first chunk is longer than this.
            let at = memchr::memmem::find(data, ITEMS).context("no items")?;
            data = &data[at + ITEMS.len()..];
            is_inside = true;
        }
        while let Some(first) = data.first() {
            match &mut item {
                Some(end) => match end.feed(data)? {
                    Some(length) => {
                        found += 1;
                        item = None;
                        data = &data[length..];
                    }
                    None => break,
                },
                None if *first == b'{' => item = Some(ValueEnd::default()),
                None => data = &data[1..],
            }
        }
    }
    Ok(found)
}
