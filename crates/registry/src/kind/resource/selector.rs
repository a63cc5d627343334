//! Expressions that select devices: what they may refer to, whether they compile, and what they
//! cost at most.
use super::device::{DOMAIN_MAX, ID_MAX};
use crate::features::Feature;
use crate::kind::at::At;
use setpoint_cel::device::{DEVICE, Scope, Selector, SelectorError};
use setpoint_cel::estimate::{Range, Sizes, estimate};
use setpoint_object::field;

/// Limits, as Kubernetes has them: expressions of a list, and bytes and the estimated cost of one.
const SELECTORS_MAX: usize = 32;
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
const COST_MAX: u64 = 1_000_000;

/// The most bytes of a driver's name and of an attribute, and the most attributes or capacities.
const DRIVER_MAX: usize = 63;
const ATTRIBUTE_MAX: usize = 64;
const PROPERTIES_MAX: usize = 32;

/// Expressions that select devices.
pub(super) fn selectors(at: &At<'_, '_>) {
    if !at.at_most(SELECTORS_MAX) {
        return;
    }
    for selector in at.items() {
        match selector.given("cel") {
            None => selector.get("cel").required(""),
            Some(cel) => expression(&cel.get("expression")),
        }
    }
}

fn expression(at: &At<'_, '_>) {
    if at.text().len() > EXPRESSION_BYTES_MAX {
        return at.too_long(EXPRESSION_BYTES_MAX);
    }
    let scope = Scope {
        shares: at.is_on(Feature::DRAConsumableCapacity),
        lists: at.is_on(Feature::DRAListTypeAttributes),
    };
    match Selector::new(at.text(), scope) {
        Err(error @ SelectorError::Internal(_)) => {
            at.report(|path| field::Error::internal(path, error.to_string()));
        }
        Err(error) => at.invalid_as(&at.text().into(), error.to_string()),
        Ok((_, checked)) if estimate(&checked, &Device).max > COST_MAX => {
            at.forbidden("too complex, exceeds cost limit");
        }
        Ok(_) => {}
    }
}

/// The sizes of a device: maps of attributes and of capacities, by domains and by names.
#[derive(Debug)]
struct Device;

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Device,
    Domains(Values),
    Names(Values),
    /// What has nothing below it, and its size.
    Leaf(usize),
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    Attributes,
    Capacities,
}

impl Node {
    fn at(self, step: &str) -> Option<Self> {
        use {Node as N, Values as V};
        Some(match (self, step) {
            (N::Device, "driver") => N::Leaf(DRIVER_MAX),
            (N::Device, "allowMultipleAllocations") => N::Leaf(1),
            (N::Device, "attributes") => N::Domains(V::Attributes),
            (N::Device, "capacity") => N::Domains(V::Capacities),
            (N::Domains(_), "@keys") => N::Leaf(DOMAIN_MAX),
            (N::Domains(values), "@items" | "@values") => N::Names(values),
            (N::Names(_), "@keys") => N::Leaf(ID_MAX),
            // An attribute by any name; the sizes of capacities that are named are unknown.
            (N::Names(V::Attributes), _) => N::Leaf(ATTRIBUTE_MAX),
            (N::Names(V::Capacities), "@items" | "@values") => N::Leaf(0),
            _ => return None,
        })
    }
    fn max(self) -> usize {
        match self {
            Self::Device => 0,
            Self::Domains(_) | Self::Names(_) => PROPERTIES_MAX,
            Self::Leaf(max) => max,
        }
    }
}

impl Sizes for Device {
    fn size(&self, path: &[String]) -> Option<Range> {
        let (DEVICE, rest) = path.split_first().map(|(name, rest)| (name.as_str(), rest))? else {
            return None;
        };
        let end = rest.iter().try_fold(Node::Device, |node, step| node.at(step))?;
        Some(Range { min: 0, max: end.max() as u64 })
    }
}
