//! Asking for a Lease, for a while.

use std::time::Duration;

/// Why a request about the Lease has no answer that could be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("ask for the lease")]
    Failed(#[source] kube_client::Error),
    #[error("ask for the lease: no answer within {within:?}")]
    Timeout { within: Duration },
}

impl RequestError {
    /// What the client says, if it was that.
    pub(crate) fn kube(&self) -> Option<&kube_client::Error> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Timeout { .. } => None,
        }
    }
}

/// A request's answer, if it comes in time. What is dropped may still be done.
pub(crate) async fn bounded<T>(
    within: Duration,
    request: impl Future<Output = kube_client::Result<T>>,
) -> Result<T, RequestError> {
    match tokio::time::timeout(within, request).await {
        Ok(answer) => answer.map_err(RequestError::Failed),
        Err(_) => Err(RequestError::Timeout { within }),
    }
}
