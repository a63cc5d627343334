use super::*;
use futures::FutureExt;
use proptest::prelude::*;
use std::convert::Infallible;

fn cut(chunks: Vec<&'static [u8]>) -> Vec<Result<WatchFrame, SourceError>> {
    let chunks =
        stream::iter(chunks.into_iter().map(|c| Ok::<_, Infallible>(Bytes::from_static(c))));
    frames(chunks).collect().now_or_never().unwrap()
}

#[test]
fn frames_are_split_at_newlines_in_chunks_of_any_size() {
    let text: &'static [u8] =
        b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\"type\":\"DELETED\",\"object\":{}}\n";
    for at in 0..text.len() {
        let got: Vec<WatchFrame> =
            cut(vec![&text[..at], &text[at..]]).into_iter().map(Result::unwrap).collect();
        let want = [
            WatchFrame::Added(Bytes::from_static(b"{\"a\":1}")),
            WatchFrame::Deleted(Bytes::from_static(b"{}")),
        ];
        assert_eq!(got, want, "cut at {at}");
    }
}

#[test]
fn incomplete_last_frame_is_dropped() {
    assert!(cut(vec![b"{\"type\":\"ADD"]).is_empty());
}

#[test]
fn a_frame_that_is_not_json_ends_the_stream() {
    let got = cut(vec![b"nonsense\n{\"type\":\"ADDED\",\"object\":{}}\n"]);
    assert!(matches!(&got[..], [Err(SourceError::Protocol { .. })]), "{got:?}");
}

#[test]
fn frame_without_an_end_is_rejected_at_the_size_limit() {
    static CHUNK: [u8; 1 << 20] = [b'x'; 1 << 20];
    let got = cut(vec![&CHUNK[..]; 18]);
    assert!(matches!(&got[..], [Err(SourceError::TooLarge { .. })]), "{got:?}");
}

#[test]
fn ref_26_an_error_frame_carries_its_status() {
    let got = cut(vec![
        b"{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n",
    ]);
    let [Ok(WatchFrame::Error(error))] = &got[..] else { panic!("{got:?}") };
    assert_eq!((error.code(), error.0.message.as_str()), (410, "too old"));
}

fn parse(line: &[u8]) -> Result<WatchFrame, SourceError> {
    WatchFrame::parse(&Bytes::copy_from_slice(line))
}
/// The results of both parsers. The object of the second is checked afterwards.
fn both(line: &[u8]) -> [Option<WatchFrame>; 2] {
    let line = Bytes::copy_from_slice(line);
    let unchecked = WatchFrame::parse_unchecked(&line).and_then(|frame| {
        let check = |object| WatchFrame::checked(object).map(|(object, _)| object);
        Ok(match frame {
            WatchFrame::Added(object) => WatchFrame::Added(check(object)?),
            WatchFrame::Modified(object) => WatchFrame::Modified(check(object)?),
            WatchFrame::Deleted(object) => WatchFrame::Deleted(check(object)?),
            WatchFrame::Bookmark(object) => WatchFrame::Bookmark(check(object)?),
            WatchFrame::Unknown { verb, object } => {
                WatchFrame::Unknown { verb, object: check(object)? }
            }
            WatchFrame::Error(error) => WatchFrame::Error(error),
        })
    });
    [WatchFrame::parse(&line).ok(), unchecked.ok()]
}

