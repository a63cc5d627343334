use super::*;
use crate::indexer::{Indexer, ObjectIndexFn};
use crate::policy::CachePolicy;
use crate::testing::{object, record};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::time::advance;

type Cache = MutationCache<ConfigMap>;

fn cache(stored: &[(&str, u64)]) -> (Indexer<ConfigMap>, Cache) {
    let mut indexer = Indexer::new();
    let by_parity: ObjectIndexFn<ConfigMap> = Arc::new(|object| {
        let version: u64 = object.resource_version().parse().map_err(|_| "no number")?;
        Ok(vec![if version.is_multiple_of(2) { "even" } else { "odd" }.to_owned()])
    });
    indexer.add_indices([(Arc::from("parity"), by_parity)]).unwrap();
    for (name, version) in stored {
        indexer.upsert(object(name, *version)).unwrap();
    }
    let cache = MutationCache::new(indexer.lister());
    (indexer, cache)
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn read(cache: &Cache, name: &str) -> Option<String> {
    cache.object(&key(name)).map(|object| object.resource_version().to_owned())
}

fn of_index(cache: &Cache, index: &str, value: &str) -> Vec<String> {
    let objects = cache.objects_by_index(index, value).unwrap();
    objects.iter().map(|object| format!("{object:?}").replace("ns/", "")).collect()
}

fn again(name: &str, version: u64) -> Object<ConfigMap> {
    let mut record = record(name, version);
    record.uid = "another".into();
    Object::new(record, CachePolicy::Compact)
}

fn deleted(object: Object<ConfigMap>) -> Event<ConfigMap> {
    Event::Deleted { tombstone: Tombstone::Final(object) }
}

#[test]
fn newer_object_by_integer_version_is_read_and_the_older_removed() {
    let (mut indexer, cache) = cache(&[("a", 9)]);
    cache.written(object("a", 10));
    assert_eq!(read(&cache, "a").as_deref(), Some("10"), "integers, not text");
    assert_eq!(
        cache.get("ns", "a").unwrap().unwrap().metadata.resource_version.as_deref(),
        Some("10")
    );
    indexer.upsert(object("a", 11)).unwrap();
    assert_eq!(read(&cache, "a").as_deref(), Some("11"));
    indexer.remove(&key("a"), "12");
    let cache = cache.show_unstored();
    assert_eq!(read(&cache, "a"), None, "it was removed when the store had caught up");
}

#[test]
fn the_answers_to_two_writes_may_come_in_either_order() {
    let (_indexer, cache) = cache(&[("a", 1)]);
    cache.written(object("a", 3));
    cache.written(object("a", 2));
    assert_eq!(read(&cache, "a").as_deref(), Some("3"));
}

#[test]
fn unordered_version_never_replaces_the_stored_object() {
    let (_indexer, cache) = cache(&[("a", 9)]);
    let mut foreign = record("a", 1);
    foreign.resource_version = "v10".into();
    cache.written(Object::new(foreign, CachePolicy::Compact));
    assert_eq!(read(&cache, "a").as_deref(), Some("9"));
}

#[test]
fn unstored_objects_are_read_only_with_show_unstored() {
    let (_indexer, cache) = cache(&[]);
    cache.written(object("a", 2));
    assert_eq!(read(&cache, "a"), None);
    assert!(of_index(&cache, "parity", "even").is_empty());
    let cache = cache.show_unstored();
    assert_eq!(read(&cache, "a").as_deref(), Some("2"));
    assert_eq!(of_index(&cache, "parity", "even"), ["a@2"]);
}

#[test]
fn written_object_is_listed_under_its_own_index_values() {
    let (_indexer, cache) = cache(&[("a", 1), ("b", 3), ("c", 5)]);
    cache.written(object("a", 2));
    cache.written(object("c", 7));
    assert_eq!(of_index(&cache, "parity", "odd"), ["b@3", "c@7"]);
    assert_eq!(of_index(&cache, "parity", "even"), ["a@2"]);
    assert_eq!(of_index(&cache, "namespace", "ns"), ["a@2", "b@3", "c@7"]);
    assert!(cache.objects_by_index("none", "x").is_err());
}

#[test]
fn observed_deletion_hides_late_writes_of_the_same_uid_or_an_older_version() {
    let (_indexer, cache) = cache(&[]);
    let cache = cache.show_unstored();
    cache.written(object("a", 4));
    cache.observe(&deleted(object("a", 5)));
    assert_eq!(read(&cache, "a"), None, "it was written before it was deleted");
    cache.written(object("a", 4));
    cache.written(object("a", 6));
    assert_eq!(read(&cache, "a"), None, "the same uid");
    cache.written(again("a", 3));
    assert_eq!(read(&cache, "a"), None, "an older version");
    cache.written(again("a", 7));
    assert_eq!(read(&cache, "a").as_deref(), Some("7"), "it was created again");
    cache.observe(&deleted(object("a", 5)));
    assert_eq!(
        read(&cache, "a").as_deref(),
        Some("7"),
        "the deletion belongs to the earlier incarnation"
    );
}

#[test]
fn deletion_of_an_unknown_incarnation_removes_the_written_object() {
    let (_indexer, cache) = cache(&[]);
    let cache = cache.show_unstored();
    cache.written(object("a", 4));
    let tombstone = Tombstone::Missed { key: key("a"), last_known: None };
    cache.observe(&Event::Deleted { tombstone });
    assert_eq!(read(&cache, "a"), None);
}

#[test]
fn written_object_is_removed_when_the_informer_has_caught_up() {
    let (_indexer, cache) = cache(&[]);
    let cache = cache.show_unstored();
    cache.written(object("a", 4));
    cache.observe(&Event::Added { object: object("a", 3), in_initial_list: false });
    assert_eq!(read(&cache, "a").as_deref(), Some("4"));
    cache.observe(&Event::Updated { old: object("a", 3), new: object("a", 4) });
    assert_eq!(read(&cache, "a"), None);
}

#[test]
fn written_objects_are_bounded_and_the_least_recently_used_is_evicted() {
    let (_indexer, cache) = cache(&[]);
    let cache = cache.show_unstored();
    for n in 0..WRITTEN_MAX {
        cache.written(object(&n.to_string(), 1));
    }
    assert_eq!(read(&cache, "0").as_deref(), Some("1"));
    cache.written(object("late", 1));
    assert_eq!((read(&cache, "1"), read(&cache, "0").as_deref()), (None, Some("1")));
    assert_eq!(of_index(&cache, "parity", "odd").len(), WRITTEN_MAX);
}

#[tokio::test(start_paused = true)]
async fn written_objects_and_tombstones_expire_after_five_minutes() {
    let (_indexer, cache) = cache(&[("a", 1)]);
    let cache = cache.show_unstored();
    cache.written(object("a", 2));
    cache.observe(&deleted(object("b", 2)));
    advance(WRITTEN_TTL - Duration::from_millis(1)).await;
    assert_eq!(read(&cache, "a").as_deref(), Some("2"));
    advance(Duration::from_millis(1)).await;
    assert_eq!(read(&cache, "a").as_deref(), Some("1"));
    cache.written(object("b", 1));
    assert_eq!(read(&cache, "b").as_deref(), Some("1"), "the tombstone's time is over too");
}
