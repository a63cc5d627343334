//! Cache policies: what each stores, and that reads are the same under all of them.
use crate::support::{builder, modified, page, settle, wait};
use bytes::Bytes;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube_core::metadata::PartialObjectMeta;
use kube_core::{ApiResource, DynamicObject};
use proptest::prelude::*;
use setpoint_informer::source::scripted::{Answer, Script, Step};
use setpoint_informer::source::{ListPage, WatchFrame};
use setpoint_informer::{CachePolicy, Object, SharedInformer, SharedInformerBuilder, Snapshot};
use setpoint_object::Prune;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const POLICIES: [CachePolicy; 4] =
    [CachePolicy::Compact, CachePolicy::Compressed, CachePolicy::Metadata, CachePolicy::Decoded];

/// More objects than a dictionary is trained on.
const MANY: u64 = 300;

fn map(n: u64, version: u64) -> Bytes {
    let app = n % 7;
    Bytes::from(format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"namespace":"ns-{}","name":"map-{n:05}","uid":"uid-{n}","resourceVersion":"{version}","labels":{{"app":"app-{app}"}},"managedFields":[{{"manager":"m","fieldsV1":{{"f:data":{{}}}}}}],"ownerReferences":[{{"apiVersion":"v1","kind":"Pod","name":"p","uid":"owner-{app}"}}]}},"data":{{"v":"{version}","text":"what all of them have in common"}}}}"#,
        n % 3
    ))
}

fn frame(n: u64, version: u64) -> Step {
    Step::Frame(WatchFrame::Modified(map(n, version)))
}

fn list(items: Vec<Bytes>) -> Answer {
    Answer::List(Ok(ListPage::new("1000", items)))
}

