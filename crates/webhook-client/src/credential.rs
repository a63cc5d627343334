//! What a server is shown by its callers: a client certificate, and headers of each request.

use futures::future::BoxFuture;
use http::HeaderMap;
use rustls::client::ResolvesClientCert;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

type Headers = dyn Fn() -> BoxFuture<'static, Result<HeaderMap, String>> + Send + Sync;

/// Credentials for a server. Cheap to clone; equal to its own clones only.
#[derive(Clone)]
pub struct Credential {
    certificate: Option<Arc<dyn ResolvesClientCert>>,
    headers: Arc<Headers>,
}

impl Credential {
    /// A certificate, if the server asks for one, and headers, which are made for each request:
    /// tokens expire. Without a certificate it is that of all webhooks, if there is one.
    pub fn new(
        certificate: Option<Arc<dyn ResolvesClientCert>>,
        headers: impl Fn() -> BoxFuture<'static, Result<HeaderMap, String>> + Send + Sync + 'static,
    ) -> Self {
        Self { certificate, headers: Arc::new(headers) }
    }

    pub(crate) fn certificate(&self) -> Option<Arc<dyn ResolvesClientCert>> {
        self.certificate.clone()
    }

    /// The headers of a request.
    ///
    /// # Errors
    ///
    /// Why there are none, as the cause of a failed call.
    pub async fn headers(&self) -> Result<HeaderMap, String> {
        (self.headers)().await
    }
}

/// Shows no secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl PartialEq for Credential {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.headers, &other.headers)
    }
}

impl Eq for Credential {}

impl Hash for Credential {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.headers).cast::<()>().hash(state);
    }
}
