//! The options about the release that is emulated, named as kube-apiserver's.

use crate::booleans::boolean;
use anyhow::Context as _;
use clap::{ArgAction, Args};
use setpoint::registry::{Emulation, EmulationError, FeatureGates, Release};

#[derive(Debug, Args)]
pub(crate) struct EmulationOptions {
    /// The release of Kubernetes whose API is served, from 1.33 on: its API versions, and its
    /// feature gates with their defaults. `docs/emulation.md` says what differs. Default: 1.36.
    #[arg(long, value_name = "VERSION", value_parser = release)]
    emulated_version: Option<Release>,
    /// The oldest release of the servers that share the store: objects are stored in versions that
    /// it has. Default: the one before the emulated one.
    #[arg(long, value_name = "VERSION", value_parser = release)]
    min_compatibility_version: Option<Release>,
    /// Also serve later versions of the resources that the emulated release serves, but no alpha
    /// versions.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    emulation_forward_compatible: bool,
    /// Let `--runtime-config` turn on versions and resources of later releases than the emulated
    /// one.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false)]
    runtime_config_emulation_forward_compatible: bool,
    /// Features to turn on or off, as kube-apiserver's option, with its names and defaults:
    /// `GenericWorkload=true,WatchList=false`. `AllAlpha` and `AllBeta` stand for all of a stage
    /// that can be turned on and off. Some features need API versions besides, which
    /// `--runtime-config` turns on. Gates of what other programs do have no effect. A gate is
    /// refused that would turn off what is always here, or on what is not;
    /// `docs/feature-gates.md` lists them.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME=BOOL,...")]
    feature_gates: String,
}

impl EmulationOptions {
    /// Which features are on, in the release that is emulated.
    pub(crate) fn features(&self) -> anyhow::Result<FeatureGates> {
        let emulation = emulation(
            (self.emulated_version, self.min_compatibility_version),
            self.emulation_forward_compatible,
            self.runtime_config_emulation_forward_compatible,
        )?;
        FeatureGates::parse(&self.feature_gates, emulation).context("use --feature-gates")
    }
}

/// What the values of the options mean together.
pub(crate) fn emulation(
    (emulated, oldest): (Option<Release>, Option<Release>),
    is_forward_compatible: bool,
    has_later: bool,
) -> Result<Emulation, EmulationError> {
    let emulation = emulated.map_or_else(|| Ok(Emulation::default()), Emulation::of)?;
    let emulation = match oldest {
        Some(oldest) => emulation.compatible_with(oldest)?,
        None => emulation,
    };
    emulation.forward_compatible(is_forward_compatible)?.with_later(has_later)
}

/// Reads a release, which may name its component.
pub(crate) fn release(text: &str) -> anyhow::Result<Release> {
    let (component, version) = text.split_once('=').unwrap_or(("kube", text));
    if component.trim() != "kube" {
        anyhow::bail!("component not registered: {}", component.trim());
    }
    Ok(version.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_may_name_its_component() {
        assert_eq!(release("1.34").unwrap(), release("kube = 1.34.0").unwrap());
        assert_eq!(
            release("wardle=1.2").unwrap_err().to_string(),
            "component not registered: wardle"
        );
        assert!(release("kube=").is_err() && release("").is_err());
    }

    #[test]
    fn the_options_are_checked_together() {
        let of = |emulated: &str, oldest: &str| {
            let [emulated, oldest] = [emulated, oldest].map(|text| release(text).ok());
            emulation((emulated, oldest), false, false)
        };
        assert_eq!(of("", "").unwrap(), Emulation::default());
        assert_eq!(of("1.34", "").unwrap().min_compatibility().to_string(), "1.33");
        assert_eq!(of("1.34", "1.34").unwrap().min_compatibility().to_string(), "1.34");
        assert_eq!(
            of("1.32", "").unwrap_err().to_string(),
            "emulation version 1.32 is not between [1.33, 1.36]"
        );
        assert!(of("", "1.32").is_err());
        assert!(emulation((None, None), true, false).is_err());
    }
}
