//! Conversion between the versions of a kind.
//!
//! One version is the *hub*. Every other version, a *spoke*, is converted to the hub and from it;
//! spokes are converted to each other through the hub (WHK-9). So n versions need n−1 pairs of
//! functions.

mod kind;
mod review;

pub use kind::{ConversionError, KindConversion, KindConversionBuilder, Spoke, VERSIONS_MAX};

pub(crate) use review::{convert, write};

use kind::ConvertKind;
use setpoint_object::GroupKind;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The registered conversions, by kind.
#[derive(Clone, Default)]
pub(crate) struct Conversions(HashMap<GroupKind, Arc<dyn ConvertKind>>);

impl Conversions {
    /// Adds a kind; returns it as the error if it is already registered.
    pub(crate) fn add(&mut self, kind: KindConversion) -> Result<(), GroupKind> {
        if self.0.contains_key(kind.group_kind()) {
            return Err(kind.group_kind().clone());
        }
        self.0.insert(kind.group_kind().clone(), kind.into_erased());
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get(&self, kind: &GroupKind) -> Option<&dyn ConvertKind> {
        self.0.get(kind).map(|kind| &**kind)
    }
}

impl fmt::Debug for Conversions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
