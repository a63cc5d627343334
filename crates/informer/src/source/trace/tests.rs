use super::line::{Failure, Line, TraceEvent, header};
use super::*;
use crate::source::fault::{Fault, FaultPlan, FaultSource};
use crate::source::scripted::{Answer, Script, Step};
use crate::source::{
    ListPage, ListPart, ListRequest, ListWatch, SourceError, WatchFrame, WatchRequest,
};
use bytes::Bytes;
use futures::StreamExt;
use proptest::prelude::*;
use setpoint_object::ApiError;
use std::time::Duration;
use tokio::time::Instant;

fn object(name: &str) -> Bytes {
    Bytes::from(format!("{{\"metadata\":{{\"name\":\"{name}\"}},\n\"data\":{{\"a\":\"\\n\"}}}}"))
}

fn script() -> Script {
    let page = ListPage::new("7", vec![object("a"), object("b")]).continued("t");
    Script::new([
        Answer::List(Ok(page)),
        Answer::List(Err(ApiError::expired("too old").into())),
        Answer::Refuse(SourceError::Refused("nobody".into())),
        Answer::Watch(vec![
            Step::Frame(WatchFrame::Added(object("c"))),
            Step::Wait(Duration::from_millis(1500)),
            Step::Frame(WatchFrame::Unknown { verb: "ODD".to_owned(), object: object("d") }),
            Step::Frame(WatchFrame::Error(ApiError::expired("gone"))),
        ]),
        Answer::Watch(vec![Step::Break(SourceError::Transport("reset".into()))]),
    ])
}

/// Requests everything that the script has, and returns the answers with their times.
async fn ask(source: &dyn ListWatch) -> Vec<(Duration, String)> {
    let began = Instant::now();
    let mut seen = Vec::new();
    let mut see = |what: String| seen.push((began.elapsed(), what));
    let request = ListRequest { limit: Some(2), ..ListRequest::default() };
    for _ in 0..2 {
        match source.list_in_parts(request.clone()).await {
            Ok(mut parts) => {
                while let Some(part) = parts.next().await {
                    match part.unwrap() {
                        ListPart::Items(items) => {
                            for item in items {
                                // Line ends between values are not preserved.
                                see(String::from_utf8(item.bytes.to_vec())
                                    .unwrap()
                                    .replace('\n', " "));
                            }
                        }
                        ListPart::End(head) => see(format!("{head:?}")),
                    }
                }
            }
            Err(error) => see(format!("{:?} {error}", error.code())),
        }
    }
    for _ in 0..3 {
        match source.watch(WatchRequest::default()).await {
            Ok(mut frames) => {
                while let Some(frame) = frames.next().await {
                    see(format!("{frame:?}").replace("\\n\\\"data", " \\\"data"));
                }
            }
            Err(error) => see(format!("{error:?}")),
        }
    }
    seen
}

async fn record() -> (Vec<u8>, Vec<(Duration, String)>) {
    let (recorder, worker) = Recorder::new(script());
    let mut trace = Vec::new();
    let asking = async move { ask(&recorder).await };
    let (written, seen) = tokio::join!(worker.run(&mut trace), asking);
    written.unwrap();
    (trace, seen)
}

