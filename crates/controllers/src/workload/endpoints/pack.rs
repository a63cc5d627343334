//! Puts endpoints into slices, with few changes of slices.

use super::Slice;
use k8s_openapi::api::discovery::v1::Endpoint;
use std::collections::BTreeMap;

/// What to do about the slices of one family and one set of ports.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Packed {
    /// The endpoints of new slices.
    pub(super) create: Vec<Vec<Endpoint>>,
    /// Slices with other endpoints than they have; by their place in the given ones.
    pub(super) update: Vec<(usize, Vec<Endpoint>)>,
    /// Slices without endpoints; by their place.
    pub(super) delete: Vec<usize>,
}

/// What an endpoint is the same by: its addresses and the pod.
fn key(endpoint: &Endpoint) -> (Vec<String>, String) {
    let pod = endpoint.target_ref.as_ref().and_then(|pod| pod.uid.clone()).unwrap_or_default();
    (endpoint.addresses.clone(), pod)
}

/// Puts `wanted` endpoints into slices of at most `max`. Slices lose what is not wanted, and those
/// that change anyway are filled first; then one that has room for the rest.
pub(super) fn pack(slices: &[&Slice], wanted: Vec<Endpoint>, max: usize) -> Packed {
    let mut wanted: BTreeMap<_, Endpoint> =
        wanted.into_iter().map(|endpoint| (key(&endpoint), endpoint)).collect();
    let mut packed = Packed::default();
    let mut unchanged = Vec::new();
    for (at, slice) in slices.iter().enumerate() {
        let held = slice.endpoints().iter();
        let kept: Vec<Endpoint> = held.filter_map(|held| wanted.remove(&key(held))).collect();
        if kept == slice.endpoints() && !kept.is_empty() {
            unchanged.push((at, kept));
        } else if kept.is_empty() {
            packed.delete.push(at);
        } else {
            packed.update.push((at, kept));
        }
    }
    let mut rest: Vec<Endpoint> = wanted.into_values().collect();
    // The fullest first.
    packed.update.sort_by_key(|(at, kept)| (std::cmp::Reverse(kept.len()), *at));
    for (_, endpoints) in &mut packed.update {
        let n = max.saturating_sub(endpoints.len()).min(rest.len());
        endpoints.extend(rest.drain(..n));
    }
    // A slice that would be left without endpoints can take new ones.
    while !rest.is_empty() && !packed.delete.is_empty() {
        let n = max.min(rest.len());
        packed.update.push((packed.delete.remove(0), rest.drain(..n).collect()));
    }
    while !rest.is_empty() {
        let has_room = |(_, held): &(usize, Vec<Endpoint>)| held.len() + rest.len() <= max;
        let fullest = unchanged.iter().enumerate().filter(|(_, slice)| has_room(slice));
        let fullest = fullest.max_by_key(|(_, (_, held))| held.len()).map(|(n, _)| n);
        match fullest {
            Some(n) => {
                let (at, mut endpoints) = unchanged.swap_remove(n);
                endpoints.append(&mut rest);
                packed.update.push((at, endpoints));
            }
            None => packed.create.push(rest.drain(..max.min(rest.len())).collect()),
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    fn endpoint(n: usize, is_ready: bool) -> Endpoint {
        let endpoint = json!({
            "addresses": [format!("10.0.{}.{}", n / 250, n % 250)], "conditions": {"ready": is_ready},
            "targetRef": {"uid": n.to_string()},
        });
        serde_json::from_value(endpoint).unwrap()
    }

    fn slice(endpoints: impl IntoIterator<Item = usize>) -> Slice {
        let endpoints = endpoints.into_iter().map(|n| endpoint(n, true)).collect();
        Slice { endpoints: Some(endpoints), ..Slice::default() }
    }

    fn pack_all(slices: &[Slice], wanted: impl IntoIterator<Item = usize>) -> Packed {
        let slices: Vec<&Slice> = slices.iter().collect();
        pack(&slices, wanted.into_iter().map(|n| endpoint(n, true)).collect(), 100)
    }

    #[test]
    fn slices_change_only_with_their_endpoints() {
        let slices = [slice(0..100), slice(100..150)];
        assert_eq!(pack_all(&slices, 0..150), Packed::default());
        // One endpoint less in the first slice, one more: the first one takes it.
        let packed = pack_all(&slices, (1..150).chain([200]));
        assert_eq!(packed.update.len(), 1);
        assert_eq!((packed.update[0].0, packed.update[0].1.len()), (0, 100));
        // One more: the slice with room takes it.
        let packed = pack_all(&slices, (0..150).chain([200]));
        assert_eq!((packed.update[0].0, packed.update[0].1.len()), (1, 51));
        // More than there is room for.
        let packed = pack_all(&slices, 0..350);
        assert_eq!(packed.create.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100]);
        assert_eq!(packed.update, []);
        assert_eq!(pack_all(&slices, []).delete, [0, 1]);
    }

    proptest! {
        /// Each wanted endpoint is in one slice afterwards, and no slice has too many.
        #[test]
        fn every_endpoint_is_in_one_slice(
            held in prop::collection::vec(prop::collection::btree_set(0_usize..60, 0..8), 0..5),
            wanted in prop::collection::btree_set(0_usize..60, 0..40),
            unready in prop::collection::btree_set(0_usize..60, 0..10),
        ) {
            let slices: Vec<Slice> = held.into_iter().map(slice).collect();
            let refs: Vec<&Slice> = slices.iter().collect();
            let endpoints = wanted.iter().map(|n| endpoint(*n, !unready.contains(n))).collect();
            let packed = pack(&refs, endpoints, 8);
            let mut after: Vec<Vec<Endpoint>> = slices.iter().map(|s| s.endpoints().to_vec()).collect();
            for (at, endpoints) in packed.update {
                after[at] = endpoints;
            }
            for at in packed.delete {
                after[at].clear();
            }
            after.extend(packed.create);
            prop_assert!(after.iter().all(|endpoints| endpoints.len() <= 8));
            let all: Vec<_> = after.into_iter().flatten().collect();
            let uids: Vec<usize> =
                all.iter().map(|e| e.target_ref.as_ref().unwrap().uid.as_ref().unwrap().parse().unwrap()).collect();
            prop_assert_eq!(uids.len(), wanted.len());
            prop_assert_eq!(uids.iter().copied().collect::<BTreeSet<_>>(), wanted);
            prop_assert!(all.iter().zip(uids).all(|(e, n)| *e == endpoint(n, !unready.contains(&n))));
        }
    }
}
