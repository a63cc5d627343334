//! Certificates, and a client that speaks HTTP over TLS.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A CA.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// What a CA has signed.
pub(crate) struct Signed {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
    key: Vec<u8>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn sign(&self) -> Signed {
        let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed {
            certificate: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            key: key.serialize_der(),
        }
    }

    /// A client that trusts this CA, with a certificate or without.
    pub(crate) fn client(&self, own: Option<&Signed>, protocol: &str) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.key.clone()));
                builder.with_client_auth_cert(vec![own.certificate.clone()], key).unwrap()
            }
        };
        // A resumed session would show the certificate of its first handshake.
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        TlsConnector::from(Arc::new(config))
    }
}

/// A connection without a request.
pub(crate) async fn raw(client: &TlsConnector, address: SocketAddr) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(address).await.unwrap();
    client.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

/// The certificate that a server shows.
pub(crate) async fn shown(client: &TlsConnector, address: SocketAddr) -> CertificateDer<'static> {
    let stream = raw(client, address).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// A connection, and the task that drives it.
pub(crate) struct Connection {
    sender: Sender,
    _driver: JoinSet<()>,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Http2(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(crate) async fn open(client: &TlsConnector, address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = client.connect(name, stream).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let mut driver = JoinSet::new();
        let io = TokioIo::new(stream);
        let sender = if is_http2 {
            let shake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = shake.map_err(std::io::Error::other)?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http2(sender)
        } else {
            let shake = hyper::client::conn::http1::handshake(io).await;
            let (sender, connection) = shake.map_err(std::io::Error::other)?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http1(sender)
        };
        Ok(Self { sender, _driver: driver })
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, hyper::Error> {
        let response = match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await?,
            Sender::Http2(sender) => sender.send_request(request).await?,
        };
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }
}

/// A POST of JSON.
pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(format!("https://localhost{path}"))
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap()
}
