use crate::{ConnectionError, Limits, Protocol, Received, serve_connection};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What a server writes that answers each request with its method, target and body. `pieces`: what
/// its peer writes, piece by piece, before it closes its side.
async fn exchange(pieces: &[&[u8]]) -> String {
    let (mut near, far) = duplex(64 * 1024);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let answer = async |request: Request<Received>| {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            let text = format!("{} {} {body:?};", parts.method, parts.uri);
            Response::new(Full::new(Bytes::from(text)))
        };
        let limits = Limits::default();
        let stop = CancellationToken::new();
        let ended = serve_connection(far, Protocol::Http1, &limits, move |r| answer(r), stop).await;
        assert!(matches!(ended, Ok(()) | Err(ConnectionError::Http(_))), "{ended:?}");
    });
    for piece in pieces {
        near.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    near.shutdown().await.unwrap();
    let mut out = Vec::new();
    near.read_to_end(&mut out).await.unwrap();
    tasks.join_next().await.unwrap().unwrap();
    String::from_utf8(out).unwrap()
}

/// The bodies of answers, and the status line of an answer without one.
fn bodies(out: &str) -> Vec<&str> {
    let parts = out.split("\r\n\r\n").skip(1);
    parts.map(|part| part.split("HTTP/1.1 ").next().unwrap_or_default()).collect()
}

const BAD: &[u8] = b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn bad_head_is_answered_after_the_requests_before_it() {
    let good = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz";
    let out = exchange(&[&[good, BAD, good].concat()]).await;
    assert_eq!(bodies(&out), ["POST /a b\"xyz\";", "400 Bad Request"]);
    assert!(out.ends_with(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
    ));
}

#[tokio::test]
async fn heads_are_found_however_bytes_arrive() {
    let chunked = b"PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: u\r\n\r\n";
    let escaped = b"PUT /<d HTTP/1.1\nHost: a\nContent-Length: 2\n\n\r\n";
    let post = b"POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ne\r\n";
    let all = [&chunked[..], escaped, post, chunked, BAD].concat();
    let one = r#"PUT /c b"abc0123456789";"#;
    let expected = [one, r#"PUT /%3Cd b"\r\n";"#, r#"POST /e b"e";"#, one, "400 Bad Request"];
    assert_eq!(bodies(&exchange(&[&all]).await), expected);
    for size in [1, 2, 3, 7, 50] {
        let pieces: Vec<&[u8]> = all.chunks(size).collect();
        assert_eq!(bodies(&exchange(&pieces).await), expected, "{size} bytes at a time");
    }
}

#[tokio::test]
async fn head_that_is_cut_off_or_too_long_is_refused() {
    let cut = exchange(&[b"GET / HTTP/1.1\r\nHost: a\r\n"]).await;
    assert!(cut.ends_with("\r\n\r\n400 Bad Request"), "{cut}");
    assert_eq!(exchange(&[]).await, "");
    let long = vec![b'x'; super::HEAD_READ_MAX];
    let long = exchange(&[b"GET / HTTP/1.1\r\nHost: a\r\nA: ", &long]).await;
    assert!(long.ends_with("\r\n\r\n431 Request Header Fields Too Large"), "{long}");
}

/// Without waiting for the rest of its head.
#[tokio::test]
async fn line_that_is_no_request_line_is_refused_at_once() {
    let (mut near, far) = duplex(1024);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let answer = async |_: Request<Received>| Response::new(Full::<Bytes>::default());
        let (limits, stop) = (Limits::default(), CancellationToken::new());
        serve_connection(far, Protocol::Http1, &limits, move |r| answer(r), stop).await
    });
    near.write_all(b"EHLO a\r\n").await.unwrap();
    let mut out = [0; 24];
    near.read_exact(&mut out).await.unwrap();
    assert_eq!(out, *b"HTTP/1.1 400 Bad Request");
}

#[tokio::test]
async fn every_resource_has_the_same_options() {
    let out =
        exchange(&[b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\nGET * HTTP/1.1\r\nHost: a\r\n\r\n"]);
    let out = out.await.to_ascii_lowercase();
    assert!(out.starts_with("http/1.1 200 ok\r\ncontent-length: 0\r\n"), "{out}");
    assert!(out.ends_with("get * b\"\";"), "{out}");
}
