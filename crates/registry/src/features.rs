//! Which features are on: kube-apiserver's `--feature-gates`.
//!
//! All gates of the reference are known by name. Some turn something on and off here. The others
//! belong to other programs, or to the inside of the reference, and have no effect; or what they
//! turn on and off is here as it is by default, and another value is refused.
//!
//! What a gate is by default, and whether it is there, depends on the release that is emulated.

mod emulation;
mod history;
mod table;

pub use emulation::{Emulation, EmulationError, Release};
pub use table::Feature;

use history::HISTORY;
use setpoint_object::boolean;
use std::fmt;
use std::str::FromStr;
use table::{ALL, ROWS};

/// The gate of all features in stage alpha.
const ALL_ALPHA: &str = "AllAlpha";
/// That of all in stage beta.
const ALL_BETA: &str = "AllBeta";

/// Features that need others, each with those.
const NEEDS: [(Feature, &[Feature]); 15] = [
    (Feature::ClusterTrustBundleProjection, &[Feature::ClusterTrustBundle]),
    (Feature::DRADeviceBindingConditions, &[Feature::DRAResourceClaimDeviceStatus]),
    (Feature::DRADeviceTaintRules, &[Feature::DRADeviceTaints]),
    (
        Feature::DRAResourceClaimGranularStatusAuthorization,
        &[Feature::DRAResourceClaimDeviceStatus],
    ),
    (Feature::DRAWorkloadResourceClaims, &[Feature::GenericWorkload]),
    (Feature::GangScheduling, &[Feature::GenericWorkload]),
    (
        Feature::InPlacePodLevelResourcesVerticalScaling,
        &[Feature::NodeDeclaredFeatures, Feature::PodLevelResources],
    ),
    (Feature::InPlacePodVerticalScalingInitContainers, &[Feature::NodeDeclaredFeatures]),
    (
        Feature::MatchLabelKeysInPodTopologySpreadSelectorMerge,
        &[Feature::MatchLabelKeysInPodTopologySpread],
    ),
    (Feature::ResourceHealthStatusMessage, &[Feature::ResourceHealthStatus]),
    (
        Feature::RestartAllContainersOnContainerExits,
        &[Feature::ContainerRestartRules, Feature::NodeDeclaredFeatures],
    ),
    (Feature::TopologyAwareWorkloadScheduling, &[Feature::GenericWorkload]),
    (Feature::UserNamespacesHostNetworkSupport, &[Feature::NodeDeclaredFeatures]),
    (Feature::WorkloadAwarePreemption, &[Feature::GangScheduling]),
    (Feature::WorkloadWithJob, &[Feature::GenericWorkload]),
];

/// How far a feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

/// What setting a gate means here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Here {
    /// It turns the feature on or off.
    Switch,
    /// Nothing: the feature is of another program, or of the inside of the reference.
    Elsewhere,
    /// The feature is as by default, and the gate can only say so.
    Fixed,
    /// The same in the reference.
    Locked,
    /// The same in the reference, but where an earlier release is emulated, it turns the feature on
    /// or off.
    Past,
}

/// What a gate is in a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    stage: Stage,
    /// Whether it is on by default.
    is_on: bool,
    is_locked: bool,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    stage: Stage,
    /// Whether it is on by default.
    is_on: bool,
    here: Here,
}

