//! Figures that a test can read.

use setpoint_webhook::Metrics;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Counts by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Arc<Mutex<BTreeMap<String, i64>>>);

impl Figures {
    pub(crate) fn get(&self, name: &str) -> i64 {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }

    pub(crate) fn all(&self) -> BTreeMap<String, i64> {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, name: String, n: i64) {
        *self.0.lock().unwrap().entry(name).or_default() += n;
    }
}

impl Metrics for Figures {
    fn registered(&self, webhook: &str) {
        self.add(format!("registered {webhook}"), 1);
    }
    fn begun(&self, webhook: &str) {
        self.add(format!("in flight {webhook}"), 1);
    }
    fn ended(&self, webhook: &str) {
        self.add(format!("in flight {webhook}"), -1);
    }
    fn answered(&self, webhook: &str, code: u16, _latency: Duration) {
        self.add(format!("answered {webhook} {code}"), 1);
    }
    fn panicked(&self, webhook: &str) {
        self.add(format!("panics {webhook}"), 1);
    }
    fn certificate_read(&self) {
        self.add("certificate reads".into(), 1);
    }
    fn certificate_read_failed(&self) {
        self.add("certificate read errors".into(), 1);
    }
}
