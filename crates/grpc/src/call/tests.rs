//! Calls of servers that answer, refuse, break off, or send something else.

use super::*;
use crate::frame::frame;
use crate::testing::{Reply, Script};
use h2::Reason;
use tokio::task::JoinSet;

/// Maximum size of answers here, in bytes.
const BYTES_MAX: usize = 1000;
/// Longer than any answer takes.
const LONG: Duration = Duration::from_secs(60);

/// A connection to a server that answers every call so.
async fn connect(reply: Reply, tasks: &mut JoinSet<()>) -> SendRequest<Bytes> {
    let (near, far) = tokio::io::duplex(64 << 10);
    tasks.spawn(Script::new(move |_, _| reply.clone()).serve(far));
    let (requests, connection) = h2::client::handshake(near).await.unwrap();
    tasks.spawn(async move {
        // The call has the error, too.
        let _ = connection.await;
    });
    requests
}

async fn open(reply: Reply, tasks: &mut JoinSet<()>) -> Call {
    let connection = connect(reply, tasks).await;
    Call::open(connection, request("http", "localhost", "/s/m"), BYTES_MAX).await.unwrap()
}

/// The message of an answer, which is a text.
async fn unary(reply: Reply) -> Result<String, GrpcError> {
    let mut tasks = JoinSet::new();
    let call = open(reply, &mut tasks).await;
    call.unary(frame(&"question".to_owned()), LONG).await
}

fn text(text: &str) -> Bytes {
    frame(&text.to_owned())
}

#[tokio::test(start_paused = true)]
async fn unary_call_returns_the_message() {
    assert_eq!(unary(Reply::message(&"a".to_owned())).await, Ok("a".to_owned()));
    let largest = "x".repeat(BYTES_MAX - 3);
    assert_eq!(unary(Reply::message(&largest)).await, Ok(largest));
}

#[tokio::test(start_paused = true)]
async fn server_gets_the_path_and_the_message() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let mut tasks = JoinSet::new();
    let echo = Script::new(|path, message| {
        let message = String::decode(message).unwrap_or_default();
        Reply::message(&format!("{path} {message}"))
    });
    tasks.spawn(echo.serve(far));
    let (requests, connection) = h2::client::handshake(near).await.unwrap();
    tasks.spawn(async move { connection.await.unwrap_or_default() });
    for n in 0..3 {
        let request = request("http", "localhost", "/s/m");
        let call = Call::open(requests.clone(), request, BYTES_MAX).await.unwrap();
        let answer: String = call.unary(text(&n.to_string()), LONG).await.unwrap();
        assert_eq!(answer, format!("/s/m {n}"));
    }
}