impl Stage {
    /// The stage as metrics name it, which is nothing if it is stable.
    fn name(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

impl Feature {
    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
    /// The name of its gate.
    pub fn name(self) -> &'static str {
        self.row().name
    }
    /// The feature whose gate has this name.
    pub fn named(name: &str) -> Option<Self> {
        let at = ROWS.binary_search_by(|row| row.name.cmp(name)).ok()?;
        ALL.get(at).copied()
    }
    /// Its gate in a release. `None`: that has no such gate. One that cannot be emulated counts as
    /// the nearest that can.
    fn state(self, release: Release) -> Option<State> {
        let row = self.row();
        let is_locked = matches!(row.here, Here::Locked | Here::Past);
        let present = Some(State { stage: row.stage, is_on: row.is_on, is_locked });
        let nth = usize::from(release.minor().saturating_sub(Release::OLDEST.minor()));
        let at = HISTORY.binary_search_by_key(&self, |(feature, _)| *feature).ok();
        at.and_then(|at| HISTORY[at].1.get(nth)).copied().unwrap_or(present)
    }
    /// Whether its gate turns something on and off here, where a release is emulated.
    pub fn is_switch(self, release: Release) -> bool {
        match self.row().here {
            Here::Switch => true,
            Here::Past => release < Release::PRESENT,
            Here::Elsewhere | Here::Fixed | Here::Locked => false,
        }
    }
    /// Whether it can be on or off here.
    fn can_be(self, is_on: bool, emulation: Emulation) -> Result<(), FeatureGateError> {
        let row = self.row();
        let Some(state) = self.state(emulation.release()) else {
            return Err(FeatureGateError::Later(row.name, is_on, emulation));
        };
        match row.here {
            _ if state.is_locked && state.is_on != is_on => {
                Err(FeatureGateError::Locked(row.name, is_on, state.is_on))
            }
            Here::Switch | Here::Past | Here::Elsewhere => Ok(()),
            Here::Fixed | Here::Locked if row.is_on == is_on => Ok(()),
            Here::Fixed | Here::Locked if is_on => Err(FeatureGateError::NotHere(row.name)),
            Here::Fixed | Here::Locked => Err(FeatureGateError::AlwaysHere(row.name)),
        }
    }
    /// Whether it is on by default, where a release is emulated.
    pub fn is_on_by_default(self, release: Release) -> bool {
        match self.row().here {
            // The same whatever is emulated.
            Here::Fixed | Here::Locked => self.row().is_on,
            Here::Switch | Here::Past | Here::Elsewhere => {
                self.state(release).is_some_and(|state| state.is_on)
            }
        }
    }
    /// All features, by name.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().copied()
    }
}

/// How many features fit into a word of [`FeatureGates`].
const WORD_BITS: usize = u64::BITS as usize;
const N_WORDS: usize = ROWS.len().div_ceil(WORD_BITS);

/// Which features are on. By default, those that are on in kube-apiserver 1.36, but for two that
/// are not here, and `ShardedListAndWatch`; or in the release that is
/// [emulated](Self::emulating).
///
/// As text: the pairs `name=bool` with commas between them of its option `--feature-gates`. Of
/// several values of a gate the last one counts. `AllAlpha` and `AllBeta` stand for all gates of
/// their stage that turn something on and off here, and count less than those.
///
/// ```
/// use setpoint_registry::{Feature, FeatureGates};
///
/// let gates: FeatureGates = "GenericWorkload=true,WatchList=false".parse()?;
/// assert!(gates.is_on(Feature::GenericWorkload) && !gates.is_on(Feature::WatchList));
/// assert_eq!(gates.to_string(), "GenericWorkload=true,WatchList=false");
/// # Ok::<(), setpoint_registry::FeatureGateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FeatureGates {
    words: [u64; N_WORDS],
    emulation: Emulation,
}

/// Those that are on by default.
const DEFAULT: FeatureGates = {
    let mut words = [0; N_WORDS];
    let mut at = 0;
    while at < ROWS.len() {
        words[at / WORD_BITS] |= (ROWS[at].is_on as u64) << (at % WORD_BITS);
        at += 1;
    }
    FeatureGates { words, emulation: Emulation::PRESENT }
};

impl Default for FeatureGates {
    fn default() -> Self {
        DEFAULT
    }
}

/// Those, beside what is on by default.
impl<const N: usize> From<[Feature; N]> for FeatureGates {
    fn from(on: [Feature; N]) -> Self {
        Self::from(&on[..])
    }
}

/// Those, beside what is on by default.
impl From<&[Feature]> for FeatureGates {
    fn from(on: &[Feature]) -> Self {
        on.iter().fold(Self::default(), |gates, feature| gates.with(*feature, true))
    }
}

