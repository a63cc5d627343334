//! Which built-in resources are served: kube-apiserver's `--runtime-config`.

use crate::bootstrap;
use crate::catalog::Catalog;
use crate::compare_versions;
use crate::features::{Emulation, Feature, FeatureGateError, FeatureGates, Release};
use crate::kind::CompiledKind;
use setpoint_facts::{RESOURCES, Resource as Fact};
use setpoint_object::{GroupVersion, boolean};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Groups that the server and its built-in controllers work with. They cannot be turned off.
const NEEDED: [&str; 9] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
];

/// Names of sets of versions, in the order in which they are applied.
const SETS: [(&str, Stability); 4] = [
    ("api/all", Stability::Any),
    ("api/ga", Stability::Stable),
    ("api/beta", Stability::Beta),
    ("api/alpha", Stability::Alpha),
];

/// Resources that came after the oldest release that can be emulated: group, version, their names,
/// and the minor release that has them first. By `APILifecycleIntroduced` of their types.
const INTRODUCED: [(&str, &str, &[&str], u8); 8] = [
    (
        "admissionregistration.k8s.io",
        "v1",
        &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
        36,
    ),
    (
        "admissionregistration.k8s.io",
        "v1beta1",
        &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
        34,
    ),
    ("certificates.k8s.io", "v1beta1", &["podcertificaterequests"], 35),
    (
        "resource.k8s.io",
        "v1",
        &["deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"],
        34,
    ),
    ("resource.k8s.io", "v1alpha3", &["resourcepoolstatusrequests"], 36),
    ("resource.k8s.io", "v1beta2", &["devicetaintrules"], 36),
    ("storage.k8s.io", "v1", &["volumeattributesclasses"], 34),
    ("storagemigration.k8s.io", "v1beta1", &["storageversionmigrations"], 35),
];

/// The first release that has a resource, if it came after the oldest that can be emulated.
fn introduced(row: &Fact) -> Option<Release> {
    let is_row = |(group, version, resources, _): &&(&str, &str, &[&str], u8)| {
        *group == row.group && *version == row.version && resources.contains(&row.resource)
    };
    INTRODUCED.iter().find(is_row).map(|(.., minor)| Release::of_minor(*minor))
}

/// Whether a release has a resource.
fn has(release: Release, row: &Fact) -> bool {
    introduced(row).is_none_or(|introduced| introduced <= release)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stability {
    Any,
    Stable,
    Beta,
    Alpha,
}

impl Stability {
    fn of(version: &str) -> Option<Self> {
        let rest = version.strip_prefix('v')?.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "" => Some(Self::Stable),
            "beta" => Some(Self::Beta),
            "alpha" => Some(Self::Alpha),
            _ => None,
        }
    }
    fn has(self, version: &str) -> bool {
        self == Self::Any || Self::of(version) == Some(self)
    }
}

/// Which built-in resources are served, in the syntax of kube-apiserver's `--runtime-config`: pairs
/// `key=bool` with commas between them. A key is `<group>/<version>` (`api/v1` or `v1` for the core
/// group), `<group>/<version>/<resource>`, `api/all`, `api/ga`, `api/beta` or `api/alpha`. A
/// resource counts more than a version, and a version more than a set. Without a value, `true`.
///
/// By default, every built-in resource is served in its stable versions, and none in alpha and beta
/// versions. Objects are stored in the same form whatever is served. Resources that are turned off
/// stay in the store.
///
/// Some resources need a feature gate besides ([`with_gates`](Self::with_gates)); without it they
/// are not there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    text: String,
    gates: FeatureGates,
    /// Rows that are not as by default: group, version, resource, and whether they are served.
    changed: BTreeMap<RowName, bool>,
    /// Rows that are turned on by their version or name.
    named: BTreeSet<RowName>,
}

