//! DeviceTaintRules: taints for devices that a selector chooses.

use super::device::{Device, PoolId};
use serde_json::Value;
use setpoint_object::taint::Taint;
use std::sync::Arc;

/// A rule whose taint keeps claims away from devices.
#[derive(Debug)]
pub(crate) struct TaintRule {
    selector: Selector,
    pub(super) taint: Taint,
}

/// The devices that a rule taints. A name that is absent matches every one.
#[derive(Debug)]
struct Selector {
    driver: Option<Arc<str>>,
    pool: Option<Arc<str>>,
    device: Option<Arc<str>>,
}

impl TaintRule {
    /// Reads a rule; `None` if its taint forbids nothing, or if it selects no devices. A rule
    /// without a selector selects none, one with an empty selector all.
    pub(crate) fn read(rule: &Value) -> Option<Self> {
        let spec = &rule["spec"];
        let selector = spec["deviceSelector"].as_object()?;
        let name = |member: &str| selector.get(member).and_then(Value::as_str).map(Arc::from);
        let taint: Taint = serde_json::from_value(spec["taint"].clone()).ok()?;
        let selector =
            Selector { driver: name("driver"), pool: name("pool"), device: name("device") };
        taint.forbids().then_some(Self { selector, taint })
    }

    /// Whether it taints a device.
    pub(super) fn taints(&self, pool: &PoolId, device: &Device) -> bool {
        let matches = |wanted: &Option<Arc<str>>, name: &str| {
            wanted.as_ref().is_none_or(|wanted| **wanted == *name)
        };
        matches(&self.selector.driver, &pool.driver)
            && matches(&self.selector.pool, &pool.name)
            && matches(&self.selector.device, &device.name)
    }
}
