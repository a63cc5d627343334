//! Which release's API the server has: kube-apiserver's `--emulated-version` and the options
//! beside it.

use std::fmt;
use std::str::FromStr;

/// A minor release of Kubernetes, such as 1.36. As text, `1.36`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release(u8);

impl Release {
    /// The first one that can be emulated.
    pub const OLDEST: Self = Self(33);
    /// The one whose API the server has.
    pub const PRESENT: Self = Self(36);

    pub(crate) const fn of_minor(minor: u8) -> Self {
        Self(minor)
    }
    /// The number behind `1.`.
    pub const fn minor(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

impl FromStr for Release {
    type Err = EmulationError;

    fn from_str(text: &str) -> Result<Self, EmulationError> {
        let error = || EmulationError::NoVersion(text.to_owned());
        let (major, minor) =
            text.strip_prefix('v').unwrap_or(text).split_once('.').ok_or_else(error)?;
        // A patch of zero is accepted.
        let minor = minor.strip_suffix(".0").unwrap_or(minor);
        // No sign, and no zeros in front.
        let is_number = minor.bytes().all(|byte| byte.is_ascii_digit())
            && (minor.len() == 1 || !minor.starts_with('0'));
        match minor.parse() {
            Ok(minor) if major == "1" && is_number => Ok(Self(minor)),
            _ => Err(error()),
        }
    }
}

/// Which release's API the server has, and with which older ones it shares its store.
///
/// | option of kube-apiserver | here |
/// |---|---|
/// | `--emulated-version` | [`of`](Self::of) |
/// | `--min-compatibility-version` | [`compatible_with`](Self::compatible_with) |
/// | `--emulation-forward-compatible` | [`forward_compatible`](Self::forward_compatible) |
/// | `--runtime-config-emulation-forward-compatible` | [`with_later`](Self::with_later) |
///
/// An emulated release has the feature gates and the API versions that it had, with its defaults.
/// What is neither behind a gate nor an API version is as in the present release, as in the
/// original.
///
/// ```
/// use setpoint_registry::{Emulation, Feature, FeatureGates};
///
/// let gates = FeatureGates::emulating(Emulation::of("1.34".parse()?)?);
/// assert!(!gates.is_on(Feature::ConstrainedImpersonation));
/// # Ok::<(), setpoint_registry::EmulationError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulation {
    release: Release,
    min_compatibility: Release,
    is_forward_compatible: bool,
    has_later: bool,
}

/// The present release, in a store that is shared with servers of the one before.
impl Default for Emulation {
    fn default() -> Self {
        Self::PRESENT
    }
}

impl Emulation {
    /// See [`Emulation::default`].
    pub(crate) const PRESENT: Self = Self::new(Release::PRESENT);