#[test]
fn a_frame_is_read_in_any_order_and_spacing() {
    let object = Bytes::from_static(br#"{"a":"}"}"#);
    for line in [
        &br#"{"type":"ADDED","object":{"a":"}"}}"#[..],
        b"{\"type\":\"ADDED\",\"object\":{\"a\":\"}\"}} \r",
        br#" {"type":"ADDED","object":{"a":"}"}}"#,
        br#"{"type":"ADDED","object":{"a":"}"} }"#,
        br#"{ "type" : "ADDED" , "object" : {"a":"}"} }"#,
        br#"{"object":{"a":"}"},"type":"ADDED"}"#,
        br#"{"type":"\u0041DDED","object":{"a":"}"}}"#,
        br#"{"type":"ADDED","object":{"a":"}"},"more":{"x":[1]}}"#,
    ] {
        let want = Some(WatchFrame::Added(object.clone()));
        assert_eq!(both(line), [want.clone(), want], "{}", String::from_utf8_lossy(line));
    }
    let verb = "SOMETHINGVERYLONGINDEEDTHATNOBODYKNOWS";
    let line = format!(r#"{{"type":"{verb}","object":{{}}}}"#);
    let want = WatchFrame::Unknown { verb: verb.to_owned(), object: Bytes::from_static(b"{}") };
    assert_eq!(parse(line.as_bytes()).unwrap(), want);
}

#[test]
fn an_object_that_is_not_json_is_a_typed_error_and_not_swallowed() {
    for line in [
        &br#"{"type":"ADDED","object":{"a":[1}}"#[..],
        br#"{"type":"ADDED","object":{"a":1}"#,
        br#"{"type":"ADDED","object":{"a"}}"#,
        br#"{"type":"ADDED","object":}"#,
        br#"{"type":"ADDED","object":{}}}"#,
        br#"{"type":"ADDED","object":{},"object":{}}"#,
        br#"{"type":"ADDED","object":{},"type":"DELETED"}"#,
        br#"{"type":"ADDED","object":{}} {}"#,
        br#"{"type":"ADDED","object":{},}"#,
        br#"{"type":"ADDED"}"#,
        br#"{"type":"ADDED","object":"#,
        b"{\"type\":\"ADDED\",\"object\":{\"a\":\"\xc3\"}}",
    ] {
        assert_eq!(both(line), [None, None], "{}", String::from_utf8_lossy(line));
        assert!(matches!(parse(line), Err(SourceError::Protocol { .. })));
    }
}

#[test]
fn frames_of_one_chunk_are_slices_of_it() {
    let text = Bytes::from_static(
        b"{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"MODIFIED\",\"object\":{}}\n",
    );
    let chunks = stream::iter([Ok::<_, Infallible>(text.clone())]);
    let got: Vec<_> = frames(chunks).collect().now_or_never().unwrap();
    let [Ok(WatchFrame::Added(a)), Ok(WatchFrame::Modified(b))] = &got[..] else {
        panic!("{got:?}")
    };
    for object in [a, b] {
        assert!(text.as_ptr_range().contains(&object.as_ptr()));
    }
}

#[test]
fn a_million_lines_are_a_million_frames() {
    let line = br#"{"type":"MODIFIED","object":{}}"#;
    let mut lines = line.to_vec();
    lines.push(b'\n');
    let chunk = Bytes::from(lines.repeat(1000));
    // Chunks that end inside lines, and a million blank ones between.
    let blank = Bytes::from(vec![b'\n'; 1_000_000]);
    let pieces: Vec<Bytes> = (0..1000)
        .flat_map(|idx| [chunk.slice(..idx * 31), chunk.slice(idx * 31..)])
        .chain([blank])
        .collect();
    let chunks = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
    let count = frames(chunks).filter(|frame| std::future::ready(frame.is_ok())).count();
    assert_eq!(count.now_or_never(), Some(1_000_000));
}

#[test]
fn line_of_64_mib_is_rejected_in_chunks_of_any_size() {
    let object =
        format!("{{\"type\":\"ADDED\",\"object\":{{\"a\":\"{}\"}}}}\n", "x".repeat(64 << 20));
    let object = Bytes::from(object);
    for chunk_bytes in [object.len(), 1 << 20, 4096] {
        let pieces: Vec<Bytes> = (0..object.len().div_ceil(chunk_bytes))
            .map(|idx| object.slice(idx * chunk_bytes..object.len().min((idx + 1) * chunk_bytes)))
            .collect();
        let (n_pieces, mut n_read) = (pieces.len(), 0);
        let pieces = stream::iter(pieces).inspect(|_| n_read += 1).map(Ok::<_, Infallible>);
        // Not boxed, so that what was read can be counted.
        let mut cutter = Cutter {
            chunks: pieces.boxed_local(),
            parse: WatchFrame::parse,
            chunk: Bytes::new(),
            pending: BytesMut::new(),
        };
        let got = cutter.frame().now_or_never().unwrap();
        assert!(matches!(got, Some(Err(SourceError::TooLarge { .. }))), "{got:?}");
        assert!(cutter.pending.len() <= FRAME_BYTES_MAX);
        drop(cutter);
        assert!(n_read <= n_pieces.min(FRAME_BYTES_MAX / chunk_bytes + 1), "{n_read}");
    }
}

proptest! {
    #[test]
    fn checked_and_unchecked_parsers_agree(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), proptest::sample::select(b"{}[]\",:\\aA1 \xc3".to_vec())), 0..4),
        more in prop::bool::weighted(0.3),
    ) {
        let mut line = br#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}"#.to_vec();
        line.extend_from_slice(if more { br#","more":[{}]}"# } else { b"}" });
        for (idx, byte) in changes {
            let idx = idx.index(line.len());
            line[idx] = byte;
        }
        let [checked, unchecked] = both(&line);
        // If members follow the object, the first parser also checks scalars.
        if checked.is_some() || serde_json::from_slice::<IgnoredAny>(&line).is_ok() {
            prop_assert_eq!(checked, unchecked);
        }
    }
}

/// A chunk stays in memory while any slice of it exists, so the reader of the connection could not
/// reuse its buffer.
#[test]
fn processed_chunk_is_released() {
    let whole = b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n".repeat(3);
    for cut in [whole.len(), whole.len() - 5] {
        let (first, rest) = whole.split_at(cut);
        let first = Bytes::from(first.to_vec());
        let watched = first.clone();
        let chunks = stream::iter([first, Bytes::from(rest.to_vec())]).map(Ok::<_, Infallible>);
        let mut frames = frames(chunks.chain(stream::pending()));
        for _ in 0..3 {
            assert!(frames.next().now_or_never().is_some());
        }
        assert!(frames.next().now_or_never().is_none());
        assert!(watched.is_unique(), "cut at {cut}");
    }
}

#[test]
fn array_with_the_members_of_a_frame_is_not_a_frame() {
    for line in [&b"[\"ADDED\",{\"kind\":\"Pod\"}]"[..], b" [\"l\" , 22]", b"\"ADDED\"", b"7"] {
        assert!(matches!(parse(line), Err(SourceError::Protocol { .. })), "{line:?}");
        assert_eq!(both(line), [None, None]);
    }
}

#[test]
fn object_rejected_by_a_skim_is_rejected_in_any_form_of_frame() {
    for line in [
        &br#"{"type":"ADDED","object":{"kind":"P\ud800od"}}"#[..],
        br#"{"object":{"kind":"P\ud800od"},"type":"ADDED"}"#,
        br#"{"type":"ADDE;","object":{"kind":"P\ud800od"}}"#,
    ] {
        assert_eq!(both(line), [None, None], "{}", String::from_utf8_lossy(line));
    }
}
