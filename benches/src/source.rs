//! A minimal API server that can only list and watch Pods, as fast as a socket accepts the bytes.
//!
//! It answers as kube-apiserver's watch cache does. A list at `resourceVersion=0` is complete and
//! ignores `limit`; any other list is paged on request. `sendInitialEvents` gives a list as a
//! stream with the marked bookmark at its end; `GET /bench/expire` ends the watches that are open,
//! so that their clients list again. A watch is silent until events are requested (`GET
//! /bench/events`), which are then sent as fast as the client reads them. Every client gets the
//! same bytes, over HTTP/1.1 without TLS and without compression. They are generated in advance
//! (above [`PRERENDERED_MAX`] Pods, while they are sent), so the source uses little of the machine
//! that is measured.

use crate::pods::{LIST_VERSION, Pods, metadata_of};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Up to this many Pods are stored as bytes (0.9 GiB); more are generated for each list.
const PRERENDERED_MAX: u64 = 200_000;

/// Size of a chunk of a list in bytes.
const CHUNK: usize = 64 << 10;

/// The event that ends a watch whose version is too old.
const EXPIRED: &[u8] = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}
"#;

/// Options.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of Pods.
    #[arg(long, default_value_t = 50_000)]
    objects: u64,
    /// Number of MODIFIED events after the list.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// The seed of all bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The port on the loopback address; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// The concatenated bytes of many items.
