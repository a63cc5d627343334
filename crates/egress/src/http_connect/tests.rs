use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Reads the head of a request.
async fn head(proxy: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(proxy.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Connects through a proxy that answers with these bytes; returns its end, too.
async fn dial(answer: &[u8]) -> (Result<Socket, DialError>, DuplexStream) {
    let (near, mut proxy) = tokio::io::duplex(1 << 20);
    let script = async {
        let head = head(&mut proxy).await.to_lowercase();
        assert!(head.starts_with("connect a.b:80 http/1.1\r\n"), "{head}");
        assert!(head.contains("host: 127.0.0.1\r\n"), "{head}");
        proxy.write_all(answer).await.unwrap();
        proxy
    };
    tokio::join!(connect(near, "proxy:1", "a.b:80"), script)
}

#[tokio::test]
async fn bytes_pass_in_both_directions() {
    // Also those that come with the head.
    let (socket, mut proxy) = dial(b"HTTP/1.1 200 OK\r\n\r\nearly").await;
    let mut socket = socket.unwrap();
    let mut read = [0; 5];
    socket.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"early");
    socket.write_all(b"hello").await.unwrap();
    proxy.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
    proxy.shutdown().await.unwrap();
    assert_eq!(socket.read(&mut read).await.unwrap(), 0);
}

#[tokio::test]
async fn a_refusal_is_an_error_in_the_originals_words() {
    let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let error = dial(refusal).await.0.unwrap_err();
    assert_eq!(error.0, "proxy error from proxy:1 while dialing a.b:80, code 403: 403 Forbidden");
}

#[tokio::test]
async fn what_is_no_http_is_an_error() {
    let start = "reading HTTP response from CONNECT to a.b:80 via proxy proxy:1 failed: ";
    let endless = [b"HTTP/1.1 200 OK\r\na: ".as_slice(), &vec![b'b'; HEAD_BYTES_MAX]].concat();
    for answer in [b"SSH-2.0\r\n\r\n".as_slice(), &endless] {
        let error = dial(answer).await.0.unwrap_err();
        assert!(error.0.starts_with(start), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_hangs_up_is_an_error() {
    let (near, mut proxy) = tokio::io::duplex(1 << 10);
    let script = async move { head(&mut proxy).await };
    let (dialed, _) = tokio::join!(connect(near, "proxy:1", "a.b:80"), script);
    assert!(dialed.is_err());
}
