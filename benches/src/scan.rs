//! The cost of scanning one Pod's bytes, in several ways.
//!
//! Short runs are timed many times and the fastest counts, so that other load on the machine does
//! not.

use crate::pods::Pods;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde_json::value::RawValue;
use setpoint::informer::source::{ListSplitter, WatchFrame, frames};
use setpoint::object::{Head, Prune, Skim};
use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

const PODS: u64 = 2000;
/// Number of Pods scanned in one run.
const STRETCH_PODS: usize = 100;
/// Number of timings of each run.
const ROUNDS: usize = 60;
/// Size of a chunk, as connections deliver them, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// Prints microseconds per Pod.
pub(crate) fn measure() {
    let pods = Pods::new(1, PODS);
    let written = |change: &dyn Fn(u64) -> Option<(u64, u64)>| -> Vec<Bytes> {
        let pod = |index| {
            let mut bytes = Vec::new();
            pods.write(index, change(index), &mut bytes);
            Bytes::from(bytes)
        };
        (0..PODS).map(pod).collect()
    };
    let items = written(&|_| None);
    let objects = written(&|index| Some((index, 50_000_000 + index)));
    let n_bytes: usize = objects.iter().map(Bytes::len).sum();
    println!("{PODS} Pods of {} bytes", n_bytes / objects.len());

    each("just the bytes: is each below 128?", &objects, |pod| {
        black_box(pod.is_ascii());
    });
    each("Skim::of", &objects, |pod| {
        black_box(Skim::of(pod).is_ok());
    });
    each("Head::scan", &objects, |pod| {
        black_box(Head::scan(pod).is_ok());
    });
    let managed_fields = Prune::managed_fields();
    let mut out = Vec::with_capacity(1 << 16);
    each("Head::scan and a cut of managedFields", &objects, |pod| {
        let Ok(head) = Head::of(pod) else { return };
        black_box(managed_fields.cut(pod, &head, &mut out).is_ok());
    });
    if let Ok(more) = Prune::parse(["metadata.managedFields", "status.conditions"]) {
        each("Head::scan and a cut of managedFields and status.conditions", &objects, |pod| {
            let Ok(head) = Head::of(pod) else { return };
            black_box(more.cut(pod, &head, &mut out).is_ok());
        });
    }
    each("for comparison: serde_json's RawValue", &objects, |pod| {
        black_box(serde_json::from_slice::<&RawValue>(pod).is_ok());
    });

    let lists: Vec<Bytes> = items.chunks(STRETCH_PODS).map(list).collect();
    stretches("a list in pieces of 64 KiB, per item with its Head", &lists, |list| {
        let mut splitter = ListSplitter::default();
        for chunk in chunks(list) {
            splitter.feed(chunk);
            while let Ok(Some(item)) = splitter.next_item() {
                black_box(item);
            }
        }
        assert!(splitter.finish().is_ok(), "a list");
    });
    let watches: Vec<Bytes> = objects.chunks(STRETCH_PODS).map(watch).collect();
    stretches("a watch in pieces of 64 KiB, per frame", &watches, |watch| {
        let frames = frames(stream::iter(chunks(watch)).map(Ok::<_, Infallible>));
        black_box(frames.count().now_or_never());
    });
    let lines: Vec<Vec<Bytes>> = watches.iter().map(lines).collect();
    stretches("WatchFrame::parse, per line", &lines, |lines| {
        lines.iter().for_each(|line| drop(black_box(WatchFrame::parse(line))));
    });
    stretches("WatchFrame::parse_unchecked, per line", &lines, |lines| {
        lines.iter().for_each(|line| drop(black_box(WatchFrame::parse_unchecked(line))));
    });
}

fn lines(watch: &Bytes) -> Vec<Bytes> {
    let lines = watch.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| watch.slice_ref(line)).collect()
}
fn list(items: &[Bytes]) -> Bytes {
    let head =
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":["#;
    [head.as_bytes(), &items.join(&b","[..]), b"]}\n"].concat().into()
}
fn watch(objects: &[Bytes]) -> Bytes {
    let line = |pod: &Bytes| [br#"{"type":"MODIFIED","object":"#, &pod[..], b"}\n"].concat();
    objects.iter().flat_map(line).collect()
}
fn chunks(text: &Bytes) -> impl Iterator<Item = Bytes> + Send + 'static {
    let mut rest = text.clone();
    std::iter::from_fn(move || {
        (!rest.is_empty()).then(|| rest.split_to(rest.len().min(CHUNK_BYTES)))
    })
}

fn each(what: &str, pods: &[Bytes], mut look: impl FnMut(&Bytes)) {
    let stretches_of_pods: Vec<&[Bytes]> = pods.chunks(STRETCH_PODS).collect();
    stretches(what, &stretches_of_pods, |pods| pods.iter().for_each(|pod| look(black_box(pod))));
}
fn stretches<T>(what: &str, stretches: &[T], mut look: impl FnMut(&T)) {
    let mut fastest = f64::MAX;
    for _ in 0..ROUNDS {
        for stretch in stretches {
            let start = Instant::now();
            look(black_box(stretch));
            fastest = fastest.min(start.elapsed().as_secs_f64() / STRETCH_PODS as f64);
        }
    }
    println!("{:6.3} µs  {what}", fastest * 1e6);
}