#[derive(Default)]
struct Series {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Series {
    fn close(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn get(&self, n: usize) -> &[u8] {
        let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[n]]
    }
}

struct Source {
    pods: Pods,
    order: Vec<u32>,
    n_events: u64,
    items: Option<Series>,
    /// Complete chunks of a response, with one event each.
    events: Series,
    gate: Mutex<Gate>,
    moved: Condvar,
}

/// Whether events are sent. Each client has an epoch; watches of earlier epochs end.
#[derive(Clone, Copy, Default, PartialEq)]
struct Gate {
    epoch: u64,
    is_open: bool,
    /// Watches that began before are told that their version is too old.
    has_expired: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let pods = Pods::new(args.seed, args.objects);
    let order = pods.sorted();
    let items = (args.objects <= PRERENDERED_MAX).then(|| {
        let mut items = Series::default();
        for &index in &order {
            pods.write(index.into(), None, &mut items.bytes);
            items.close();
        }
        items
    });
    let mut events = Series::default();
    let mut item = Vec::new();
    for event in 0..args.events {
        item.clear();
        pods.write(pods.changed_by(event), Some((event, LIST_VERSION + 1 + event)), &mut item);
        chunk(&mut events.bytes, |out| frame("MODIFIED", &item, false, out));
        events.close();
    }
    let listener = TcpListener::bind(("127.0.0.1", args.port))?;
    println!("http://{}", listener.local_addr()?);
    let source = Arc::new(Source {
        pods,
        order,
        n_events: args.events,
        items,
        events,
        gate: Mutex::default(),
        moved: Condvar::new(),
    });
    for stream in listener.incoming() {
        let (source, stream) = (source.clone(), stream?);
        std::thread::spawn(move || {
            stream.set_nodelay(true)?;
            source.serve(stream)
        });
    }
    Ok(())
}

/// Writes one chunk of a chunked body.
fn chunk(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // The length in eight digits, filled in afterwards.
    out.extend_from_slice(b"00000000\r\n");
    fill(out);
    let length = format!("{:08x}", out.len() - start - 10);
    out[start..start + 8].copy_from_slice(length.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes one event of a watch.
fn frame(verb: &str, item: &[u8], metadata_only: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(verb.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    typed(item, metadata_only, out);
    out.extend_from_slice(b"}\n");
}

/// Writes an item preceded by its type.
fn typed(item: &[u8], metadata_only: bool, out: &mut Vec<u8>) {
    if metadata_only {
        out.extend_from_slice(
            b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":",
        );
        out.extend_from_slice(metadata_of(item));
        out.push(b'}');
    } else {
        out.extend_from_slice(b"{\"kind\":\"Pod\",\"apiVersion\":\"v1\",");
        out.extend_from_slice(&item[1..]);
    }
}

/// A client's request.
#[derive(Default)]
struct Request {
    path: String,
    query: Vec<(String, String)>,
    metadata_only: bool,
}

impl Request {
    /// The next request of a connection; `None` at its end.
    fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Self>> {
        let mut request = Self::default();
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let target = line.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        request.path = path.to_owned();
        request.query = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 || line.trim_end().is_empty() {
                return Ok(Some(request));
            }
            let header = line.to_ascii_lowercase();
            request.metadata_only |=
                header.starts_with("accept:") && header.contains("as=partialobjectmetadata");
        }
    }

    fn get(&self, name: &str) -> &str {
        self.query.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).parse().ok()
    }
}

impl Source {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        while let Some(request) = Request::read(&mut reader)? {
            match &*request.path {
                "/api/v1/pods" if matches!(request.get("watch"), "true" | "1") => {
                    return self.watch(&request, stream);
                }
                "/api/v1/pods" => self.list(&request, &mut stream)?,
                "/bench/start" => {
                    let mut gate = self.gate();
                    *gate = Gate { epoch: gate.epoch + 1, ..Gate::default() };
                    drop(gate);
                    self.moved.notify_all();
                    answer(&mut stream, "200 OK", &self.facts())?;
                }
                "/bench/expire" => {
                    self.gate().has_expired = true;
                    self.moved.notify_all();
                    answer(&mut stream, "200 OK", "{}")?;
                }
                "/bench/events" => {
                    self.gate().is_open = true;
                    self.moved.notify_all();
                    answer(&mut stream, "200 OK", "{}")?;
                }
                _ => answer(
                    &mut stream,
                    "404 Not Found",
                    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#,
                )?,
            }
        }
        Ok(())
    }

    /// A description of the data, so that clients know when they are done.
    fn facts(&self) -> String {
        format!(
            r#"{{"n_objects":{},"n_events":{},"last_version":{},"items_bytes":{}}}"#,
            self.pods.n_objects,
            self.n_events,
            LIST_VERSION + self.n_events,
            self.items.as_ref().map_or(0, |items| items.bytes.len()),
        )
    }

    /// Calls `each` with a range of items in order, until it returns false.
    fn items(
        &self,
        places: std::ops::Range<usize>,
        mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut made = Vec::new();
        for place in places {
            match &self.items {
                Some(items) => each(items.get(place))?,
                None => {
                    made.clear();
                    self.pods.write(self.order[place].into(), None, &mut made);
                    each(&made)?;
                }
            }
        }
        Ok(())
    }

    fn list(&self, request: &Request, stream: &mut TcpStream) -> std::io::Result<()> {
        let start = request.number("continue").unwrap_or(0) as usize;
        let any_state = request.get("resourceVersion") == "0" && start == 0;
        let n_objects = self.order.len();
        let end = match request.number("limit") {
            Some(limit) if limit > 0 && !any_state => n_objects.min(start + limit as usize),
            _ => n_objects,
        };
        let (kind, version) = match request.metadata_only {
            true => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            false => ("PodList", "v1"),
        };
        let mut metadata = format!(r#"{{"resourceVersion":"{LIST_VERSION}""#);
        if end < n_objects {
            metadata += &format!(r#","continue":"{end}","remainingItemCount":{}"#, n_objects - end);
        }
        let head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata}}},"items":["#
        );
        let mut body = Body::begin(stream)?;
        body.pending.extend_from_slice(head.as_bytes());
        self.items(start.min(end)..end, |item| {
            if request.metadata_only {
                typed(item, true, &mut body.pending);
            } else {
                body.pending.extend_from_slice(item);
            }
            body.pending.push(b',');
            if body.pending.len() > CHUNK { body.send() } else { Ok(()) }
        })?;
        if end > start {
            // Replaces the last comma.
            body.end(b"]}\n")
        } else {
            body.pending.extend_from_slice(b"]}\n");
            body.finish()
        }
    }