/// Group, version and resource.
type RowName = [&'static str; 3];

fn name_of(row: &Fact) -> RowName {
    [row.group, row.version, row.resource]
}

/// Why a text is not a [`RuntimeConfig`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeConfigError {
    /// A key of another form.
    #[error("runtime-config invalid key {0}")]
    Key(String),
    /// A value that is not a boolean. Key and value.
    #[error("invalid value of {0}: {1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    Value(String, String),
    /// Groups that Kubernetes does not have.
    #[error("unknown api groups {0}")]
    UnknownGroups(String),
    /// A version that its group does not have.
    #[error("group version {0} that has not been registered")]
    UnknownVersion(String),
    /// A version that Kubernetes may have, and this server does not.
    #[error("group version {0} is not served by setpoint: it has no kinds of that version")]
    NotServed(String),
    /// A resource that is not in lower case. Key and resource.
    #[error(
        "invalid key {0}: group/version/resource and resource is always lowercase plural, not {1:?}"
    )]
    Case(String, String),
    /// A feature is on without another one that it needs.
    #[error(transparent)]
    Features(#[from] FeatureGateError),
    /// Nothing would be served.
    #[error("invalid runtime-config with only api/all=false")]
    Nothing,
    /// A resource of a later release than the emulated one, which kube-apiserver refuses in these
    /// words. Group, version, resource, the release that has it first, and the emulated one.
    #[error(
        "cannot enable resource {0}/{1}, Resource={2} in runtime-config because it is introduced at \
         {3} after the current version {4}. Consider setting \
         --runtime-config-emulation-forward-compatible=true"
    )]
    LaterResource(&'static str, &'static str, &'static str, Release, Release),
    /// A version of later releases than the emulated one, which kube-apiserver refuses in these
    /// words. The version, and the emulated release.
    #[error(
        "cannot enable version {0} in runtime-config because all the resources have been introduced \
         after the current version {1}. Consider setting \
         --runtime-config-emulation-forward-compatible=true"
    )]
    LaterVersion(String, Release),
    /// What the server needs itself would be turned off.
    #[error("group version {0} cannot be turned off: setpoint needs it")]
    Needed(String),
}

impl RuntimeConfig {
    /// The same syntax, with these features.
    ///
    /// # Errors
    ///
    /// As from a text alone; and if a feature is on without one that it needs.
    pub fn with_gates(
        text: &str,
        gates: impl Into<FeatureGates>,
    ) -> Result<Self, RuntimeConfigError> {
        let gates = gates.into();
        gates.check_needs()?;
        parse(text, gates)
    }
    /// Which features are on.
    pub fn features(&self) -> FeatureGates {
        self.gates
    }
    fn serves(&self, row: &Fact) -> bool {
        let emulation = self.gates.emulation();
        let earlier: Vec<&Fact> = match emulation.is_forward_compatible() {
            true => earlier(row).collect(),
            false => Vec::new(),
        };
        let is_on = || self.is_on(row) || earlier.iter().any(|other| self.is_on(other));
        let is_there = || {
            has(emulation.release(), row)
                || emulation.has_later() && self.named.contains(&name_of(row))
        };
        let is_served = |other: &&Fact| other.resource == row.resource && self.serves(other);
        is_open(row, self.gates) && is_on() && (is_there() || earlier.iter().any(is_served))
    }
    fn is_on(&self, row: &Fact) -> bool {
        self.changed.get(&name_of(row)).copied().unwrap_or(row.is_stable())
    }
    /// The catalog of what is served, with kinds that an embedder compiled in.
    pub(crate) fn catalog(&self, kinds: &[CompiledKind]) -> Arc<Catalog> {
        let serves = |row: &Fact| self.serves(row);
        let emulation = self.gates.emulation();
        let is_default = self.changed.is_empty() && emulation == Emulation::default();
        bootstrap::catalog_with(kinds, (!is_default).then_some((&serves, emulation)))
    }
    /// Whether a key names a set of versions, or a version that this server has kinds of, with
    /// these feature gates.
    pub fn knows(key: &str, gates: FeatureGates) -> bool {
        let is_set = SETS.iter().any(|(set, _)| *set == key);
        is_set || split(key).is_some_and(|(group, version, _)| is_version(group, version, gates))
    }
}

/// The resources of earlier versions of a row's group, but alpha ones, which nothing comes before.
fn earlier(row: &Fact) -> impl Iterator<Item = &'static Fact> {
    let is_alpha = |version: &str| Stability::of(version) == Some(Stability::Alpha);
    RESOURCES.iter().filter(move |other| {
        other.group == row.group
            && !is_alpha(row.version)
            && !is_alpha(other.version)
            && compare_versions(row.version, other.version) == Ordering::Less
    })
}

/// Whether a resource needs no feature, or one that is on.
fn is_open(row: &Fact, gates: FeatureGates) -> bool {
    row.gate.is_empty() || Feature::named(row.gate).is_some_and(|feature| gates.is_on(feature))
}

/// Group, version and resource of a key that is no set.
fn split(key: &str) -> Option<(&str, &str, Option<&str>)> {
    let tokens: Vec<&str> = key.split('/').collect();
    let (group, version, resource) = match tokens[..] {
        // As kube-apiserver's help writes the core group.
        ["v1"] => ("", "v1", None),
        [group, version] => (group, version, None),
        [group, version, resource] => (group, version, Some(resource)),
        _ => return None,
    };
    Some((if group == "api" { "" } else { group }, version, resource))
}

