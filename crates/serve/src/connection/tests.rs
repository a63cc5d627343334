//! Tests on paused time and without a socket.

use super::*;
use crate::limits::{LEFTOVER_WAIT_MAX, STALL_MAX};
use http::StatusCode;
use http_body_util::{Full, StreamBody};
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn full(text: &'static str) -> Response<Full<Bytes>> {
    Response::new(Full::new(Bytes::from_static(text.as_bytes())))
}

/// Runs a connection in a task, whose result is how it ended.
fn connect<A, Fut, B>(
    tasks: &mut JoinSet<Result<(), ConnectionError>>,
    protocol: Protocol,
    stop: &CancellationToken,
    answer: A,
) -> DuplexStream
where
    A: Fn(Request<Received>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin + Send + 'static,
{
    let (near, far) = duplex(1024);
    let stop = stop.clone();
    tasks.spawn(
        async move { serve_connection(far, protocol, &Limits::default(), answer, stop).await },
    );
    near
}

/// All bytes until the connection is closed.
async fn rest(near: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    _ = near.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).unwrap()
}

/// Counts its instances.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type Http2Client = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(near: DuplexStream, tasks: &mut JoinSet<()>) -> Http2Client {
    let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near));
    let (client, connection) = shake.await.unwrap();
    tasks.spawn(async move { _ = connection.await });
    client
}

/// Why a stream was reset.
fn reason(refused: &hyper::Error) -> Option<h2::Reason> {
    let source = std::error::Error::source(refused)?;
    source.downcast_ref::<h2::Error>().and_then(h2::Error::reason)
}

fn get() -> Request<Full<Bytes>> {
    Request::get("http://a/").body(Full::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_dropped_connection_are_dropped_with_it() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let n_living = Arc::new(AtomicUsize::new(0));
    let count = n_living.clone();
    let near = connect(&mut tasks, Protocol::Http2, &CancellationToken::new(), move |_| {
        let living = Counted::new(&count);
        async move {
            sleep(Duration::from_secs(3600)).await;
            drop(living);
            full("late")
        }
    });
    let mut client = http2(near, &mut peers).await;
    let mut asking = client.clone();
    peers.spawn(async move { _ = asking.send_request(get()).await });
    peers.spawn(async move { _ = client.send_request(get()).await });
    while n_living.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    tasks.shutdown().await;
    // The streams' tasks end in the next turn of the runtime.
    sleep(Duration::from_millis(1)).await;
    assert_eq!(n_living.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn streaming_response_is_not_idle_until_its_end() {
    let mut tasks = JoinSet::new();
    let near = &mut connect(&mut tasks, Protocol::Http1, &CancellationToken::new(), async |_| {
        let ticks = futures::stream::unfold(0, |n| async move {
            sleep(Duration::from_secs(600)).await;
            (n < 3)
                .then_some((Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"tick"))), n + 1))
        });
        Response::new(StreamBody::new(Box::pin(ticks)))
    });
    near.write_all(GET).await.unwrap();
    let begun = Instant::now();
    let answer = rest(near).await;
    assert_eq!(answer.matches("tick").count(), 3);
    assert_eq!(begun.elapsed(), Duration::from_secs(4 * 600) + Limits::default().idle_max);
    assert!(matches!(tasks.join_next().await, Some(Ok(Ok(())))));
}