impl FeatureGates {
    /// Those that are on by default in a release.
    pub fn emulating(emulation: Emulation) -> Self {
        let release = emulation.release();
        let mut gates = Self { emulation, ..Self::default() };
        if release != Release::PRESENT {
            Feature::all()
                .for_each(|feature| gates.set(feature, feature.is_on_by_default(release)));
        }
        gates
    }
    /// The release that is emulated.
    pub fn emulation(&self) -> Emulation {
        self.emulation
    }
    /// The features that have a gate, by name, with their stages as metrics name them: `ALPHA`,
    /// `BETA`, `DEPRECATED`, or empty if stable.
    pub fn known(&self) -> impl Iterator<Item = (Feature, &'static str)> {
        let release = self.emulation.release();
        Feature::all()
            .filter_map(move |feature| Some((feature, feature.state(release)?.stage.name())))
    }
    /// Whether a feature is on.
    pub fn is_on(&self, feature: Feature) -> bool {
        let at = feature as usize;
        self.words[at / WORD_BITS] & (1 << (at % WORD_BITS)) != 0
    }
    fn set(&mut self, feature: Feature, is_on: bool) {
        let (word, bit) = (feature as usize / WORD_BITS, 1 << (feature as usize % WORD_BITS));
        match is_on {
            true => self.words[word] |= bit,
            false => self.words[word] &= !bit,
        }
    }
    /// The same with a feature on or off. One that cannot be so here stays as it is.
    #[must_use]
    pub fn with(mut self, feature: Feature, is_on: bool) -> Self {
        if feature.can_be(is_on, self.emulation).is_ok() {
            self.set(feature, is_on);
        }
        self
    }
    /// The features that are on, by name.
    pub fn on(&self) -> impl Iterator<Item = Feature> {
        Feature::all().filter(|feature| self.is_on(*feature))
    }
    /// From pairs of gates and values, later ones before earlier ones, where a release is emulated.
    /// Values that cannot be set here are left out.
    pub fn of_pairs<'a>(
        pairs: impl IntoIterator<Item = (&'a str, bool)>,
        emulation: Emulation,
    ) -> Self {
        let mut gates = Self::emulating(emulation);
        let release = emulation.release();
        let mut own = Vec::new();
        for (name, is_on) in pairs {
            let name = without_component(name);
            let stage = match name {
                ALL_ALPHA => Stage::Alpha,
                ALL_BETA => Stage::Beta,
                _ => {
                    let feature = settable(name, is_on, emulation);
                    own.extend(feature.ok().map(|feature| (feature, is_on)));
                    continue;
                }
            };
            let is_of = |feature: &Feature| {
                let is_stage = |state: State| state.stage == stage;
                feature.is_switch(release) && feature.state(release).is_some_and(is_stage)
            };
            Feature::all().filter(is_of).for_each(|feature| gates.set(feature, is_on));
        }
        for (feature, is_on) in own {
            gates.set(feature, is_on);
        }
        gates
    }
    /// Whether a gate can have this value here, where a release is emulated.
    ///
    /// # Errors
    ///
    /// [`FeatureGateError`]: there is no such gate, or it has another value for good.
    pub fn check(name: &str, is_on: bool, emulation: Emulation) -> Result<(), FeatureGateError> {
        match without_component(name) {
            ALL_ALPHA | ALL_BETA => Ok(()),
            name => settable(name, is_on, emulation).map(drop),
        }
    }
    /// From text, where a release is emulated.
    ///
    /// # Errors
    ///
    /// [`FeatureGateError`]: the first pair that cannot be, or a feature without one that it needs.
    pub fn parse(text: &str, emulation: Emulation) -> Result<Self, FeatureGateError> {
        let mut pairs = Vec::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let no_value = || FeatureGateError::NoValue(pair.to_owned());
            let (name, value) = pair.split_once('=').ok_or_else(no_value)?;
            let (name, value) = (name.trim(), value.trim());
            let no_bool = || FeatureGateError::NoBool(name.to_owned(), value.to_owned());
            let is_on = boolean::parse(value).ok_or_else(no_bool)?;
            Self::check(name, is_on, emulation)?;
            pairs.push((name, is_on));
        }
        let gates = Self::of_pairs(pairs, emulation);
        gates.check_needs()?;
        Ok(gates)
    }
    /// Whether each feature that is on has those that it needs.
    ///
    /// # Errors
    ///
    /// The first by name that has not, [`FeatureGateError::Needs`].
    pub fn check_needs(&self) -> Result<(), FeatureGateError> {
        for (feature, needed) in NEEDS.iter().filter(|(feature, _)| self.is_on(*feature)) {
            let off = needed.iter().filter(|needed| !self.is_on(**needed));
            let off: Vec<_> = off.map(|needed| needed.name()).collect();
            if !off.is_empty() {
                return Err(FeatureGateError::Needs(feature.name(), off.join(" ")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl FeatureGates {
    /// The gates of the newest release where a feature can be turned on and off.
    pub(crate) fn switching(feature: Feature) -> Self {
        let releases = (Release::OLDEST.minor()..=Release::PRESENT.minor()).rev();
        let mut gates =
            releases.map(|minor| Self::emulating(Emulation::of(Release::of_minor(minor)).unwrap()));
        let switches = |gates: &Self| gates.with(feature, true) != gates.with(feature, false);
        gates.find(switches).unwrap_or_else(|| panic!("{feature:?} turns nothing on and off"))
    }
}

/// The feature of a gate that can have this value here.
fn settable(name: &str, is_on: bool, emulation: Emulation) -> Result<Feature, FeatureGateError> {
    let unknown = || FeatureGateError::Unknown(name.to_owned());
    let feature = Feature::named(name).ok_or_else(unknown)?;
    feature.can_be(is_on, emulation)?;
    Ok(feature)
}

/// The name of a gate, which may name its component.
fn without_component(name: &str) -> &str {
    name.strip_prefix("kube:").unwrap_or(name)
}

/// What differs from the default of the release.
impl fmt::Display for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let release = self.emulation.release();
        let is_changed =
            |feature: &Feature| self.is_on(*feature) != feature.is_on_by_default(release);
        let changed = Feature::all().filter(is_changed);
        for (i, feature) in changed.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", feature.name(), self.is_on(feature))?;
        }
        Ok(())
    }
}

impl fmt::Debug for FeatureGates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureGates({self})")
    }
}