fn is_group(group: &str) -> bool {
    RESOURCES.iter().any(|row| row.group == group)
}
fn is_version(group: &str, version: &str, gates: FeatureGates) -> bool {
    let mut rows = RESOURCES.iter().filter(|row| is_open(row, gates));
    rows.any(|row| row.group == group && row.version == version)
}

impl fmt::Display for RuntimeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for RuntimeConfig {
    type Err = RuntimeConfigError;

    fn from_str(text: &str) -> Result<Self, RuntimeConfigError> {
        parse(text, FeatureGates::default())
    }
}

fn parse(text: &str, gates: FeatureGates) -> Result<RuntimeConfig, RuntimeConfigError> {
    // The last one of each key, in name order.
    let mut pairs: BTreeMap<&str, &str> = BTreeMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        pairs.insert(key.trim(), value.trim());
    }
    if pairs.len() == 1 && pairs.get("api/all") == Some(&"false") {
        return Err(RuntimeConfigError::Nothing);
    }
    let (mut changed, mut named) = (BTreeMap::new(), BTreeSet::new());
    let mut turn = |is_on: bool, concerns: &dyn Fn(&Fact) -> bool| {
        for row in RESOURCES.iter().filter(|row| concerns(row)) {
            match is_on == row.is_stable() {
                true => changed.remove(&name_of(row)),
                false => changed.insert(name_of(row), is_on),
            };
        }
    };
    for (set, stability) in SETS {
        let Some(value) = pairs.remove(set) else { continue };
        let is_on = boolean(set, value)?;
        turn(is_on, &|row| stability.has(row.version));
    }
    let mut specific = Vec::new();
    let mut unknown = Vec::new();
    for (key, value) in pairs {
        let Some((group, version, resource)) = split(key) else {
            return Err(RuntimeConfigError::Key(key.to_owned()));
        };
        let name = GroupVersion::new(group, version).to_string();
        match is_group(group) {
            false => unknown.push(name),
            true => specific.push((key, name, group, version, resource, value)),
        }
    }
    if !unknown.is_empty() {
        return Err(RuntimeConfigError::UnknownGroups(unknown.join(",")));
    }
    // Versions before resources.
    specific.sort_by_key(|(.., resource, _)| resource.is_some());
    for (key, name, group, version, resource, value) in specific {
        let is_on = boolean(key, value)?;
        let is_unstable =
            matches!(Stability::of(version), Some(Stability::Beta | Stability::Alpha));
        match (is_version(group, version, gates), is_unstable, is_on) {
            (true, ..) => {}
            (false, true, false) => continue,
            (false, true, true) => return Err(RuntimeConfigError::NotServed(name)),
            (false, false, _) => return Err(RuntimeConfigError::UnknownVersion(name)),
        }
        if let Some(resource) = resource.filter(|name| name.to_lowercase() != **name) {
            return Err(RuntimeConfigError::Case(key.to_owned(), resource.to_owned()));
        }
        let is_meant = |row: &Fact| {
            let is_version = row.group == group && row.version == version;
            is_version && resource.is_none_or(|resource| row.resource == resource)
        };
        turn(is_on, &is_meant);
        if is_on {
            let rows = || RESOURCES.iter().filter(|row| is_meant(row) && is_open(row, gates));
            if !gates.emulation().has_later() {
                check_introduced(rows(), resource.is_some(), &name, gates.emulation().release())?;
            }
            named.extend(rows().map(name_of));
        }
    }
    let is_needed = |([group, ..], is_on): &(&RowName, &bool)| !**is_on && NEEDED.contains(group);
    if let Some(([group, version, _], _)) = changed.iter().find(is_needed) {
        let name = GroupVersion::new(*group, *version).to_string();
        return Err(RuntimeConfigError::Needed(name));
    }
    Ok(RuntimeConfig { text: text.to_owned(), gates, changed, named })
}

/// Whether a release has the resource that is turned on, or one of those of a version.
fn check_introduced<'f>(
    mut rows: impl Iterator<Item = &'f Fact> + Clone,
    is_resource: bool,
    version: &str,
    release: Release,
) -> Result<(), RuntimeConfigError> {
    let first = rows.clone().next();
    if rows.any(|row| has(release, row)) {
        return Ok(());
    }
    match first.and_then(|row| Some((row, introduced(row)?))) {
        Some((row, introduced)) if is_resource => Err(RuntimeConfigError::LaterResource(
            row.group,
            row.version,
            row.resource,
            introduced,
            release,
        )),
        Some(_) => Err(RuntimeConfigError::LaterVersion(version.to_owned(), release)),
        None => Ok(()),
    }
}

