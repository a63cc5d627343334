//! Allocations of cluster addresses and node ports.

use super::labelled::Labelled;
use super::{DEFAULT_SECONDS, Family, Histogram, Series};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How a number was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// By the Service.
    Static,
    /// By the allocator.
    Dynamic,
}

impl Choice {
    fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dynamic => "dynamic",
        }
    }
}

/// Counts allocations.
#[derive(Debug)]
pub(crate) struct Allocations {
    addresses: Labelled<AtomicU64>,
    address_errors: Labelled<AtomicU64>,
    address_times: Labelled<Histogram>,
    ports: Labelled<AtomicU64>,
    port_errors: Labelled<AtomicU64>,
}

impl Default for Allocations {
    fn default() -> Self {
        Self {
            addresses: Labelled::counters(&["cidr", "scope"], 1),
            address_errors: Labelled::counters(&["cidr", "scope"], 1),
            address_times: Labelled::new(&["cidr"], 1, || Histogram::new(&DEFAULT_SECONDS)),
            ports: Labelled::counters(&["scope"], 0),
            port_errors: Labelled::counters(&["scope"], 0),
        }
    }
}

/// The numbers of a range that are allocated, and that are free.
pub(crate) type Usage = [u64; 2];

impl Allocations {
    /// An address of a network was found.
    pub(crate) fn found(&self, network: &str, took: Duration) {
        self.address_times.time(&[network], took);
    }

    /// An address of a network was allocated.
    pub(crate) fn address(&self, network: &str, choice: Choice) {
        self.addresses.add(&[network, choice.as_str()]);
    }

    /// An address of a network was not allocated.
    pub(crate) fn no_address(&self, network: &str, choice: Choice) {
        self.address_errors.add(&[network, choice.as_str()]);
    }

    /// A port was allocated.
    pub(crate) fn port(&self, choice: Choice) {
        self.ports.add(&[choice.as_str()]);
    }

    /// A port was not allocated.
    pub(crate) fn no_port(&self, choice: Choice) {
        self.port_errors.add(&[choice.as_str()]);
    }

    /// The families. `networks`: the usage of each network; `ports`: that of the node ports.
    pub(crate) fn families(&self, networks: &[(String, Usage)], ports: Usage) -> Vec<Family> {
        let of_networks = |n: usize| {
            let series = |(cidr, usage): &(String, Usage)| (vec![("cidr", cidr.clone())], usage[n]);
            Series::Gauges(networks.iter().map(series).collect())
        };
        let of_ports = |n: usize| Series::Gauges(vec![(Vec::new(), ports[n])]);
        let counts = |counts: &Labelled<AtomicU64>| Series::Counters(counts.counts());
        let family = |name, help, series| Family { name, help, series };
        vec![
            family(
                "kube_apiserver_clusterip_allocator_allocated_ips",
                "Cluster addresses of Services",
                of_networks(0),
            ),
            family(
                "kube_apiserver_clusterip_allocator_available_ips",
                "Cluster addresses that are free",
                of_networks(1),
            ),
            family(
                "kube_apiserver_clusterip_allocator_allocation_total",
                "Allocations of cluster addresses",
                counts(&self.addresses),
            ),
            family(
                "kube_apiserver_clusterip_allocator_allocation_errors_total",
                "Cluster addresses that could not be allocated",
                counts(&self.address_errors),
            ),
            family(
                "kube_apiserver_clusterip_allocator_allocation_duration_seconds",
                "How long it took to find a cluster address",
                Series::Histograms(self.address_times.times()),
            ),
            family(
                "kube_apiserver_nodeport_allocator_allocated_ports",
                "Node ports of Services",
                of_ports(0),
            ),
            family(
                "kube_apiserver_nodeport_allocator_available_ports",
                "Node ports that are free",
                of_ports(1),
            ),
            family(
                "kube_apiserver_nodeport_allocator_allocation_total",
                "Allocations of node ports",
                counts(&self.ports),
            ),
            family(
                "kube_apiserver_nodeport_allocator_allocation_errors_total",
                "Node ports that could not be allocated",
                counts(&self.port_errors),
            ),
        ]
    }
}
