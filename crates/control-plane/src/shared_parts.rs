//! What the control planes of one process need not each have for themselves.

use setpoint_apiserver::listen::{FrontProxy, PkiError};
use setpoint_object::time::Timestamp;
use setpoint_registry::SharedObjects;
use std::sync::{Arc, OnceLock};

/// What the control planes of one process have in common
/// ([`ControlPlaneBuilder::shared_parts`](crate::ControlPlaneBuilder::shared_parts)): the bytes of
/// the objects that are the same in every new cluster, 200 kB of roles, bindings, flow control,
/// APIServices and priority classes, and the client certificate for servers of APIServices. Made
/// for the first control plane that needs them. A clone is the same parts.
///
/// Everything else is each one's own: other objects, port, authority, administrator. The clocks
/// should agree: the certificate is valid for ten years from the first one's start.
#[derive(Debug, Clone, Default)]
pub struct SharedParts {
    pub(crate) objects: SharedObjects,
    front_proxy: Arc<OnceLock<FrontProxy>>,
}

impl SharedParts {
    pub(crate) fn front_proxy(&self, now: Timestamp) -> Result<FrontProxy, PkiError> {
        if let Some(known) = self.front_proxy.get() {
            return Ok(known.clone());
        }
        let made = FrontProxy::generate(now)?;
        Ok(self.front_proxy.get_or_init(|| made).clone())
    }
}
