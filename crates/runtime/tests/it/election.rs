//! LE-10 to LE-17, and property 7: who holds a Lease, how long, and who is next.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};
use setpoint_log::testing::{self, Lines};
use setpoint_object::time::Timestamp;
use setpoint_runtime::{
    Clock, ElectionOptions,
    election::{ElectionError, LeaderElector, LeaderState, Leadership, Loss},
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{link::Link, server::Server, stall::Stall, world::pass};

const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/main";
const SECOND: Duration = Duration::from_secs(1);

/// A running candidate.
struct Candidate {
    leadership: Leadership,
    link: Link,
    stall: Stall,
    stop: CancellationToken,
    tasks: JoinSet<Result<(), ElectionError>>,
}

fn options(identity: &str) -> ElectionOptions {
    ElectionOptions::new("main").identity(identity).namespace("default").seed(1)
}

fn start(server: &Server, options: ElectionOptions) -> Candidate {
    let link = Link::new(server, 1);
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    let elector = LeaderElector::new(link.client(), clock, options).unwrap();
    let leadership = elector.leadership();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let stall = Stall::new();
    tasks.spawn(stall.wrap(elector.run(stop.clone())));
    Candidate { leadership, link, stall, stop, tasks }
}

impl Candidate {
    async fn ended(&mut self) -> Result<(), ElectionError> {
        self.tasks.join_next().await.unwrap().unwrap()
    }

    async fn elected_after(&self) -> Duration {
        let start = Instant::now();
        assert!(self.leadership.elected().await);
        start.elapsed()
    }
}

fn record(server: &Server) -> Value {
    let mut spec = server.get(LEASE).unwrap()["spec"].clone();
    let spec = spec.as_object_mut().unwrap();
    spec.retain(|field, _| !field.ends_with("Time"));
    json!(spec)
}

#[tokio::test(start_paused = true)]
async fn first_candidate_creates_the_lease_and_a_second_one_waits() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    assert!(one.elected_after().await < SECOND);
    assert_eq!(
        record(&server),
        json!({"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0})
    );
    let two = start(&server, options("two"));
    pass(120 * SECOND).await;
    assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    assert!(two.leadership.fence().check().is_err());
    assert_eq!(two.leadership.leader_id().as_deref(), Some("one"));
    assert_eq!(one.leadership.slow_paths(), 0, "renewals do not read first");
    assert_eq!(two.link.writes(), Vec::new());
}

#[tokio::test(start_paused = true)]
async fn le_10_silent_holder_is_replaced_a_full_duration_after_it_was_first_seen() {
    let server = Server::new(&[LEASES]);
    // A record from a clock far ahead, and one from long ago: the times are ignored.
    for year in ["2050", "1999"] {
        let time = format!("{year}-01-01T00:00:00.000000Z");
        server.put(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "main"},
                "spec": {"holderIdentity": year, "leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": time, "acquireTime": time}}),
        );
        let mut one = start(&server, options("one"));
        let waited = one.elected_after().await;
        assert!(waited >= 15 * SECOND && waited < 16 * SECOND, "{waited:?}");
        assert_eq!(record(&server)["leaseTransitions"], 4, "LE-12: a take-over counts");
        one.stop.cancel();
        one.ended().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn le_14_clean_stop_hands_over_in_under_a_second() {
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("one").release_on_stop(true));
    one.elected_after().await;
    let two = start(&server, options("two"));
    pass(21 * SECOND + SECOND / 3).await;
    one.stop.cancel();
    one.ended().await.unwrap();
    assert!(two.elected_after().await < SECOND);
    assert_eq!(one.leadership.state(), LeaderState::Ended);
    assert!(one.leadership.fence().check().is_err());
    assert_eq!(
        record(&server),
        json!({"holderIdentity": "two", "leaseDurationSeconds": 15, "leaseTransitions": 1})
    );
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_holder_are_logged_as_what_they_are() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .finish();
    let _default = testing::set_default(subscriber);
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("one").release_on_stop(true));
    one.elected_after().await;
    one.stop.cancel();
    one.ended().await.unwrap();
    let two = start(&server, options("two"));
    two.elected_after().await;
    let _three = start(&server, options("three"));
    pass(SECOND).await;
    expect![[r#"
        INFO became leader lease=default/main identity=one
        INFO the lease is free lease=default/main
        INFO released lease=default/main
        INFO became leader lease=default/main identity=two
        INFO another process became leader lease=default/main leader="two"
    "#]]
    .assert_eq(&lines.text().replace(" INFO", "INFO"));
    let free = Loss::Taken { holder: String::new() };
    assert_eq!(free.to_string(), "its record was changed, and nobody holds it");
}

#[tokio::test(start_paused = true)]
async fn property_7_partition_shorter_than_the_deadline_is_survived() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    one.elected_after().await;
    let two = start(&server, options("two"));
    pass(30 * SECOND).await;
    one.link.cut(true);
    pass(7 * SECOND).await;
    one.link.cut(false);
    pass(60 * SECOND).await;
    assert!(one.leadership.is_leader() && !two.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn property_7_partition_longer_than_the_deadline_stops_the_leader_before_the_next() {
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("one"));
    one.elected_after().await;
    let two = start(&server, options("two"));
    pass(30 * SECOND).await;
    let cut = Instant::now();
    one.link.cut(true);
    let lost = one.ended().await.unwrap_err();
    let stopped = cut.elapsed();
    assert!(matches!(&lost, ElectionError::Lost { why: Loss::Deadline { .. }, .. }), "{lost:?}");
    assert!(stopped <= 10 * SECOND, "{stopped:?}");
    assert!(!two.leadership.is_leader());
    assert!(two.leadership.elected().await);
    assert!(cut.elapsed() >= stopped + 3 * SECOND, "{:?}", cut.elapsed());
    assert!(cut.elapsed() <= 16 * SECOND, "{:?}", cut.elapsed());
}

#[tokio::test(start_paused = true)]
async fn fence_closes_at_its_deadline_although_no_task_runs() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    one.elected_after().await;
    let fence = one.leadership.fence();
    one.stall.set(true);
    tokio::time::advance(9 * SECOND).await;
    assert!(fence.check().is_ok());
    tokio::time::advance(SECOND + Duration::from_millis(10)).await;
    assert!(fence.check().is_err());
    assert!(!one.leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_cost_reads_but_not_the_lease() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    one.link.lose_answers(8);
    one.link.delay(SECOND / 5);
    pass(10 * SECOND).await;
    let two = start(&server, options("two"));
    pass(600 * SECOND).await;
    assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    assert!(one.leadership.slow_paths() > 20, "{}", one.leadership.slow_paths());
    assert_eq!(record(&server)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn second_process_with_the_same_identity_is_not_mistaken_for_the_first() {
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("same"));
    one.elected_after().await;
    pass(SECOND).await;
    let two = start(&server, options("same"));
    pass(60 * SECOND).await;
    assert!(one.leadership.is_leader() && !two.leadership.is_leader());
    one.stop.cancel();
    one.ended().await.unwrap();
    assert!(two.elected_after().await >= 13 * SECOND, "not released: the record has to expire");
}

#[tokio::test(start_paused = true)]
async fn le_16_leader_that_is_stuck_is_unhealthy() {
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("one"));
    one.elected_after().await;
    pass(7 * SECOND).await;
    assert_eq!(one.leadership.check_renewal(SECOND), Ok(()));
    one.stall.set(true);
    // Its last renewal was sent at most a second ago.
    pass(15 * SECOND).await;
    assert_eq!(one.leadership.check_renewal(SECOND), Ok(()));
    pass(2 * SECOND).await;
    assert!(one.leadership.check_renewal(SECOND).is_err());
    assert!(!one.leadership.is_leader());
    one.stall.set(false);
    one.ended().await.unwrap_err();
    assert_eq!(one.leadership.check_renewal(SECOND), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn lease_deleted_by_hand_is_created_again_by_its_holder() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    one.elected_after().await;
    pass(SECOND).await;
    server.delete(LEASE);
    pass(5 * SECOND).await;
    assert!(one.leadership.is_leader());
    assert_eq!(record(&server)["holderIdentity"], "one");
}

/// How long the fences of two candidates are open at once; checked each millisecond.
async fn both_open_for(one: &Candidate, two: &Candidate, time: Duration) -> Duration {
    let (start, mut both) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < time {
        pass(Duration::from_millis(1)).await;
        let is_open = |who: &Candidate| who.leadership.fence().check().is_ok();
        both += Duration::from_millis(u64::from(is_open(one) && is_open(two)));
    }
    both
}

#[tokio::test(start_paused = true)]
async fn lease_deleted_by_hand_at_any_moment_leaves_one_open_fence() {
    for moment in 0..21 {
        let server = Server::new(&[LEASES]);
        let one = start(&server, options("one"));
        one.elected_after().await;
        let two = start(&server, options("two"));
        pass(20 * SECOND + moment * SECOND / 10).await;
        server.delete(LEASE);
        let both = both_open_for(&one, &two, 20 * SECOND).await;
        assert_eq!(both, Duration::ZERO, "deleted at {moment}");
        assert!(one.leadership.is_leader() && !two.leadership.is_leader());
        assert_eq!(record(&server)["holderIdentity"], "one");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_of_a_holder_that_is_gone_is_taken_when_its_record_expires() {
    let server = Server::new(&[LEASES]);
    let one = start(&server, options("one"));
    one.elected_after().await;
    let two = start(&server, options("two"));
    pass(20 * SECOND).await;
    one.link.cut(true);
    pass(SECOND).await;
    server.delete(LEASE);
    let waited = two.elected_after().await;
    assert!(waited > 10 * SECOND && waited < 15 * SECOND, "{waited:?}");
    assert!(one.leadership.fence().check().is_err());
}

/// The bound that the fence's page gives for what a fence cannot close.
#[tokio::test(start_paused = true)]
async fn new_candidate_that_never_saw_the_deleted_lease_shares_it_for_at_most_a_retry() {
    for moment in 0..21 {
        let server = Server::new(&[LEASES]);
        let one = start(&server, options("one"));
        one.elected_after().await;
        pass(20 * SECOND + moment * SECOND / 10).await;
        server.delete(LEASE);
        let two = start(&server, options("two"));
        let both = both_open_for(&one, &two, 20 * SECOND).await;
        assert!(both <= 2 * SECOND + SECOND / 10, "deleted at {moment}: {both:?}");
        assert!(two.leadership.is_leader() && !one.leadership.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn leader_ends_when_another_process_holds_the_lease() {
    let server = Server::new(&[LEASES]);
    let mut one = start(&server, options("one"));
    one.elected_after().await;
    pass(SECOND).await;
    let mut lease = server.get(LEASE).unwrap();
    lease["spec"]["holderIdentity"] = "thief".into();
    server.put("/apis/coordination.k8s.io/v1/namespaces/default/leases", lease);
    let lost = one.ended().await.unwrap_err();
    assert_eq!(
        lost.to_string(),
        "\"one\" does not hold lease default/main any more: its record was changed by another, and names \"thief\""
    );
}
