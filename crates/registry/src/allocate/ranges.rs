//! The ranges of cluster addresses: the networks of ready ServiceCIDRs.
use super::network::Span;
use crate::kind::networking::service_cidr;
use crate::stored::tree;
use bytes::Bytes;
use setpoint_object::error::chain;
use setpoint_object::keys::SERVICE_CIDRS;
use setpoint_store::{Compare, KeyValue, RangeRequest, Revision, Store, StoreError};
use std::net::IpAddr;
use std::sync::Arc;

/// A network of a ServiceCIDR from which addresses are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    /// The addresses.
    pub(super) span: Span,
    /// The network, as the ServiceCIDR has it.
    pub(super) network: Arc<str>,
    /// The key of the ServiceCIDR.
    key: Bytes,
    /// Its revision.
    modified: Revision,
}

impl Range {
    /// Holds as long as the ServiceCIDR has not changed.
    pub(super) fn compare(&self) -> Compare {
        Compare::Modified(self.key.clone(), self.modified)
    }
}

/// The range of an address.
pub(super) fn of(ranges: &[Range], address: IpAddr) -> Option<&Range> {
    ranges.iter().find(|range| range.span.has(address))
}

/// The ranges that are stored now, in the order of the names of their ServiceCIDRs.
///
/// # Errors
/// The store fails to read them.
pub(super) async fn read(store: &dyn Store) -> Result<Vec<Range>, StoreError> {
    let prefix = Bytes::from_static(SERVICE_CIDRS.as_bytes());
    let found = store.range(RangeRequest::prefix(prefix)).await?.value.entries;
    Ok(found.iter().flat_map(ranges).collect())
}

/// The ranges of a stored ServiceCIDR; none of one that is not ready or cannot be read.
fn ranges(found: &KeyValue) -> Vec<Range> {
    let object = match tree(&found.value) {
        Ok(object) => object,
        Err(error) => {
            tracing::warn!(error = chain(&error), key = %String::from_utf8_lossy(&found.key), "read a ServiceCIDR");
            return Vec::new();
        }
    };
    let range = |network: &str| {
        let (key, modified) = (found.key.clone(), found.modified);
        Some(Range { span: Span::parse(network)?, network: network.into(), key, modified })
    };
    service_cidr::ready_networks(&object).filter_map(range).collect()
}
