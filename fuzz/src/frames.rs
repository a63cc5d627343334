//! The frames of a watch.
use crate::pieces;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde_json::Value;
use setpoint_informer::source::{SourceError, WatchFrame, frames};
use std::convert::Infallible;

/// The frames of a stream do not depend on chunk boundaries, agree with `serde_json` on each line,
/// and both ways of reading a line agree.
pub fn check(input: &[u8]) {
    let (pieces, whole) = pieces(input);
    let (got, is_broken) = cut(pieces);
    let (expected, is_whole_broken) = cut(vec![whole.clone()]);
    assert_eq!((&got, is_broken), (&expected, is_whole_broken));

    let mut lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    for (frame, line) in got.iter().zip(&mut lines) {
        check_line(frame, line);
    }
    for line in whole.split(|byte| *byte == b'\n') {
        check_ways(&Bytes::copy_from_slice(line));
    }
}

fn cut(chunks: Vec<Bytes>) -> (Vec<WatchFrame>, bool) {
    let chunks = stream::iter(chunks).map(Ok::<_, Infallible>);
    let results: Vec<_> = frames(chunks).collect().now_or_never().unwrap();
    let n_results = results.len();
    let frames: Vec<WatchFrame> = results.into_iter().map_while(Result::ok).collect();
    let is_broken = frames.len() < n_results;
    assert!(frames.len() + usize::from(is_broken) == n_results, "something came after an error");
    (frames, is_broken)
}

fn parts(frame: &WatchFrame) -> Option<(&str, &Bytes)> {
    Some(match frame {
        WatchFrame::Added(object) => ("ADDED", object),
        WatchFrame::Modified(object) => ("MODIFIED", object),
        WatchFrame::Deleted(object) => ("DELETED", object),
        WatchFrame::Bookmark(object) => ("BOOKMARK", object),
        WatchFrame::Unknown { verb, object } => (verb, object),
        _ => return None,
    })
}

fn check_line(frame: &WatchFrame, line: &[u8]) {
    // Not every accepted line is valid JSON in all scalars, but valid JSON is read as such.
    let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
    let Some((verb, object)) = parts(frame) else {
        assert_eq!(line["type"], "ERROR");
        return;
    };
    assert_eq!(line["type"], verb);
    assert_eq!(serde_json::from_slice::<Value>(object).unwrap(), line["object"]);
}

fn check_ways(line: &Bytes) {
    let checked = WatchFrame::parse(line);
    let unchecked = WatchFrame::parse_unchecked(line).and_then(|frame| {
        let Some((verb, object)) = parts(&frame) else { return Ok(None) };
        if object.first() != Some(&b'{') {
            return Ok(None);
        }
        Ok(Some((verb.to_owned(), WatchFrame::checked(object.clone())?.0)))
    });
    match (checked, unchecked) {
        (Ok(frame), Ok(Some((verb, object)))) => {
            assert_eq!(parts(&frame), Some((&*verb, &object)));
        }
        (Ok(_), Err(SourceError::Protocol { what })) => panic!("refused: {what}"),
        (Err(_), Ok(Some(_))) => {
            assert!(serde_json::from_slice::<serde_json::Map<String, Value>>(line).is_err());
        }
        _ => {}
    }
}
