//! Subsets of Endpoints in their canonical layout.

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};
use std::collections::BTreeMap;

/// What orders and tells apart addresses: two pods may share the address of their node.
type AddressKey<'a> = (&'a str, Option<&'a str>);
/// What orders and tells apart ports.
type PortKey<'a> = (i32, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn address_key(address: &EndpointAddress) -> AddressKey<'_> {
    (&address.ip, address.target_ref.as_ref().and_then(|pod| pod.uid.as_deref()))
}

fn port_key(port: &EndpointPort) -> PortKey<'_> {
    let protocol = port.protocol.as_deref();
    (port.port, protocol, port.name.as_deref(), port.app_protocol.as_deref())
}

/// The same pairs of address and port in the canonical layout: a subset for each set of addresses,
/// with all ports that just these have. Addresses are sorted by IP and pod, ports by number.
///
/// An address that is ready and not ready for one port is not ready. Addresses without ports stay.
/// These are the rules of Kubernetes' `RepackSubsets`, which sorts subsets and ports by a hash.
pub(super) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey<'_>, &EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<PortKey<'_>>, (Option<&EndpointPort>, Readiness<'_>)> =
        BTreeMap::new();
    for subset in subsets {
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let all: Vec<_> = ready.chain(not_ready).collect();
        let ports = subset.ports.as_deref().unwrap_or_default();
        let no_port = ports.is_empty().then_some(None);
        for port in ports.iter().map(Some).chain(no_port) {
            let (_, of_port) =
                by_port.entry(port.map(port_key)).or_insert_with(|| (port, BTreeMap::new()));
            for (address, is_ready) in &all {
                let key = address_key(address);
                addresses.entry(key).or_insert(address);
                *of_port.entry(key).or_insert(true) &= is_ready;
            }
        }
    }
    let mut by_addresses: BTreeMap<Readiness<'_>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, of_port) in by_port.into_values() {
        by_addresses.entry(of_port).or_default().extend(port.cloned());
    }
    let list = |of_ports: &Readiness<'_>, wanted: bool| {
        let of_kind = of_ports.iter().filter(|(_, is_ready)| **is_ready == wanted);
        let list: Vec<_> =
            of_kind.filter_map(|(key, _)| addresses.get(key).copied().cloned()).collect();
        Some(list).filter(|list| !list.is_empty())
    };
    let subset = |(of_ports, ports): (Readiness<'_>, Vec<EndpointPort>)| EndpointSubset {
        addresses: list(&of_ports, true),
        not_ready_addresses: list(&of_ports, false),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    };
    let mut subsets: Vec<_> = by_addresses.into_iter().map(subset).collect();
    let first_port = |subset: &EndpointSubset| subset.ports.iter().flatten().next().cloned();
    subsets.sort_by_cached_key(|subset| {
        let port = first_port(subset)?;
        Some((port.port, port.protocol, port.name, port.app_protocol))
    });
    subsets
}

/// The addresses of a port and whether they are ready.
type Readiness<'a> = BTreeMap<AddressKey<'a>, bool>;

/// Keeps at most `max` addresses; returns whether some were left out.
///
/// Ready ones come first. Each subset keeps its share, rounded up, until none is left, as in
/// kube-controller-manager.
pub(super) fn truncate(subsets: &mut Vec<EndpointSubset>, max: usize) -> bool {
    let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
    let n_ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let n_not_ready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if n_ready + n_not_ready <= max {
        return false;
    }
    let keeps_all_ready = n_ready <= max;
    let (total, room) = if keeps_all_ready { (n_not_ready, max - n_ready) } else { (n_ready, max) };
    let mut left = room;
    for subset in &mut *subsets {
        let list = match keeps_all_ready {
            true => &mut subset.not_ready_addresses,
            false => {
                subset.not_ready_addresses = None;
                &mut subset.addresses
            }
        };
        let Some(addresses) = list else { continue };
        addresses.truncate((addresses.len() * room).div_ceil(total).min(left));
        left -= addresses.len();
        if addresses.is_empty() {
            *list = None;
        }
    }
    // The API refuses a subset without addresses.
    subsets.retain(|subset| subset.addresses.is_some() || subset.not_ready_addresses.is_some());
    true
}

