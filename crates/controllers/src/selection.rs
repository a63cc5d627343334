//! Which controllers run: kube-controller-manager's names, and the values of its `--controllers`.

use std::fmt;
use std::str::FromStr;

/// kube-controller-manager's names of the controllers that this crate has.
pub(crate) mod names {
    pub(crate) const CSR_APPROVING: &str = "certificatesigningrequest-approving-controller";
    pub(crate) const CSR_CLEANER: &str = "certificatesigningrequest-cleaner-controller";
    pub(crate) const CSR_SIGNING: &str = "certificatesigningrequest-signing-controller";
    pub(crate) const DAEMON_SET: &str = "daemonset-controller";
    pub(crate) const DEPLOYMENT: &str = "deployment-controller";
    pub(crate) const DEVICE_TAINT_EVICTION: &str = "device-taint-eviction-controller";
    pub(crate) const CRON_JOB: &str = "cronjob-controller";
    pub(crate) const DISRUPTION: &str = "disruption-controller";
    pub(crate) const ENDPOINTS: &str = "endpoints-controller";
    pub(crate) const ENDPOINT_SLICE: &str = "endpointslice-controller";
    pub(crate) const ENDPOINT_SLICE_MIRRORING: &str = "endpointslice-mirroring-controller";
    pub(crate) const EPHEMERAL_VOLUME: &str = "ephemeral-volume-controller";
    pub(crate) const HORIZONTAL_POD_AUTOSCALER: &str = "horizontal-pod-autoscaler-controller";
    pub(crate) const JOB: &str = "job-controller";
    pub(crate) const TTL_AFTER_FINISHED: &str = "ttl-after-finished-controller";
    pub(crate) const POD_GC: &str = "pod-garbage-collector-controller";
    pub(crate) const REPLICA_SET: &str = "replicaset-controller";
    pub(crate) const REPLICATION_CONTROLLER: &str = "replicationcontroller-controller";
    pub(crate) const RESOURCE_CLAIM: &str = "resourceclaim-controller";
    pub(crate) const STATEFUL_SET: &str = "statefulset-controller";
    pub(crate) const NODE_LIFECYCLE: &str = "node-lifecycle-controller";
    pub(crate) const NODE_TTL: &str = "ttl-controller";
    pub(crate) const TAINT_EVICTION: &str = "taint-eviction-controller";
    pub(crate) const VOLUME_BINDER: &str = "persistentvolume-binder-controller";
}

/// A controller of kube-controller-manager 1.36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownController {
    /// Its name.
    pub name: &'static str,
    /// Its earlier names, which are accepted too; kube-controller-manager calls them aliases.
    pub aliases: &'static [&'static str],
    /// Whether `*` includes it.
    pub on_by_default: bool,
    /// What runs under the name here.
    pub group: ControllerGroup,
}

/// What runs under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerGroup {
    /// A part of every control plane, for example namespace deletion. Embedded ones run it too.
    BuiltIn,
    /// Creates objects on behalf of others, for example pods. Runs if it is selected.
    Workload,
    /// Nothing: it does not exist here. `*` excludes it, and selecting it by name is an error.
    Missing,
}

use ControllerGroup::{BuiltIn, Missing, Workload};

const fn row(
    name: &'static str,
    aliases: &'static [&'static str],
    group: ControllerGroup,
) -> KnownController {
    KnownController { name, aliases, on_by_default: true, group }
}

const fn off(
    name: &'static str,
    aliases: &'static [&'static str],
    group: ControllerGroup,
) -> KnownController {
    KnownController { name, aliases, on_by_default: false, group }
}

