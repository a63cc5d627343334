//! Counts of changes that kinds count themselves.

use super::{Family, Labelled, Series};
use crate::kind::Counter;
use std::sync::atomic::AtomicU64;

/// The counters of kinds.
#[derive(Debug)]
pub(crate) struct Changes {
    requested: Labelled<AtomicU64>,
    honored: Labelled<AtomicU64>,
}

impl Default for Changes {
    fn default() -> Self {
        let by_signer = || Labelled::counters(&["signerName"], 1);
        Self { requested: by_signer(), honored: by_signer() }
    }
}

impl Changes {
    /// Adds one.
    pub(crate) fn add(&self, counter: Counter, label: &str) {
        let counts = match counter {
            Counter::RequestedDuration => &self.requested,
            Counter::HonoredDuration => &self.honored,
        };
        counts.add(&[label]);
    }

    /// The families.
    pub(super) fn families(&self) -> [Family; 2] {
        [
            Family {
                name: "apiserver_certificates_registry_csr_honored_duration_total",
                help: "Certificates with about the duration that was asked for",
                series: Series::Counters(self.honored.counts()),
            },
            Family {
                name: "apiserver_certificates_registry_csr_requested_duration_total",
                help: "Certificates that were issued for requests which ask for a duration",
                series: Series::Counters(self.requested.counts()),
            },
        ]
    }
}
