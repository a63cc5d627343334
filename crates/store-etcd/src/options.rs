//! Where etcd is and how to reach it.

use bytes::Bytes;
use std::{fmt, path::PathBuf, time::Duration};

/// How to reach a cluster.
///
/// `EtcdOptions::new(["http://127.0.0.1:2379"])`, then set what differs from the defaults.
#[derive(Clone)]
#[non_exhaustive]
pub struct EtcdOptions {
    /// Client addresses of members: `http://host:port`, `https://host:port`, or `host:port` (https
    /// when [`Self::tls`] is set). The first is asked first; the others are for when it cannot
    /// serve.
    pub endpoints: Vec<String>,
    /// For `https` endpoints.
    pub tls: Option<EtcdTls>,
    /// Name and password, where etcd's own authentication is on.
    pub user: Option<(String, String)>,
    /// Put before every key and taken off every answer. Several stores may share one etcd under
    /// different namespaces; their revisions come from one counter. Empty by default.
    pub namespace: Bytes,
    /// A key, within the namespace, that the user may read; it need not be there. It is asked for
    /// where only a revision is wanted. `/registry/health` by default, where kube-apiserver looks
    /// too.
    pub probe_key: Bytes,
    /// How long one call may take in all, over every attempt. 10 s by default.
    pub request_timeout: Duration,
    /// How long a member may leave a read unanswered until another one is asked. 3 s by default.
    pub attempt_timeout: Duration,
    /// How long making one connection may take, TLS included, and then each of the two questions
    /// that show whether its member can serve (these up to eight times as long, while no member
    /// answers in time). 2 s by default.
    pub connect_timeout: Duration,
    /// How often the connection of a feed is pinged; etcd refuses less than 5 s. 10 s by default.
    pub keep_alive_period: Duration,
    /// How long an answer to a ping may take. 5 s by default.
    pub keep_alive_timeout: Duration,
}

impl EtcdOptions {
    /// The defaults, with these endpoints.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self { endpoints: endpoints.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            endpoints: vec!["http://127.0.0.1:2379".into()],
            tls: None,
            user: None,
            namespace: Bytes::new(),
            probe_key: Bytes::from_static(b"/registry/health"),
            request_timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(2),
            keep_alive_period: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
        }
    }
}

/// The password stays out of it.
impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("endpoints", &self.endpoints)
            .field("tls", &self.tls)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("namespace", &self.namespace)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

/// Whom to trust, and who one is.
#[derive(Debug, Clone)]
pub struct EtcdTls {
    /// Authorities that sign the members' certificates.
    pub ca: Pem,
    /// The client's certificate chain and its private key, where members ask for one.
    pub client: Option<(Pem, Pem)>,
}

/// Certificates or a key in PEM.
#[derive(Clone)]
pub enum Pem {
    /// A file, read anew for each connection, so that a renewed certificate is taken up.
    File(PathBuf),
    /// The text itself.
    Text(Bytes),
}

/// A private key stays out of it.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(..)"),
        }
    }
}
