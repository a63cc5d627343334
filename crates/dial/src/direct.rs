//! Connections without a proxy: lookup and TCP, and Unix sockets.

use crate::DialError;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpStream, UnixStream};

/// Maximum number of addresses of a name that one attempt tries.
///
/// Eight: a service seldom has more replicas, and the caller's timeout ends the attempt anyway.
pub const ADDRESSES_MAX: usize = 8;

pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, port)).await {
        Ok(found) => found.take(ADDRESSES_MAX).collect(),
        Err(_) => return Err(DialError(format!("dial tcp: lookup {host}: no such host"))),
    };
    let mut failure = DialError(format!("dial tcp: lookup {host}: no such host"));
    for address in found {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                // Requests are written at once, and the caller waits for each answer. Without the
                // option the connection is slower, but works.
                drop(tcp.set_nodelay(true));
                return Ok(tcp);
            }
            Err(error) => {
                failure = DialError(format!("dial tcp {address}: {}", text(&error)));
            }
        }
    }
    Err(failure)
}

/// Connects to a Unix socket.
///
/// # Errors
///
/// There is no connection, in the words of Go's network library.
pub async fn dial_unix(path: &Path) -> Result<UnixStream, DialError> {
    let connected = UnixStream::connect(path).await;
    connected.map_err(|error| DialError(format!("dial unix {}: {}", path.display(), text(&error))))
}

fn text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        io::ErrorKind::NotFound => "connect: no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "connect: permission denied".to_owned(),
        _ => format!("connect: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialer;

    #[tokio::test]
    async fn errors_are_those_of_go() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(Dialer::default().dial("127.0.0.1", port).await.is_ok());
        drop(listener);
        let error = Dialer::default().dial("127.0.0.1", port).await.unwrap_err();
        let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
        assert_eq!(error, DialError(refused));
    }
}
