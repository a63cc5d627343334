//! The election of a manager.

use std::fmt;

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::family::{counter, gauge};
use crate::election::Leadership;

/// Writes `leader_election_master_status` and `leader_election_slowpath_total` (LE-12, LE-17).
#[derive(Debug)]
pub(crate) struct ElectionCollector(pub(crate) Leadership);

impl Collector for ElectionCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        let labels = [("name", self.0.name())];
        let help = "Whether this process leads: 1, or 0";
        let leads = u64::from(self.0.is_leader());
        gauge(encoder, "leader_election_master_status", help)?.value(&labels, &leads)?;
        let help = "Renewals that had to read first";
        counter(encoder, "leader_election_slowpath", help)?.count(&labels, self.0.slow_paths())
    }
}
