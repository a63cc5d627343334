//! What the rules of a kind report.
use crate::features::{Feature, FeatureGates};
use setpoint_object::field;
use std::ops::{Deref, DerefMut};

/// The errors that rules have found so far, and the features that they depend on.
#[derive(Debug, Clone)]
pub struct Report {
    errors: field::Errors,
    features: FeatureGates,
}

impl Report {
    /// Nothing yet, with these features.
    pub fn new(features: FeatureGates) -> Self {
        Self { errors: field::Errors::new(), features }
    }
    /// Whether a feature is on.
    pub fn is_on(&self, feature: Feature) -> bool {
        self.features.is_on(feature)
    }
    /// Which features are on.
    pub fn features(&self) -> FeatureGates {
        self.features
    }
    /// The errors.
    pub fn into_errors(self) -> field::Errors {
        self.errors
    }
}

impl Deref for Report {
    type Target = field::Errors;

    fn deref(&self) -> &field::Errors {
        &self.errors
    }
}

impl DerefMut for Report {
    fn deref_mut(&mut self) -> &mut field::Errors {
        &mut self.errors
    }
}
