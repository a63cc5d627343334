//! Which dialer each kind of traffic has.

use crate::Dialer;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A kind of traffic that leaves an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EgressType {
    /// To other servers of the control plane: webhooks at URLs, reviews of tokens and requests,
    /// audit events, spans.
    ControlPlane,
    /// To etcd.
    Etcd,
    /// To what the control plane manages: kubelets, pods, Services, webhooks and APIServices behind
    /// services.
    Cluster,
}

impl EgressType {
    /// All of them, sorted by name.
    pub const ALL: [Self; 3] = [Self::Cluster, Self::ControlPlane, Self::Etcd];

    /// The one with a [name](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|traffic| traffic.name() == name)
    }

    /// The name in configurations: `controlplane`, `etcd` or `cluster`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "controlplane",
            Self::Etcd => "etcd",
            Self::Cluster => "cluster",
        }
    }
}

/// Shows the [name](EgressType::name).
impl fmt::Display for EgressType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The dialer of each kind of traffic. The default has none, so that all is direct. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct EgressSelector(Option<Arc<BTreeMap<EgressType, Dialer>>>);

impl EgressSelector {
    /// With these dialers. Other traffic is direct.
    pub fn new(dialers: impl IntoIterator<Item = (EgressType, Dialer)>) -> Self {
        Self(Some(Arc::new(dialers.into_iter().collect())))
    }

    /// The dialer of a kind of traffic: direct if nothing else is configured.
    pub fn dialer(&self, traffic: EgressType) -> Dialer {
        self.configured(traffic).unwrap_or_default()
    }

    /// The same, if it is configured, perhaps as direct.
    pub fn configured(&self, traffic: EgressType) -> Option<Dialer> {
        self.0.as_ref()?.get(&traffic).cloned()
    }

    /// Whether there is no configuration at all.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}
