//! Features that are off unless an option turns them on, by kube-apiserver's names.

use crate::envtest::flags::parse_bool;
use setpoint::registry::{RuntimeConfig, RuntimeConfigError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// The gate of bodies and answers in CBOR.
const CBOR: &str = "CBORServingAndStorage";
/// The gate of all features that the original calls alpha, CBOR among them.
const ALL_ALPHA: &str = "AllAlpha";
/// That of all that it calls beta.
const ALL_BETA: &str = "AllBeta";

/// The gates that there are, each with the gate of all like it.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let set = |gate| if RuntimeConfig::is_alpha_gate(gate) { ALL_ALPHA } else { ALL_BETA };
    std::iter::once((CBOR, ALL_ALPHA))
        .chain(RuntimeConfig::gates().map(move |gate| (gate, set(gate))))
}

/// The features of a command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FeatureGates {
    on: BTreeSet<&'static str>,
}

impl FeatureGates {
    /// From the pairs of kube-apiserver's option, later ones before earlier ones. A gate of its own
    /// has precedence over that of all.
    pub(crate) fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, bool)>) -> Self {
        let pairs = pairs.into_iter().map(|(name, is_on)| (without_component(name), is_on));
        let given: BTreeMap<&str, bool> = pairs.collect();
        let is_on = |(gate, set): &(&str, &str)| {
            given.get(gate).or_else(|| given.get(set)).copied().unwrap_or(false)
        };
        Self { on: all().filter(is_on).map(|(gate, _)| gate).collect() }
    }

    /// The same, if each has those that it needs.
    pub(crate) fn checked(self) -> Result<Self, GateError> {
        RuntimeConfig::check_gates(&self.names())?;
        Ok(self)
    }

    /// Whether bodies and answers may be in CBOR.
    pub(crate) fn cbor(&self) -> bool {
        self.on.contains(CBOR)
    }

    /// The names of those that are on.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.on.iter().copied().collect()
    }

    /// Whether there is something here that a gate turns on or off.
    pub(crate) fn has(name: &str) -> bool {
        let name = without_component(name);
        all().any(|(gate, set)| gate == name || set == name)
    }

    /// The names of all, with commas between them.
    pub(crate) fn known() -> String {
        all().map(|(gate, _)| gate).collect::<Vec<_>>().join(", ")
    }
}

/// The name of a gate, which may name its component.
fn without_component(name: &str) -> &str {
    name.strip_prefix("kube:").unwrap_or(name)
}

impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<_> =
            all().map(|(gate, _)| format!("{gate}={}", self.on.contains(gate))).collect();
        f.write_str(&pairs.join(","))
    }
}

/// Why a list of gates cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateError {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {0}: not true or false")]
    NoBool(String),
    #[error("there is no feature gate {0}, only {known}", known = FeatureGates::known())]
    Unknown(String),
    #[error(transparent)]
    Needs(#[from] RuntimeConfigError),
}

impl FromStr for FeatureGates {
    type Err = GateError;
    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut pairs = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| GateError::NoValue(pair.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let is_on = parse_bool(value).ok_or_else(|| GateError::NoBool(pair.to_owned()))?;
            if !Self::has(name) {
                return Err(GateError::Unknown(name.to_owned()));
            }
            pairs.push((name, is_on));
        }
        Self::of_pairs(pairs).checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_gate_counts_and_its_own_more_than_that_of_all() {
        let on = |text: &str| text.parse::<FeatureGates>().map(|gates| gates.names().join(" "));
        let check = |text: &str, expected: &str| assert_eq!(on(text), Ok(expected.to_owned()));
        check("", "");
        check("CBORServingAndStorage=true", CBOR);
        check("CBORServingAndStorage=true, CBORServingAndStorage=false", "");
        check("kube:CBORServingAndStorage=1", CBOR);
        let unsafe_delete = "AllowUnsafeMalformedObjectDeletion";
        let alpha = "DRAResourcePoolStatus GangScheduling GenericWorkload StorageVersionAPI WorkloadWithJob";
        check("AllAlpha=true", &format!("{unsafe_delete} {CBOR} {alpha}"));
        check("CBORServingAndStorage=false,AllAlpha=true", &format!("{unsafe_delete} {alpha}"));
        check("ClusterTrustBundle=true", "ClusterTrustBundle");
        check(
            "AllBeta=true,AllAlpha=true,ClusterTrustBundle=false",
            "AllowUnsafeMalformedObjectDeletion CBORServingAndStorage CoordinatedLeaderElection DRADeviceTaintRules DRAResourcePoolStatus GangScheduling GenericWorkload PodCertificateRequest StorageVersionAPI StorageVersionMigrator WorkloadWithJob",
        );
        let error = |text| on(text).unwrap_err().to_string();
        assert_eq!(
            error("A=true"),
            "there is no feature gate A, only CBORServingAndStorage, AllowUnsafeMalformedObjectDeletion, ClusterTrustBundle, CoordinatedLeaderElection, DRADeviceTaintRules, DRAResourcePoolStatus, GangScheduling, GenericWorkload, PodCertificateRequest, StorageVersionAPI, StorageVersionMigrator, WorkloadWithJob"
        );
        for gates in ["GangScheduling=true", "AllAlpha=true,GenericWorkload=false"] {
            assert_eq!(
                error(gates),
                "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"
            );
        }
        assert_eq!(error("A"), "missing bool value for A");
        assert_eq!(error("A=maybe"), "invalid value of A=maybe: not true or false");
        let cbor = FeatureGates { on: [CBOR].into() };
        assert_eq!(
            cbor.to_string(),
            "CBORServingAndStorage=true,AllowUnsafeMalformedObjectDeletion=false,ClusterTrustBundle=false,CoordinatedLeaderElection=false,DRADeviceTaintRules=false,DRAResourcePoolStatus=false,GangScheduling=false,GenericWorkload=false,PodCertificateRequest=false,StorageVersionAPI=false,StorageVersionMigrator=false,WorkloadWithJob=false"
        );
        assert_eq!(cbor.to_string().parse(), Ok(cbor));
    }
}
