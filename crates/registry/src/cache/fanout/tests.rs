use super::*;
use crate::bootstrap;
use crate::cache::Meter;
use crate::read::Scope;
use crate::routed::Target;
use crate::testing::options;
use crate::threads::Threads;
use proptest::prelude::*;
use serde_json::{Value, json};
use setpoint_object::encode;

fn scope(path: &str, text: &str) -> Scope {
    scope_in("", path, text)
}
fn scope_in(group: &str, path: &str, text: &str) -> Scope {
    let (resource, namespace) = path.split_once('/').unwrap_or((path, ""));
    let target = Target {
        resource: bootstrap::catalog().get(group, "v1", resource).unwrap().clone(),
        namespace: namespace.to_owned(),
        name: String::new(),
        subresource: None,
    };
    Scope::new(&target, &options(text)).unwrap()
}
fn pod(namespace: &str, name: &str, labels: Value, node: &str) -> Arc<Item> {
    let tree = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node},
        "metadata": {"name": name, "namespace": namespace, "labels": labels}});
    let key = format!("/registry/pods/{namespace}/{name}");
    Arc::new(Item::new(key.into(), 1, encode::to_bytes(&tree)))
}

/// Waiting watchers with their scopes.
struct Crowd {
    fanout: Fanout,
    placements: Vec<(Scope, Placement)>,
    n_changes: u64,
}
impl Crowd {
    fn new(scopes: Vec<Scope>) -> Self {
        let mut fanout = Fanout::new("/registry/pods/".len());
        let join = |scope: Scope| {
            let placement = fanout.join(&scope.interest(), 0);
            (scope, placement)
        };
        let placements = scopes.into_iter().map(join).collect();
        Self { fanout, placements, n_changes: 0 }
    }
    /// The watchers that a change wakes.
    fn change(&mut self, before: Option<Arc<Item>>, now: Option<Arc<Item>>) -> Vec<usize> {
        self.change_with(before, now, &FieldValues::default())
    }
    /// The same, with values that were read before.
    fn change_with(
        &mut self,
        before: Option<Arc<Item>>,
        now: Option<Arc<Item>>,
        values: &FieldValues,
    ) -> Vec<usize> {
        for (idx, (_, placement)) in self.placements.iter().enumerate() {
            self.fanout.wait(WatcherId(idx as u64), placement, Waker::noop(), self.n_changes, 0);
        }
        let change = Change::new(1, now, before, Meter::default());
        let mut woken = Woken::new();
        self.fanout.add(self.n_changes, &change, values, 0, &mut woken);
        self.n_changes += 1;
        woken.into_keys().map(|id| id.0 as usize).collect()
    }
    /// Whether the object matches the watcher's selector, before or after.
    fn concerned(&self, item: &Item, idx: usize) -> bool {
        let (scope, _) = &self.placements[idx];
        scope.has_key(&item.key) && scope.selects(item).unwrap()
    }
}

#[test]
fn a_change_wakes_the_watchers_that_it_may_concern() {
    let mut crowd = Crowd::new(vec![
        scope("pods", ""),
        scope("pods/a", ""),
        scope("pods/b", ""),
        scope("pods", "labels=app=x"),
        scope("pods/a", "labels=app=x"),
        scope("pods/b", "labels=app=x"),
        scope("pods", "labels=app=y"),
        scope("pods", "labels=app%in%(x,y)"),
        scope("pods", "labels=app!=x"),
        scope("pods", "fields=spec.nodeName=n"),
        scope("pods", "fields=spec.nodeName="),
        scope("pods", "fields=metadata.name=p"),
        scope("pods/a", "fields=metadata.name=p"),
        scope("pods/a", "fields=metadata.name=q"),
        scope("pods", "fields=metadata.namespace=b"),
    ]);
    let old = pod("a", "p", json!({"app": "x"}), "");
    let new = pod("a", "p", json!({"app": "y"}), "n");
    assert_eq!(crowd.change(None, Some(old.clone())), [0, 1, 3, 4, 7, 8, 10, 11, 12]);
    assert_eq!(
        crowd.change(Some(old), Some(new.clone())),
        [0, 1, 3, 4, 6, 7, 8, 9, 10, 11, 12],
        "a watcher whose selector stops matching is woken too"
    );
    assert_eq!(crowd.change(Some(new), None), [0, 1, 6, 7, 8, 9, 11, 12]);
    for (_, placement) in &crowd.placements {
        crowd.fanout.leave(WatcherId(0), placement);
    }
    assert!(crowd.fanout.buckets.is_empty() && crowd.fanout.fields.is_empty());
    assert_eq!(crowd.fanout.n_by_label, 0);
}

