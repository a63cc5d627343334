use super::*;
use crate::cycle::{Decision, Verdict};
use rand::SeedableRng;
use serde_json::{Value, json};

fn state() -> State {
    State::new(SmallRng::seed_from_u64(0))
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1}, "spec": spec,
    });
    pod["spec"]["schedulerName"] = "default-scheduler".into();
    Pod::read(&pod, None)
}

fn put(state: &mut State, pod: Pod) -> Option<i32> {
    state.put_pod(pod, "default-scheduler")
}

fn refuse(state: &mut State, key: &Request, now: Instant) -> Option<Retry> {
    let pod = state.begin(key).unwrap();
    let mut decision = Decision::new(state.view.clone(), pod, Arc::default());
    let mut rng = SmallRng::seed_from_u64(0);
    let Some(Verdict::Refuse(refused)) = decision.step(&mut rng) else { panic!("nothing fits") };
    state.refuse(decision.into_cycle().pod, *refused, now)
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_handed_out_only_after_a_change_that_may_help_and_its_back_off() {
    let mut state = state();
    let key = Request::new("default", "p");
    assert_eq!(put(&mut state, pod("p", json!({"priority": 3}))), Some(3));
    let now = Instant::now();
    assert_eq!(refuse(&mut state, &key, now), None);
    assert_eq!(state.helped(change::POD_GONE | change::VOLUME, None, 10, now).0, []);
    let (retries, last) = state.helped(change::NODE, None, 10, now);
    let retry = Retry { key: key.clone(), priority: 3, after: Duration::from_secs(1) };
    assert_eq!((retries, last), (vec![retry], None));
    // Its own status changes nothing.
    let same = Pod::clone(&state.pod(&key).unwrap());
    assert_eq!(put(&mut state, same), None);
    // The back-off doubles.
    for seconds in [2, 4, 8, 10, 10] {
        refuse(&mut state, &key, now);
        let (retries, _) = state.helped(change::NODE, None, 10, now);
        assert_eq!(retries[0].after, Duration::from_secs(seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_resized_takes_the_larger_amount_and_makes_room_when_it_has_shrunk() {
    let mut state = state();
    let at = |generation: i64, wants: &str, has: &str| {
        json!({
            "metadata": {"name": "r", "namespace": "default", "uid": "r", "generation": generation},
            "spec": {"nodeName": "a", "containers": [
                {"name": "c", "resources": {"requests": {"cpu": wants}}}]},
            "status": {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": has}}}]},
        })
    };
    let node = json!({"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "4"}}});
    state.put_node(&"a".into(), Some(Node::read(&node)));
    let key = Request::new("default", "r");
    let mut cpu = |pod: Value| {
        let earlier = state.pod(&key);
        let pod = Pod::read(&pod, earlier.as_deref());
        put(&mut state, pod);
        (state.take_changes() & change::POD_GONE, state.view.nodes["a"].requested.cpu)
    };
    assert_eq!(cpu(at(1, "2", "2")), (0, 2000));
    assert_eq!(cpu(at(2, "3", "2")), (0, 3000));
    assert_eq!(cpu(at(2, "3", "3")), (0, 3000));
    // Smaller only when the node has made it so.
    assert_eq!(cpu(at(3, "1", "3")), (0, 3000));
    assert_eq!(cpu(at(3, "1", "1")), (change::POD_GONE, 1000));
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_cycle_counts() {
    let mut state = state();
    let key = Request::new("default", "p");
    put(&mut state, pod("p", json!({})));
    let now = Instant::now();
    let begun = state.begin(&key).unwrap();
    state.changed(change::NODE);
    let refused = Refused { awaits: change::NODE, ..Refused::default() };
    assert_eq!(state.refuse(begun, refused, now).unwrap().after, Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn gated_and_foreign_pods_are_left_alone() {
    let mut state = state();
    assert_eq!(put(&mut state, pod("g", json!({"schedulingGates": [{"name": "x"}]}))), None);
    assert!(state.begin(&Request::new("default", "g")).is_none());
    let mut open = pod("g", json!({}));
    open.generation = 2;
    assert_eq!(put(&mut state, open), Some(0));
    assert!(state.begin(&Request::new("default", "g")).is_some());
    let mut foreign =
        json!({"metadata": {"name": "f", "namespace": "default", "uid": "f"}, "spec": {}});
    foreign["spec"]["schedulerName"] = "other".into();
    assert_eq!(put(&mut state, Pod::read(&foreign, None)), None);
}

#[tokio::test(start_paused = true)]
async fn many_refused_pods_are_compared_in_slices() {
    let mut state = state();
    let now = Instant::now();
    for n in 0..5 {
        put(&mut state, pod(&format!("p{n}"), json!({})));
        refuse(&mut state, &Request::new("default", format!("p{n}")), now);
    }
    let (first, last) = state.helped(change::NODE, None, 3, now);
    assert_eq!(first.len(), 3);
    let (second, end) = state.helped(change::NODE, last.as_ref(), 3, now);
    assert_eq!((second.len(), end), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_nomination_counts_before_it_is_written_and_after_a_binding_that_failed() {
    let mut state = state();
    let node = json!({
        "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "1", "pods": "10"}},
    });
    state.put_node(&"a".into(), Some(Node::read(&node)));
    let wants = |priority: i32| json!({"priority": priority, "containers": [{"resources": {"requests": {"cpu": "1"}}}]});
    let mut low = wants(0);
    low["nodeName"] = "a".into();
    put(&mut state, pod("low", low));
    put(&mut state, pod("high", wants(5)));
    put(&mut state, pod("other", wants(0)));
    let end = |state: &mut State, name: &str| {
        let begun = state.begin(&Request::new("default", name)).unwrap();
        let mut decision = Decision::new(state.view.clone(), begun, Arc::default());
        let mut rng = SmallRng::seed_from_u64(0);
        let verdict = loop {
            if let Some(verdict) = decision.step(&mut rng) {
                break verdict;
            }
        };
        (decision.into_cycle(), verdict)
    };
    let key = Request::new("default", "high");
    let unwritten = Pod::clone(&state.pod(&key).unwrap());
    let (cycle, Verdict::Refuse(refused)) = end(&mut state, "high") else { panic!("it is full") };
    assert!(refused.preempted.is_some());
    state.refuse(cycle.pod, *refused, Instant::now());
    // An event from before the nomination, and then room.
    put(&mut state, unwritten);
    state.remove_pod(&Request::new("default", "low"));
    assert!(matches!(end(&mut state, "other").1, Verdict::Refuse(_)), "the room is taken");

    let (cycle, Verdict::Place(node)) = end(&mut state, "high") else { panic!("there is room") };
    assert_eq!(state.assume(&cycle, &node, Instant::now()), Assumed::Yes);
    state.forget(&cycle.pod, Instant::now());
    assert!(matches!(end(&mut state, "other").1, Verdict::Refuse(_)), "it tries again");
    assert!(matches!(end(&mut state, "high").1, Verdict::Place(_)));
    // What its status says later counts again.
    let mut written = Pod::clone(&state.pod(&key).unwrap());
    written.nominated = "a".into();
    put(&mut state, written.clone());
    written.nominated = Arc::default();
    put(&mut state, written);
    assert!(matches!(end(&mut state, "other").1, Verdict::Place(_)));
}

#[tokio::test(start_paused = true)]
async fn a_missing_claim_is_said_a_moment_later_and_wakes_only_its_pods() {
    let mut state = state();
    state.put_node(&"n".into(), Some(Node::read(&json!({"metadata": {"name": "n"}}))));
    let now = Instant::now();
    for (name, claim) in [("p", "c"), ("q", "other")] {
        let claims = json!([{"name": "gpu", "resourceClaimName": claim}]);
        put(&mut state, pod(name, json!({"resourceClaims": claims})));
        let key = Request::new("default", name);
        let retry = refuse(&mut state, &key, now).unwrap();
        assert_eq!(retry.after, Duration::from_secs(1));
        assert!(state.job(&key).is_none());
        assert_eq!(refuse(&mut state, &key, now), None);
        let Some(Job::Refuse { message, .. }) = state.job(&key) else { panic!("it is said") };
        assert!(message.contains("could not find ResourceClaim"), "{message}");
    }
    let claim = Claim::read(&json!({"metadata": {"uid": "u"}}), None);
    state.put_device_claim(&Request::new("default", "c"), Some(claim));
    assert!(state.has_changed());
    let woken = state.take_woken(10, now);
    // At once: it has not been refused for want of anything else.
    let key = Request::new("default", "p");
    assert_eq!(woken, [Retry { key, priority: 0, after: Duration::ZERO }]);
    assert!(state.take_woken(10, now).is_empty());
}
