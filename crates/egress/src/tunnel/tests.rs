use super::*;
use crate::observer::{Protocol, Stage, Transport};
use crate::packets::{CloseDial, CloseResponse};
use h2::RecvStream;
use h2::server::SendResponse;
use setpoint_grpc::Frames;
use tokio::io::AsyncWrite;

/// A proxy on the other end of a socket, with one tunnel.
struct Proxy {
    requests: RecvStream,
    frames: Frames,
    answers: h2::SendStream<bytes::Bytes>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn accept(socket: UnixStream) -> Self {
        let mut connection = h2::server::handshake(socket).await.unwrap();
        let (request, mut respond): (_, SendResponse<_>) =
            connection.accept().await.unwrap().unwrap();
        assert_eq!(request.uri().path(), "/ProxyService/Proxy");
        let head = http::Response::builder().header("content-type", "application/grpc");
        let answers = respond.send_response(head.body(()).unwrap(), false).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { while connection.accept().await.is_some() {} });
        let requests = request.into_body();
        Self { requests, frames: Frames::new(1 << 20), answers, _tasks: tasks }
    }

    async fn next(&mut self) -> Payload {
        loop {
            if let Some(message) = self.frames.take().unwrap() {
                let packet = <Packet as prost::Message>::decode(message).unwrap();
                let payload = packet.payload.clone().unwrap();
                assert_eq!(Packet::from(payload.clone()), packet);
                return payload;
            }
            let chunk = self.requests.data().await.unwrap().unwrap();
            self.requests.flow_control().release_capacity(chunk.len()).unwrap();
            self.frames.push(&chunk);
        }
    }

    fn send(&mut self, payload: Payload) {
        self.answers.send_data(frame(&Packet::from(payload)), false).unwrap();
    }

    fn data(&mut self, data: &[u8]) {
        let data = data.to_vec().into();
        self.send(Payload::Data(Data { connect_id: 7, data, error: String::new() }));
    }

    /// The bytes of the next packet.
    async fn bytes(&mut self) -> Vec<u8> {
        match self.next().await {
            Payload::Data(Data { connect_id: 7, data, .. }) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

/// Writes down what it is told.
#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().push(line);
    }

    fn read(&self) -> String {
        mem::take(&mut *self.0.lock()).join(", ")
    }
}

impl DialObserver for Diary {
    fn started(&self, _: Protocol, _: Transport) {}
    fn failed(&self, _: Protocol, _: Transport, _: Stage) {}
    fn dialed(&self, _: Protocol, _: Transport, _: Duration) {}
    fn tunnel(&self, from: Option<TunnelStatus>, to: Option<TunnelStatus>) {
        let name = |status: Option<TunnelStatus>| status.map_or("-", TunnelStatus::name);
        self.note(format!("{} to {}", name(from), name(to)));
    }
    fn tunnel_failed(&self, why: DialFailure) {
        self.note(format!("failed: {}", why.name()));
    }
    fn packet(&self, segment: Segment, kind: &'static str) {
        self.note(format!("{} {kind}", segment.name()));
    }
    fn stream_failed(&self, segment: Segment, code: &'static str) {
        self.note(format!("{} {code}", segment.name()));
    }
}

/// Dials; `answer` is made of the dial's number.
async fn dial(answer: impl FnOnce(i64) -> Payload) -> (Result<Socket, DialError>, Proxy) {
    dial_observed(answer, Arc::new(())).await
}

async fn dial_observed(
    answer: impl FnOnce(i64) -> Payload,
    observer: Arc<dyn DialObserver>,
) -> (Result<Socket, DialError>, Proxy) {
    let (near, far) = UnixStream::pair().unwrap();
    let script = async {
        let mut proxy = Proxy::accept(far).await;
        let Payload::DialRequest(dial) = proxy.next().await else { panic!("no dial") };
        assert_eq!((&*dial.protocol, &*dial.address), ("tcp", "a.b:80"));
        proxy.send(answer(dial.random));
        proxy
    };
    tokio::join!(open(near, "a.b:80", 42, observer), script)
}

async fn connected() -> (Socket, Proxy) {
    let accepted = |random| dialed(random, "");
    let (socket, proxy) = dial(accepted).await;
    (socket.unwrap(), proxy)
}

fn dialed(random: i64, error: &str) -> Payload {
    Payload::DialResponse(DialResponse { random, connect_id: 7, error: error.to_owned() })
}

fn closed() -> Payload {
    Payload::CloseResponse(CloseResponse { connect_id: 7, error: String::new() })
}

async fn write(socket: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    socket.write_all(bytes).await.unwrap();
}

#[tokio::test]
async fn bytes_pass_until_the_far_end_closes() {
    let (mut socket, mut proxy) = connected().await;
    write(&mut socket, b"hello").await;
    assert_eq!(proxy.bytes().await, b"hello");
    proxy.data(b"wor");
    proxy.data(b"ld");
    proxy.send(closed());
    let mut read = Vec::new();
    socket.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"world");
}

