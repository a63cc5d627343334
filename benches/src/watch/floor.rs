//! The lower bound of a fan-out over HTTPS: a bare loop that writes the same bytes to as many TLS
//! connections.

use crate::process::thread_cpu;
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_client::config::Kubeconfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// CPU time of the loop's thread for one write of `frame` to one of the connections. The server's
/// certificate is taken from `kubeconfig` and not verified.
pub(super) fn cpu_per_write(
    kubeconfig: &Kubeconfig,
    n_connections: usize,
    n_writes: usize,
    frame: Vec<u8>,
) -> anyhow::Result<Duration> {
    let config = server_config(kubeconfig)?;
    let (address, addresses) = mpsc::channel();
    let n_bytes = frame.len() * n_writes;
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(config, address, n_connections, n_writes, frame))
    });
    let address = addresses.recv().context("the floor's server did not start")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(read(address, n_connections, n_bytes))?;
    let cpu = server.join().map_err(|_| anyhow::anyhow!("the floor's server panicked"))??;
    Ok(cpu / u32::try_from(n_connections * n_writes)?)
}

async fn serve(
    config: ServerConfig,
    address: mpsc::Sender<SocketAddr>,
    n_connections: usize,
    n_writes: usize,
    frame: Vec<u8>,
) -> anyhow::Result<Duration> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    address.send(listener.local_addr()?)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut connections = Vec::with_capacity(n_connections);
    for _ in 0..n_connections {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        connections.push(acceptor.accept(stream).await?);
    }
    let before = thread_cpu()?;
    for _ in 0..n_writes {
        for connection in &mut connections {
            connection.write_all(&frame).await?;
            connection.flush().await?;
        }
    }
    let cpu = thread_cpu()? - before;
    for connection in &mut connections {
        connection.shutdown().await?;
    }
    Ok(cpu)
}

async fn read(address: SocketAddr, n_connections: usize, n_bytes: usize) -> anyhow::Result<()> {
    let config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate));
    let connector = TlsConnector::from(Arc::new(config.with_no_client_auth()));
    let mut tasks = JoinSet::new();
    for _ in 0..n_connections {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::IpAddress(address.ip().into());
        let mut stream = connector.connect(name, stream).await?;
        tasks.spawn(async move {
            let (mut left, mut buffer) = (n_bytes, vec![0; 16 << 10]);
            while left > 0 {
                match stream.read(&mut buffer).await? {
                    0 => anyhow::bail!("a connection ended"),
                    n => left = left.saturating_sub(n),
                }
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Uses the administrator's certificate, because any certificate will do.
fn server_config(kubeconfig: &Kubeconfig) -> anyhow::Result<ServerConfig> {
    let tree = serde_json::to_value(kubeconfig)?;
    let pem = |name: &str| -> anyhow::Result<Vec<u8>> {
        let text = tree["users"][0]["user"][name].as_str().with_context(|| name.to_owned())?;
        Ok(STANDARD.decode(text)?)
    };
    let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data")?)?;
    let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data")?)?;
    let builder = ServerConfig::builder().with_no_client_auth();
    Ok(builder.with_single_cert(vec![certificate], key)?)
}

/// Accepts any server certificate.
#[derive(Debug)]
struct AnyCertificate;
impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}