/// The controllers of kube-controller-manager 1.36, by name.
pub const KNOWN_CONTROLLERS: &[KnownController] = &[
    off("bootstrap-signer-controller", &["bootstrapsigner"], BuiltIn),
    row(names::CSR_APPROVING, &["csrapproving"], Workload),
    row(names::CSR_CLEANER, &["csrcleaner"], Workload),
    row(names::CSR_SIGNING, &["csrsigning"], Workload),
    row("cloud-node-lifecycle-controller", &["cloud-node-lifecycle"], Missing),
    row("clusterrole-aggregation-controller", &["clusterrole-aggregation"], BuiltIn),
    row(names::CRON_JOB, &["cronjob"], Workload),
    row(names::DAEMON_SET, &["daemonset"], Workload),
    row(names::DEPLOYMENT, &["deployment"], Workload),
    row(names::DEVICE_TAINT_EVICTION, &[], Workload),
    row(names::DISRUPTION, &["disruption"], Workload),
    row(names::ENDPOINTS, &["endpoint"], Workload),
    row(names::ENDPOINT_SLICE, &["endpointslice"], Workload),
    row(names::ENDPOINT_SLICE_MIRRORING, &["endpointslicemirroring"], Workload),
    row(names::EPHEMERAL_VOLUME, &["ephemeral-volume"], Workload),
    row("garbage-collector-controller", &["garbagecollector"], BuiltIn),
    row(names::HORIZONTAL_POD_AUTOSCALER, &["horizontalpodautoscaling"], Workload),
    row(names::JOB, &["job"], Workload),
    row("kube-apiserver-serving-clustertrustbundle-publisher-controller", &[], BuiltIn),
    row(
        "legacy-serviceaccount-token-cleaner-controller",
        &["legacy-service-account-token-cleaner"],
        BuiltIn,
    ),
    row("namespace-controller", &["namespace"], BuiltIn),
    row("node-ipam-controller", &["nodeipam"], Missing),
    row(names::NODE_LIFECYCLE, &["nodelifecycle"], Workload),
    row("node-route-controller", &["route"], Missing),
    row("persistentvolume-attach-detach-controller", &["attachdetach"], Missing),
    row(names::VOLUME_BINDER, &["persistentvolume-binder"], Workload),
    row("persistentvolume-expander-controller", &["persistentvolume-expander"], Missing),
    row("persistentvolume-protection-controller", &["pv-protection"], BuiltIn),
    row("persistentvolumeclaim-protection-controller", &["pvc-protection"], BuiltIn),
    row(names::POD_GC, &["podgc"], Workload),
    row("podcertificaterequest-cleaner-controller", &[], BuiltIn),
    row("podgroup-protection-controller", &[], BuiltIn),
    row(names::REPLICA_SET, &["replicaset"], Workload),
    row(names::REPLICATION_CONTROLLER, &["replicationcontroller"], Workload),
    row(names::RESOURCE_CLAIM, &["resource-claim-controller"], Workload),
    row("resourcepoolstatusrequest-controller", &[], BuiltIn),
    row("resourcequota-controller", &["resourcequota"], BuiltIn),
    row("root-ca-certificate-publisher-controller", &["root-ca-cert-publisher"], BuiltIn),
    off("selinux-warning-controller", &[], Missing),
    row("service-ca-certificate-publisher-controller", &["service-ca-cert-publisher"], Missing),
    row("service-cidr-controller", &[], BuiltIn),
    row("service-lb-controller", &["service"], Missing),
    row("serviceaccount-controller", &["serviceaccount"], BuiltIn),
    row("serviceaccount-token-controller", &["serviceaccount-token"], BuiltIn),
    row(names::STATEFUL_SET, &["statefulset"], Workload),
    row("storage-version-migrator-controller", &["svm"], BuiltIn),
    row("storageversion-garbage-collector-controller", &["storage-version-gc"], BuiltIn),
    row(names::TAINT_EVICTION, &[], Workload),
    // Off by default: here it follows the option that accepts bootstrap tokens, or its name.
    off("token-cleaner-controller", &["tokencleaner"], BuiltIn),
    row(names::TTL_AFTER_FINISHED, &["ttl-after-finished"], Workload),
    row(names::NODE_TTL, &["ttl"], Workload),
    row("validatingadmissionpolicy-status-controller", &[], BuiltIn),
    row("volumeattributesclass-protection-controller", &[], BuiltIn),
];

/// Why a selection could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// A name or alias that kube-controller-manager does not have either.
    #[error("{0:?} is not in the list of known controllers")]
    Unknown(String),
    /// A controller that has not been written.
    #[error("{0:?} is a controller that setpoint does not have")]
    Missing(&'static str),
}