/// An informer that has followed its script to the end.
struct Followed<K> {
    informer: SharedInformer<K>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

async fn follow<K: setpoint_informer::Cacheable>(builder: SharedInformerBuilder<K>) -> Followed<K> {
    let (informer, worker) = builder.build();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(worker.run(stop.clone()));
    informer.synced().await.unwrap();
    for _ in 0..5 {
        settle().await;
    }
    Followed { informer, stop, tasks }
}

impl<K: setpoint_informer::Cacheable> Followed<K> {
    fn snapshot(&self) -> Snapshot<K> {
        self.informer.lister().snapshot()
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// Everything that can be read of every object without its data.
fn shown(snapshot: &Snapshot<ConfigMap>) -> Vec<String> {
    let show = |object: Object<ConfigMap>| {
        let skim = object.skim();
        let map = object.get().unwrap();
        format!(
            "{object:?} {} {:?} {:?} {} {:?} {:?}",
            object.uid(),
            object.label("app"),
            object.label("none"),
            skim.owner_references[0].uid,
            map.metadata.name,
            map.metadata.labels,
        )
    };
    let mut shown: Vec<String> = snapshot.iter().map(show).collect();
    for index in ["app", "typed", "namespace"] {
        for value in snapshot.index_values(index) {
            let keys = snapshot.index_keys(index, &value).unwrap();
            let found: Vec<_> = snapshot
                .by_index(index, &value)
                .unwrap()
                .map(|object| object.key().clone())
                .collect();
            assert_eq!(keys, found);
            shown.push(format!("{index} {value} {keys:?}"));
        }
    }
    shown.push(snapshot.resource_version().to_owned());
    shown
}

fn indexed(script: &Script, policy: CachePolicy) -> SharedInformerBuilder<ConfigMap> {
    builder(script)
        .policy(policy)
        .object_index("app", |object| object.label("app").map(Into::into).into_iter().collect())
        .index("typed", |map: &ConfigMap| map.metadata.uid.clone().into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_policy_reads_the_same(
        n_objects in prop_oneof![1_u64..20, MANY..MANY + 50],
        events in prop::collection::vec((0_u64..MANY, any::<bool>()), 0..80),
        is_streamed in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let items: Vec<Bytes> = (0..n_objects).map(|n| map(n, n + 1)).collect();
        let steps = || {
            let events = events.iter().enumerate().map(|(at, (n, deletes))| {
                let object = map(*n, 2000 + at as u64);
                Step::Frame(match deletes {
                    true => WatchFrame::Deleted(object),
                    false => WatchFrame::Modified(object),
                })
            });
            [wait(1)].into_iter().chain(events).chain([Step::Hang])
        };
        let mut first: Option<Vec<String>> = None;
        for policy in POLICIES {
            let script = if is_streamed {
                let initial = items.iter().map(|item| Step::Frame(WatchFrame::Added(item.clone())));
                let all = initial.chain([crate::support::marker(1000)]).chain(steps());
                Script::streaming([Answer::Watch(all.collect())])
            } else {
                Script::new([list(items.clone()), Answer::Watch(steps().collect())])
            };
            let shown = runtime.block_on(async {
                let followed = follow(indexed(&script, policy)).await;
                tokio::time::sleep(std::time::Duration::from_secs(2)).await;
                let snapshot = followed.snapshot();
                for object in snapshot.iter() {
                    let map = object.get().unwrap();
                    assert_eq!(map.data.is_none(), policy == CachePolicy::Metadata);
                    assert_eq!(object.is_partial(), policy == CachePolicy::Metadata);
                }
                let shown = shown(&snapshot);
                followed.end().await;
                shown
            });
            match &first {
                None => first = Some(shown),
                Some(first) => prop_assert_eq!(first, &shown, "{:?}", policy),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn objects_stored_before_the_dictionary_are_packed_later() {
    let items: Vec<Bytes> = (0..MANY).map(|n| map(n, n + 1)).collect();
    let initial = items.iter().map(|item| Step::Frame(WatchFrame::Added(item.clone())));
    let initial = initial.chain([crate::support::marker(1000), Step::Hang]).collect();
    let pages = [
        Answer::List(Ok(ListPage::new("1000", items[..100].to_vec()).continued("a"))),
        Answer::List(Ok(ListPage::new("1000", items[100..200].to_vec()).continued("b"))),
        list(items[200..].to_vec()),
    ];
    let events = items.iter().map(|item| Step::Frame(WatchFrame::Added(item.clone())));
    let events = events.chain([frame(5, 2000), Step::Hang]).collect();
    for (what, script) in [
        ("a streamed list", Script::streaming([Answer::Watch(initial)])),
        ("pages", Script::new(pages)),
        ("events", Script::new([list(Vec::new()), Answer::Watch(events)])),
    ] {
        let builder = builder(&script).policy(CachePolicy::Compressed).keep_managed_fields(true);
        let followed = follow(builder).await;
        let snapshot = followed.snapshot();
        assert_eq!(snapshot.len() as u64, MANY, "{what}");
        let plain = snapshot.iter().filter(|object| object.bytes().is_some()).count();
        assert_eq!(plain, 0, "{what}");
        for object in snapshot.iter() {
            let n = object.name()[4..].parse().unwrap();
            let version = object.resource_version().parse().unwrap();
            assert_eq!(object.json().unwrap(), map(n, version), "{what}");
        }
        followed.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn small_caches_and_incompressible_objects_stay_plain() {
    let script = Script::new([page("5", &[("a", 1)])]);
    let followed = follow(builder(&script).policy(CachePolicy::Compressed)).await;
    assert!(followed.snapshot().iter().all(|object| object.bytes().is_some()));
    followed.end().await;
}

#[tokio::test(start_paused = true)]
async fn fields_are_pruned_before_caching_and_managed_fields_by_default() {
    for policy in POLICIES {
        let script = || Script::new([list((0..3).map(|n| map(n, n + 1)).collect())]);
        let default = follow(builder(&script()).policy(policy)).await;
        for object in default.snapshot().iter() {
            assert!(object.get().unwrap().metadata.managed_fields.is_none(), "{policy:?}");
        }
        default.end().await;
        let kept = builder(&script()).policy(policy).keep_managed_fields(true);
        let kept = follow(kept).await;
        let prune = Prune::parse(["data.text"]).unwrap();
        let cut = follow(builder(&script()).policy(policy).prune(prune)).await;
        for (kept, cut) in kept.snapshot().iter().zip(cut.snapshot().iter()) {
            let (kept, cut) = (kept.get().unwrap(), cut.get().unwrap());
            assert_eq!(
                kept.metadata.managed_fields.is_some(),
                policy != CachePolicy::Metadata,
                "{policy:?}"
            );
            assert!(cut.metadata.managed_fields.is_none());
            let text = |map: &ConfigMap| map.data.as_ref().is_some_and(|d| d.contains_key("text"));
            assert_eq!(text(&kept), policy != CachePolicy::Metadata);
            assert!(!text(&cut));
        }
        kept.end().await;
        cut.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn ref_24_an_answer_of_metadata_only_is_of_the_type_that_is_watched() {
    let partial = |version: u64| {
        Bytes::from(format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"namespace":"ns","name":"a","uid":"u","resourceVersion":"{version}"}}}}"#
        ))
    };
    let script = || {
        Script::new([
            list(vec![partial(1)]),
            Answer::Watch(vec![wait(1), Step::Frame(WatchFrame::Modified(partial(2))), Step::Hang]),
        ])
    };
    let later = || tokio::time::sleep(std::time::Duration::from_secs(2));

    let typed = SharedInformer::<PartialObjectMeta<Pod>>::builder(script()).seed(0);
    let typed = follow(typed.policy(CachePolicy::Metadata)).await;
    later().await;
    let pod = typed.informer.lister().get("ns", "a").unwrap().unwrap();
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(pod.types.as_ref().unwrap().kind, "Pod");
    typed.end().await;

    let pods = ApiResource::erase::<Pod>(&());
    let dynamic = SharedInformer::<DynamicObject>::builder_dynamic(script(), &pods).seed(0);
    let dynamic = follow(dynamic.policy(CachePolicy::Metadata)).await;
    later().await;
    let pod = dynamic.informer.lister().get("ns", "a").unwrap().unwrap();
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("2"));
    assert_eq!(pod.types.as_ref().unwrap().api_version, "v1");
    dynamic.end().await;

    let empty = SharedInformer::<Pod>::builder(script()).seed(0).policy(CachePolicy::Metadata);
    let empty = follow(empty).await;
    let lister = empty.informer.lister();
    assert!(
        lister.get("ns", "a").unwrap().unwrap().spec.is_none(),
        "metadata decodes without a spec"
    );
    assert!(lister.snapshot().iter().all(|object| object.is_partial()));
    empty.end().await;
}

#[tokio::test(start_paused = true)]
async fn recently_read_objects_stay_decoded_up_to_a_limit_while_cached() {
    let names: Vec<String> = (0..60).map(|n| format!("m{n:02}")).collect();
    let items: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
    let script = Script::new([
        page("5", &items),
        Answer::Watch(vec![wait(10), modified("m00", 6), Step::Hang]),
    ]);
    let followed = follow(builder(&script).decoded_bytes(16 << 10)).await;
    let lister = followed.informer.lister();
    let get = |name: &str| lister.get("ns", name).unwrap().unwrap();
    assert!(Arc::ptr_eq(&get("m00"), &get("m00")), "the newest value is cached");
    let pass = || names.iter().map(|name| get(name)).collect::<Vec<_>>();
    let all = pass();
    let n_kept = all.iter().filter(|value| Arc::strong_count(value) == 2).count();
    assert!((10..40).contains(&n_kept), "{n_kept} of 60 are in 16 KiB");
    assert!((10_000..=16 << 10).contains(&followed.informer.decoded_bytes()));
    // A scan over more than fits hits most of them again.
    let again = pass();
    let n_found = all.iter().zip(&again).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    assert!(n_found * 4 >= n_kept * 3 - 4, "{n_found} of {n_kept}");
    // A value that is read often enough is cached, whatever else is.
    let last = get("m59");
    assert!(Arc::ptr_eq(&last, &get("m59")));
    drop(pass());
    assert!(Arc::ptr_eq(&last, &get("m59")));

    drop((all, again));
    let first = Arc::downgrade(&get("m00"));
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    assert!(first.upgrade().is_none(), "the object left the cache");
    assert_eq!(get("m00").metadata.resource_version.as_deref(), Some("6"));
    followed.end().await;

    let script = Script::new([page("5", &[("a", 1)])]);
    let off = follow(builder(&script).decoded_bytes(0)).await;
    let get = || off.informer.lister().get("ns", "a").unwrap().unwrap();
    assert!(!Arc::ptr_eq(&get(), &get()));
    off.end().await;
}
