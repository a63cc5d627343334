//! Names of subresources.
use std::fmt;
use std::sync::Arc;

/// The name of a subresource. Its row is a [`SubresourceRow`](crate::SubresourceRow).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the API's words as they are")]
pub enum Subresource {
    Approval,
    Attach,
    Binding,
    EphemeralContainers,
    Eviction,
    Exec,
    Finalize,
    Log,
    PortForward,
    Proxy,
    Resize,
    Scale,
    Status,
    Token,
    /// Any other subresource: of an embedder's kind, or of a resource that another server serves.
    Other(Arc<str>),
}

impl Subresource {
    /// As in a path.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Approval => "approval",
            Self::Attach => "attach",
            Self::Binding => "binding",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Eviction => "eviction",
            Self::Exec => "exec",
            Self::Finalize => "finalize",
            Self::Log => "log",
            Self::PortForward => "portforward",
            Self::Proxy => "proxy",
            Self::Resize => "resize",
            Self::Scale => "scale",
            Self::Status => "status",
            Self::Token => "token",
            Self::Other(name) => name,
        }
    }
    /// The subresource with this name; `None` for the empty text, which is the main endpoint.
    pub fn of(name: &str) -> Option<Self> {
        (!name.is_empty()).then(|| Self::from(name))
    }
    /// Whether all its methods are streams to a node, a Service or a pod.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Attach | Self::Exec | Self::Log | Self::PortForward | Self::Proxy)
    }
}
impl From<&str> for Subresource {
    fn from(name: &str) -> Self {
        match name {
            "approval" => Self::Approval,
            "attach" => Self::Attach,
            "binding" => Self::Binding,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "eviction" => Self::Eviction,
            "exec" => Self::Exec,
            "finalize" => Self::Finalize,
            "log" => Self::Log,
            "portforward" => Self::PortForward,
            "proxy" => Self::Proxy,
            "resize" => Self::Resize,
            "scale" => Self::Scale,
            "status" => Self::Status,
            "token" => Self::Token,
            other => Self::Other(other.into()),
        }
    }
}
impl AsRef<str> for Subresource {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
impl fmt::Display for Subresource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