    const fn new(release: Release) -> Self {
        let before = match release.0 > Release::OLDEST.0 {
            true => Release(release.0 - 1),
            false => Release::OLDEST,
        };
        Self { release, min_compatibility: before, is_forward_compatible: false, has_later: false }
    }
    /// A release, in a store that is shared with servers of the one before.
    ///
    /// # Errors
    ///
    /// [`EmulationError::Range`]: it cannot be emulated.
    pub fn of(release: Release) -> Result<Self, EmulationError> {
        match (Release::OLDEST..=Release::PRESENT).contains(&release) {
            true => Ok(Self::new(release)),
            false => Err(EmulationError::Range(release)),
        }
    }
    /// The oldest release of the servers that share the store: objects are stored in versions that
    /// it has.
    ///
    /// # Errors
    ///
    /// [`EmulationError::Compatibility`]: it is later than the emulated one, or cannot be emulated.
    pub fn compatible_with(self, oldest: Release) -> Result<Self, EmulationError> {
        match (Release::OLDEST..=self.release).contains(&oldest) {
            true => Ok(Self { min_compatibility: oldest, ..self }),
            false => Err(EmulationError::Compatibility(oldest, self.release)),
        }
    }
    /// Whether later versions of the resources that are served are served too, but alpha versions.
    ///
    /// # Errors
    ///
    /// [`EmulationError::Present`]: no earlier release is emulated.
    pub fn forward_compatible(self, is_so: bool) -> Result<Self, EmulationError> {
        self.check_earlier(is_so, "EmulationForwardCompatible")?;
        Ok(Self { is_forward_compatible: is_so, ..self })
    }
    /// Whether `--runtime-config` can turn on versions and resources of later releases.
    ///
    /// # Errors
    ///
    /// [`EmulationError::Present`]: no earlier release is emulated.
    pub fn with_later(self, is_so: bool) -> Result<Self, EmulationError> {
        self.check_earlier(is_so, "RuntimeConfigEmulationForwardCompatible")?;
        Ok(Self { has_later: is_so, ..self })
    }
    fn check_earlier(self, is_so: bool, option: &'static str) -> Result<(), EmulationError> {
        match is_so && self.release == Release::PRESENT {
            true => Err(EmulationError::Present(option)),
            false => Ok(()),
        }
    }
    /// The release whose API the server has.
    pub fn release(self) -> Release {
        self.release
    }
    /// The oldest release of the servers that share the store.
    pub const fn min_compatibility(self) -> Release {
        self.min_compatibility
    }
    /// See [`forward_compatible`](Self::forward_compatible).
    pub(crate) fn is_forward_compatible(self) -> bool {
        self.is_forward_compatible
    }
    /// See [`with_later`](Self::with_later).
    pub(crate) fn has_later(self) -> bool {
        self.has_later
    }
}

/// Why a release cannot be emulated. In the words of kube-apiserver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmulationError {
    /// A text that is no release.
    #[error("could not parse {0:?} as version")]
    NoVersion(String),
    /// A release that cannot be emulated.
    #[error("emulation version {0} is not between [{min}, {max}]", min = Release::OLDEST, max = Release::PRESENT)]
    Range(Release),
    /// A release that the store cannot be compatible with, and the emulated one.
    #[error("minCompatibilityVersion version {0} is not between [{min}, {1}]", min = Release::OLDEST)]
    Compatibility(Release, Release),
    /// An option that needs an earlier release. Its name.
    #[error(
        "ServerRunOptions.{0} cannot be set to true if the emulation version is the same as the \
         binary version"
    )]
    Present(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_and_checked() {
        let read = |text: &str| text.parse::<Release>().map(|release| release.to_string());
        assert_eq!(read("1.35").as_deref(), Ok("1.35"));
        assert_eq!(read("v1.35.0").as_deref(), Ok("1.35"));
        for text in ["", "1", "2.35", "1.x", "1.35.1", "1.+35", "1.035", "1.999", "1.", "35"] {
            assert_eq!(read(text), Err(EmulationError::NoVersion(text.to_owned())), "{text}");
        }
        let of = |minor| Emulation::of(Release(minor));
        assert_eq!(of(36), Ok(Emulation::default()));
        assert_eq!(of(36).map(Emulation::min_compatibility), Ok(Release(35)));
        assert_eq!(of(33).map(Emulation::min_compatibility), Ok(Release(33)));
        assert_eq!(of(32), Err(EmulationError::Range(Release(32))));
        assert_eq!(of(37), Err(EmulationError::Range(Release(37))));
        let of_34 = of(34).unwrap();
        assert!(of_34.compatible_with(Release(34)).is_ok() && of_34.with_later(true).is_ok());
        let error = of_34.compatible_with(Release(35)).unwrap_err().to_string();
        assert_eq!(error, "minCompatibilityVersion version 1.35 is not between [1.33, 1.34]");
        let present = Emulation::default();
        assert!(present.forward_compatible(true).is_err() && present.with_later(true).is_err());
        assert!(present.forward_compatible(false).is_ok());
    }
}