#[tokio::test]
async fn what_is_on_its_way_back_arrives_after_a_close() {
    let (mut socket, mut proxy) = connected().await;
    write(&mut socket, b"last words").await;
    socket.shutdown().await.unwrap();
    assert_eq!(proxy.bytes().await, b"last words");
    assert_eq!(proxy.next().await, Payload::CloseRequest(CloseRequest { connect_id: 7 }));
    proxy.data(b"answer");
    proxy.send(closed());
    let mut read = Vec::new();
    socket.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, b"answer");
}

#[tokio::test(start_paused = true)]
async fn a_close_without_an_answer_ends_in_time() {
    let (mut socket, mut proxy) = connected().await;
    socket.shutdown().await.unwrap();
    assert_eq!(proxy.next().await, Payload::CloseRequest(CloseRequest { connect_id: 7 }));
    let begun = tokio::time::Instant::now();
    assert_eq!(socket.read(&mut [0; 4]).await.unwrap(), 0);
    assert_eq!(begun.elapsed(), CLOSE_MAX);
}

#[tokio::test]
async fn a_broken_stream_is_no_end() {
    let (mut socket, proxy) = connected().await;
    drop(proxy);
    let error = socket.read(&mut [0; 4]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn dropping_the_socket_ends_the_stream() {
    let (socket, mut proxy) = connected().await;
    drop(socket);
    let ended = proxy.requests.data().await;
    assert!(!matches!(ended, Some(Ok(_))), "{ended:?}");
}

#[tokio::test]
async fn refused_dials_are_errors() {
    let other = |random: i64| dialed(random + 1, "");
    let given_up = |random| Payload::CloseDial(CloseDial { random });
    for (answer, why) in [
        (
            Box::new(|random| dialed(random, "no route")) as Box<dyn FnOnce(i64) -> Payload>,
            "no route",
        ),
        (Box::new(other), "tunnel closed"),
        (Box::new(given_up), "dial closed"),
    ] {
        assert_eq!(dial(answer).await.0.unwrap_err(), DialError(why.to_owned()));
    }
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let error = open(near, "a.b:80", 1, Arc::new(())).await.unwrap_err();
    assert!(error.0.starts_with("tunnel closed"), "{error}");
}

#[tokio::test]
async fn an_observer_is_told_of_tunnels() {
    let diary = Arc::new(Diary::default());
    let (socket, mut proxy) = dial_observed(|random| dialed(random, ""), diary.clone()).await;
    let begun = "- to created, created to dialing, from_client DIAL_REQ, to_client DIAL_RSP";
    assert_eq!(diary.read(), format!("{begun}, dialing to ok"));
    let mut socket = socket.unwrap();
    write(&mut socket, b"a").await;
    assert_eq!(proxy.bytes().await, b"a");
    socket.shutdown().await.unwrap();
    assert_eq!(proxy.next().await, Payload::CloseRequest(CloseRequest { connect_id: 7 }));
    proxy.send(closed());
    assert_eq!(socket.read(&mut [0; 4]).await.unwrap(), 0);
    drop(socket);
    turns(10).await;
    assert_eq!(
        diary.read(),
        "from_client DATA, from_client CLOSE_REQ, ok to closing, to_client CLOSE_RSP, closing to -"
    );

    dial_observed(|random| dialed(random, "no route"), diary.clone()).await.0.unwrap_err();
    assert_eq!(diary.read(), format!("{begun}, failed: endpoint, dialing to -"));

    let (socket, proxy) = dial_observed(|random| dialed(random, ""), diary.clone()).await;
    diary.read();
    drop(proxy);
    socket.unwrap().read(&mut [0; 4]).await.unwrap_err();
    turns(10).await;
    assert_eq!(diary.read(), "to_client Unavailable, ok to -");
}

/// Who dials bounds the time.
#[tokio::test]
async fn an_abandoned_dial_has_failed() {
    let diary = Arc::new(Diary::default());
    let (near, far) = UnixStream::pair().unwrap();
    let waiting = open(near, "a.b:80", 42, diary.clone());
    let asked = async {
        let mut proxy = Proxy::accept(far).await;
        proxy.next().await
    };
    tokio::select! {
        _ = waiting => panic!("there was no answer"),
        _ = asked => {}
    }
    assert!(diary.read().ends_with("DIAL_REQ, failed: context, dialing to -"));
}

/// The one who reads slowly slows the sender, in both directions.
#[tokio::test]
async fn what_waits_is_bounded() {
    let (mut socket, mut proxy) = connected().await;
    // Nobody reads at the proxy: its windows, the packets and the buffer fill.
    let mut written = 0;
    let chunk = vec![b'x'; 16 << 10];
    let full = async {
        loop {
            write(&mut socket, &chunk).await;
            written += chunk.len();
        }
    };
    tokio::select! {
        () = full => {}
        // Long after the last byte has moved: many turns of all tasks.
        () = turns(10_000) => {}
    }
    assert!(written <= 4 * WAITING_BYTES_MAX + SENT_BYTES_MAX, "{written}");
    assert!(written >= WAITING_BYTES_MAX, "{written}");
    // It goes on once somebody reads.
    let mut read = 0;
    while read < written {
        read += proxy.bytes().await.len();
    }
}

async fn turns(n: usize) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}