#[test]
fn a_watcher_joins_the_bucket_with_the_fewest_watchers() {
    let scopes = (0..1000).map(|n| scope("pods", &format!("labels=app=x,id=i{n}"))).collect();
    let mut crowd = Crowd::new(scopes);
    let woken = crowd.change(None, Some(pod("a", "p", json!({"app": "x", "id": "i7"}), "n")));
    assert_eq!(woken, [0, 7], "only the first of them is found by what all share");
}

#[test]
fn a_watcher_of_many_values_checks_every_change() {
    let values: Vec<_> = (0..=TERM_VALUES_MAX).map(|n| format!("v{n}")).collect();
    let text = format!("labels=app%in%({})", values.join(","));
    let mut crowd = Crowd::new(vec![scope("pods", &text)]);
    assert_eq!(crowd.change(None, Some(pod("a", "p", json!({}), ""))), [0]);
}

fn selector() -> impl Strategy<Value = String> {
    let labels = prop_oneof![
        Just(String::new()),
        ("[kl]", "[vw]").prop_map(|(k, v)| format!("labels={k}={v}")),
        ("[kl]", "[vw]").prop_map(|(k, v)| format!("labels={k}!={v}")),
        "[kl]".prop_map(|k| format!("labels={k}")),
        "[kl]".prop_map(|k| format!("labels=!{k}")),
        ("[vw]", "[vw]").prop_map(|(v, w)| format!("labels=k={v},l={w}")),
        Just("labels=k%in%(v,w)".to_owned()),
        Just("labels=k%in%(),l=v".to_owned()),
    ];
    let fields = prop_oneof![
        Just(String::new()),
        "[pq]".prop_map(|name| format!("fields=metadata.name={name}")),
        "[pq]".prop_map(|name| format!("fields=metadata.name!={name}")),
        "[ab]?".prop_map(|namespace| format!("fields=metadata.namespace={namespace}")),
        "[mn]?".prop_map(|node| format!("fields=spec.nodeName={node}")),
        "[mn]?".prop_map(|node| format!("fields=spec.host={node},metadata.namespace=a")),
        "[mn]?".prop_map(|node| format!("fields=spec.nodeName!={node}")),
        Just("fields=status.phase=,spec.hostNetwork=false".to_owned()),
    ];
    (labels, fields).prop_map(|(labels, fields)| format!("{labels} {fields}"))
}
fn state() -> impl Strategy<Value = Option<(Value, String)>> {
    let labels = proptest::collection::btree_map("[kl]", "[vw]?", 0..3);
    proptest::option::weighted(0.8, (labels.prop_map(|labels| json!(labels)), "[mn]?"))
}

proptest! {
    #[test]
    fn every_watcher_that_a_change_concerns_is_woken(
        watchers in proptest::collection::vec((prop_oneof!["pods", "pods/a", "pods/b"], selector()), 1..12),
        changes in proptest::collection::vec(("[ab]", "[pq]", state(), state()), 1..12),
    ) {
        let scopes = watchers.iter().map(|(path, text)| scope(path, text)).collect();
        let mut crowd = Crowd::new(scopes);
        for (namespace, name, before, now) in changes {
            let item = |state: Option<(Value, String)>| {
                state.map(|(labels, node)| pod(&namespace, &name, labels, &node))
            };
            let (before, now) = (item(before), item(now));
            let woken = crowd.change(before.clone(), now.clone());
            for (idx, watcher) in watchers.iter().enumerate() {
                let concerned = before.iter().chain(&now).any(|item| crowd.concerned(item, idx));
                prop_assert!(!concerned || woken.contains(&idx), "{watcher:?}");
            }
        }
    }
}

/// The story: an object was converted once for each field, and under the lock of its resource, for
/// the watchers that select a field of another version than the stored one.
#[tokio::test]
async fn a_field_of_another_version_is_looked_up_only_where_it_was_read_before() {
    let of = |text| scope_in("events.k8s.io", "events", text);
    let mut crowd = Crowd::new(vec![of("fields=reason=x"), of("fields=reason=y")]);
    let tree = json!({"kind": "Event", "apiVersion": "v1", "reason": "x",
        "metadata": {"name": "e", "namespace": "a"}, "involvedObject": {}});
    let event = Arc::new(Item::new("/registry/pods/a/e".into(), 1, encode::to_bytes(&tree)));
    assert_eq!(crowd.change(None, Some(event.clone())), [0, 1], "nothing is known");
    let fields = crowd.fanout.numbered_fields();
    let values = FieldValues::read(vec![event.clone()], fields, &Threads::new(false)).await;
    assert_eq!(crowd.change_with(None, Some(event), &values), [0]);
}
