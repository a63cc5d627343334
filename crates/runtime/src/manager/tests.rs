//! The order of starts and stops under random failures (runtime spec 15.1).

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube_client::client::Body;
use parking_lot::Mutex;
use proptest::prelude::*;
use setpoint_object::time::{Clock, Timestamp};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{AddError, Grace, Manager, ManagerError, Runnable, election::Election};
use crate::{election::LeaderState, error::BoxError};

/// A client whose server answers nothing.
fn client() -> kube_client::Client {
    let service = tower::service_fn(async |_: http::Request<Body>| {
        let answer = http::Response::builder().status(404).body(Body::empty()).unwrap();
        Ok::<_, Infallible>(answer)
    });
    kube_client::Client::new(service, "default")
}

fn manager(grace: Grace) -> Manager {
    let clock = Clock::starting_at(Timestamp(Duration::from_secs(1_767_225_600)));
    Manager::builder(client()).clock(clock).seed(1).grace(grace).build()
}

#[tokio::test]
async fn replicas_do_not_share_a_seed() {
    let seed = || Manager::new(client()).handle.environment.seed;
    assert_ne!(seed(), seed());
    let seed = || Manager::builder(client()).build().handle.environment.seed;
    assert_ne!(seed(), seed());
    assert_eq!(Manager::builder(client()).seed(7).build().handle.environment.seed, 7);
}

/// In start order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Server,
    Webhook,
    Other,
    WarmUp,
    Leader,
}

const KINDS: [Kind; 5] = [Kind::Server, Kind::Webhook, Kind::Other, Kind::WarmUp, Kind::Leader];

impl Kind {
    /// The step of the stop (MGR-20).
    fn stops_at(self, was_elected: bool) -> u8 {
        match self {
            Self::Other => 1,
            Self::WarmUp if !was_elected => 1,
            Self::WarmUp | Self::Leader => 2,
            Self::Webhook => 4,
            Self::Server => 5,
        }
    }
}

/// When a member ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// This many seconds after its stop.
    Stopped(u64),
    /// By itself after this many seconds, with success.
    Done(u64),
    /// By itself after this many seconds, with an error.
    Fails(u64),
    /// By a panic after this many seconds.
    Panics(u64),
    /// Never.
    Stuck,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Starts,
    SeesStop,
    Ends,
    Fails,
    /// The test stops the manager.
    Stop,
    Elected,
    Lost,
    Resigns,
}

#[derive(Debug, Clone)]
struct Entry {
    at: Instant,
    kind: Option<Kind>,
    what: What,
}

#[derive(Clone, Default)]
struct Trace {
    entries: Arc<Mutex<Vec<Entry>>>,
    alive: Arc<AtomicUsize>,
}

impl Trace {
    fn record(&self, kind: Option<Kind>, what: What) {
        self.entries.lock().push(Entry { at: Instant::now(), kind, what });
    }
}

