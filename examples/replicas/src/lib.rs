//! Several replicas of one program.
//!
//! | controller | which replica runs it | what it does |
//! |---|---|---|
//! | `stamp` | all: each reconciles its share of the keys | writes the replica's name on each ConfigMap of the app |
//! | `summary` | the leader | counts the stamps, in the ConfigMap `summary` |
//!
//! When a replica joins or leaves, only the keys that it gets or owned move. A leader that stops is
//! replaced in less than a second, a leader that dies once its Lease has expired. A replica that is
//! no longer the leader, or no longer owns a key, sends no more writes for it.

use k8s_openapi::api::core::v1::ConfigMap;
use setpoint::object::label::Selector;
use setpoint::prelude::*;
use setpoint::runtime::{ShardOptions, Sharded};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the Leases are, and the summary.
pub const NAMESPACE: &str = "default";
/// The label of the ConfigMaps that are worked on.
pub const APP: &str = "example.dev/app";
/// The annotation that names the replica that reconciled the object.
pub const STAMP: &str = "example.dev/stamped-by";
/// The name of the ConfigMap with the counts.
pub const SUMMARY: &str = "summary";

/// One replica. Its `identity` is its own: the pod's name.
///
/// # Errors
///
/// The identity does not suit a Lease.
pub fn manager(builder: ManagerBuilder, identity: &str) -> Result<Manager, BoxError> {
    let election = ElectionOptions::new("replicas")
        .namespace(NAMESPACE)
        .identity(identity)
        .release_on_stop(true);
    let mut manager = builder.leader_election(election)?.build();

    let share = Sharded::new(ShardOptions::new("stamps", identity).namespace(NAMESPACE))?;
    let identity: Arc<str> = identity.into();
    let stamp = Controller::builder("stamp")
        .for_(Watch::<ConfigMap>::new().filter(Predicate::labels(Selector::parse(APP)?)))
        .sharded(share)
        .build(move |request, context| stamp(request, context, identity.clone()))?;
    manager.add(stamp)?;

    // Controllers are for the leader unless they say otherwise.
    let summary = Controller::builder("summary")
        .maps(Watch::<ConfigMap>::new().filter(Predicate::labels(Selector::parse(APP)?)), |_| {
            vec![Request::new(NAMESPACE, SUMMARY)]
        })
        .build(summary)?;
    manager.add(summary)?;
    Ok(manager)
}

/// Writes the replica's name on the ConfigMap. The client is fenced: it writes only while the key
/// is this replica's.
async fn stamp(
    request: Request,
    context: Context,
    identity: Arc<str>,
) -> Result<Action, ClientError> {
    let maps = context.client().api::<ConfigMap>();
    if maps.get(&request)?.is_some() {
        let stamped = Apply::<ConfigMap>::new(&request).annotation(STAMP, &*identity).force();
        maps.apply(&stamped).await?;
    }
    Ok(Action::await_change())
}

/// Counts what each replica has stamped.
async fn summary(request: Request, context: Context) -> Result<Action, BoxError> {
    let maps = context.client().api::<ConfigMap>();
    let mut counts = BTreeMap::<String, usize>::new();
    for map in maps.list(Some(NAMESPACE), &Selector::parse(APP)?)? {
        if let Some(replica) = map.annotations().get(STAMP) {
            *counts.entry(replica.clone()).or_default() += 1;
        }
    }
    let data: BTreeMap<_, _> = counts.iter().map(|(of, n)| (of, n.to_string())).collect();
    maps.apply(&Apply::new(&request).member("data", data).force()).await?;
    Ok(Action::await_change())
}
