//! Kubernetes' own plugins: one row each, in call order, and which of them run.
use super::default_toleration_seconds::{DefaultTolerationSeconds, TolerationSeconds};
use super::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// When a plugin is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Before the plugins of the embedder.
    First,
    /// A plugin that runs what objects say: policies and webhooks. Made by the registry.
    Others,
    /// After webhooks.
    Last,
    /// Before the plugins of the embedder. Made by the embedder ([`AdmissionOptions::provide`]).
    Provided,
}

/// One plugin.
struct Row {
    name: &'static str,
    is_default: bool,
    stage: Stage,
    make: fn(&AdmissionOptions) -> Result<Box<dyn Admission>, String>,
}

/// A row with a plugin that has no configuration.
macro_rules! plain {
    ($name:literal, $is_default:literal, $stage:ident, $plugin:expr) => {
        Row {
            name: $name,
            is_default: $is_default,
            stage: Stage::$stage,
            make: |_| Ok(Box::new($plugin)),
        }
    };
}
/// A row with a plugin that reads a configuration.
macro_rules! configured {
    ($name:literal, $is_default:literal, $stage:ident, $plugin:path) => {
        Row {
            name: $name,
            is_default: $is_default,
            stage: Stage::$stage,
            make: |options| {
                let config = options.configuration($name).unwrap_or(&Value::Null);
                Ok(Box::new(<$plugin>::new(config)?))
            },
        }
    };
}
/// A row of a plugin that is made elsewhere.
const fn row(name: &'static str, is_default: bool, stage: Stage) -> Row {
    Row { name, is_default, stage, make: |_| Err(String::new()) }
}

/// All plugins that kube-apiserver knows, in its order. A plugin may have a mutating half, a
/// validating half, or both.
#[rustfmt::skip]
const PLUGINS: &[Row] = &[
    plain!("AlwaysAdmit", false, First, always::AlwaysAdmit),
    plain!("NamespaceAutoProvision", false, First, namespace_auto_provision::NamespaceAutoProvision),
    plain!("NamespaceLifecycle", true, First, namespace_lifecycle::NamespaceLifecycle),
    plain!("NamespaceExists", false, First, namespace_exists::NamespaceExists),
    plain!("LimitPodHardAntiAffinityTopology", false, First, limit_pod_hard_anti_affinity_topology::LimitPodHardAntiAffinityTopology),
    plain!("LimitRanger", true, First, limit_ranger::LimitRanger),
    plain!("ServiceAccount", true, First, service_account::ServiceAccount),
    plain!("NodeRestriction", false, First, node_restriction::NodeRestriction),
    plain!("TaintNodesByCondition", true, First, taint_nodes_by_condition::TaintNodesByCondition),
    plain!("AlwaysPullImages", false, First, always_pull_images::AlwaysPullImages),
    row("ImagePolicyWebhook", false, Stage::Provided),
    configured!("PodSecurity", true, First, pod_security::PodSecurity),
    configured!("PodNodeSelector", false, First, pod_node_selector::PodNodeSelector),
    plain!("Priority", true, First, priority::Priority),
    Row {
        name: "DefaultTolerationSeconds",
        is_default: true,
        stage: Stage::First,
        make: |options| Ok(Box::new(DefaultTolerationSeconds(options.toleration_seconds))),
    },
    configured!("PodTolerationRestriction", false, First, pod_toleration_restriction::PodTolerationRestriction),
    configured!("EventRateLimit", false, First, event_rate_limit::EventRateLimit),
    plain!("ExtendedResourceToleration", false, First, extended_resource_toleration::ExtendedResourceToleration),
    plain!("DefaultStorageClass", true, First, default_storage_class::DefaultStorageClass),
    plain!("StorageObjectInUseProtection", true, First, storage_object_in_use_protection::StorageObjectInUseProtection),
    plain!("PodGroupProtection", true, First, pod_group_protection::PodGroupProtection),
    plain!("OwnerReferencesPermissionEnforcement", false, First, owner_references_permission_enforcement::OwnerReferencesPermissionEnforcement),
    plain!("PersistentVolumeClaimResize", true, First, persistent_volume_claim_resize::PersistentVolumeClaimResize),
    plain!("RuntimeClass", true, First, runtime_class::RuntimeClass),
    plain!("CertificateApproval", true, First, certificate_approval::CertificateApproval),
    plain!("CertificateSigning", true, First, certificate_signing::CertificateSigning),
    plain!("ClusterTrustBundleAttest", true, First, cluster_trust_bundle_attest::ClusterTrustBundleAttest),
    plain!("CertificateSubjectRestriction", true, First, certificate_subject_restriction::CertificateSubjectRestriction),
    plain!("DefaultIngressClass", true, First, default_ingress_class::DefaultIngressClass),
    plain!("DenyServiceExternalIPs", false, First, deny_service_external_ips::DenyServiceExternalIps),
    plain!("PodTopologyLabels", true, First, pod_topology_labels::PodTopologyLabels),
    plain!("PodGroupWorkloadExists", true, First, pod_group_workload_exists::PodGroupWorkloadExists),
    plain!("NodeDeclaredFeatureValidator", true, First, node_declared_feature_validator::NodeDeclaredFeatureValidator),
    plain!("JobValidation", true, First, job_validation::JobValidation),
    plain!("PodResizeValidator", true, First, pod_resize_validator::PodResizeValidator),
    row("MutatingAdmissionPolicy", true, Stage::Others),
    row("MutatingAdmissionWebhook", true, Stage::Others),
    row("ValidatingAdmissionPolicy", true, Stage::Others),
    row("ValidatingAdmissionWebhook", true, Stage::Others),
    configured!("ResourceQuota", true, Last, resource_quota::ResourceQuota),
    plain!("AlwaysDeny", false, Last, always::AlwaysDeny),
];

