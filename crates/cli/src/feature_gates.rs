//! Features that are off unless an option turns them on, by kube-apiserver's names.

use crate::envtest::flags::parse_bool;
use std::fmt;
use std::str::FromStr;

/// The gate of bodies and answers in CBOR.
const CBOR: &str = "CBORServingAndStorage";
/// The gate of all features that the original calls alpha, of which CBOR is one.
const ALL_ALPHA: &str = "AllAlpha";

/// The features of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FeatureGates {
    /// Bodies and answers may be in CBOR.
    pub(crate) cbor: bool,
}

impl FeatureGates {
    /// From the pairs of kube-apiserver's option, later ones before earlier ones. A gate of its own
    /// has precedence over that of all.
    pub(crate) fn of_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, bool)>) -> Self {
        let (mut own, mut all) = (None, None);
        for (name, is_on) in pairs {
            match without_component(name) {
                CBOR => own = Some(is_on),
                ALL_ALPHA => all = Some(is_on),
                _ => {}
            }
        }
        Self { cbor: own.or(all).unwrap_or(false) }
    }

    /// Whether there is something here that a gate turns on or off.
    pub(crate) fn has(name: &str) -> bool {
        matches!(without_component(name), CBOR | ALL_ALPHA)
    }
}

/// The name of a gate, which may name its component.
fn without_component(name: &str) -> &str {
    name.strip_prefix("kube:").unwrap_or(name)
}

impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CBOR}={}", self.cbor)
    }
}

/// Why a list of gates cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GateError {
    #[error("missing bool value for {0}")]
    NoValue(String),
    #[error("invalid value of {0}: not true or false")]
    NoBool(String),
    #[error("there is no feature gate {0}, only {CBOR}")]
    Unknown(String),
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
        Ok(Self::of_pairs(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_gate_counts_and_its_own_more_than_that_of_all() {
        let cbor = |text: &str| text.parse::<FeatureGates>().map(|gates| gates.cbor);
        assert_eq!(cbor(""), Ok(false));
        assert_eq!(cbor("CBORServingAndStorage=true"), Ok(true));
        assert_eq!(cbor("CBORServingAndStorage=true, CBORServingAndStorage=false"), Ok(false));
        assert_eq!(cbor("kube:CBORServingAndStorage=1"), Ok(true));
        assert_eq!(cbor("AllAlpha=true"), Ok(true));
        assert_eq!(cbor("CBORServingAndStorage=false,AllAlpha=true"), Ok(false));
        let error = |text| cbor(text).unwrap_err().to_string();
        assert_eq!(error("A=true"), "there is no feature gate A, only CBORServingAndStorage");
        assert_eq!(error("A"), "missing bool value for A");
        assert_eq!(error("A=maybe"), "invalid value of A=maybe: not true or false");
        assert_eq!(
            FeatureGates { cbor: true }.to_string().parse(),
            Ok(FeatureGates { cbor: true })
        );
    }
}