fn boolean(key: &str, value: &str) -> Result<bool, RuntimeConfigError> {
    let parsed = if value.is_empty() { Some(true) } else { boolean::parse(value) };
    parsed.ok_or_else(|| RuntimeConfigError::Value(key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_turn_resources_off() {
        let check = |text: &str, served: &[&str], unserved: &[&str]| {
            let config: RuntimeConfig = text.parse().unwrap();
            let catalog = config.catalog(&[]);
            let has = |name: &&&str| {
                let mut parts = name.split('/');
                let mut next = || parts.next().unwrap();
                catalog.get(next(), next(), next()).is_some()
            };
            assert_eq!(served.iter().filter(has).count(), served.len(), "{text}: {served:?}");
            assert_eq!(unserved.iter().filter(has).count(), 0, "{text}: {unserved:?}");
        };
        check("", &["apps/v1/deployments"], &[]);
        check("apps/v1=false", &["batch/v1/jobs"], &["apps/v1/deployments", "apps/v1/replicasets"]);
        check("apps/v1/deployments=0", &["apps/v1/replicasets"], &["apps/v1/deployments"]);
        check(
            "apps/v1/deployments=true, apps/v1=false",
            &["apps/v1/deployments"],
            &["apps/v1/replicasets"],
        );
        let beta = "resource.k8s.io/v1beta1/resourceclaims";
        let alpha = "admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies";
        check("", &[], &[beta, alpha]);
        check("api/beta=true", &[beta], &[alpha]);
        check("api/all", &[beta, alpha], &[]);
        check("api/all,resource.k8s.io/v1beta1=false", &["apps/v1/deployments", alpha], &[beta]);
        check("resource.k8s.io/v1beta1", &[beta], &["resource.k8s.io/v1beta2/resourceclaims"]);
        check(&format!("{beta}=true"), &[beta], &["resource.k8s.io/v1beta1/deviceclasses"]);
        let config: RuntimeConfig = "apps/v1=false".parse().unwrap();
        assert!(config.catalog(&[]).group("apps").is_none());
        let same: RuntimeConfig = "apps/v1,api/alpha=false".parse().unwrap();
        assert!(Arc::ptr_eq(&same.catalog(&[]), &bootstrap::catalog()));
    }

    #[test]
    fn some_resources_need_a_feature() {
        let has = |text: &str, gates: &[Feature], version: &str| {
            let catalog = RuntimeConfig::with_gates(text, gates).unwrap().catalog(&[]);
            catalog.get("certificates.k8s.io", version, "clustertrustbundles").is_some()
        };
        let on = &[Feature::ClusterTrustBundle];
        assert!(!has("api/all", &[], "v1beta1") && !has("", on, "v1beta1"));
        assert!(has("api/all", on, "v1beta1") && has("api/all", on, "v1alpha1"));
        let beta = "certificates.k8s.io/v1beta1";
        assert!(has(beta, on, "v1beta1") && !has(beta, on, "v1alpha1"));
        let knows = |gates: FeatureGates| RuntimeConfig::knows(beta, gates);
        assert!(knows(FeatureGates::from(&on[..])) && !knows(FeatureGates::default()));
    }

    #[test]
    fn every_feature_that_a_resource_needs_can_be_turned_on() {
        for row in RESOURCES.iter().filter(|row| !row.gate.is_empty()) {
            let feature = Feature::named(row.gate);
            assert!(
                feature.is_some_and(|feature| feature.is_switch(Release::PRESENT)),
                "{}",
                row.gate
            );
        }
    }

    #[test]
    fn a_feature_that_needs_another_one_is_refused_without_it() {
        let error = RuntimeConfig::with_gates("", [Feature::GangScheduling]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"
        );
        let both = [Feature::GenericWorkload, Feature::GangScheduling];
        assert!(RuntimeConfig::with_gates("", both).is_ok());
    }

    #[test]
    fn refusals_are_those_of_kube_apiserver() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<RuntimeConfig>().unwrap_err().to_string(), expected);
        };
        check("nope/v1=true", "unknown api groups nope/v1");
        check("apps/v9=true", "group version apps/v9 that has not been registered");
        check("foo=true", "runtime-config invalid key foo");
        check("api/all=false", "invalid runtime-config with only api/all=false");
        check(
            "apps/v1=x",
            "invalid value of apps/v1: x, err: strconv.ParseBool: parsing \"x\": invalid syntax",
        );
        check(
            "apps/v1/Deployments=false",
            "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\"",
        );
        check(
            "certificates.k8s.io/v1beta1=true",
            "group version certificates.k8s.io/v1beta1 is not served by setpoint: it has no kinds of that version",
        );
        let gated =
            RuntimeConfig::with_gates("certificates.k8s.io/v1beta1", [Feature::GenericWorkload]);
        assert!(gated.is_err());
        check("api/v1=false", "group version v1 cannot be turned off: setpoint needs it");
        check("v1=false", "group version v1 cannot be turned off: setpoint needs it");
    }

    fn emulating(minor: u8, text: &str) -> Result<RuntimeConfig, RuntimeConfigError> {
        let emulation = Emulation::of(Release::of_minor(minor)).unwrap();
        RuntimeConfig::with_gates(text, FeatureGates::emulating(emulation))
    }

    #[test]
    fn a_release_serves_what_it_had() {
        let serves = |config: &RuntimeConfig, group: &str, version: &str, resource: &str| {
            config.catalog(&[]).get(group, version, resource).is_some()
        };
        let claims = ("resource.k8s.io", "resourceclaims");
        let in_33 = emulating(33, "resource.k8s.io/v1beta1=true").unwrap();
        assert!(serves(&in_33, claims.0, "v1beta1", claims.1));
        assert!(!serves(&in_33, claims.0, "v1", claims.1));
        assert!(serves(&emulating(34, "").unwrap(), claims.0, "v1", claims.1));
        // Versions and resources of later releases.
        let refused = |minor, text| emulating(minor, text).unwrap_err().to_string();
        assert_eq!(
            refused(33, "admissionregistration.k8s.io/v1beta1"),
            "cannot enable version admissionregistration.k8s.io/v1beta1 in runtime-config because \
             all the resources have been introduced after the current version 1.33. Consider \
             setting --runtime-config-emulation-forward-compatible=true"
        );
        assert_eq!(
            refused(35, "admissionregistration.k8s.io/v1/mutatingadmissionpolicies"),
            "cannot enable resource admissionregistration.k8s.io/v1, \
             Resource=mutatingadmissionpolicies in runtime-config because it is introduced at 1.36 \
             after the current version 1.35. Consider setting \
             --runtime-config-emulation-forward-compatible=true"
        );
        let emulation = Emulation::of(Release::of_minor(33)).unwrap();
        let with = |text: &str, emulation| {
            RuntimeConfig::with_gates(text, FeatureGates::emulating(emulation)).unwrap()
        };
        let later = emulation.with_later(true).unwrap();
        let named = with("resource.k8s.io/v1/resourceclaims", later);
        assert!(serves(&named, claims.0, "v1", claims.1));
        assert!(!serves(&named, claims.0, "v1", "resourceslices"));
        assert!(!serves(&with("", later), claims.0, "v1", claims.1));
        // Later versions of what is served.
        let ahead = emulation.forward_compatible(true).unwrap();
        let beta = with("resource.k8s.io/v1beta1=true", ahead);
        assert!(serves(&beta, claims.0, "v1", claims.1));
        assert!(serves(&beta, claims.0, "v1beta2", claims.1));
        assert!(!serves(&with("", ahead), claims.0, "v1", claims.1));
    }

    #[test]
    fn objects_are_stored_in_versions_that_the_oldest_release_has() {
        let encoding = |config: RuntimeConfig, group: &str, version: &str, resource: &str| {
            let catalog = config.catalog(&[]);
            catalog.get(group, version, resource).unwrap().encoding().version.to_string()
        };
        let claims = ("resource.k8s.io", "v1", "resourceclaims");
        let of = |minor| encoding(emulating(minor, "").unwrap(), claims.0, claims.1, claims.2);
        assert_eq!([of(34), of(35), of(36)], ["v1beta2", "v1", "v1"]);
        let policies = ("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies");
        let of = |emulation| {
            let config = RuntimeConfig::with_gates("", FeatureGates::emulating(emulation));
            encoding(config.unwrap(), policies.0, policies.1, policies.2)
        };
        assert_eq!(of(Emulation::default()), "v1beta1");
        let alone = Emulation::default().compatible_with(Release::PRESENT).unwrap();
        assert_eq!(of(alone), "v1");
    }

    #[test]
    fn the_page_lists_what_came_later() {
        let page = include_str!("../../../docs/emulation.md");
        for (group, version, resources, minor) in INTRODUCED {
            let is_known = |name: &&&str| {
                RESOURCES.iter().any(|row| {
                    row.group == group && row.version == version && row.resource == **name
                })
            };
            assert_eq!(resources.iter().filter(is_known).count(), resources.len(), "{group}");
            let names: Vec<_> = resources.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| `{group}/{version}` | {} | 1.{minor} |", names.join(", "));
            assert!(page.contains(&row), "{row}");
        }
    }
}