#[cfg(test)]
mod tests {
    use super::{repack, truncate};
    use expect_test::{Expect, expect};
    use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

    /// Subsets of `ADDRESSES / NOT READY / PORTS`, one a line.
    fn parse(text: &str) -> Vec<EndpointSubset> {
        let subset = |line: &str| {
            let mut parts = line.trim().split('/').map(str::split_whitespace);
            let mut addresses = || {
                let address =
                    |ip: &str| EndpointAddress { ip: ip.to_owned(), ..EndpointAddress::default() };
                let list: Vec<_> = parts.next()?.map(address).collect();
                Some(list).filter(|list| !list.is_empty())
            };
            let (ready, not_ready) = (addresses(), addresses());
            let port = |port: &str| EndpointPort {
                port: port.parse().unwrap(),
                ..EndpointPort::default()
            };
            EndpointSubset {
                addresses: ready,
                not_ready_addresses: not_ready,
                ports: parts.next().map(|ports| ports.map(port).collect()),
            }
        };
        text.lines().map(subset).collect()
    }

    fn show(subsets: &[EndpointSubset]) -> String {
        let mut text = String::new();
        for subset in subsets {
            let list = |list: &Option<Vec<EndpointAddress>>| {
                let ips: Vec<_> = list.iter().flatten().map(|one| one.ip.clone()).collect();
                ips.join(" ")
            };
            let ports = subset.ports.iter().flatten().map(|port| port.port.to_string());
            let line = format!(
                "{} / {} / {}",
                list(&subset.addresses),
                list(&subset.not_ready_addresses),
                ports.collect::<Vec<_>>().join(" "),
            );
            text += &format!("{}\n", line.trim_end());
        }
        text
    }

    #[track_caller]
    fn check(before: &str, after: Expect) {
        let packed = repack(&parse(before));
        assert_eq!(repack(&packed), packed, "packed twice");
        after.assert_eq(&show(&packed));
    }

    #[test]
    fn ports_with_the_same_addresses_share_a_subset() {
        check(
            "b / / 80 53\na / / 80 53",
            expect![[r#"
            a b /  / 53 80
        "#]],
        );
        // A pod without the named port.
        check(
            "a b / / 53 8080\n/ c / 53",
            expect![[r#"
            a b / c / 53
            a b /  / 8080
        "#]],
        );
        // Each pod has another number for the named port.
        check(
            "a / / 53 8080\nb / / 53 9090",
            expect![[r#"
            a b /  / 53
            a /  / 8080
            b /  / 9090
        "#]],
        );
    }

    #[test]
    fn readiness_tells_sets_of_addresses_apart_and_not_ready_wins() {
        check(
            "a / / 1 2\n/ a / 2",
            expect![[r#"
            a /  / 1
             / a / 2
        "#]],
        );
        check(
            "a b / /\n/ b /",
            expect![[r#"
            a / b /
        "#]],
        );
    }

    #[track_caller]
    fn check_truncated(before: &str, max: usize, after: Expect) {
        let mut subsets = parse(before);
        let is_truncated = truncate(&mut subsets, max);
        after.assert_eq(&format!("{is_truncated}\n{}", show(&subsets)));
    }

    #[test]
    fn each_subset_keeps_its_share() {
        check_truncated(
            "a b / c / 1\nd / e f g / 2",
            7,
            expect![[r#"
            false
            a b / c / 1
            d / e f g / 2
        "#]],
        );
        check_truncated(
            "a b / c / 1\nd / e f g / 2",
            5,
            expect![[r#"
            true
            a b / c / 1
            d / e / 2
        "#]],
        );
        check_truncated(
            "a b c d / x / 1\ne f / y / 2\n/ z / 3",
            4,
            expect![[r#"
            true
            a b c /  / 1
            e /  / 2
        "#]],
        );
    }
}