/// Why a text is not [`FeatureGates`]. Where kube-apiserver refuses it too, in its words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeatureGateError {
    /// A gate without a value.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// A value that is not a boolean. Gate and value.
    #[error("invalid value of {0}={1}, err: strconv.ParseBool: parsing {1:?}: invalid syntax")]
    NoBool(String, String),
    /// A gate that kube-apiserver does not have.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// A gate that has one value only, there too. The gate, the value that was given, and its own.
    #[error("cannot set feature gate {0} to {1}, feature is locked to {2}")]
    Locked(&'static str, bool, bool),
    /// A gate of a later release than the emulated one. The gate and the value that was given.
    #[error(
        "cannot set feature gate {0} to {1}, feature is PreAlpha at emulated version {release}, min \
         compatibility version {oldest}",
        release = .2.release(),
        oldest = .2.min_compatibility()
    )]
    Later(&'static str, bool, Emulation),
    /// A feature that is always on here.
    #[error("cannot set feature gate {0} to false: setpoint cannot turn it off")]
    AlwaysHere(&'static str),
    /// A feature that setpoint does not have.
    #[error("cannot set feature gate {0} to true: setpoint does not have it")]
    NotHere(&'static str),
    /// A feature is on without others that it needs. The feature, and those.
    #[error("{0} is enabled, but depends on features that are disabled: [{1}]")]
    Needs(&'static str, String),
}

impl FromStr for FeatureGates {
    type Err = FeatureGateError;

    fn from_str(text: &str) -> Result<Self, FeatureGateError> {
        Self::parse(text, Emulation::default())
    }
}

#[cfg(test)]
mod tests;