struct Alive(Arc<AtomicUsize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn runnable(kind: Kind, end: End, trace: Trace) -> Runnable {
    let run = move |stop: CancellationToken| {
        trace.record(Some(kind), What::Starts);
        trace.alive.fetch_add(1, Ordering::SeqCst);
        let alive = Alive(trace.alive.clone());
        async move {
            let _alive = alive;
            let stop_trace = trace.clone();
            let stopped = async {
                stop.cancelled().await;
                stop_trace.record(Some(kind), What::SeesStop);
            };
            let mut stopped = std::pin::pin!(stopped);
            let by_itself = match end {
                End::Stopped(_) | End::Stuck => None,
                End::Done(after) | End::Fails(after) | End::Panics(after) => Some(after),
            };
            let own = async {
                match by_itself {
                    Some(after) => tokio::time::sleep(secs(after)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stopped => match end {
                    End::Stopped(after) => tokio::time::sleep(secs(after)).await,
                    End::Stuck => std::future::pending().await,
                    _ => {}
                },
                () = own => match end {
                    End::Fails(_) => {
                        trace.record(Some(kind), What::Fails);
                        return Err(BoxError::from("by itself"));
                    }
                    End::Panics(_) => {
                        trace.record(Some(kind), What::Fails);
                        std::panic::resume_unwind(Box::new("ouch".to_owned()));
                    }
                    _ => {}
                },
            }
            trace.record(Some(kind), What::Ends);
            Ok(())
        }
    };
    match kind {
        Kind::Server => Runnable::server(run),
        Kind::Webhook => Runnable::webhooks(run),
        Kind::Other => Runnable::new(run).needs_leader(false),
        Kind::WarmUp => Runnable::warm_up(|stop, _| run(stop)),
        Kind::Leader => Runnable::new(run),
    }
}

/// The election: acquired after this many seconds, lost after this many more; `None`: never.
type Campaign = (Option<u64>, Option<u64>);

fn election((won, lost): Campaign, trace: Trace) -> Election {
    let (leader_state, state) = watch::channel(LeaderState::Candidate);
    let run = move |stop: CancellationToken| async move {
        let campaign = async {
            let wait = async |after: Option<u64>| match after {
                // A quarter later, so that nothing else happens at the same moment.
                Some(after) => tokio::time::sleep(secs(after) + Duration::from_millis(250)).await,
                None => std::future::pending().await,
            };
            wait(won).await;
            trace.record(None, What::Elected);
            leader_state.send_replace(LeaderState::Leading);
            wait(lost).await;
            trace.record(None, What::Lost);
            leader_state.send_replace(LeaderState::Ended);
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => trace.record(None, What::Resigns),
            () = campaign => return Err(BoxError::from("another process holds the lease")),
        }
        Ok(())
    };
    Election { run: Box::new(move |stop| Box::pin(run(stop))), state }
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        5 => (0..4u64).prop_map(End::Stopped),
        2 => (0..40u64).prop_map(End::Done),
        1 => (0..40u64).prop_map(End::Fails),
        1 => (0..40u64).prop_map(End::Panics),
        1 => Just(End::Stuck),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    /// Each is added this many seconds after the start; `None`: before it.
    members: Vec<(usize, End, Option<u64>)>,
    election: Option<Campaign>,
    stop_after: u64,
    grace: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let member =
        (0..KINDS.len(), ends(), prop_oneof![3 => Just(None), 1 => (0..40u64).prop_map(Some)]);
    let campaign = (proptest::option::of(0..30u64), proptest::option::weighted(0.3, 1..20u64));
    (
        proptest::collection::vec(member, 0..12),
        proptest::option::of(campaign),
        1..40u64,
        prop_oneof![Just(0u64), 1..12u64],
    )
        .prop_map(|(members, election, stop_after, grace)| Case {
            members,
            election,
            stop_after,
            grace,
        })
}

/// Runs a case; returns the trace, the time at which `run` returned, and its result.
fn play(case: &Case) -> (Vec<Entry>, Instant, Result<(), ManagerError>, usize) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let trace = Trace::default();
        let mut manager = manager(Grace::Period(secs(case.grace)));
        manager.election = case.election.map(|campaign| election(campaign, trace.clone()));
        let handle = manager.handle();
        for (n, (kind, end, at)) in case.members.iter().enumerate() {
            if at.is_none() {
                let member = runnable(KINDS[*kind], *end, trace.clone());
                manager.add_runnable(format!("m{n}"), member).unwrap();
            }
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (n, (kind, end, at)) in case.members.iter().copied().enumerate() {
            let Some(at) = at else { continue };
            let (handle, trace) = (handle.clone(), trace.clone());
            tasks.spawn(async move {
                tokio::time::sleep(secs(at)).await;
                let member = runnable(KINDS[kind], end, trace);
                match handle.add_runnable(format!("m{n}"), member) {
                    Ok(()) | Err(AddError::Stopping { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            });
        }
        let (stopping, stop_trace, after) = (stop.clone(), trace.clone(), case.stop_after);
        tasks.spawn(async move {
            tokio::time::sleep(secs(after)).await;
            stop_trace.record(None, What::Stop);
            stopping.cancel();
        });
        let ended = manager.run(stop).await;
        let at = Instant::now();
        assert!(matches!(
            handle.add_task("late", async |_| Ok(())),
            Err(AddError::Stopping { .. })
        ));
        // Every task has been dropped by now, or is as soon as the runtime gets to it.
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(tasks);
        let entries = trace.entries.lock().clone();
        (entries, at, ended, trace.alive.load(Ordering::SeqCst))
    })
}

fn check(case: &Case) {
    let (entries, returned, ended, alive) = play(case);
    let find = |what| entries.iter().position(|entry| entry.what == what);
    let cause = [What::Stop, What::Fails, What::Lost].into_iter().filter_map(find).min();
    let began = cause.expect("each case stops");
    let was_elected = match case.election {
        None => true,
        Some(_) => find(What::Elected).is_some_and(|elected| elected < began),
    };

    // MGR-9, 15.1: no member starts after the stop has begun.
    let late: Vec<_> = entries[began..]
        .iter()
        .filter(|s| s.what == What::Starts && s.at > entries[began].at)
        .collect();
    assert!(late.is_empty(), "{late:?} start after the stop began");

    // MGR-1 to 6: members added before the start are started group by group.
    if case.members.iter().all(|(.., at)| at.is_none()) {
        let started: Vec<Kind> =
            entries.iter().filter(|s| s.what == What::Starts).filter_map(|s| s.kind).collect();
        assert!(started.is_sorted(), "{started:?}");
    }
    if !was_elected {
        let led = entries.iter().any(|s| s.what == What::Starts && s.kind == Some(Kind::Leader));
        assert!(!led, "the leader's members ran in a process that was never elected");
    }

    // MGR-20: a step of the stop begins when the members of the previous steps have ended.
    let mut running: Vec<u8> = Vec::new();
    for entry in &entries {
        let Some(step) = entry.kind.map(|kind| kind.stops_at(was_elected)) else { continue };
        match entry.what {
            What::Starts => running.push(step),
            What::Ends | What::Fails => {
                let of = running.iter().position(|running| *running == step).unwrap();
                running.swap_remove(of);
            }
            What::SeesStop => {
                let before: Vec<_> = running.iter().filter(|running| **running < step).collect();
                assert!(before.is_empty(), "step {step} stops while {before:?} run");
            }
            _ => {}
        }
    }
    if let Some(resigns) = find(What::Resigns) {
        let after = entries[resigns..].iter().find(|s| s.kind.is_some());
        assert!(after.is_none(), "{after:?} after the lease was given up");
    }

    // MGR-21: within the grace period, and nothing is left behind.
    let took = returned - entries[began].at;
    assert!(took <= secs(case.grace), "the stop took {took:?}");
    assert_eq!(alive, 0, "tasks outlive the manager");

    // MGR-8, 10, 22: the result.
    let first = entries[began].what;
    let stopped_at_once =
        find(What::Stop).is_some_and(|stop| entries[stop].at == entries[began].at);
    match (&ended, first) {
        (Err(ManagerError::LeadershipLost { .. }), What::Lost) => {
            assert_eq!(took, Duration::ZERO, "a lost leadership has no grace period");
        }
        (Err(ManagerError::GraceExpired { running, source, .. }), _) => {
            assert!(case.grace > 0 && took == secs(case.grace));
            assert!(!running.is_empty());
            let names: BTreeSet<_> = running.iter().collect();
            assert_eq!(names.len(), running.len());
            assert!(source.is_some() || stopped_at_once, "{ended:?}");
        }
        (Err(ManagerError::Member { .. } | ManagerError::Panic { .. }), What::Fails) => {}
        // The stop was handled first, and then the leadership was lost.
        (Err(ManagerError::LeadershipLost { .. }), What::Fails) => {
            assert!(stopped_at_once && find(What::Lost).is_some(), "{entries:?}");
        }
        // Stopped at the moment of a failure: either is seen first, and the failure is returned.
        (Err(_), What::Stop) => {
            let at = entries[began].at;
            let failed =
                entries.iter().any(|s| s.at >= at && matches!(s.what, What::Fails | What::Lost));
            assert!(failed, "{ended:?}");
        }
        (Ok(()), What::Stop) => {}
        // The stop came at the same moment, and was handled first.
        (Ok(()), _) => assert!(case.grace == 0 && stopped_at_once, "{entries:?}"),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn spec_15_1_start_and_stop_keep_their_order_whatever_fails(case in cases()) {
        check(&case);
    }
}

#[tokio::test(start_paused = true)]
async fn mgr_22_a_lost_leadership_ends_the_manager_at_once_with_the_elections_error() {
    let trace = Trace::default();
    let mut manager = manager(Grace::Unlimited);
    manager.election = Some(election((Some(3), Some(4)), trace.clone()));
    let elected = manager.elected();
    manager.add_runnable("stuck", runnable(Kind::Leader, End::Stuck, trace.clone())).unwrap();
    assert!(!elected.is_elected());
    let began = Instant::now();
    let error = manager.run(CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "leader election lost");
    assert_eq!(began.elapsed(), Duration::from_millis(7500));
    assert!(elected.is_elected(), "it was");
    tokio::task::yield_now().await;
    assert_eq!(trace.alive.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn le_17_elected_is_set_when_the_leaders_members_have_started() {
    let trace = Trace::default();
    let mut manager = manager(Grace::Unlimited);
    manager.election = Some(election((Some(3), None), trace.clone()));
    let handle = manager.handle();
    let at_start = Arc::new(Mutex::new(None));
    let (seen, of) = (at_start.clone(), handle.clone());
    manager
        .add_task("leads", move |stop| {
            *seen.lock() = Some(of.elected().is_elected());
            async move {
                stop.cancelled().await;
                Ok(())
            }
        })
        .unwrap();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    handle.elected().wait().await;
    assert_eq!(*at_start.lock(), Some(false), "it was called before");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(trace.entries.lock().last().unwrap().what, What::Resigns);
}

#[tokio::test(start_paused = true)]
async fn mgr_9_members_can_be_added_to_and_removed_from_a_running_manager() {
    let trace = Trace::default();
    let manager = manager(Grace::Unlimited);
    let handle = manager.handle();
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(manager.run(stop.clone()));
    handle.elected().wait().await;
    let add = |kind| handle.add_runnable("late", runnable(kind, End::Stopped(5), trace.clone()));
    let settle = || tokio::time::sleep(secs(1));
    for kind in KINDS {
        add(kind).unwrap();
        settle().await;
        assert_eq!(trace.alive.load(Ordering::SeqCst), 1, "{kind:?} runs at once");
        assert!(matches!(add(kind), Err(AddError::DuplicateName { .. })));
        assert!(handle.remove("late"));
        settle().await;
        assert!(matches!(add(kind), Err(AddError::DuplicateName { .. })), "it has not ended");
        tokio::time::sleep(secs(5)).await;
        assert!(!handle.remove("late"), "it has ended");
    }
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
    assert!(matches!(add(Kind::Leader), Err(AddError::Stopping { .. })));
}
