//! The names of objects.
use crate::features::{Feature, FeatureGates};
use crate::kind::address::canonical_ip;
use setpoint_object::name;

/// The names that a kind accepts (spec: api-server §12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameRule {
    /// RFC 1123 subdomain.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// That of a Service: RFC 1123 label, or RFC 1035 label without the feature
    /// `RelaxedServiceNameValidation`.
    Service,
    /// Any valid path segment. A `generateName` may also be `.` or `..`.
    Segment,
    /// Any valid path segment, also as a `generateName`.
    WholeSegment,
    /// An IP address in canonical form. Names are not generated: a `generateName` is the name.
    Address,
    /// Any name that any object may have.
    Any,
}

impl NameRule {
    /// What is wrong with a name.
    pub(crate) fn check(self, name: &str, features: FeatureGates) -> Vec<String> {
        let is_relaxed = features.is_on(Feature::RelaxedServiceNameValidation);
        match self {
            Self::Subdomain => name::dns1123_subdomain(name),
            Self::Service if !is_relaxed => name::dns1035_label(name),
            Self::Label | Self::Service => name::dns1123_label(name),
            Self::Segment | Self::WholeSegment => name::path_segment(name),
            Self::Any => Vec::new(),
            Self::Address => canonical_ip(name),
        }
    }
    /// A base name without its suffix may end in a dash.
    pub(crate) fn check_base(self, base: &str, features: FeatureGates) -> Vec<String> {
        match base.strip_suffix('-') {
            _ if self == Self::WholeSegment => self.check(base, features),
            Some(rest) if !rest.is_empty() && self != Self::Segment => {
                let mut end = rest.len() - 1;
                while !rest.is_char_boundary(end) {
                    end -= 1;
                }
                self.check(&format!("{}a", &rest[..end]), features)
            }
            // A prefix may be `.` or `..`.
            _ if self == Self::Segment && matches!(base, "." | "..") => Vec::new(),
            _ => self.check(base, features),
        }
    }
}