#[tokio::test(start_paused = true)]
async fn status_other_than_ok_is_the_error() {
    let refused = Status::new(Code::NOT_FOUND, "the key is gone: 100 %, €");
    for reply in [
        Reply::Status(refused.clone()),
        Reply::Body(Bytes::new(), refused.clone()),
        // After the message, or after a part of one.
        Reply::Body(text("a"), refused.clone()),
        Reply::Body(text("a").slice(..3), refused.clone()),
    ] {
        assert_eq!(
            unary(reply.clone()).await,
            Err(GrpcError::Status(refused.clone())),
            "{reply:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_answers_are_errors() {
    let ok = Status::ok;
    let body = |bytes: &[u8]| Reply::Body(Bytes::copy_from_slice(bytes), ok());
    let too_large = FrameError::TooLarge { bytes: 0xffff_ffff, bytes_max: BYTES_MAX };
    for (reply, expected) in [
        (Reply::Http(StatusCode::BAD_GATEWAY), Malformed::Http(StatusCode::BAD_GATEWAY)),
        (Reply::NoStatus(text("a")), Malformed::NoStatus),
        (Reply::NoStatus(Bytes::new()), Malformed::NoStatus),
        (Reply::Status(ok()), Malformed::NoMessage),
        (body(b""), Malformed::NoMessage),
        (body(&[text("a"), text("b")].concat()), Malformed::ManyMessages),
        (body(b"\x01\0\0\0\0"), FrameError::Compressed.into()),
        (body(b"\0\xff\xff\xff\xffx"), too_large.into()),
        (body(b"\0\0\0\0\x09x"), FrameError::Truncated.into()),
        (body(b"\0\0\0"), FrameError::Truncated.into()),
    ] {
        assert_eq!(unary(reply.clone()).await, Err(GrpcError::Malformed(expected)), "{reply:?}");
    }
    let undecodable = unary(body(b"\0\0\0\0\x01\xff")).await;
    assert!(matches!(undecodable, Err(GrpcError::Malformed(Malformed::Message(_)))));
}

/// Who repeats calls must know which ones the server has not processed.
#[tokio::test(start_paused = true)]
async fn refused_stream_was_not_processed_and_other_ends_may_be() {
    let refused = unary(Reply::Reset(Reason::REFUSED_STREAM)).await;
    assert!(matches!(refused, Err(GrpcError::NotProcessed(_))), "{refused:?}");
    for reply in [Reply::Reset(Reason::INTERNAL_ERROR), Reply::HangUp] {
        let broken = unary(reply).await;
        assert!(matches!(broken, Err(GrpcError::Lost(_))), "{broken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_server_ends_the_call() {
    for reply in [Reply::Silence, Reply::Open(text("a")), Reply::Open(Bytes::new())] {
        assert_eq!(unary(reply).await, Err(GrpcError::Silent(LONG)));
    }
}

/// The story: a member of etcd that sent a byte every two seconds held a read for days.
#[tokio::test(start_paused = true)]
async fn a_server_that_sends_drops_ends_the_call() {
    let begun = Instant::now();
    let call = async {
        let mut tasks = JoinSet::new();
        let connection = connect(Reply::Drops(LONG / 2), &mut tasks).await;
        let head = request("http", "localhost", "/s/m");
        let call = Call::open(connection, head, 1 << 20).await.unwrap();
        call.unary::<String>(frame(&"question".to_owned()), LONG).await
    };
    let whole = LONG * WHOLE_SILENCES_MAX;
    let ended = timeout(2 * whole, call).await;
    assert_eq!(ended, Ok(Err(GrpcError::Silent(whole))));
    assert_eq!(begun.elapsed(), whole);
}

#[tokio::test(start_paused = true)]
async fn stream_returns_its_messages_and_then_its_end() {
    let mut tasks = JoinSet::new();
    let messages = Bytes::from([text("a"), text(""), text("b")].concat());
    let mut call = open(Reply::Body(messages.clone(), Status::ok()), &mut tasks).await;
    call.send(text("question"), false).unwrap();
    for expected in [Some("a"), Some(""), Some("b"), None, None] {
        assert_eq!(call.next::<String>().await.unwrap().as_deref(), expected);
    }
    // A message arrives before the stream ends, and an error stays.
    let gone = Status::new(Code::UNAVAILABLE, "gone");
    let mut call = open(Reply::Body(text("a"), gone.clone()), &mut tasks).await;
    call.send(text("question"), false).unwrap();
    assert_eq!(call.next::<String>().await.unwrap().as_deref(), Some("a"));
    for _ in 0..2 {
        assert_eq!(call.next::<String>().await, Err(GrpcError::Status(gone.clone())));
    }
    let mut call = open(Reply::Open(messages), &mut tasks).await;
    call.send(text("question"), false).unwrap();
    for expected in ["a", "", "b"] {
        assert_eq!(call.next::<String>().await.unwrap().as_deref(), Some(expected));
    }
    assert!(timeout(LONG, call.next::<String>()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn call_is_not_opened_on_a_closed_connection() {
    let mut tasks = JoinSet::new();
    let connection = connect(Reply::Silence, &mut tasks).await;
    tasks.shutdown().await;
    let opened = Call::open(connection.clone(), request("http", "x", "/s/m"), BYTES_MAX).await;
    assert!(matches!(opened, Err(OpenError::Connection(_))), "{opened:?}");
    let opened = Call::open(connection, request("http", "no host", "/s/m"), BYTES_MAX).await;
    assert!(matches!(opened, Err(OpenError::Request(_))), "{opened:?}");
}
