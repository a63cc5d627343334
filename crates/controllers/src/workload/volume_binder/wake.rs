//! Which passes an event leads to, and reads of ranges of indexes.

use super::object::claim_key;
use super::{BY_CLAIM, BY_REQUEST, BY_VOLUME, Claim, Class, Volume, matching};
use crate::readable::readable;
use kube_core::Resource;
use setpoint_informer::{Cacheable, Event, Object};
use setpoint_runtime::{BoxError, Client, Request};
use std::collections::BTreeSet;
use std::ops::Range;

/// A claim, and the volumes that depend on it.
pub(super) fn of_claim(event: &Event<Claim>, client: &Client) -> Vec<Request> {
    let key = event.key();
    let mut keys = vec![key.clone()];
    let volumes = client.api::<Volume>().select().index(BY_CLAIM, claim_key(key));
    keys.extend(readable(&volumes).iter().map(|volume| volume.key()));
    keys
}

/// A volume, its claim, and the claims that name it. A free one looks for a claim in its own pass.
pub(super) fn of_volume(event: &Event<Volume>, client: &Client) -> Vec<Request> {
    let key = event.key();
    let mut keys = vec![key.clone()];
    let volume = event.object().and_then(|volume: &Object<Volume>| volume.get().ok());
    keys.extend(volume.and_then(|volume| volume.claim()));
    let naming = client.api::<Claim>().select().index(BY_VOLUME, &*key.name);
    keys.extend(readable(&naming).iter().map(|claim| claim.key()));
    keys
}

/// The claims that wait for a class.
pub(super) fn of_class(event: &Event<Class>, client: &Client) -> Vec<Request> {
    // Those without a class may get it as their default.
    let classes = BTreeSet::from([&*event.key().name, ""]);
    let mut keys = Vec::new();
    for class in classes {
        let range = matching::requests_of_class(class);
        let all = first(client, BY_REQUEST, range, |claim: &Object<Claim>| {
            keys.push(claim.key().clone());
            None::<()>
        });
        // Without a cache there is nothing yet that waits.
        drop(all);
    }
    keys
}

/// The first object of a range of an index for which `find` returns something.
pub(super) fn first<K: Cacheable + Resource<DynamicType = ()>, T>(
    client: &Client,
    index: &str,
    range: Range<String>,
    mut find: impl FnMut(&Object<K>) -> Option<T>,
) -> Result<Option<T>, BoxError> {
    for lister in client.api::<K>().lister()?.listers() {
        let snapshot = lister.snapshot();
        let mut objects = snapshot.index_range(index, &*range.start..&*range.end)?;
        if let Some(found) = objects.find_map(|object| find(&object)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