/// Which controllers run, in the syntax of kube-controller-manager's `--controllers`: a list of
/// names separated by commas. `foo` enables a controller and `-foo` disables it; the first entry
/// about a controller counts. `*` enables all others that are on by default. Names may be aliases.
///
/// ```
/// # use setpoint_controllers::Selection;
/// let selection: Selection = "*,-replicaset".parse()?;
/// assert!(selection.is_enabled("namespace-controller"));
/// assert!(!selection.is_enabled("replicaset-controller"));
/// # Ok::<_, setpoint_controllers::SelectionError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(Entries);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entries {
    None,
    BuiltIn,
    List(Vec<Entry>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Star,
    On(&'static str),
    Off(&'static str),
}

impl Selection {
    /// No controller at all, also none of those without a name in kube-controller-manager.
    pub fn none() -> Self {
        Self(Entries::None)
    }

    /// Those of [`ControllerGroup::BuiltIn`] that are on by default: what test servers expect.
    pub fn built_in() -> Self {
        Self(Entries::BuiltIn)
    }

    /// All that are on by default: `*`.
    pub fn all() -> Self {
        Self(Entries::List(vec![Entry::Star]))
    }

    /// Whether it is [`none`](Self::none).
    pub fn is_none(&self) -> bool {
        self.0 == Entries::None
    }

    /// Whether it enables the controller of this name. False for unknown names, aliases included.
    pub fn is_enabled(&self, name: &str) -> bool {
        let Some(known) = KNOWN_CONTROLLERS.iter().find(|known| known.name == name) else {
            return false;
        };
        let entries = match &self.0 {
            Entries::None => return false,
            Entries::BuiltIn => return known.on_by_default && known.group == BuiltIn,
            Entries::List(entries) => entries,
        };
        for entry in entries {
            match entry {
                Entry::On(on) if *on == name => return true,
                Entry::Off(off) if *off == name => return false,
                _ => {}
            }
        }
        entries.contains(&Entry::Star) && known.on_by_default && known.group != Missing
    }

    /// Whether an entry disables the controller of this name.
    pub fn is_disabled(&self, name: &str) -> bool {
        match &self.0 {
            Entries::None => true,
            Entries::BuiltIn => false,
            Entries::List(entries) => {
                let about = entries.iter().find(
                    |entry| matches!(entry, Entry::On(known) | Entry::Off(known) if *known == name),
                );
                matches!(about, Some(Entry::Off(_)))
            }
        }
    }
}

/// `true`: [`Selection::built_in`], `false`: [`Selection::none`].
impl From<bool> for Selection {
    fn from(are_run: bool) -> Self {
        if are_run { Self::built_in() } else { Self::none() }
    }
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let entry = |entry: &str| {
            if entry == "*" {
                return Ok(Entry::Star);
            }
            let name = entry.strip_prefix('-').unwrap_or(entry);
            let is_named =
                |known: &&KnownController| known.name == name || known.aliases.contains(&name);
            let known = KNOWN_CONTROLLERS.iter().find(is_named);
            let known = known.ok_or_else(|| SelectionError::Unknown(name.to_owned()))?;
            match entry.starts_with('-') {
                true => Ok(Entry::Off(known.name)),
                // A controller that is not here may be disabled, as scripts do.
                false if known.group == Missing => Err(SelectionError::Missing(known.name)),
                false => Ok(Entry::On(known.name)),
            }
        };
        Ok(Self(Entries::List(entries.map(entry).collect::<Result<_, _>>()?)))
    }
}

/// The list as it is parsed, with full names; `none` and `built-in` are no lists.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = match &self.0 {
            Entries::None => return f.write_str("none"),
            Entries::BuiltIn => return f.write_str("built-in"),
            Entries::List(entries) => entries,
        };
        for (n, entry) in entries.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            match entry {
                Entry::Star => write!(f, "{comma}*")?,
                Entry::On(name) => write!(f, "{comma}{name}")?,
                Entry::Off(name) => write!(f, "{comma}-{name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(text: &str) -> Vec<&'static str> {
        let selection: Selection = text.parse().unwrap();
        let names = KNOWN_CONTROLLERS.iter().map(|known| known.name);
        names.filter(|name| selection.is_enabled(name)).collect()
    }

    #[test]
    fn star_is_all_that_are_on_by_default() {
        let all = enabled("*");
        assert!(all.contains(&"namespace-controller") && all.contains(&names::REPLICA_SET));
        assert!(!all.contains(&"token-cleaner-controller"), "off by default");
        assert!(!all.contains(&"bootstrap-signer-controller"), "off by default");
        assert!(!all.contains(&"node-ipam-controller"), "not written");
        assert_eq!(enabled(""), Vec::<&str>::new());
    }

    #[test]
    fn entries_enable_and_disable_by_name_or_alias() {
        assert_eq!(
            enabled("replicaset,tokencleaner"),
            [names::REPLICA_SET, "token-cleaner-controller"]
        );
        assert!(!enabled("*,-replicaset").contains(&names::REPLICA_SET));
        // The first entry about a controller counts, wherever the star is.
        assert!(!enabled("-replicaset,*,replicaset-controller").contains(&names::REPLICA_SET));
        assert!(enabled("replicaset,-replicaset").contains(&names::REPLICA_SET));
    }

    #[test]
    fn unknown_and_missing_controllers_are_refused() {
        let error = |text: &str| text.parse::<Selection>().unwrap_err().to_string();
        assert_eq!(error("*,-foo"), "\"foo\" is not in the list of known controllers");
        assert!(error("nodeipam").contains("does not have"));
        assert!("*,-nodeipam".parse::<Selection>().is_ok());
    }

    #[test]
    fn names_and_aliases_are_unique_and_sorted() {
        let names: Vec<_> = KNOWN_CONTROLLERS.iter().map(|known| known.name).collect();
        assert!(names.is_sorted());
        let mut all: Vec<_> = KNOWN_CONTROLLERS
            .iter()
            .flat_map(|known| known.aliases)
            .copied()
            .chain(names)
            .collect();
        all.sort_unstable();
        let n = all.len();
        all.dedup();
        assert_eq!(all.len(), n);
    }
}
