//! Who sends a request, as a request extension that only this process can set.

use std::sync::Arc;

/// The group that may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// A user and its groups. As a request extension it is trusted: a transport sets it for a verified client certificate, the
/// in-process client for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User name.
    pub user: Arc<str>,
    /// Groups.
    pub groups: Arc<[Arc<str>]>,
}

impl Identity {
    /// A user in groups.
    pub fn new<'a>(user: &str, groups: impl IntoIterator<Item = &'a str>) -> Self {
        Self { user: user.into(), groups: groups.into_iter().map(Arc::from).collect() }
    }

    /// The server itself: `system:apiserver` in `system:masters`.
    pub fn loopback() -> Self {
        Self::new("system:apiserver", [MASTERS])
    }

    /// The administrator: `system:admin` in `system:masters`.
    pub fn admin() -> Self {
        Self::new("system:admin", [MASTERS, "system:authenticated"])
    }

    /// Whoever comes over a listener without authentication: `system:unsecured` in `system:masters`.
    pub fn unsecured() -> Self {
        Self::new("system:unsecured", [MASTERS, "system:authenticated"])
    }

    /// Whoever shows no credentials: `system:anonymous` in `system:unauthenticated`.
    pub fn anonymous() -> Self {
        Self::new("system:anonymous", ["system:unauthenticated"])
    }

    /// Whether a group holds it.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| &**g == group)
    }
}

/// Which reconcile a request comes from: controller, key and reconcile id, in a form its sender chose. A request extension in
/// process, the header [`Origin::HEADER`] on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub Arc<str>);

impl Origin {
    /// The header that carries it.
    pub const HEADER: &'static str = "setpoint-origin";
}