/// Why options of admission are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionOptionsError {
    /// A name of `--enable-admission-plugins` or `--disable-admission-plugins` that Kubernetes does
    /// not have.
    #[error("{option} plugin {name:?} is unknown")]
    Unknown {
        /// The option, without dashes.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// A plugin that nobody has [provided](AdmissionOptions::provide) cannot be enabled.
    #[error("enable-admission-plugins plugin {0:?} is not available in this server")]
    Missing(String),
    /// Plugins that are enabled and disabled.
    #[error("[{}] in enable-admission-plugins and disable-admission-plugins overlapped", .0.join(" "))]
    Both(Vec<String>),
    /// A configuration for a plugin that Kubernetes does not have.
    #[error("a configuration is given for the unknown admission plugin {0:?}")]
    Configured(String),
    /// A configuration that a plugin refuses.
    #[error("couldn't init admission plugin {name:?}: {why}")]
    Configuration {
        /// The plugin.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// Which of Kubernetes' admission plugins run, and their configurations. Default: the plugins that
/// a kube-apiserver runs by default.
///
/// ```
/// use setpoint_registry::AdmissionOptions;
///
/// let plugins = AdmissionOptions::default().enable("AlwaysPullImages").disable("Priority").build()?;
/// assert!(plugins.names().any(|name| name == "AlwaysPullImages"));
/// let error = AdmissionOptions::default().enable("Nothing").build().unwrap_err();
/// assert_eq!(error.to_string(), r#"enable-admission-plugins plugin "Nothing" is unknown"#);
/// # Ok::<(), setpoint_registry::AdmissionOptionsError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct AdmissionOptions {
    enabled: BTreeSet<String>,
    disabled: BTreeSet<String>,
    configurations: BTreeMap<String, Value>,
    provided: Vec<Arc<dyn Admission>>,
    manifests: Vec<Manifests>,
    toleration_seconds: TolerationSeconds,
}

impl AdmissionOptions {
    /// Runs a plugin that is off by default.
    #[must_use]
    pub fn enable(mut self, name: impl Into<String>) -> Self {
        self.enabled.insert(name.into());
        self
    }
    /// Does not run a plugin that is on by default.
    #[must_use]
    pub fn disable(mut self, name: impl Into<String>) -> Self {
        self.disabled.insert(name.into());
        self
    }
    /// The configuration of a plugin: an object such as `PodSecurityConfiguration`.
    #[must_use]
    pub fn configure(mut self, name: impl Into<String>, configuration: Value) -> Self {
        self.configurations.insert(name.into(), configuration);
        self
    }
    /// For how many seconds a new pod tolerates that its node is not ready, or unreachable, if it
    /// does not say so itself: the plugin `DefaultTolerationSeconds`. Default: 300 for both.
    #[must_use]
    pub fn toleration_seconds(mut self, not_ready: i64, unreachable: i64) -> Self {
        self.toleration_seconds = TolerationSeconds { not_ready, unreachable };
        self
    }
    /// Whether Kubernetes has a plugin of this name.
    pub fn knows(name: &str) -> bool {
        PLUGINS.iter().any(|row| row.name == name)
    }
    /// Whether a plugin is to run that is off by default.
    pub fn enables(&self, name: &str) -> bool {
        self.enabled.contains(name)
    }
    /// The configuration of a plugin.
    pub fn configuration(&self, name: &str) -> Option<&Value> {
        self.configurations.get(name)
    }
    /// A plugin of Kubernetes that the registry cannot make itself, because it calls other servers:
    /// `ImagePolicyWebhook`. It takes its place in the order if it is enabled.
    #[must_use]
    pub fn provide(mut self, plugin: Arc<dyn Admission>) -> Self {
        self.provided.push(plugin);
        self
    }
    /// What a plugin runs before what the objects of the API say. The last ones given for a plugin
    /// count. Default: none.
    #[must_use]
    pub fn manifests(mut self, manifests: &Manifests) -> Self {
        self.manifests.retain(|other| other.plugin() != manifests.plugin());
        self.manifests.push(manifests.clone());
        self
    }
    /// Makes the plugins.
    ///
    /// # Errors
    ///
    /// If a name is unknown, enabled and disabled, or not available here; if a plugin refuses its
    /// configuration.
    pub fn build(&self) -> Result<AdmissionPlugins, AdmissionOptionsError> {
        let find = |name: &str| PLUGINS.iter().find(|row| row.name == name);
        for (option, names) in [
            ("enable-admission-plugins", &self.enabled),
            ("disable-admission-plugins", &self.disabled),
        ] {
            if let Some(name) = names.iter().find(|name| find(name).is_none()) {
                return Err(AdmissionOptionsError::Unknown { option, name: name.clone() });
            }
        }
        let both: Vec<String> = self.enabled.intersection(&self.disabled).cloned().collect();
        if !both.is_empty() {
            return Err(AdmissionOptionsError::Both(both));
        }
        if let Some(name) = self.configurations.keys().find(|name| find(name).is_none()) {
            return Err(AdmissionOptionsError::Configured(name.clone()));
        }
        let mut plugins =
            AdmissionPlugins { manifests: self.manifests.clone(), ..AdmissionPlugins::none() };
        for row in PLUGINS {
            let is_enabled = self.enabled.contains(row.name);
            if self.disabled.contains(row.name) || !row.is_default && !is_enabled {
                continue;
            }
            let make = || {
                (row.make)(self)
                    .map_err(|why| AdmissionOptionsError::Configuration { name: row.name, why })
            };
            match row.stage {
                Stage::First => plugins.first.push(make()?),
                Stage::Others => plugins.others.push(row.name),
                Stage::Last => plugins.last.push(make()?),
                Stage::Provided => {
                    let provided = self.provided.iter().find(|plugin| plugin.name() == row.name);
                    let missing = || AdmissionOptionsError::Missing(row.name.to_owned());
                    plugins.first.push(Box::new(Provided(provided.ok_or_else(missing)?.clone())));
                }
            }
        }
        Ok(plugins)
    }
}

/// A plugin that was provided, in its row's place.
#[derive(Debug)]
struct Provided(Arc<dyn Admission>);

impl Admission for Provided {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn handles(&self, review: &Review<'_>) -> bool {
        self.0.handles(review)
    }
    fn mutates(&self, operation: Operation) -> bool {
        self.0.mutates(operation)
    }
    fn mutate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.0.mutate(review, object)
    }
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        self.0.validate(review, object)
    }
    fn reinvoked(&self) -> bool {
        self.0.reinvoked()
    }
}