    fn watch(&self, request: &Request, mut stream: TcpStream) -> std::io::Result<()> {
        let mut gate = *self.gate();
        let mut body = Body::begin(&mut stream)?;
        if request.get("sendInitialEvents") == "true" {
            self.items(0..self.order.len(), |item| {
                chunk(&mut body.ready, |out| frame("ADDED", item, request.metadata_only, out));
                if body.ready.len() > CHUNK { body.flush() } else { Ok(()) }
            })?;
            let (kind, rest) = match request.metadata_only {
                true => (r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1""#, ""),
                false => (
                    r#""kind":"Pod","apiVersion":"v1""#,
                    r#","spec":{"containers":null},"status":{}"#,
                ),
            };
            let bookmark = format!(
                r#"{{"type":"BOOKMARK","object":{{{kind},"metadata":{{"resourceVersion":"{}","annotations":{{"k8s.io/initial-events-end":"true"}}}}{rest}}}}}"#,
                // So that a client sees when it has listed again.
                LIST_VERSION - u64::from(!gate.has_expired),
            );
            chunk(&mut body.ready, |out| {
                out.extend_from_slice(bookmark.as_bytes());
                out.push(b'\n');
            });
            body.flush()?;
        }
        let (epoch, had_expired) = (gate.epoch, gate.has_expired);
        {
            let mut now = self.gate();
            while now.epoch == epoch && !now.is_open && now.has_expired == gate.has_expired {
                now = self.moved.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
            gate = *now;
        }
        if gate.epoch != epoch {
            return Ok(());
        }
        if gate.has_expired != had_expired {
            body.pending.extend_from_slice(EXPIRED);
            return body.finish();
        }
        let after = request.number("resourceVersion").unwrap_or(0);
        let first = after.saturating_sub(LIST_VERSION).min(self.n_events) as usize;
        if request.metadata_only {
            for event in first..self.n_events as usize {
                let object = self.changed(event);
                chunk(&mut body.ready, |out| frame("MODIFIED", &object, true, out));
                if body.ready.len() > CHUNK {
                    body.flush()?;
                }
            }
            body.flush()?;
        } else if first < self.n_events as usize {
            let start = first.checked_sub(1).map_or(0, |before| self.events.ends[before]);
            body.stream.write_all(&self.events.bytes[start..])?;
        }
        // Open until the next client starts.
        let mut now = self.gate();
        while now.epoch == epoch {
            now = self.moved.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn changed(&self, event: usize) -> Vec<u8> {
        let mut item = Vec::new();
        let event = event as u64;
        let changed = Some((event, LIST_VERSION + 1 + event));
        self.pods.write(self.pods.changed_by(event), changed, &mut item);
        item
    }
}

/// A chunked response body.
struct Body<'a> {
    stream: &'a mut TcpStream,
    /// Bytes that do not form a chunk yet.
    pending: Vec<u8>,
    /// Complete chunks.
    ready: Vec<u8>,
}

impl<'a> Body<'a> {
    fn begin(stream: &'a mut TcpStream) -> std::io::Result<Self> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        Ok(Self { stream, pending: Vec::new(), ready: Vec::new() })
    }

    /// Sends the pending bytes except the last, which may have to be removed.
    fn send(&mut self) -> std::io::Result<()> {
        let Some(last) = self.pending.pop() else { return Ok(()) };
        chunk(&mut self.ready, |out| out.extend_from_slice(&self.pending));
        self.pending.clear();
        self.pending.push(last);
        self.flush()
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.write_all(&self.ready)?;
        self.ready.clear();
        Ok(())
    }

    /// Ends the body with `tail` in place of the last byte.
    fn end(mut self, tail: &[u8]) -> std::io::Result<()> {
        self.pending.pop();
        self.pending.extend_from_slice(tail);
        self.finish()
    }

    fn finish(mut self) -> std::io::Result<()> {
        chunk(&mut self.ready, |out| out.extend_from_slice(&self.pending));
        self.ready.extend_from_slice(b"0\r\n\r\n");
        self.flush()
    }
}

fn answer(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
