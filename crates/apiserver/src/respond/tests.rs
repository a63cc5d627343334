use super::*;
use crate::filter::large::BYTES_PER_USER_MAX;
use http_body_util::BodyExt as _;

const MIB: usize = 1 << 20;

fn style(headers: &[(&'static str, &'static str)], query: &str) -> Style {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_static(value));
    }
    Style::of(&map, &Query::parse(query))
}

#[test]
fn json_is_indented_for_terminals_and_on_request() {
    assert!(style(&[("user-agent", "curl/8.5.0")], "").pretty);
    assert!(!style(&[("user-agent", "curl/8.5.0")], "pretty=false").pretty);
    assert!(style(&[("user-agent", "kubectl/v1.32")], "pretty=1").pretty);
    for value in ["true", "True", "TRUE", "T", "t"] {
        assert!(style(&[], &format!("pretty={value}")).pretty, "{value}");
    }
    // Not a boolean: false, for curl too. An empty value is none.
    for value in ["yes", "tRUE", "f", "False"] {
        let query = format!("pretty={value}");
        assert!(!style(&[("user-agent", "curl/8.5.0")], &query).pretty, "{value}");
    }
    assert!(style(&[("user-agent", "curl/8.5.0")], "pretty").pretty);
    assert!(!style(&[("user-agent", "kubectl/v1.32")], "").pretty);
}

#[test]
fn only_long_bodies_are_compressed_and_only_for_the_bare_token() {
    let long = Bytes::from(vec![b' '; GZIP_BYTES_MIN + 1]);
    let encoding = |style: Style, body: &Bytes| {
        with_body(StatusCode::OK, "application/json", style, body.clone())
            .headers()
            .contains_key(header::CONTENT_ENCODING)
    };
    let takes = style(&[("accept-encoding", "deflate, gzip")], "");
    assert!(encoding(takes, &long));
    assert!(!encoding(takes, &long.slice(1..)));
    assert!(!encoding(style(&[("accept-encoding", "gzip;q=0.5")], ""), &long));
}

#[test]
fn warnings_are_quoted_and_limited() {
    let mut headers = HeaderMap::new();
    add_warnings(&mut headers, &["unknown field \"a\"".into(), "bad\u{1}".into()]);
    let lines: Vec<_> = headers.get_all(header::WARNING).iter().collect();
    assert_eq!(lines, [r#"299 - "unknown field \"a\"""#]);
    let mut headers = HeaderMap::new();
    add_warnings(&mut headers, &vec!["x".repeat(300); 20]);
    assert_eq!(headers.get_all(header::WARNING).iter().count(), 16);
    let n_sent = |lengths: &[usize]| {
        let mut headers = HeaderMap::new();
        let texts: Vec<_> = lengths.iter().map(|length| "x".repeat(*length)).collect();
        add_warnings(&mut headers, &texts);
        headers.get_all(header::WARNING).iter().count()
    };
    // The text that crosses the limit is the last one, with all before it.
    assert_eq!(n_sent(&[205; 40]), 20);
    assert_eq!(n_sent(&[100; 60]), 41);
    assert_eq!(n_sent(&[256; 18]), 17);
    assert_eq!(n_sent(&[257; 18]), 16);
    assert_eq!(n_sent(&[2000; 3]), 3);
}

#[test]
fn an_error_in_no_acceptable_encoding_is_indented_json() {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/html"));
    let response = error(&ApiError::unauthorized(), &headers, style(&[], ""));
    assert_eq!(response.status(), 401);
    let body = std::str::from_utf8(response.body().as_bytes().unwrap()).unwrap();
    assert!(body.starts_with("{\n  \"kind\": \"Status\",\n"), "{body}");
}

#[tokio::test]
async fn an_answer_is_counted_as_it_is_sent_in_every_encoding() {
    let (large, a) = (LargeAnswers::default(), Arc::from("a"));
    let value = "x".repeat(MIB);
    let json = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","data":{{"a":"{value}"}}}}"#);
    let json = Bytes::from(json);
    let counted = || large.n_bytes();
    let style = Style { pretty: false, gzip: false };
    for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor] {
        for pretty in [false, true] {
            let room = large.reserve(&a, json.len()).unwrap();
            let accepted = Accepted { encoding, pretty, ..Accepted::default() };
            let made = document(StatusCode::OK, accepted, style, json.clone());
            let answer = room.hold(made);
            let n_bytes = answer.body().as_bytes().unwrap().len();
            assert_eq!(counted(), n_bytes, "{encoding:?}");
            let bytes = answer.into_body().collect().await.unwrap().to_bytes();
            // A part keeps the whole counted.
            let part = bytes.slice(..1);
            drop(bytes);
            assert_eq!(counted(), n_bytes, "{encoding:?}");
            drop(part);
            assert_eq!(counted(), 0, "{encoding:?}");
        }
    }
    let room = large.reserve(&a, json.len()).unwrap();
    let zipped = Style { gzip: true, ..style };
    let answer = document(StatusCode::OK, Accepted::default(), zipped, json.clone());
    let answer = room.hold(answer);
    assert_eq!(counted(), json.len());
    drop(answer);
    assert_eq!(counted(), 0);
    // A short answer that is made of a long object is not counted.
    let room = large.reserve(&a, json.len()).unwrap();
    let answer = room.hold(text(StatusCode::OK, "short"));
    assert_eq!(counted(), 0);
    drop(answer);
}

#[tokio::test]
async fn a_large_error_is_counted_until_it_is_sent_and_needs_room() {
    let (large, a) = (LargeAnswers::default(), Arc::from("a"));
    let (headers, style) = (HeaderMap::new(), Style { pretty: false, gzip: false });
    let refused = async |message: String| {
        let error = ApiError::bad_request(message);
        super::refusal(Arc::from(error.0), &headers, style, Types::default(), (&large, &a)).await
    };
    let answer = refused("<".repeat(MIB)).await;
    assert_eq!(answer.status(), 400);
    let n_bytes = answer.body().as_bytes().unwrap().len();
    assert!(n_bytes > 6 * MIB, "{n_bytes}");
    assert_eq!(large.n_bytes(), n_bytes);
    let others = large.reserve_at_once(&a, BYTES_PER_USER_MAX - n_bytes);
    assert_eq!(refused("<".repeat(MIB)).await.status(), 429);
    assert_eq!(refused("short".to_owned()).await.status(), 400);
    drop((answer, others));
    assert_eq!(refused("<".repeat(MIB)).await.status(), 400);
    assert_eq!(large.n_bytes(), 0);
}
