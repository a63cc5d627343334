//! `portforward` over the channels of a WebSocket.

use crate::harness::{EPOCH, request};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, SinkExt as _, StreamExt as _};
use setpoint_apiserver::listen::Listener;
use setpoint_apiserver::{
    ApiServer, ContainerRef, ContainerStreams, Credentials, ExecOptions, Identity, LogOptions,
    NodeAgent, PodConnection, PodRef,
};
use setpoint_object::ApiError;
use setpoint_object::time::Clock;
use setpoint_registry::Registry;
use setpoint_store::MemoryStore;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_util::sync::CancellationToken;

/// An agent of a pod that listens at port 80 only.
struct Agent(SocketAddr);

impl NodeAgent for Agent {
    fn serves(&self, node: &str) -> bool {
        node == "n"
    }

    fn logs(
        &self,
        _container: ContainerRef,
        _options: LogOptions,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Bytes>, ApiError>> {
        std::future::ready(Err(ApiError::internal("only forwards"))).boxed()
    }

    fn exec(
        &self,
        _container: ContainerRef,
        _options: ExecOptions,
        _streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<i32, ApiError>> {
        std::future::ready(Err(ApiError::internal("only forwards"))).boxed()
    }

    fn attach(
        &self,
        _container: ContainerRef,
        _streams: ContainerStreams,
    ) -> BoxFuture<'static, Result<(), ApiError>> {
        std::future::ready(Err(ApiError::internal("only forwards"))).boxed()
    }

    fn forward(
        &self,
        _pod: PodRef,
        port: u16,
    ) -> BoxFuture<'static, Result<Box<dyn PodConnection>, ApiError>> {
        let address = self.0;
        async move {
            if port != 80 {
                return Err(ApiError::internal("nothing listens"));
            }
            let connection = TcpStream::connect(address).await.unwrap();
            Ok(Box::new(connection) as Box<dyn PodConnection>)
        }
        .boxed()
    }
}

/// A server with one pod. It runs until it is dropped.
struct Forwards {
    pod: TcpListener,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Forwards {
    async fn start() -> Self {
        let pod = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let store = Arc::new(MemoryStore::default());
        let (registry, worker) = Registry::builder(store, Clock::starting_at(EPOCH)).build();
        let api = ApiServer::builder(registry)
            .credentials(Credentials::none())
            .node_agent(Arc::new(Agent(pod.local_addr().unwrap())))
            .build();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let stop_worker = stop.clone();
        tasks.spawn(async move { worker.run(stop_worker).await.unwrap() });
        let body = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}"#;
        let mut create = request("POST", "/api/v1/namespaces/default/pods", body);
        create.extensions_mut().insert(Identity::admin());
        assert_eq!(api.serve(create).await.status(), 201);
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::insecure(api, any_port).await.unwrap();
        let address = listener.address();
        tasks.spawn(listener.run(stop));
        Self { pod, address, _tasks: tasks }
    }

    /// The head of the answer to an upgrade, and the connection.
    async fn upgrade(&self, query: &str, protocols: &str) -> (String, TcpStream) {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "GET /api/v1/namespaces/default/pods/p/portforward{query} HTTP/1.1\r\n\
             Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             {protocols}\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(socket.read_u8().await.unwrap());
        }
        (String::from_utf8(answer).unwrap().to_ascii_lowercase(), socket)
    }
}

#[tokio::test]
async fn ports_are_forwarded_over_the_channels_of_a_websocket() {
    let server = Forwards::start().await;
    for (protocols, chosen) in [
        ("Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n", true),
        // Clients that offer no protocol get the same.
        ("", false),
    ] {
        let (head, socket) = server.upgrade("?ports=80,81&ports=80", protocols).await;
        assert!(head.starts_with("http/1.1 101"), "{head}");
        let protocol = head.contains("sec-websocket-protocol: v4.channel.k8s.io\r\n");
        assert_eq!(protocol, chosen, "{head}");
        let mut client = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
        let (mut first, _) = server.pod.accept().await.unwrap();
        let (mut second, _) = server.pod.accept().await.unwrap();
        // Messages to channels that do not exist, and to those of failures, are ignored.
        for message in [b"\x00ping".as_slice(), b"\x04pong", b"\x06?", b"\x01?", b"\xff\x00", b""] {
            client.send(Message::Binary(Bytes::copy_from_slice(message))).await.unwrap();
        }
        let mut read = Vec::new();
        for connection in [&mut first, &mut second] {
            let mut text = [0; 4];
            connection.read_exact(&mut text).await.unwrap();
            connection.write_all(&text).await.unwrap();
            read.push(String::from_utf8(text.to_vec()).unwrap());
        }
        read.sort();
        assert_eq!(read, ["ping", "pong"]);
        drop((first, second));
        // The bytes of each channel: its port, then its data.
        let mut channels = vec![Vec::new(); 6];
        let closed = loop {
            match client.next().await.unwrap().unwrap() {
                Message::Binary(bytes) => {
                    channels[usize::from(bytes[0])].extend_from_slice(&bytes[1..]);
                }
                Message::Close(frame) => break frame.unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(u16::from(closed.code), 1000);
        let failed = b"Q\0error forwarding port 81 to pod p: Internal error occurred: \
                       nothing listens";
        let expected =
            [b"P\0ping".as_slice(), b"P\0", b"Q\0", failed.as_slice(), b"P\0pong", b"P\0"];
        assert_eq!(channels, expected);
    }
}

#[tokio::test]
async fn the_end_of_the_client_ends_its_forwarded_connections() {
    let server = Forwards::start().await;
    let (_, socket) = server.upgrade("?ports=80", "").await;
    let mut client = WebSocketStream::from_raw_socket(socket, Role::Client, None).await;
    let (mut connection, _) = server.pod.accept().await.unwrap();
    client.close(None).await.unwrap();
    assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 0);
}

#[tokio::test]
async fn forwards_over_channels_name_their_ports() {
    let server = Forwards::start().await;
    let many = format!("?ports=80{}", ",80".repeat(128));
    for query in
        ["", "?ports=", "?ports=80,", "?ports=0", "?ports=65536", "?ports=http", many.as_str()]
    {
        let (head, _) = server.upgrade(query, "").await;
        assert!(head.starts_with("http/1.1 400"), "{query}: {head}");
    }
    let unknown = "Sec-WebSocket-Protocol: v9.channel.k8s.io\r\n";
    let (head, _) = server.upgrade("?ports=80", unknown).await;
    assert!(head.starts_with("http/1.1 400"), "{head}");
}