/// Kubernetes' admission plugins, in call order. Made by [`AdmissionOptions::build`].
#[derive(Debug)]
pub struct AdmissionPlugins {
    pub(super) first: Vec<Box<dyn Admission>>,
    /// The names of policies and webhooks.
    others: Vec<&'static str>,
    pub(super) last: Vec<Box<dyn Admission>>,
    manifests: Vec<Manifests>,
}

impl AdmissionPlugins {
    const fn none() -> Self {
        Self { first: Vec::new(), others: Vec::new(), last: Vec::new(), manifests: Vec::new() }
    }
    /// The manifests of a plugin.
    pub(super) fn manifests(&self, plugin: &str) -> Option<Manifests> {
        self.manifests.iter().find(|manifests| manifests.plugin() == plugin).cloned()
    }
    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let first = self.first.iter().map(|plugin| plugin.name());
        let last = self.last.iter().map(|plugin| plugin.name());
        first.chain(self.others.iter().copied()).chain(last)
    }
}

impl Default for AdmissionPlugins {
    /// The plugins that a kube-apiserver runs by default.
    fn default() -> Self {
        // Without options and configurations there is nothing to refuse.
        AdmissionOptions::default().build().unwrap_or(Self::none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: AdmissionOptions) -> String {
        match options.build() {
            Ok(plugins) => plugins.names().collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn plugins_are_enabled_and_disabled_by_name() {
        let options = AdmissionOptions::default;
        let default = check(options());
        assert!(default.contains("Priority") && !default.contains("AlwaysPullImages"));
        let changed = check(options().enable("AlwaysPullImages").disable("Priority"));
        assert!(!changed.contains("Priority") && changed.contains("AlwaysPullImages"));
        for (options, error) in [
            (options().enable("Foo"), r#"enable-admission-plugins plugin "Foo" is unknown"#),
            (options().disable("Foo"), r#"disable-admission-plugins plugin "Foo" is unknown"#),
            (
                options().enable("Priority").disable("Priority"),
                r#"[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"#,
            ),
            (
                options().enable("ImagePolicyWebhook"),
                r#"enable-admission-plugins plugin "ImagePolicyWebhook" is not available in this server"#,
            ),
        ] {
            assert_eq!(check(options), error);
        }
    }

    #[test]
    fn rows_are_named_as_their_plugins() {
        for row in PLUGINS {
            if let Ok(plugin) = (row.make)(&AdmissionOptions::default()) {
                assert_eq!(plugin.name(), row.name);
            }
        }
    }
}
