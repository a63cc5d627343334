//! Requests that are routed to the rows of the catalog.
use crate::attributes::{self, Row};
use crate::catalog::Resource;
use std::sync::Arc;

impl Row for Arc<Resource> {
    fn group(&self) -> &str {
        &self.gvk.group
    }
    fn version(&self) -> &str {
        &self.gvk.version
    }
    fn resource(&self) -> &str {
        &self.resource
    }
}

/// The resource that a request is about, with the [`Resource`] that serves it.
pub type Target = attributes::Target<Arc<Resource>>;

/// The subject of a request.
pub type Requested = attributes::Requested<Arc<Resource>>;

/// A request: its user and what it is about. It is made once, where the request enters (over HTTP,
/// from the in-process client or from an in-process source), and passed down. Every stage of the
/// API server and the registry decides by this value.
///
/// ```
/// use setpoint_registry::{Attributes, Identity, Requested, Verb};
///
/// let request = Attributes::new(Identity::admin(), Verb::Get, Requested::Path("/version".to_owned()));
/// assert_eq!((&*request.identity.user, request.path(), request.resource()), ("system:admin", "/version", ""));
/// ```
pub type Attributes = attributes::Attributes<Arc<Resource>>;