#[tokio::test(start_paused = true)]
async fn peer_that_opens_no_window_for_its_response_is_idle() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let near = connect(&mut tasks, Protocol::Http2, &CancellationToken::new(), async |_| full("x"));
    let (near, deaf) = (TokioIo::new(near), TokioExecutor::new());
    let mut builder = hyper::client::conn::http2::Builder::new(deaf);
    builder.initial_stream_window_size(0);
    let (mut client, connection) = builder.handshake(near).await.unwrap();
    peers.spawn(async move { _ = connection.await });
    let begun = Instant::now();
    let answer = client.send_request(get()).await.unwrap();
    assert!(matches!(tasks.join_next().await, Some(Ok(Ok(())))));
    assert_eq!(begun.elapsed(), Limits::default().idle_max + LAST_WORDS_MAX);
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn unread_body_is_drained_and_is_not_a_head() {
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let near = &mut connect(&mut tasks, Protocol::Http1, &stop, async |_| full("no"));
    near.write_all(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await.unwrap();
    sleep(LEFTOVER_WAIT_MAX / 2).await;
    near.write_all(b"cd").await.unwrap();
    sleep(Limits::default().head_max * 2).await;
    near.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(rest(near).await.matches("200 OK").count(), 2);
}

/// A proxy sends one header for each group of a user.
#[tokio::test(start_paused = true)]
async fn a_request_may_have_a_thousand_headers() {
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    for (n, code) in [(1500, "200 OK"), (3000, "431 Request Header Fields Too Large")] {
        let answer = async |_: Request<Received>| full("yes");
        let near = &mut connect(&mut tasks, Protocol::Http1, &stop, answer);
        let groups: String = (0..n).map(|i| format!("x-remote-group: g{i}\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{groups}\r\n");
        _ = near.write_all(head.as_bytes()).await;
        let answer = rest(near).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }
}

/// A client that writes its whole request before it reads a response, and one that never stops.
#[tokio::test(start_paused = true)]
async fn peer_that_sends_a_body_over_all_limits_still_gets_its_response() {
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let body = vec![b'x'; 8 * Limits::default().leftover_bytes_max];
    for framing in ["transfer-encoding: chunked", "content-length: 2097152"] {
        let mut near = connect(&mut tasks, Protocol::Http1, &stop, async |_| full("too large"));
        let head = format!("PUT / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n");
        near.write_all(head.as_bytes()).await.unwrap();
        if framing.starts_with("transfer") {
            near.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        }
        near.write_all(&body).await.expect("the server keeps reading");
        let answer = rest(&mut near).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("too large"), "{answer}");
        assert_eq!(answer.contains("Connection: close"), framing.starts_with("content"));
        drop(near);
        assert!(tasks.join_next().await.unwrap().unwrap().is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn endless_body_is_cut_off() {
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let mut near = connect(&mut tasks, Protocol::Http1, &stop, async |_| full("too large"));
    let head = b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n";
    near.write_all(head).await.unwrap();
    near.write_all(&vec![b'x'; Limits::default().leftover_bytes_max + 1]).await.unwrap();
    let begun = Instant::now();
    while near.write_all(b"x").await.is_ok() {
        sleep(Duration::from_secs(1)).await;
    }
    assert!(begun.elapsed() <= crate::LINGER_MAX + LEFTOVER_WAIT_MAX, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn http2_peer_without_requests_is_closed_although_it_answers_pings() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let limits = Limits { http2_idle_max: None, ..Limits::default() };
    let (near, far) = duplex(1024);
    let (stop, of_connection) = (CancellationToken::new(), limits.clone());
    tasks.spawn(async move {
        let answer = async |_: Request<Received>| full("x");
        serve_connection(far, Protocol::Http2, &of_connection, answer, stop).await
    });
    let begun = Instant::now();
    let client = http2(near, &mut peers).await;
    tokio::select! {
        ended = tasks.join_next() => assert!(ended.unwrap().unwrap().is_ok()),
        () = sleep(Duration::from_secs(3600)) => panic!("it holds its slot for an hour"),
    }
    assert!(begun.elapsed() <= limits.head_max + LAST_WORDS_MAX, "{:?}", begun.elapsed());
    drop(client);
}

#[tokio::test]
async fn unauthenticated_peers_neither_block_nor_evict_authenticated_ones() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let limits = Limits { connections_max: 8, unauthenticated_max: Some(4), ..Limits::default() };
    let answer = async |request: Request<Received>| {
        if let Some(slot) = request.extensions().get::<crate::ConnectionSlot>()
            && request.headers().contains_key("authorization")
        {
            slot.authenticated();
        }
        full("here")
    };
    let mut tasks = JoinSet::new();
    let server = crate::Server::new(socket, limits);
    tasks.spawn(server.run(answer, CancellationToken::new()));
    let dial = || async { tokio::net::TcpStream::connect(address).await.unwrap() };
    let crowd = async || {
        let mut silent = Vec::new();
        for n in 0..32 {
            let mut peer = dial().await;
            if n % 2 == 0 {
                // Requests without credentials do not authenticate a connection.
                _ = peer.write_all(GET).await;
            }
            silent.push(peer);
        }
        silent
    };
    async fn ask(peer: &mut tokio::net::TcpStream) -> String {
        let get = b"GET / HTTP/1.1\r\nhost: a\r\nauthorization: b\r\n\r\n";
        peer.write_all(get).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"here") {
            answer.push(peer.read_u8().await.expect("an answer"));
        }
        String::from_utf8(answer).unwrap()
    }
    let first_crowd = crowd().await;
    let mut member = dial().await;
    assert!(ask(&mut member).await.contains("200 OK"));
    let second_crowd = crowd().await;
    let mut other = dial().await;
    assert!(ask(&mut other).await.contains("200 OK"));
    assert!(ask(&mut member).await.contains("200 OK"));
    drop((first_crowd, second_crowd));
}

#[tokio::test(start_paused = true)]
async fn conversation_ends_with_its_connection_and_when_the_peer_reads_nothing() {
    let mut tasks = JoinSet::new();
    let n_living = Arc::new(AtomicUsize::new(0));
    let count = n_living.clone();
    let near = &mut connect(
        &mut tasks,
        Protocol::Http1,
        &CancellationToken::new(),
        move |mut request: Request<Received>| {
            let living = Counted::new(&count);
            let upgrade = hyper::upgrade::on(&mut request);
            async move {
                let mut response = full("");
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.extensions_mut().insert(Conversation::new(async move {
                    let _living = living;
                    let mut talk = TokioIo::new(upgrade.await.unwrap());
                    sleep(Duration::from_secs(3600)).await;
                    while talk.write_all(&[b'!'; 64]).await.is_ok() {}
                }));
                response
            }
        },
    );
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: talk\r\n\r\n";
    near.write_all(head).await.unwrap();
    let begun = Instant::now();
    let ended = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(ended, Err(ConnectionError::Overdue(Overdue::Taking))), "{ended:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(3600) + STALL_MAX);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(n_living.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_responses_but_not_for_partial_heads() {
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    let slow = async |_| {
        sleep(Duration::from_secs(600)).await;
        full("at last")
    };
    let mut asking = connect(&mut tasks, Protocol::Http1, &stop, slow);
    let mut half = connect(&mut tasks, Protocol::Http1, &stop, slow);
    asking.write_all(GET).await.unwrap();
    half.write_all(&GET[..5]).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    stop.cancel();
    let begun = Instant::now();
    assert_eq!(rest(&mut half).await, "");
    assert!(begun.elapsed() <= Limits::default().head_max);
    assert!(rest(&mut asking).await.ends_with("at last"));
}

#[tokio::test(start_paused = true)]
async fn server_accepts_its_limit_of_connections_and_drops_them_at_the_deadline() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let (stop, served) = (CancellationToken::new(), Arc::new(Mutex::new(0)));
    let count = served.clone();
    let answer = move |_| {
        *count.lock() += 1;
        async {
            sleep(Duration::from_secs(3600)).await;
            full("late")
        }
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(crate::Server::new(socket, limits.clone()).run(answer, stop.clone()));
    let mut peers = Vec::new();
    for _ in 0..2 {
        let mut peer = tokio::net::TcpStream::connect(address).await.unwrap();
        peer.write_all(GET).await.unwrap();
        peers.push(peer);
    }
    while *served.lock() == 0 {
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(*served.lock(), 1);
    stop.cancel();
    let begun = Instant::now();
    tasks.join_next().await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), limits.drain_max);
}

/// A client behind a load balancer connects to another server without losing an answer.
#[tokio::test(start_paused = true)]
async fn after_a_goaway_requests_in_progress_are_answered_and_the_connection_ends() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let (n_begun, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let count = n_begun.clone();
    let stop = CancellationToken::new();
    let near = connect(&mut tasks, Protocol::Http2, &stop, move |request: Request<Received>| {
        count.fetch_add(1, Ordering::Relaxed);
        async move {
            if request.uri().path() == "/slow" {
                sleep(Duration::from_secs(5)).await;
                return full("slow");
            }
            let mut response = full("last");
            response.extensions_mut().insert(GoAway);
            response
        }
    });
    let mut client = http2(near, &mut peers).await;
    let mut slow = client.clone();
    let (answered, slow_answer) = tokio::sync::oneshot::channel();
    peers.spawn(async move {
        let request = Request::get("http://a/slow").body(Full::default()).unwrap();
        _ = answered.send(slow.send_request(request).await);
    });
    while n_begun.load(Ordering::Relaxed) < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.send_request(get()).await.unwrap().status(), StatusCode::OK);
    assert_eq!(slow_answer.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(matches!(tasks.join_next().await, Some(Ok(Ok(())))));
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(client.send_request(get()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn peer_is_told_how_many_streams_it_may_have() {
    let (mut near, far) = duplex(1024);
    let limits = Limits { streams_max: 7, ..Limits::default() };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let answer = async |_: Request<Received>| full("");
        let stop = CancellationToken::new();
        _ = serve_connection(far, Protocol::Http2, &limits, answer, stop).await;
    });
    // The preface and empty settings.
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut head = [0; 9];
    near.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "settings come first");
    let mut settings = vec![0; usize::from(head[2])];
    near.read_exact(&mut settings).await.unwrap();
    // SETTINGS_MAX_CONCURRENT_STREAMS.
    assert!(settings.chunks(6).any(|setting| *setting == [0, 3, 0, 0, 0, 7]), "{settings:?}");
}

/// Such as informers that are stopped at once.
#[tokio::test(start_paused = true)]
async fn requests_that_are_given_up_at_once_leave_the_others() {
    let mut tasks = JoinSet::new();
    let stop = CancellationToken::new();
    let mut near = connect(&mut tasks, Protocol::Http2, &stop, async |_| full("a"));
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    // GET, http, `/`, and the authority `a`.
    let headers = |stream| frame(1, 0x5, stream, &[0x82, 0x86, 0x84, 0x01, 1, b'a']);
    let given_up = |stream| frame(3, 0, stream, &[0, 0, 0, 8]);
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for n in 0..100 {
        sent.extend([headers(2 * n + 1), given_up(2 * n + 1)].concat());
    }
    sent.extend(headers(201));
    near.write_all(&sent).await.unwrap();
    loop {
        let mut head = [0; 9];
        near.read_exact(&mut head).await.unwrap();
        let [_, high, low, kind, .., stream] = head;
        assert_ne!(kind, 7, "the connection goes away");
        near.read_exact(&mut vec![0; u16::from_be_bytes([high, low]).into()]).await.unwrap();
        if (kind, stream) == (1, 201) {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn http2_request_with_an_invalid_target_is_reset() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let near = connect(&mut tasks, Protocol::Http2, &CancellationToken::new(), async |_| full("a"));
    let mut client = http2(near, &mut peers).await;
    for uri in ["http://a/%zz", "http://a/%", "http://b@a/"] {
        let request = Request::get(uri).body(Full::default()).unwrap();
        let refused = client.send_request(request).await.unwrap_err();
        assert_eq!(reason(&refused), Some(h2::Reason::PROTOCOL_ERROR), "{uri}: {refused:?}");
    }
    let options = Request::options("http://a/*").body(Full::default()).unwrap();
    assert_eq!(client.send_request(options).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn http2_where_it_was_not_negotiated_is_reset() {
    let (mut tasks, mut peers) = (JoinSet::new(), JoinSet::new());
    let near = connect(&mut tasks, Protocol::Http1, &CancellationToken::new(), async |_| full("a"));
    let mut client = http2(near, &mut peers).await;
    let refused = client.send_request(get()).await.unwrap_err();
    assert_eq!(reason(&refused), Some(h2::Reason::HTTP_1_1_REQUIRED), "{refused:?}");
}

/// What a server writes that answers each request with its method and target, until it closes the
/// connection after the last of these requests.
async fn exchange(requests: &str) -> String {
    let mut tasks = JoinSet::new();
    let answer = async |request: Request<Received>| {
        let text = format!("{} {}", request.method(), request.uri());
        Response::new(Full::new(Bytes::from(text)))
    };
    let stop = CancellationToken::new();
    let mut near = connect(&mut tasks, Protocol::Http1, &stop, answer);
    near.write_all(requests.as_bytes()).await.unwrap();
    rest(&mut near).await
}

#[tokio::test(start_paused = true)]
async fn refused_request_is_answered_after_those_before_it() {
    let good = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz";
    for (head, status, text) in [
        ("GET /%zz HTTP/1.1\r\nHost: a", "400 Bad Request", "400 Bad Request"),
        (
            "PUT /b HTTP/1.1\r\nContent-Length: 3",
            "400 Bad Request",
            "400 Bad Request: missing required Host header",
        ),
        ("GET /b HTTP/1.1\r\nHost: a\r\nExpect: b", "417 Expectation Failed", ""),
        (
            "PUT /b HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
            "501 Not Implemented",
            "Unsupported transfer encoding",
        ),
    ] {
        let out = exchange(&format!("{good}{head}\r\n\r\n{good}")).await;
        let answers: Vec<&str> = out.split("HTTP/1.1 ").skip(1).collect();
        assert_eq!(answers.len(), 2, "{out}");
        assert!(answers[0].ends_with("\r\n\r\nPOST /a"), "{out}");
        assert!(answers[1].starts_with(&format!("{status}\r\nConnection: close\r\n")), "{out}");
        assert!(answers[1].ends_with(&format!("\r\n\r\n{text}")), "{out}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_resource_has_the_same_options() {
    let out = exchange("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(
        out.starts_with("HTTP/1.1 200 OK\r\n") && out.contains("Content-Length: 0\r\n"),
        "{out}"
    );
    let out = exchange("GET * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(out.ends_with("\r\n\r\nGET *"), "{out}");
}