#[tokio::test(start_paused = true)]
async fn trace_replays_the_recorded_answers_at_any_speed() {
    let (trace, seen) = record().await;
    assert_eq!(ask(&script()).await, seen, "a recorder does not change the answers");
    for (speed, factor) in
        [(Speed::AsRecorded, 1.0), (Speed::Times(3.0), 1.0 / 3.0), (Speed::Immediate, 0.0)]
    {
        let source = TraceSource::read(&trace[..], speed).await.unwrap();
        let played = ask(&source).await;
        assert_eq!(played.len(), seen.len());
        for ((at, what), (then, event)) in played.iter().zip(&seen) {
            assert_eq!(what, event);
            let due = then.mul_f64(factor);
            assert!(at.abs_diff(due) <= Duration::from_millis(5), "{at:?} for {due:?}: {what}");
        }
        assert_eq!(source.n_left(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn trace_has_one_json_object_per_line_and_a_version() {
    let (trace, _) = record().await;
    let text = String::from_utf8(trace).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"trace": "setpoint-list-watch", "version": 1}));
    assert_eq!(lines[1]["what"], "list");
    assert_eq!(lines.last().unwrap()["lines"], lines.len() - 1);
}

#[tokio::test(start_paused = true)]
async fn error_of_a_truncated_trace_names_its_last_line() {
    let (trace, _) = record().await;
    for end in 0..trace.len() {
        let cut = &trace[..end];
        let n_lines = cut.iter().filter(|byte| **byte == b'\n').count() as u64;
        match TraceSource::read(cut, Speed::Immediate).await {
            Err(TraceError::Truncated { line }) => assert_eq!(line, n_lines),
            other => panic!("cut at {end}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_line_is_named() {
    let (trace, _) = record().await;
    let lines: Vec<&[u8]> = trace.split_inclusive(|byte| *byte == b'\n').collect();
    for at in 0..lines.len() {
        let mut damaged = lines.clone();
        damaged[at] = b"{\"at\":0,\"what\":\"list\n";
        let error = TraceSource::read(&damaged.concat()[..], Speed::Immediate).await.unwrap_err();
        assert!(
            matches!(&error, TraceError::Damaged { line, .. } if *line == at as u64 + 1),
            "{error}"
        );
        // A missing or repeated line is detected at the end at the latest.
        for n_times in [0, 2] {
            let mut lines = lines.clone();
            let again = lines[at].repeat(n_times);
            lines[at] = &again;
            let error = TraceSource::read(&lines.concat()[..], Speed::Immediate).await.unwrap_err();
            assert!(
                matches!(error, TraceError::Damaged { .. } | TraceError::Truncated { .. }),
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_versions_and_too_long_lines_are_rejected() {
    let text = b"{\"trace\":\"setpoint-list-watch\",\"version\":2}\n";
    let error = TraceSource::read(&text[..], Speed::Immediate).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1 of the trace is damaged: version 2 is not supported, only 1"
    );
    let endless = tokio::io::BufReader::new(tokio::io::repeat(b'x'));
    let error = TraceSource::read(endless, Speed::Immediate).await.unwrap_err();
    assert!(matches!(error, TraceError::TooLarge { line: 1, .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_fails_ends_the_recording_and_not_the_source() {
    let (recorder, worker) = Recorder::new(script());
    let (mut writer, reader) = tokio::io::duplex(16);
    drop(reader);
    let (written, seen) = tokio::join!(worker.run(&mut writer), ask(&recorder));
    assert!(written.is_err());
    assert_eq!(seen.len(), ask(&script()).await.len());
}

#[tokio::test(start_paused = true)]
async fn faults_are_the_same_for_the_same_seed_and_end_with_calm() {
    let plan = |seed| FaultPlan::everything(seed, 0.3);
    let pages = |n| (0..n).map(|_| Answer::List(Ok(ListPage::new("7", vec![object("a")]))));
    let run = async |seed| {
        let source = FaultSource::new(Script::new(pages(50)), plan(seed));
        for _ in 0..40 {
            let _ = source.list(ListRequest::default()).await;
        }
        source.happened()
    };
    let first = run(1).await;
    assert_eq!(run(1).await, first);
    assert_ne!(run(2).await, first);
    assert!(first.contains(&Fault::TruncateList) && first.contains(&Fault::Refuse), "{first:?}");

    let source = FaultSource::new(Script::new(pages(50)), plan(1).faults_max(3));
    for _ in 0..40 {
        let _ = source.list(ListRequest::default()).await;
    }
    assert_eq!(source.happened().len(), 3);

    let source = FaultSource::new(Script::new(pages(2)), FaultPlan::none());
    source.inject(Fault::TooManyRequests);
    let error = source.list(ListRequest::default()).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Some(429), Some(Duration::from_secs(1))));
    source.inject(Fault::Refuse);
    source.calm();
    assert!(source.list(ListRequest::default()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn each_frame_fault_has_its_documented_effect() {
    let marker = Bytes::from_static(
        br#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
    );
    let bookmark = Bytes::from_static(br#"{"metadata":{"resourceVersion":"9"}}"#);
    let frames = [
        WatchFrame::Added(object("a")),
        WatchFrame::Bookmark(marker),
        WatchFrame::Bookmark(bookmark),
    ];
    for (fault, kept) in [
        (Fault::ExpireFrame, "410"),
        (Fault::Cut, "broken"),
        (Fault::Duplicate, "0 0 1 2"),
        (Fault::Delay, "0 1 2"),
        (Fault::DropBookmark, "0 1"),
        (Fault::HideEndMarker, "0 2"),
    ] {
        let steps = frames.iter().cloned().map(Step::Frame).collect();
        let source = FaultSource::new(Script::new([Answer::Watch(steps)]), FaultPlan::none());
        source.inject(fault);
        let began = Instant::now();
        let mut watch = source.watch(WatchRequest::default()).await.ok().unwrap();
        let mut seen = Vec::new();
        while let Some(frame) = watch.next().await {
            seen.push(match frame {
                Ok(WatchFrame::Error(error)) => error.code().to_string(),
                Ok(frame) => frames.iter().position(|known| *known == frame).unwrap().to_string(),
                Err(_) => "broken".to_owned(),
            });
        }
        assert_eq!(seen.join(" "), kept, "{fault:?}");
        assert_eq!(source.happened(), [fault]);
        assert_eq!(began.elapsed() > Duration::ZERO, fault == Fault::Delay, "{fault:?}");
    }
}

fn event() -> impl Strategy<Value = TraceEvent> {
    let text = "[a-z\"\\\\\n é]{0,12}";
    let json = prop_oneof![
        Just(Bytes::from_static(b"{}")),
        Just(object("p")),
        Just(Bytes::from_static(b"[1,2.50,\"\\u00e9\"]")),
    ];
    prop_oneof![
        (text, any::<bool>(), any::<Option<u32>>(), proptest::option::of(text)).prop_map(
            |(resource_version, exact, limit, continue_token)| TraceEvent::List(ListRequest {
                resource_version,
                exact,
                limit,
                continue_token
            })
        ),
        (text, 0..u64::from(u32::MAX), any::<bool>()).prop_map(|(version, seconds, initial)| {
            TraceEvent::Watch(WatchRequest {
                resource_version: version,
                timeout: Duration::from_secs(seconds),
                send_initial_events: initial,
            })
        }),
        Just(TraceEvent::Opened),
        Just(TraceEvent::Closed),
        json.clone().prop_map(TraceEvent::Item),
        json.clone().prop_map(|object| TraceEvent::Frame(WatchFrame::Deleted(object))),
        json.prop_map(|object| TraceEvent::Frame(WatchFrame::Unknown {
            verb: "ODD".into(),
            object
        })),
        text.prop_map(|text| TraceEvent::Failed(Failure::Transport(text))),
        text.prop_map(|text| TraceEvent::Failed(Failure::Api(ApiError::bad_request(text)))),
        any::<u64>().prop_map(TraceEvent::Over),
    ]
}

proptest! {
    #[test]
    fn line_round_trips(micros in any::<u64>(), request in any::<u64>(), event in event()) {
        let request = if matches!(event, TraceEvent::Over(_)) { 0 } else { request };
        let line = Line { at: Duration::from_micros(micros), request, event };
        let text = line.write();
        prop_assert!(!text.contains(&b'\n'));
        let read = Line::parse(&text).unwrap();
        prop_assert_eq!(read.write(), text);
        if !format!("{line:?}").contains("\\n") {
            prop_assert_eq!(read, line);
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(lines in proptest::collection::vec("\\PC{0,80}", 0..6)) {
        let mut trace = header();
        for line in &lines {
            trace.push(b'\n');
            trace.extend_from_slice(line.as_bytes());
            let _ = Line::parse(line.as_bytes());
        }
        trace.push(b'\n');
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(TraceSource::read(&trace[..], Speed::Immediate));
        prop_assert!(read.is_err());
    }
}
