//! Events that were not written.

use std::fmt;

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder};

use super::family::counter;
use crate::events::EventRecorder;

/// Writes `setpoint_events_lost_total`, by cause: those held back by the rule against floods, too.
#[derive(Debug)]
pub(crate) struct EventCollector(pub(crate) EventRecorder);

impl Collector for EventCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let losses = self.0.losses();
        let help = "Events that were not written, by cause";
        let mut lost = counter(&mut encoder, "setpoint_events_lost", help)?;
        for (cause, count) in [
            ("queue_full", losses.queue_full),
            ("after_end", losses.after_end),
            ("invalid", losses.invalid),
            ("refused", losses.refused),
            ("unreachable", losses.unreachable),
            ("held_back", losses.held_back),
        ] {
            lost.count(&[("cause", cause)], count)?;
        }
        Ok(())
    }
}
