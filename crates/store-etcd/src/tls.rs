//! TLS to a member.

use crate::{
    error::EtcdError,
    options::{EtcdTls, Pem},
};
use bytes::Bytes;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use setpoint_dial::Socket;
use setpoint_small_file::SmallFileError;
use std::sync::Arc;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Maximum bytes of a file with certificates or a key: 1 MiB, as of servers.
pub const PEM_BYTES_MAX: usize = 1 << 20;

/// Does the TLS handshake on a connection.
pub(crate) async fn handshake(
    tls: &EtcdTls,
    host: &str,
    socket: Socket,
) -> Result<TlsStream<Socket>, String> {
    let config = config(tls).await.map_err(|error| chain(&error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, socket).await.map_err(|error| format!("TLS: {error}"))
}

/// An error and its sources in one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Reads the certificates, at every call, because files may have been renewed.
///
/// # Errors
///
/// A file cannot be read, or has invalid content.
pub(crate) async fn config(tls: &EtcdTls) -> Result<ClientConfig, EtcdError> {
    let wrong = |what: &'static str| {
        move |problem: &dyn std::fmt::Display| EtcdError::Certificate {
            what,
            problem: problem.to_string(),
        }
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates("CA", &tls.ca).await? {
        roots.add(certificate).map_err(|error| wrong("CA")(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong("provider")(&error))?
        .with_root_certificates(roots);
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates("client certificate", chain).await?;
            let key = PrivateKeyDer::from_pem_slice(&read(key).await?)
                .map_err(|error| wrong("client key")(&error))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| wrong("client certificate")(&error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

async fn certificates(
    what: &'static str,
    pem: &Pem,
) -> Result<Vec<CertificateDer<'static>>, EtcdError> {
    let text = read(pem).await?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(EtcdError::Certificate { what, problem: "there is no certificate in it".into() })
        }
        Ok(found) => Ok(found),
        Err(error) => Err(EtcdError::Certificate { what, problem: error.to_string() }),
    }
}

async fn read(pem: &Pem) -> Result<Bytes, EtcdError> {
    match pem {
        Pem::Text(text) => Ok(text.clone()),
        Pem::File(path) => match setpoint_small_file::read_async(path, PEM_BYTES_MAX).await {
            Ok(text) => Ok(text.into()),
            Err(SmallFileError::Read { path, source }) => Err(EtcdError::File { path, source }),
            Err(SmallFileError::TooLong { path, .. }) => Err(EtcdError::LongFile { path }),
        },
    }
}
