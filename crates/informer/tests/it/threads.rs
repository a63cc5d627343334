//! Handlers that are added and removed on several threads while events arrive. Uses no clock: the
//! test ends when all handlers have the last event.
use crate::support::{Log, added, deleted, modified, page};
use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::{Event, HandlerOptions, SharedInformer};
use std::collections::BTreeMap;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const EVENTS: u64 = 3_000;

fn history() -> Vec<Step> {
    let mut present = BTreeMap::new();
    let mut steps: Vec<Step> = (10..EVENTS)
        .map(|version| {
            let name = format!("o{}", version * 7 % 13);
            match (present.remove(&name), version % 3) {
                (Some(()), 0) => deleted(&name, version),
                (Some(()), _) => {
                    present.insert(name.clone(), ());
                    modified(&name, version)
                }
                (None, _) => {
                    present.insert(name.clone(), ());
                    added(&name, version)
                }
            }
        })
        .collect();
    steps.extend([added("zz", EVENTS), Step::Hang]);
    steps
}

/// Folds events until the object `zz` arrives. Returns the objects then.
fn follow(
    informer: &SharedInformer<ConfigMap>,
    queue_max: usize,
) -> oneshot::Receiver<BTreeMap<String, String>> {
    let (done, believes) = oneshot::channel();
    let mut done = Some(done);
    let mut known = BTreeMap::new();
    let handler = move |event: Event<ConfigMap>| {
        let name = event.key().name.to_string();
        let version = event.object().unwrap().resource_version().to_owned();
        match &event {
            Event::Added { .. } => assert_eq!(known.insert(name, version), None),
            Event::Updated { old, .. } => {
                let before = known.insert(name, version);
                assert_eq!(before.as_deref(), Some(old.resource_version()));
            }
            _ => assert!(known.remove(&name).is_some()),
        }
        if known.contains_key("zz")
            && let Some(done) = done.take()
        {
            let _ = done.send(known.clone());
        }
    };
    let options = HandlerOptions::default().queue_max(queue_max);
    informer.add_handler(handler, options).unwrap();
    believes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn shi_3_invariant_5_handlers_of_any_thread_and_moment_end_with_the_same_state() {
    let script = Script::new([page("5", &[("o1", 1), ("o2", 2)]), Answer::Watch(history())]);
    let (informer, worker) = SharedInformer::<ConfigMap>::builder(script).seed(0).build();
    let stop = CancellationToken::new();
    let (mut run, mut joiners) = (JoinSet::new(), JoinSet::new());
    run.spawn(worker.run(stop.clone()));
    for joiner in 0..4 {
        let informer = informer.clone();
        joiners.spawn(async move {
            let mut followers = Vec::new();
            for n in 0..10 {
                // An unbounded queue, so that `zz` comes last in key order and in time.
                followers.push(follow(&informer, usize::MAX));
                let fleeting = Log::default().add(&informer);
                for _ in 0..joiner * n {
                    tokio::task::yield_now().await;
                }
                fleeting.remove_and_wait().await.unwrap();
            }
            followers
        });
    }
    let mut want = None;
    while let Some(followers) = joiners.join_next().await {
        for follower in followers.unwrap() {
            let believes = follower.await.unwrap();
            let want = want.get_or_insert_with(|| believes.clone());
            assert_eq!(*want, believes);
        }
    }
    let snapshot = informer.lister().snapshot();
    let have: BTreeMap<String, String> = snapshot
        .iter()
        .map(|object| (object.name().to_owned(), object.resource_version().to_owned()))
        .collect();
    assert_eq!(want, Some(have));
    stop.cancel();
    run.join_next().await.unwrap().unwrap();
}
